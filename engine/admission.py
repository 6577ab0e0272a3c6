"""Admission by proof: a model is read with the pot only after it was seen to give the stock model's numbers.

There is no list of architectures. A probe finds out, layer by layer, what attention is handed; then a few dozen
tokens go through the stock model and through a pot that evicts nothing, and keys, logits and novelty must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache

from engine import rope
from engine.attention import LayerSpec
from engine.errors import ModelError, first_line
from engine.forward import attention_by, forward
from engine.novelty import novelty
from engine.pot import Pot
from engine.pour import rotated_keys
from engine.rope import RotaryCall, RotaryKey
from engine.settings import PotSettings

if TYPE_CHECKING:
    from engine.model import Model

PROOF_TOKENS = 48
# Largest allowed mean difference of the logits over their standard deviation, and of keys over theirs. Rounding
# alone stays two orders below; a wrong rotation or mask is of the order of one.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
_PROBE = "infinipot_probe"
_ELSEWHERE = "its attention or positions work in a way that infinipot does not reproduce; choose another model"


class _Probe:
    """Records what every attention layer is called with."""

    def __init__(self) -> None:
        self.calls: dict[int, tuple[nn.Module, Tensor, Tensor, Tensor, dict[str, Any]]] = {}

    def __call__(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, None]:
        self.calls[int(module.layer_idx)] = (module, query, key, value, options)
        groups = query.shape[1] // key.shape[1]
        mixed = value.mean(2, keepdim=True).repeat_interleave(groups, dim=1).expand(-1, -1, query.shape[2], -1)
        return mixed.transpose(1, 2).contiguous(), None


def _run_probe(base: nn.Module, zeroed: RotaryKey | None, seen: dict[RotaryKey, RotaryCall]) -> _Probe:
    """One forward of two tokens in which rotary calls answer cos = 1, or 0 for the ``zeroed`` one; sin = 0."""
    probe = _Probe()
    AttentionInterface.register(_PROBE, probe)

    def answer(key: RotaryKey, original: RotaryCall, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        seen[key] = original
        cos, sin = original(x, positions)
        return torch.full_like(cos, 0.0 if key == zeroed else 1.0), torch.zeros_like(sin)

    ids = torch.tensor([[1, 2]], device=next(base.parameters()).device)
    with rope.replaced_rotary(base, answer), attention_by(base, _PROBE):
        base(input_ids=ids, use_cache=False)
    return probe


@torch.inference_mode()
def probe_layers(base: nn.Module) -> tuple[list[LayerSpec], dict[RotaryKey, RotaryCall]]:
    """Which layers attend, in what shape, through which window, and with which rotary call (None: no RoPE)."""
    with _refusing(type(base).__name__):
        return _probed(base)


def _probed(base: nn.Module) -> tuple[list[LayerSpec], dict[RotaryKey, RotaryCall]]:
    calls: dict[RotaryKey, RotaryCall] = {}
    plain = _run_probe(base, None, calls)
    if not plain.calls:
        raise ModelError("the model does not call transformers' attention interface")
    if not calls:
        raise ModelError("the model has no rotary position embedding, which the method needs")
    uses: dict[int, RotaryKey] = {}
    for key in list(calls):
        for index, (_, _, keys, _, _) in _run_probe(base, key, {}).calls.items():
            # With cos = sin = 0, the rotated part of a key vanishes; no other cause makes exact zeros.
            if bool((keys == 0).all(2).any()):
                uses[index] = key
    layers = [_spec(index, call, uses.get(index), calls) for index, call in sorted(plain.calls.items())]
    return layers, calls


def _spec(index: int, call: tuple[Any, ...], key: RotaryKey | None, calls: dict[RotaryKey, RotaryCall]) -> LayerSpec:
    module, query, keys, value, options = call
    rotate = None
    if key is not None:
        rotate = _working_rotation(module, keys, calls[key](keys, torch.arange(2, device=keys.device)[None])[0])
    return LayerSpec(
        index=index,
        query_heads=query.shape[1],
        kv_heads=keys.shape[1],
        key_dim=keys.shape[3],
        value_dim=value.shape[3],
        window=options.get("sliding_window"),
        rotary=key,
        rotate=rotate,
    )


def _working_rotation(module: nn.Module, keys: Tensor, cos: Tensor) -> rope.Rotation:
    """The layer's rotation, on whole heads if it takes them, else on the rotary part."""
    rotate = rope.rotation_of(module)
    if rotate is None:
        raise ModelError(f"{type(module).__name__} has no rotation that the pot can call")
    for candidate in (rotate, rope.partial(rotate)):
        try:
            if candidate(keys, cos, cos).shape == keys.shape:
                return candidate
        except (RuntimeError, IndexError, ValueError, TypeError):
            continue
    raise ModelError(f"{type(module).__name__} rotates its keys in a way the pot cannot follow")


def prove(model: Model) -> None:
    """Raise ModelError unless keys, logits and novelty through the pot equal the stock model's."""
    name = f"{model.name} ({model.architecture})"
    with _refusing(name):
        differences = _differences(model)
    tolerance = TOLERANCE.get(model.dtype, 1e-3)
    for what, difference in differences.items():
        if not difference <= tolerance:
            raise ModelError(
                f"{name} cannot be read with a pot: its {what} differ from the stock "
                f"model's by {difference:.2g} (allowed: {tolerance:.0e})",
                hint=_ELSEWHERE,
            )


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Whatever a model raises when it is tried is a reason to refuse it."""
    try:
        yield
    except (ModelError, MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise ModelError(f"{name} cannot be read with a pot: {first_line(error)}", hint=_ELSEWHERE) from error


@torch.inference_mode()
def _differences(model: Model) -> dict[str, float]:
    """How far the pot's numbers are from the stock model's, on tokens picked at random."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.vocabulary, (PROOF_TOKENS,), generator=generator)
    cache = DynamicCache(config=model.module.config)
    stock = model.module(input_ids=ids[None].to(model.device), past_key_values=cache, use_cache=True).logits[0].float()
    settings = PotSettings(capacity=PROOF_TOKENS + 2, distilled=1)
    pot = Pot(model.layers, settings, model.device, model.dtype)
    cut = PROOF_TOKENS // 2 + 1
    hidden = torch.cat([forward(model, pot, part)[0] for part in (ids[:cut], ids[cut:])])
    ours = model.logits(hidden).float()
    return {
        "logits": _difference(ours, stock),
        "keys": max(_key_difference(model, pot, cache), default=0.0),
        "novelty": _difference(
            novelty(model, hidden[:-1], ids[1:]),
            -stock[:-1].log_softmax(-1).gather(1, ids[1:, None].to(model.device))[:, 0],
        ),
    }


def _difference(ours: Tensor, stock: Tensor) -> float:
    """Mean absolute difference over the standard deviation of the stock values."""
    return float((ours - stock).abs().mean() / stock.std().clamp_min(1e-6))


def _key_difference(model: Model, pot: Pot, cache: DynamicCache) -> list[float]:
    """Per layer, the pot's keys rotated by slot against the keys in a stock cache."""
    rotated = rotated_keys(model, pot)
    differences = []
    for index in pot.stores:
        stock = cache.layers[index].keys[0]
        differences.append(_difference(rotated[index][:, -stock.shape[1] :].float(), stock.float()))
    return differences
