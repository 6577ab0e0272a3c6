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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from engine.errors import PotDamaged, PotMismatch, SettingsError
from engine.identity import Identity
from engine.settings import PotSettings

if TYPE_CHECKING:
    import torch

    from engine.model import Model
    from engine.pot import Pot, PotLayer

FORMAT = "infinipot-pot"
VERSION = 1
_COPY_BYTES = 1 << 20
_TOKENS = re.compile(r"layers\.(\d+)\.token")


@dataclass(frozen=True)
class PotMeta:
    """What the maker of a pot wants to remember: sources, catalyst and task by name, the text around the document."""

    sources: list[dict[str, Any]] = field(default_factory=list)
    catalyst: dict[str, Any] = field(default_factory=dict)
    prompt: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    created_by: str = ""
    note: str = ""


@dataclass(frozen=True)
class PotInfo:
    """The header of a pot file."""

    version: int
    identity: Identity
    settings: PotSettings
    meta: PotMeta
    dtype: str
    protected: int
    tokens_read: int
    cycles: int
    entries: int
    nbytes: int
    tensors: dict[str, dict[str, Any]]
    taken: int = 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the tensor table."""
        return {key: value for key, value in asdict(self).items() if key != "tensors"}


def save_pot(pot: Pot, target: str | Path | BinaryIO, *, model: Model, meta: PotMeta) -> int:
    """Write a pot to a path or a binary stream; returns the bytes written.

    A path is written beside itself first, flushed to disk and renamed, mode 0600: there is never half a pot.
    Raises OSError as the disk gives it.
    """
    tensors = _tensors(pot)
    metadata = _metadata(pot, model, meta, tensors)
    if isinstance(target, (str, Path)):
        with replacing(Path(target)) as temporary:
            return _write(tensors, metadata, temporary)
    with tempfile.TemporaryDirectory(prefix="infinipot-") as folder:
        temporary = Path(folder) / "pot"
        size = _write(tensors, metadata, temporary)
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

    with _opened(path) as file:
        info = _info(file, path)
        _require_same_model(info, model)
        pot = Pot(model.layers, info.settings, model.device, model.dtype)
        pot.protected, pot.tokens_read, pot.cycles = info.protected, info.tokens_read, info.cycles
        expected = {name for store in pot.stores.values() for name in _names(store)} | {"last_hidden"}
        if set(info.tensors) | {"last_hidden"} != expected:
            raise PotDamaged(f"{path} does not hold the layers that its model has")
        for store in pot.stores.values():
            _fill(store, file, info, path)
            store.next = info.taken
        if "last_hidden" in info.tensors:
            pot.last_hidden = _tensor(file, "last_hidden", info, path).to(model.device, model.dtype)
    lengths = {store.length for store in pot.distilled_stores} or {pot.entries}
    if lengths != {info.entries} or not pot.fits(0):
        raise PotDamaged(f"{path} contradicts itself about its entries")
    return pot, info.meta


def read_info(path: str | Path) -> PotInfo:
    """The header of a pot file, checked; the tensors are not read. Raises PotDamaged."""
    with _opened(path, "np") as file:
        return _info(file, path)


def verify_pot(path: str | Path) -> PotInfo:
    """Check every checksum of a pot file, block by block, without a model or torch. Raises PotDamaged."""
    info = read_info(path)
    with Path(path).open("rb") as stream:
        for name, (start, size) in _data_ranges(stream).items():
            if _crc_of_range(stream, start, size) != info.tensors[name]["crc32"]:
                raise PotDamaged(f"{path} is damaged: {name} does not match its checksum")
    return info


def read_provenance(path: str | Path) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Layer by layer, where its entries came from: ``token``, ``position`` and ``place``, int64 [H, n].

    Neither keys nor values are read, and no torch; what is read is checked. Raises PotDamaged.
    """
    with _opened(path, "np") as file:
        info = _info(file, path)
        layers = (_TOKENS.fullmatch(name) for name in info.tensors)
        for index in sorted(int(match[1]) for match in layers if match):
            names = {part: f"layers.{index}.{part}" for part in ("token", "position", "place")}
            parts = {part: _checked(file, name, info, path) for part, name in names.items()}
            if len({part.shape for part in parts.values()}) > 1 or parts["token"].ndim != 2:
                raise PotDamaged(f"{path} contradicts itself about the entries of layer {index}")
            yield index, parts


def _checked(file: Any, name: str, info: PotInfo, path: str | Path) -> np.ndarray:
    if name not in info.tensors:
        raise PotDamaged(f"{path} is damaged: {name} is missing")
    array: np.ndarray = file.get_tensor(name)
    if f"{zlib.crc32(np.ascontiguousarray(array).data):08x}" != info.tensors[name]["crc32"] or array.dtype != np.int64:
        raise PotDamaged(f"{path} is damaged: {name} does not match its checksum")
    return array


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


