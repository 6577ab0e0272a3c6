"""Pot files: one safetensors file, no pickle, every byte of meaning under a checksum. See docs/pot-format.md.

The header alone says what the pot is and which model it belongs to; reading it needs no torch.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from engine.errors import PotDamaged, PotMismatch
from engine.packing import DEFAULT_DTYPE, PACKINGS, require_dtype
from engine.potheader import PotInfo, PotMeta, info_of, metadata_of, opened

if TYPE_CHECKING:
    from torch import Tensor

    from engine.model import Model
    from engine.pot import Pot
    from engine.stored import Read
    from engine.tensorfile import Table

_COPY_BYTES = 1 << 20
_TOKENS = re.compile(r"layers\.(\d+)\.token")


def save_pot(
    pot: Pot, target: str | Path | BinaryIO, *, model: Model, meta: PotMeta, dtype: str = DEFAULT_DTYPE
) -> int:
    """Write a pot to a path or a binary stream; returns the bytes written.

    ``dtype`` is one of ``engine.packing.POT_DTYPES``. A path is written beside itself first, flushed to disk and
    renamed, mode 0600: there is never half a pot. Raises SettingsError for an unknown dtype, OSError as the disk gives
    it.
    """
    writer = _Writer(pot, model, meta, require_dtype(dtype))
    if isinstance(target, (str, Path)):
        with replacing(Path(target)) as temporary:
            return writer.write(temporary)
    with tempfile.TemporaryDirectory(prefix="infinipot-") as folder:
        temporary = Path(folder) / "pot"
        size = writer.write(temporary)
        with temporary.open("rb") as stream:
            while block := stream.read(_COPY_BYTES):
                target.write(block)
        target.flush()
    return size


def load_pot(path: str | Path, model: Model) -> tuple[Pot, PotMeta]:
    """The pot in a file, every checksum verified, ready for ``model``.

    Raises PotDamaged for a file that is not a sound pot, PotMismatch for one that belongs to another model.
    """
    from engine.pot import Pot

    info = read_info(path)
    _require_same_model(info, model)
    pot = Pot(model.layers, info.settings, model.device, model.dtype)
    pot.protected, pot.tokens_read, pot.cycles = info.protected, info.tokens_read, info.cycles
    with Path(path).open("rb") as stream:
        _fill(pot, info, _checking(stream, info, path), path)
    lengths = {store.length for store in pot.distilled_stores} or {pot.entries}
    if lengths != {info.entries} or not pot.fits(0):
        raise PotDamaged(f"{path} contradicts itself about its entries")
    return pot, info.meta


def read_info(path: str | Path) -> PotInfo:
    """The header of a pot file, checked; the tensors are not read. Raises PotDamaged."""
    with opened(path) as file:
        return info_of(file, path)


def verify_pot(path: str | Path) -> PotInfo:
    """Check every checksum of a pot file, block by block, without a model or torch. Raises PotDamaged."""
    info = read_info(path)
    with Path(path).open("rb") as stream:
        for name, (start, size) in _data_ranges(stream).items():
            if _crc_of_range(stream, start, size) != info.tensors[name]["crc32"]:
                raise PotDamaged(f"{path} is damaged: {name} does not match its checksum")
    return info


def read_provenance(path: str | Path) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Layer by layer, where its entries came from: ``token``, ``position`` and ``place``, int64 [H, n], read-only.

    Neither keys nor values are read, and no torch; what is read is checked. Raises PotDamaged.
    """
    with opened(path) as file:
        info = info_of(file, path)
        layers = (_TOKENS.fullmatch(name) for name in info.tensors)
        for index in sorted(int(match[1]) for match in layers if match):
            names = {part: f"layers.{index}.{part}" for part in ("token", "position", "place")}
            parts = {part: _checked(file, name, info, path) for part, name in names.items()}
            if len({part.shape for part in parts.values()}) > 1:
                raise PotDamaged(f"{path} contradicts itself about the entries of layer {index}")
            yield index, parts


def _checked(file: Any, name: str, info: PotInfo, path: str | Path) -> np.ndarray:
    if name not in info.tensors:
        raise PotDamaged(f"{path} is damaged: {name} is missing")
    array: np.ndarray = file.get_tensor(name)
    if f"{zlib.crc32(np.ascontiguousarray(array).data):08x}" != info.tensors[name]["crc32"] or array.dtype.kind != "i":
        raise PotDamaged(f"{path} is damaged: {name} does not match its checksum")
    heads = info.tensors.get(name.rpartition(".")[0] + ".key", {"shape": []})["shape"][:1]
    if array.ndim != 2 or not heads or list(array.shape[:1]) not in ([1], heads):
        raise PotDamaged(f"{path} is damaged: {name} has the wrong shape")
    return np.broadcast_to(array.astype(np.int64, copy=False), (*heads, array.shape[1]))


