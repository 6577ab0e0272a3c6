"""Zip containers and the XML in them, read with their sizes bounded and without DTDs."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from pathlib import Path
from typing import Any
from xml.parsers import expat

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.types import IngestOptions

MAX_MEMBERS = 50_000
MAX_XML = 64 << 20
"""Most bytes of one XML part: its tree takes about ten times as much memory."""
_RATIO_FREE = 16 << 20
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, OSError)
"""What reading a damaged member raises."""


def open_zip(path: Path, options: IngestOptions) -> zipfile.ZipFile:
    """Open an archive that is within bounds. Raises InputError for a damaged, encrypted or hostile one."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise InputError(f"is damaged or cut off: {error}") from error
    try:
        _check_bounds(archive, path.stat().st_size, options)
    except BaseException:
        archive.close()
        raise
    return archive


def _check_bounds(archive: zipfile.ZipFile, packed: int, options: IngestOptions) -> None:
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    if len(members) > MAX_MEMBERS:
        raise InputError(f"holds {len(members):,} files, more than {MAX_MEMBERS:,}")
    if unpacked > options.max_bytes:
        raise InputError(f"unpacks to {unpacked:,} bytes, more than {options.max_bytes:,}")
    if unpacked > _RATIO_FREE and unpacked > options.max_ratio * max(packed, 1):
        raise InputError(f"expands more than {options.max_ratio:g} times: this looks like a decompression bomb")
    if any(member.flag_bits & 1 for member in members):
        raise InputError("is encrypted", hint="only PDF files can be opened with a password")


def read_member(archive: zipfile.ZipFile, name: str, limit: int = MAX_XML) -> bytes:
    """A member's bytes. Raises InputError when it is missing, damaged, or larger than ``limit`` bytes."""
    try:
        info = archive.getinfo(name)
        if info.file_size > limit:
            raise InputError(f"{name} in it is {info.file_size:,} bytes, more than {limit:,}")
        return archive.read(info)
    except KeyError:
        raise InputError(f"{name} is missing in it") from None
    except _DAMAGE as error:
        raise InputError(f"{name} in it is damaged: {error}") from error


def refuse_dtd(data: bytes, name: str) -> None:
    """Raise InputError for XML that is malformed at its start or that declares a document type with entities.

    Only what comes before the root element is parsed: a DTD can stand nowhere else.
    """

    class RootReached(Exception):
        pass

    def doctype(_name: str, _system: str | None, _public: str | None, has_internal_subset: int) -> None:
        if has_internal_subset:
            raise InputError(f"{name} in it declares XML entities, which are not accepted")

    def element(_name: str, _attributes: Any) -> None:
        raise RootReached

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = element
    try:
        parser.Parse(data, True)
    except RootReached:
        pass
    except expat.ExpatError as error:
        raise InputError(f"{name} in it is not well-formed XML: {error}") from error