def _tensors(pot: Pot) -> dict[str, torch.Tensor]:
    tensors = {}
    for store in pot.stores.values():
        for name, part in _names(store).items():
            tensors[name] = getattr(store, part)[:, : store.length].cpu().contiguous()
    if pot.last_hidden is not None:
        tensors["last_hidden"] = pot.last_hidden.cpu().contiguous()
    return tensors


def _names(store: PotLayer) -> dict[str, str]:
    return {f"layers.{store.spec.index}.{part}": part for part in store.tensors}


def _metadata(pot: Pot, model: Model, meta: PotMeta, tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    content = {
        "identity": model.identity.to_dict(),
        "settings": pot.settings.to_dict(),
        "meta": asdict(meta),
        "dtype": str(model.dtype).removeprefix("torch."),
        "protected": pot.protected,
        "tokens_read": pot.tokens_read,
        "cycles": pot.cycles,
        "taken": pot.taken,
        "entries": pot.entries,
        "nbytes": pot.nbytes,
        "tensors": {
            name: {"shape": list(t.shape), "dtype": str(t.dtype), "crc32": _crc(t)} for name, t in tensors.items()
        },
    }
    text = json.dumps(content, sort_keys=True)
    return {"format": FORMAT, "format_version": str(VERSION), "pot": text, "crc32": f"{zlib.crc32(text.encode()):08x}"}


def _crc(tensor: torch.Tensor) -> str:
    import torch

    # A view of the bytes: numpy knows no bfloat16.
    return f"{zlib.crc32(tensor.contiguous().flatten().view(torch.uint8).numpy().data):08x}"


def _write(tensors: dict[str, torch.Tensor], metadata: dict[str, str], path: Path) -> int:
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:  # safetensors wraps the disk's own error in its own
        raise OSError(str(error)) from error
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    return path.stat().st_size


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file in the same folder that takes the place of ``path`` when all went well, and vanishes if not."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o600)  # a pot can contain the text
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _opened(path: str | Path, framework: str = "pt") -> Iterator[Any]:
    path = Path(path)
    with path.open("rb"):  # a missing or unreadable file is the caller's OSError, in the system's own words
        pass
    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except SafetensorError as error:
        raise PotDamaged(
            f"{path} is not a pot, or is damaged: {error}", hint="make it again with `infinipot pot save`"
        ) from error


def _info(file: Any, path: str | Path) -> PotInfo:
    metadata = file.metadata() or {}
    if metadata.get("format") != FORMAT:
        raise PotDamaged(f"{path} is a safetensors file, but not a pot")
    version = metadata.get("format_version", "")
    if version != str(VERSION):
        raise PotDamaged(
            f"{path} has pot format version {version or 'unknown'}; this infinipot reads version {VERSION}",
            hint="upgrade infinipot, or make the pot again",
        )
    text = metadata.get("pot", "")
    if f"{zlib.crc32(text.encode()):08x}" != metadata.get("crc32"):
        raise PotDamaged(f"{path} is damaged: its header does not match its checksum")
    try:
        info = _parse(json.loads(text))
    except (TypeError, KeyError, ValueError, AttributeError, SettingsError) as error:
        raise PotDamaged(f"{path} is not a pot that this infinipot can read: {error}") from error
    if set(file.keys()) != set(info.tensors):
        raise PotDamaged(f"{path} is damaged: its tensors are not those its header lists")
    return info


def _parse(content: dict[str, Any]) -> PotInfo:
    return PotInfo(
        version=VERSION,
        identity=Identity(**content.pop("identity")),
        settings=PotSettings.from_dict(content.pop("settings")),
        meta=PotMeta(**content.pop("meta")),
        **content,
    )


def _tensor(file: Any, name: str, info: PotInfo, path: str | Path) -> torch.Tensor:
    tensor: torch.Tensor = file.get_tensor(name)
    wanted = info.tensors[name]
    found = {"shape": list(tensor.shape), "dtype": str(tensor.dtype), "crc32": _crc(tensor)}
    if found != wanted:
        raise PotDamaged(f"{path} is damaged: {name} does not match its checksum")
    return tensor


def _fill(store: PotLayer, file: Any, info: PotInfo, path: str | Path) -> None:
    for name, part in _names(store).items():
        tensor = _tensor(file, name, info, path)
        buffer = getattr(store, part)
        if tensor.shape[::2] != buffer.shape[::2] or not store.holds(tensor.shape[1]):
            raise PotDamaged(f"{path} is damaged: {name} has the wrong shape")
        buffer = getattr(store, part)
        buffer[:, : tensor.shape[1]] = tensor.to(buffer.device, buffer.dtype)
        store.length = tensor.shape[1]


def _require_same_model(info: PotInfo, model: Model) -> None:
    differences = info.identity.differences(model.identity)
    made, here = info.identity.name, model.identity.name
    if differences:
        other = f"another version of {here}" if made == here else f"{made}, not with {here}"
        hint = "make the pot again" if made == here else f"use --model {made}, or make the pot again"
        raise PotMismatch(f"this pot was made with {other} (they differ in {', '.join(differences)})", hint=hint)