def _data_ranges(stream: BinaryIO) -> dict[str, tuple[int, int]]:
    """Where each tensor's bytes lie: name -> (start in the file, size). The header was validated before."""
    length = int.from_bytes(stream.read(8), "little")
    header = json.loads(stream.read(length))
    offsets = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (8 + length + begin, end - begin) for name, (begin, end) in offsets.items()}


def _crc_of_range(stream: BinaryIO, start: int, size: int) -> str:
    stream.seek(start)
    crc = 0
    while size > 0:
        block = stream.read(min(size, _COPY_BYTES))
        if not block:
            break
        crc = zlib.crc32(block, crc)
        size -= len(block)
    return f"{crc:08x}"


class _Writer:
    """A pot on its way into a file, layer by layer."""

    def __init__(self, pot: Pot, model: Model, meta: PotMeta, dtype: str) -> None:
        import torch

        from engine.stored import described

        self._pot, self._model, self._meta = pot, model, meta
        self._packing = PACKINGS.get(dtype)
        self._kind = torch.bfloat16 if dtype == "bf16" else model.dtype
        self._dtype = str(self._kind).removeprefix("torch.") if self._packing is None else dtype
        self._table: Table = {}
        for store in pot.stores.values():
            self._table |= described(store, self._kind, self._packing)
        if pot.last_hidden is not None:
            self._table["last_hidden"] = {"shape": list(pot.last_hidden.shape), "dtype": str(pot.last_hidden.dtype)}

    def write(self, path: Path) -> int:
        """Write the file, flushed to disk; returns its bytes."""
        from engine.tensorfile import write_tensors

        return write_tensors(path, self._table, self._tensors(), self._metadata)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        from engine.stored import written

        for store in self._pot.stores.values():
            yield from written(store, self._kind, self._packing)
        if self._pot.last_hidden is not None:
            yield "last_hidden", self._pot.last_hidden

    def _metadata(self) -> dict[str, str]:
        pot, packing = self._pot, self._packing
        content = {
            "identity": self._model.identity.to_dict(),
            "settings": pot.settings.to_dict(),
            "meta": asdict(self._meta),
            "dtype": self._dtype,
            "protected": pot.protected,
            "tokens_read": pot.tokens_read,
            "cycles": pot.cycles,
            "taken": pot.taken,
            "entries": pot.entries,
            "nbytes": self._nbytes(),
            "tensors": self._table,
        } | ({} if packing is None else {"packing": asdict(packing)})
        return metadata_of(content, packed=packing is not None)

    def _nbytes(self) -> int:
        from engine.stored import NUMBERS
        from engine.tensorfile import nbytes_of

        numbers = (name for name in self._table if name.rpartition(".")[2].startswith(NUMBERS))
        return sum(nbytes_of(self._table[name]) for name in numbers)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file in the same folder that takes the place of ``path`` when all went well, and vanishes if not."""
    # Not named after the file: its name may be as long as names can be.
    handle, name = tempfile.mkstemp(prefix=".infinipot-", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o600)  # a pot can contain the text
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _checking(stream: BinaryIO, info: PotInfo, path: str | Path) -> Read:
    """What fills a tensor from the file and compares its checksum."""
    from engine.tensorfile import read_tensor

    places = _data_ranges(stream)

    def read(name: str, target: Tensor) -> None:
        found = {"shape": list(target.shape), "dtype": str(target.dtype), "crc32": None}
        if places[name][1] == target.nbytes:
            found["crc32"] = read_tensor(stream, places[name][0], target)
        if found != info.tensors[name]:
            raise PotDamaged(f"{path} is damaged: {name} does not match its checksum")

    return read


def _fill(pot: Pot, info: PotInfo, read: Read, path: str | Path) -> None:
    """Fill the pot from the file, layer by layer. Raises PotDamaged."""
    from engine.stored import load, names, restore

    expected = {name for store in pot.stores.values() for name in names(store, info.packing)} | {"last_hidden"}
    if set(info.tensors) | {"last_hidden"} != expected:
        raise PotDamaged(f"{path} does not hold the layers that its model has")
    try:
        for store in pot.stores.values():
            restore(store, info.tensors, info.packing, read)
            store.next = info.taken
        if "last_hidden" in info.tensors:
            entry, like = info.tensors["last_hidden"], next(iter(pot.stores.values())).key
            pot.last_hidden = like.new_empty(entry["shape"])
            load("last_hidden", entry, pot.last_hidden, read)
    except (LookupError, TypeError, ValueError) as error:
        raise PotDamaged(f"{path} is damaged: {error}") from error


def _require_same_model(info: PotInfo, model: Model) -> None:
    differences = info.identity.differences(model.identity)
    made, here = info.identity.name, model.identity.name
    if differences:
        other = f"another version of {here}" if made == here else f"{made}, not with {here}"
        hint = "make the pot again" if made == here else f"use --model {made}, or make the pot again"
        raise PotMismatch(f"this pot was made with {other} (they differ in {', '.join(differences)})", hint=hint)
