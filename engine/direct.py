"""Load a model folder that holds exactly what its own code expects: no renaming, nothing to make up.

transformers' loader knows how to rename, split and merge the weights of every model it has ever read, and prepares for
all of them before it looks at the file. Where each name and shape in the file is one of the model's own, the weights
are simply put in. Anything else is left to that loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.folders import MANIFEST

WEIGHTS = "model.safetensors"
#: What a folder may also hold that changes how it must be loaded.
_OTHERWISE = ("adapter_config.json", "model.safetensors.index.json")


def load_folder(folder: Path, dtype: torch.dtype) -> Any | None:
    """The causal model in a folder that was converted here, on the CPU in ``dtype``; None where it is not as simple as
    that. Raises what transformers raises for a config it cannot read."""
    if not (folder / MANIFEST).is_file() or any((folder / name).exists() for name in _OTHERWISE):
        return None
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    if getattr(config, "quantization_config", None) is not None:
        return None
    with _unfilled():
        module = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    if _keeps_float32(module) or not _fill(module, folder / WEIGHTS, dtype):
        return None
    if (folder / "generation_config.json").is_file():
        module.generation_config = GenerationConfig.from_pretrained(str(folder), local_files_only=True)
    return module.eval()


def _keeps_float32(module: Any) -> bool:
    """Whether some weights stay in float32 whatever the rest runs in."""
    names = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")
    return any(getattr(module, name, None) for name in names)


def _fill(module: nn.Module, path: Path, dtype: torch.dtype) -> bool:
    """Put the file's weights into the model; False, with nothing done, unless they are the model's own to a name."""
    from safetensors import safe_open

    module.tie_weights()  # type: ignore[operator]
    own = module.state_dict(keep_vars=True)
    with safe_open(str(path), framework="pt") as file:
        stored = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (not a dict)
        if not _covers(own, stored):
            return False
        weights = {name: file.get_tensor(name) for name in stored}
    given = {name: weight.to(dtype) if weight.is_floating_point() else weight for name, weight in weights.items()}
    module.load_state_dict(given, strict=False, assign=True)
    module.tie_weights()  # type: ignore[operator]  # the other names of what has just been replaced
    return True


def _covers(own: dict[str, Tensor], stored: dict[str, list[int]]) -> bool:
    """Whether the file has each of the model's tensors once, in its shape and kind, and no others. A tied tensor has
    several names in the model, and one of them in the file."""
    if not all(name in own and list(own[name].shape) == shape for name, shape in stored.items()):
        return False
    if not all(tensor.is_floating_point() for tensor in own.values()):
        return False
    found = {id(own[name]) for name in stored}
    return found == {id(tensor) for tensor in own.values()}


@contextmanager
def _unfilled() -> Iterator[None]:
    """Models made within it have no values in their weights: all come from a file."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        yield
