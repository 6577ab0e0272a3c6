"""The files that a pot was read from: found by their hash, and read again as they were read then."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from infinipot_cli.errors import InputError
from infinipot_cli.ingest import IngestOptions, Passage, open_sources
from infinipot_cli.ingest.folders import FolderWalk
from infinipot_cli.ingest.streams import CHUNK


def find_originals(names: Sequence[str], sources: Sequence[dict[str, Any]], options: IngestOptions) -> dict[int, Path]:
    """Which of the pot's sources (by number) each named file is; folders are searched.

    Raises InputError for a file that is none of them, and for a folder that holds none.
    """
    found: dict[int, Path] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            matches = [match for file in FolderWalk(path, options).files() for match in _numbers(file, sources)]
        else:
            matches = _numbers(path, sources)
        if not matches:
            raise _foreign(path, sources)
        found |= {number: file for number, file in matches if number not in found}
    return found


def read_again(path: Path, source: dict[str, Any], options: IngestOptions) -> Iterator[Passage]:
    """The passages of an original, extracted as for the pot.

    Raises InputError at the end if there were fewer or more characters than the pot was read from: then the options
    differ, or the extraction does.
    """
    kind = source.get("kind")
    # The encoding of an EPUB is that of its first chapter, and each chapter has its own.
    encoding = source.get("encoding") if kind != "epub" else None
    again = replace(
        options, input_type=options.input_type or kind, encoding=options.encoding or encoding, include=(), exclude=()
    )
    chars = 0
    for passage in next(open_sources([str(path)], again)).passages():
        chars += len(passage.text)
        yield passage
    expected = source.get("chars", chars)
    if chars < expected or (source.get("complete", True) and chars > expected):
        raise InputError(
            f"{path} gives {chars:,} characters now, and gave {expected:,} when the pot was made",
            hint="name the options it was read with, such as --keep-headers or --encoding",
        )


def _numbers(path: Path, sources: Sequence[dict[str, Any]]) -> list[tuple[int, Path]]:
    """The sources that the file is, compared by size and hash; of one not read to its end, what was read of it."""
    try:
        size = path.stat().st_size
        return [(number, path) for number, source in enumerate(sources) if _is_same(path, size, source)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _is_same(path: Path, size: int, source: dict[str, Any]) -> bool:
    expected, digest = source.get("bytes"), source.get("sha256")
    if not isinstance(expected, int) or not digest:
        return False
    fits = size == expected if source.get("complete", True) else size >= expected
    return fits and _sha256(path, expected) == digest


def _sha256(path: Path, size: int) -> str:
    """Hash of the first ``size`` bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while size > 0 and (block := stream.read(min(size, CHUNK))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def _foreign(path: Path, sources: Sequence[dict[str, Any]]) -> InputError:
    if not sources:
        return InputError("this pot does not say what it was read from, so no file can be told to be the original")
    if path.is_dir():
        return InputError(f"{path} holds none of the files that this pot was read from")
    wanted = ", ".join(f"{source.get('name')} (SHA-256 {str(source.get('sha256'))[:12]}…)" for source in sources[:3])
    more = f" and {len(sources) - 3:,} more" if len(sources) > 3 else ""
    found = _sha256(path, path.stat().st_size)[:12]
    return InputError(
        f"{path} is not what this pot was read from: its SHA-256 is {found}…",
        hint=f"the pot was read from {wanted}{more}; the file may have changed since",
    )
