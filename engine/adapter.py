"""Adapters: low-rank changes to a model's weights, merged once when the model is converted; nothing stays at run time.

The file is safetensors: for each linear layer NAME, ``NAME.lora_a`` [rank, in] and ``NAME.lora_b`` [out, rank].
Metadata: ``format``, ``scale`` (the change is scale * B A), ``base`` (JSON: layer name -> ``weight_print`` of the
weights it was trained on), and what it was made from, for people.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import ModelError

FORMAT = "infinipot-adapter-1"
_WEIGHT = ".weight"


def weight_print(weight: Tensor) -> str:
    """CRC-32 of a weight as float16, the precision that converted models are kept in: the same from any dtype above."""
    return f"{zlib.crc32(weight.detach().to('cpu', torch.float16).contiguous().numpy().tobytes()):08x}"


class Merge:
    """A weight transform for ``engine.convert``: W + scale * B A for the layers of the adapter, W for all others.

    W is the weight as float16, the precision that it is kept in and was trained with; so it does not matter whether
    a model is merged on its way from its source or later, from its converted folder: the result is the same.
    Call it once for every parameter of the model, then ``require_complete``.
    """

    def __init__(self, factors: Mapping[str, tuple[Tensor, Tensor]], scale: float, base: Mapping[str, str]) -> None:
        self._factors = factors
        self._scale = scale
        self._base = base
        self.waiting = set(factors)

    def __call__(self, name: str, weight: Tensor) -> Tensor:
        """The merged weight [out, in], float32. Raises ModelError if it is not the one the adapter was trained on."""
        layer = name.removesuffix(_WEIGHT)
        if layer not in self._factors or not name.endswith(_WEIGHT):
            return weight
        a, b = self._factors[layer]
        if weight.shape != (b.shape[0], a.shape[1]):
            raise ModelError(f"the adapter does not fit {name}: {_size(weight)} against {b.shape[0]}x{a.shape[1]}")
        if weight_print(weight) != self._base[layer]:
            raise ModelError(f"the adapter was trained on other weights than this model's {name}")
        self.waiting.discard(layer)
        change = b.to(weight.device, torch.float32) @ a.to(weight.device, torch.float32)
        return weight.to(torch.float16).float() + self._scale * change

    def require_complete(self) -> None:
        """Raise ModelError if a layer of the adapter was not met: the model is another one."""
        if self.waiting:
            raise ModelError(f"this model has no {min(self.waiting)}, which the adapter changes")


def merge_transform(path: Path) -> Merge:
    """The adapter in ``path`` as a weight transform. Raises ModelError if the file is none or is damaged."""
    about, tensors = _read(path)
    try:
        base = json.loads(about["base"])
        names = {name.rpartition(".")[0] for name in tensors}
        factors = {name: (tensors[f"{name}.lora_a"], tensors[f"{name}.lora_b"]) for name in names}
        scale = float(about["scale"])
    except (KeyError, ValueError) as error:
        raise ModelError(f"{path.name} is not a whole adapter: {error}") from error
    for name, (a, b) in factors.items():
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1] or name not in base:
            raise ModelError(f"{path.name} is not a whole adapter: {name}")
    return Merge(factors, scale, base)


def adapter_info(path: Path) -> dict[str, str]:
    """What an adapter says of itself. Raises ModelError."""
    return _read(path, tensors=False)[0]


def _read(path: Path, tensors: bool = True) -> tuple[dict[str, str], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = file.metadata() or {}
            if about.get("format") != FORMAT:
                raise ModelError(f"{path.name} is not an adapter of this version ({FORMAT})")
            return about, {name: file.get_tensor(name) for name in file.keys()} if tensors else {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read the adapter {path}: {error}") from error


def _size(tensor: Tensor) -> str:
    return "x".join(str(length) for length in tensor.shape)
