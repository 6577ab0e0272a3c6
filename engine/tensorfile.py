"""safetensors files written and read one tensor at a time, with a CRC-32 of each: no tensor is ever held twice.

safetensors' own writer wants all tensors at once, and what its reader maps stays in memory beside the copy made of it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

#: dtype -> its name in the format.
CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.uint8: "U8",
}  # fmt: skip
DTYPES = {str(dtype): dtype for dtype in CODES}
_BLOCK = 1 << 20

# Name -> "shape" (list), "dtype" (as torch names it) and "crc32" (eight hex digits) of a tensor.
Table = dict[str, dict[str, Any]]


def write_tensors(
    path: Path, table: Table, tensors: Iterable[tuple[str, Tensor]], metadata: Callable[[], Mapping[str, str]]
) -> int:
    """Write ``tensors``, as they come, and note their checksums in ``table``; returns the bytes of the file.

    ``table`` lists all of them beforehand; ``metadata()``, the header's strings, is asked for again when the checksums
    are known and must be as long as before. Flushed to disk on return. Raises OSError.
    """
    for entry in table.values():
        entry["crc32"] = "0" * 8
    places, size = _layout(table)
    room = len(_header(table, places, metadata()))
    with path.open("wb") as file:
        for name, tensor in tensors:
            assert [list(tensor.shape), str(tensor.dtype)] == [table[name]["shape"], table[name]["dtype"]], name
            file.seek(room + places[name][0])
            table[name]["crc32"] = _write(file, tensor)
        header = _header(table, places, metadata())
        assert len(header) == room
        file.seek(0)
        file.write(header)
        file.flush()
        os.fsync(file.fileno())
    return room + size


def read_tensor(stream: BinaryIO, start: int, target: Tensor) -> str:
    """Fill ``target``, a CPU tensor of any strides, with the bytes from ``start`` on; returns their checksum.

    Whoever asks compares it: where the file ends early, it is that of the bytes that were there.
    """
    stream.seek(start)
    crc = 0
    for block in _blocks(target):
        count = stream.readinto(block)  # type: ignore[attr-defined]
        crc = zlib.crc32(block[:count], crc)
    return f"{crc:08x}"


def _write(file: BinaryIO, tensor: Tensor) -> str:
    crc = 0
    for block in _blocks(tensor.cpu()):
        crc = zlib.crc32(block, crc)
        file.write(block)
    return f"{crc:08x}"


def _blocks(tensor: Tensor) -> Iterator[memoryview]:
    """The tensor's memory in order, in pieces that fit into a processor's cache: its checksum costs no second trip."""
    if not tensor.is_contiguous():
        for part in tensor:
            yield from _blocks(part)
    elif tensor.numel():
        whole = tensor.view(-1).view(torch.uint8).numpy().data  # a view of the bytes: numpy knows no bfloat16
        for start in range(0, len(whole), _BLOCK):
            yield whole[start : start + _BLOCK]


def _layout(table: Table) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each tensor's bytes lie behind the header, widest numbers first so that all are aligned; and the sum."""
    places, end = {}, 0
    for name in sorted(table, key=lambda name: (-DTYPES[table[name]["dtype"]].itemsize, name)):
        start, end = end, end + nbytes_of(table[name])
        places[name] = (start, end)
    return places, end


def nbytes_of(entry: Mapping[str, Any]) -> int:
    """Bytes of a tensor of the table."""
    size = DTYPES[entry["dtype"]].itemsize
    for count in entry["shape"]:
        size *= count
    return size


def _header(table: Table, places: Mapping[str, tuple[int, int]], metadata: Mapping[str, str]) -> bytes:
    entries = {
        name: {"dtype": CODES[DTYPES[table[name]["dtype"]]], "shape": table[name]["shape"], "data_offsets": place}
        for name, place in places.items()
    }
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
