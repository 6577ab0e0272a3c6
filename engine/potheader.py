"""What a pot file says of itself: one JSON text under a checksum of its own. See docs/pot-format.md. Needs no torch."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from engine.errors import PotDamaged, SettingsError
from engine.identity import Identity
from engine.packing import Packing
from engine.settings import PotSettings

FORMAT = "infinipot-pot"
#: Version 2 is a pot whose numbers are packed. Any other is written as version 1, as the first infinipot did.
PLAIN, PACKED = "1", "2"
_OTHER = "upgrade infinipot, or make the pot again"


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
    """The header of a pot file. ``dtype`` and ``nbytes`` are those of keys and values in the file."""

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
    packing: Packing | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the tensor table."""
        return {key: value for key, value in asdict(self).items() if key != "tensors"}


def metadata_of(content: dict[str, Any], packed: bool) -> dict[str, str]:
    """The header's strings for what a pot says of itself."""
    text = json.dumps(content, sort_keys=True)
    version = PACKED if packed else PLAIN
    return {"format": FORMAT, "format_version": version, "pot": text, "crc32": f"{zlib.crc32(text.encode()):08x}"}


@contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """The file with its header checked by safetensors; mapped, so that only what is asked for is read."""
    path = Path(path)
    with path.open("rb"):  # a missing or unreadable file is the caller's OSError, in the system's own words
        pass
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except SafetensorError as error:
        raise PotDamaged(
            f"{path} is not a pot, or is damaged: {error}", hint="make it again with `infinipot pot save`"
        ) from error


def info_of(file: Any, path: str | Path) -> PotInfo:
    """The header of a file that is open, checked. Raises PotDamaged for what is no pot, or of an unknown version."""
    metadata = file.metadata() or {}
    if metadata.get("format") != FORMAT:
        raise PotDamaged(f"{path} is a safetensors file, but not a pot")
    version = metadata.get("format_version", "")
    if version not in (PLAIN, PACKED):
        raise PotDamaged(
            f"{path} has pot format version {version or 'unknown'}; this infinipot reads versions {PLAIN} and {PACKED}",
            hint=_OTHER,
        )
    text = metadata.get("pot", "")
    if f"{zlib.crc32(text.encode()):08x}" != metadata.get("crc32"):
        raise PotDamaged(f"{path} is damaged: its header does not match its checksum")
    try:
        info = _parse(json.loads(text), version)
    except (TypeError, KeyError, ValueError, AttributeError, SettingsError) as error:
        raise PotDamaged(f"{path} is not a pot that this infinipot can read: {error}", hint=_OTHER) from error
    if set(file.keys()) != set(info.tensors):
        raise PotDamaged(f"{path} is damaged: its tensors are not those its header lists")
    return info


def _parse(content: dict[str, Any], version: str) -> PotInfo:
    return PotInfo(
        version=int(version),
        identity=Identity(**content.pop("identity")),
        settings=PotSettings.from_dict(content.pop("settings")),
        meta=PotMeta(**content.pop("meta")),
        packing=Packing.from_dict(content.pop("packing")) if version == PACKED else None,
        **content,
    )
