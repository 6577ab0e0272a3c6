"""What a model is, as fingerprints: two models of the same shape must not be taken for each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

# Values sampled per weight tensor: enough to tell any fine-tune apart, cheap on the largest model.
SAMPLES = 64
# Parts of a config that say where a model came from or how it runs, not what it computes.
_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "_attn_implementation")


@dataclass(frozen=True)
class Identity:
    """Name and revision for people; hex fingerprints for the comparison."""

    name: str
    revision: str | None
    architecture: str
    config: str
    tokenizer: str
    template: str
    weights: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def differences(self, other: Identity) -> list[str]:
        """In which parts that matter ``other`` differs; names and revisions do not matter."""
        parts = ("architecture", "config", "weights", "tokenizer", "template")
        return [part for part in parts if getattr(self, part) != getattr(other, part)]


def identify(
    name: str, revision: str | None, module: Any, tokenizer: Any, known: MutableMapping[str, str] | None = None
) -> Identity:
    """The identity of a loaded model; cheap (a few values per tensor) but for a tokenizer that is not ``known``."""
    return Identity(
        name=name,
        revision=revision,
        architecture=type(module).__name__,
        config=config_fingerprint(module),
        tokenizer=tokenizer_fingerprint(tokenizer, known),
        template=_digest(json.dumps(tokenizer.chat_template, sort_keys=True)),
        weights=weights_fingerprint(module),
    )


def config_fingerprint(module: Any) -> str:
    """Hash of what a model's config says that it computes."""
    return _digest(_stable_config(module.config.to_dict()))


def weights_fingerprint(module: nn.Module) -> str:
    """Hash of values sampled from every tensor, rounded to bfloat16 so that the loading dtype does not matter."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        picks = torch.linspace(0, flat.numel() - 1, min(SAMPLES, flat.numel()), device=flat.device, dtype=torch.float64)
        values = flat[picks.long()]
        values = values.to(torch.bfloat16).view(torch.int16) if values.is_floating_point() else values.to(torch.int64)
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(values.cpu().numpy().tobytes())
    return digest.hexdigest()


def _stable_config(value: Any) -> str:
    def clean(part: Any) -> Any:
        if isinstance(part, dict):
            return {str(k): clean(v) for k, v in part.items() if k not in _VOLATILE}
        if isinstance(part, (list, tuple)):
            return [clean(v) for v in part]
        return part

    return json.dumps(clean(value), sort_keys=True, default=str)


def tokenizer_fingerprint(tokenizer: Any, known: MutableMapping[str, str] | None = None) -> str:
    """Hash of a tokenizer of transformers, or of the ``tokenizers`` one beneath it.

    Sorting its JSON takes a third of a second for 50,000 tokens: ``known`` remembers results, by the hash of what the
    tokenizer says unsorted.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer if hasattr(tokenizer, "to_str") else None)
    if backend is None:
        return _digest(json.dumps(tokenizer.get_vocab(), sort_keys=True))
    text = backend.to_str()
    known = {} if known is None else known
    key = _digest(text)
    if key not in known:
        known[key] = _digest(json.dumps({**json.loads(text), "truncation": None, "padding": None}, sort_keys=True))
    return known[key]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
