"""One layer of a pot as tensors of a file, and back: the numbers as they are, rounded, or in few bits.

Keys and values in few bits are ``codes``, ``scale`` and ``zero`` of what stands behind the first entries, which a
tensor of their own keeps as they are. Where they came from is then kept small too, without loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.packing import Packing
from engine.quantised import CODE, SCALE, ZERO, Quantised, dequantise, quantise, shapes_of
from engine.tensorfile import DTYPES, Table

if TYPE_CHECKING:
    from engine.pot import PotLayer

NUMBERS = ("key", "value")
#: Along which axis keys and values are grouped: over entries, over channels.
AXES = {"key": 1, "value": 2}
_QUANTISED = {"": CODE, "_scale": SCALE, "_zero": ZERO}
_FRONT = "_front"
_INT32 = torch.iinfo(torch.int32)

# (name, tensor of the file's dtype and shape) -> None: fills the tensor, or raises PotDamaged.
Read = Callable[[str, Tensor], None]


def name_of(store: PotLayer, part: str) -> str:
    """The tensor's name in the file."""
    return f"layers.{store.spec.index}.{part}"


def names(store: PotLayer, packing: Packing | None) -> list[str]:
    """The names of the layer's tensors in the file."""
    packed = (*_QUANTISED, *([_FRONT] if packing and packing.front else []))
    suffixes = {part: packed if packing and part in NUMBERS else ("",) for part in store.tensors}
    return [name_of(store, part) + suffix for part in store.tensors for suffix in suffixes[part]]


def written(store: PotLayer, kind: torch.dtype, packing: Packing | None) -> Iterator[tuple[str, Tensor]]:
    """The layer's tensors by name, made as they are asked for; numbers that are not packed in the dtype ``kind``."""
    for part in store.tensors:
        name, used = name_of(store, part), getattr(store, part)[:, : store.length]
        if packing is None:
            yield name, used.to(kind) if part in NUMBERS else used
        elif part in NUMBERS:
            yield from _packed(name, part, used, packing)
        else:
            yield name, _small(used)


def described(store: PotLayer, kind: torch.dtype, packing: Packing | None) -> Table:
    """What ``written`` gives, as shapes and dtypes."""
    table = {}
    for part in store.tensors:
        name, used = name_of(store, part), getattr(store, part)[:, : store.length]
        if part not in NUMBERS:
            small = used if packing is None else _small(used)
            table[name] = _entry(small.shape, small.dtype)
        else:
            table |= _numbers(name, part, used.shape, kind if packing is None else used.dtype, packing)
    return table


def restore(store: PotLayer, table: Mapping[str, Any], packing: Packing | None, read: Read) -> None:
    """Fill the layer from tensors that ``table`` lists.

    Raises KeyError or ValueError where they are not those of such a layer; ``read`` raises for itself.
    """
    length = int(table[name_of(store, "token")]["shape"][1])
    if not store.holds(length):
        raise ValueError(f"{length} entries do not fit into layer {store.spec.index}")
    for part in store.tensors:
        name, target = name_of(store, part), getattr(store, part)[:, :length]
        if part not in NUMBERS:
            shapes = [list(target.shape)] if packing is None else [list(target.shape), [1, length]]
            _require(table[name]["shape"] in shapes, name)
            load(name, table[name], target, read)
            continue
        stored = DTYPES[table[name if packing is None or not packing.front else name + _FRONT]["dtype"]]
        for each, entry in _numbers(name, part, target.shape, stored, packing).items():
            _require({key: table[each][key] for key in entry} == entry, each)
        if packing is None:
            load(name, table[name], target, read)
        else:
            _unpack(name, part, target, table, packing, read)
    store.length = length


def _packed(name: str, part: str, used: Tensor, packing: Packing) -> Iterator[tuple[str, Tensor]]:
    parts = quantise(used[:, packing.front :], packing.bits, _group(part, packing), AXES[part])
    for suffix, tensor in zip(_QUANTISED, (parts.codes, parts.scale, parts.zero), strict=True):
        yield name + suffix, tensor
    if packing.front:
        yield name + _FRONT, used[:, : packing.front]


def _unpack(name: str, part: str, target: Tensor, table: Mapping[str, Any], packing: Packing, read: Read) -> None:
    tensors = []
    for suffix, dtype in _QUANTISED.items():
        tensor = torch.empty(table[name + suffix]["shape"], dtype=dtype)
        read(name + suffix, tensor)
        tensors.append(tensor.to(target.device))
    dequantise(Quantised(*tensors), packing.bits, _group(part, packing), AXES[part], target[:, packing.front :])
    if packing.front:
        load(name + _FRONT, table[name + _FRONT], target[:, : packing.front], read)


def load(name: str, entry: Mapping[str, Any], target: Tensor, read: Read) -> None:
    """Read into place where the file holds just what the layer does, else by way of a copy."""
    dtype = DTYPES[entry["dtype"]]
    _require(dtype.is_floating_point == target.is_floating_point(), name, "dtype")
    if target.device.type == "cpu" and (dtype, entry["shape"]) == (target.dtype, list(target.shape)):
        read(name, target)
        return
    scratch = torch.empty(entry["shape"], dtype=dtype)
    read(name, scratch)
    target.copy_(scratch)


def _numbers(name: str, part: str, shape: torch.Size, kind: torch.dtype, packing: Packing | None) -> Table:
    """The tensors that keys or values [H, n, D] become."""
    if packing is None:
        return {name: _entry(shape, kind)}
    heads, length, size = shape
    front = min(packing.front, length)
    codes, groups = shapes_of((heads, length - front, size), packing.bits, _group(part, packing), AXES[part])
    shapes = zip(_QUANTISED.items(), (codes, groups, groups), strict=True)
    table = {name + suffix: _entry(each, dtype) for (suffix, dtype), each in shapes}
    return table | ({name + _FRONT: _entry((heads, front, size), kind)} if packing.front else {})


def _group(part: str, packing: Packing) -> int:
    return packing.key_group if part == "key" else packing.value_group


def _small(tensor: Tensor) -> Tensor:
    """Provenance [H, n] without loss: one row [1, n] where all heads hold the same, four bytes where numbers fit."""
    if tensor.shape[0] > 1 and bool((tensor == tensor[:1]).all()):
        tensor = tensor[:1]
    fits = tensor.dtype == torch.int64 and bool(((tensor >= _INT32.min) & (tensor <= _INT32.max)).all())
    return tensor.to(torch.int32) if fits else tensor


def _entry(shape: Any, dtype: torch.dtype) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": str(dtype)}


def _require(condition: bool, name: str, what: str = "shape") -> None:
    if not condition:
        raise ValueError(f"{name} has the wrong {what}")
