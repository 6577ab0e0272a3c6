"""From the names on the command line to sources."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from infinipot_cli.errors import InputError, UsageError
from infinipot_cli.ingest.archives import open_zip
from infinipot_cli.ingest.decoding import bom_of, wide_encoding
from infinipot_cli.ingest.docx import DocxExtractor
from infinipot_cli.ingest.epub import EpubExtractor
from infinipot_cli.ingest.feeds import Feed
from infinipot_cli.ingest.folders import FolderWalk
from infinipot_cli.ingest.html import HtmlExtractor
from infinipot_cli.ingest.pdf import PdfExtractor
from infinipot_cli.ingest.sniffing import binary_name, kind_of
from infinipot_cli.ingest.source import Extractor, Source, named
from infinipot_cli.ingest.text import TextExtractor
from infinipot_cli.ingest.types import IngestOptions

_EXTRACTORS: dict[str, type[Extractor]] = {
    "text": TextExtractor,
    "html": HtmlExtractor,
    "pdf": PdfExtractor,
    "epub": EpubExtractor,
    "docx": DocxExtractor,
}
_HTML_SUFFIXES = (".html", ".htm", ".xhtml", ".html.gz", ".htm.gz")
_CONVERT_HINT = 'convert it to text or PDF first, for example: markitdown FILE | infinipot ask - "…"'
_TEXT_HINT = "if it is text all the same, --encoding utf-8 reads it; else convert it first, for example with markitdown"
# Word Online numbers the main part of a document.
_ZIP_CONTENTS = (
    (re.compile(r"META-INF/container\.xml"), "epub"),
    (re.compile(r"word/document\d*\.xml"), "docx"),
)
_OTHER_ZIPS = (
    ("xl/", "an Excel workbook"),
    ("ppt/", "a PowerPoint presentation"),
    ("META-INF/manifest.xml", "an OpenDocument file"),
    ("META-INF/MANIFEST.MF", "a Java archive"),
)

Met = set[tuple[int, int]]
"""The files that were read, by what tells one from all others."""


class Sources(Iterator[Source]):
    """The sources that some names stand for, opened one after the other, each file once, whatever names it has.

    ``skipped`` gets, as the iteration goes on, a sentence for each file in a folder that is not read, and for each
    that is come to again.
    """

    def __init__(self, names: Sequence[str], options: IngestOptions, stdin: BinaryIO | None, met: Met) -> None:
        self.skipped: list[str] = []
        self._names = list(names)
        self._options = options
        self._stdin = stdin
        self._met = met
        self._opened = self._open_all()

    def __next__(self) -> Source:
        return next(self._opened)

    def _open_all(self) -> Iterator[Source]:
        if self._names.count("-") > 1:
            raise UsageError("- (standard input) can be read only once")
        readable = False
        for name in self._names:
            sources = self._in_folder(Path(name)) if _is_folder(name) else iter((self._explicit(name),))
            for source in sources:
                file = self._identity(source)
                if file in self._met:
                    self.skipped.append(f"{source.name}: a file that is read under another name")
                    readable = True
                    continue
                yield source
                # One without text is read again: in a folder it is passed over quietly, named outright it is an error.
                if not source.is_barren:
                    readable = True
                    # Standard input may have begun in the middle of the file.
                    if file is not None and (source.path or source.bytes_read == source.size):
                        self._met.add(file)
        if not readable:
            reasons = "; ".join(self.skipped[:3]) + ("; …" if len(self.skipped) > 3 else "")
            raise InputError(
                f"nothing readable in {', '.join(self._names) or 'no sources'}",
                hint=f"skipped: {reasons}" if reasons else None,
            )

    def _explicit(self, name: str) -> Source:
        if not name:  # which would stand for the current folder
            raise InputError("the name of a source is empty")
        try:
            return self._stdin_source() if name == "-" else _file_source(name, Path(name), self._options)
        except OSError as error:
            raise InputError(f"{name}: cannot be read: {error.strerror or error}") from error
        except ValueError as error:  # a name with a NUL in it
            raise InputError(f"{name!r} is not a file name: {error}") from error

    def _stdin_source(self) -> Source:
        if self._stdin is None:
            raise InputError("standard input is closed")
        status = _redirected(self._stdin)
        size = status.st_size if status else None
        return _build("stdin", None, Feed(None, self._stdin, self._options), size, self._options)

    def _identity(self, source: Source) -> tuple[int, int] | None:
        """The same for two names of one file."""
        try:
            status = source.path.stat() if source.path else _redirected(self._stdin)
        except OSError:  # it went away; reading it will say so
            return None
        return (status.st_dev, status.st_ino) if status else None

    def _in_folder(self, folder: Path) -> Iterator[Source]:
        walk = FolderWalk(folder, self._options)
        walk.skipped = self.skipped
        for path in walk.files():
            try:
                yield _file_source(str(path), path, self._options, tolerant=True)
            except (InputError, OSError) as error:
                reason = str(error).removeprefix(f"{path}: ")
                if isinstance(error, OSError):
                    reason = f"cannot be read: {error.strerror or error}"
                self.skipped.append(f"{path}: {reason}")


def open_sources(
    names: Sequence[str], options: IngestOptions | None = None, stdin: BinaryIO | None = None, met: Met | None = None
) -> Sources:
    """The documents that ``names`` stand for: files, folders, and "-" for ``stdin``; without the files of ``met``,
    which gets those that are read.

    Iterating raises InputError for a named file that cannot be read, and at the end if there was nothing
    readable at all; files found in folders are skipped instead (``skipped``), or, when they fail in the
    middle of reading, end early with a warning in their report. UsageError if "-" is there twice.
    """
    return Sources(names, options or IngestOptions(), stdin, set() if met is None else met)


def _is_folder(name: str) -> bool:
    try:
        return name not in ("", "-") and Path(name).is_dir()
    except (OSError, ValueError):
        return False


def _file_source(name: str, path: Path, options: IngestOptions, tolerant: bool = False) -> Source:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InputError(f"{name}: no such file or folder") from None
    if stat.S_ISREG(status.st_mode):
        return _build(name, path, Feed(path, None, options), status.st_size, options, tolerant)
    # A named pipe, as in <(command), can be opened and read only once.
    stream: Any = path.open("rb", buffering=0)
    return _build(name, path, Feed(path, stream, options), None, options, tolerant)


def _redirected(stream: Any) -> os.stat_result | None:
    """The file that a stream is redirected from, if it is."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _build(
    name: str, path: Path | None, feed: Feed, size: int | None, options: IngestOptions, tolerant: bool = False
) -> Source:
    try:
        head = feed.peek()
        extractor = _EXTRACTORS[options.input_type or _kind(head, name, feed, options)](feed, options)
        extractor.prepare()
    except InputError as error:
        raise named(name, error) from error
    return Source(name, path, size, extractor, tolerant)


def _kind(head: bytes, name: str, feed: Feed, options: IngestOptions) -> str:
    """What kind of document begins like this. Raises InputError for what is none."""
    wide = bom_of(head) or (wide_encoding(head) if b"\x00" in head else None)
    narrow = head.decode(wide, "ignore").encode() if wide else head
    kind = kind_of(narrow)
    if kind == "zip":
        return _zip_kind(feed, options)
    if kind == "pot":
        raise InputError(
            "is a pot, not a document", hint="a pot is asked by itself, unpacked; pot info shows what is in one"
        )
    if kind is not None:
        return kind
    binary = None if wide else binary_name(head)
    # Who names an encoding vouches for text; a known beginning still tells otherwise.
    if binary and not (options.encoding and binary == "binary data"):
        hint = _TEXT_HINT if binary == "binary data" else _CONVERT_HINT
        raise InputError(f"is {binary}, not text", hint=hint)
    return "html" if name.lower().endswith(_HTML_SUFFIXES) and b"<" in narrow else "text"


def _zip_kind(feed: Feed, options: IngestOptions) -> str:
    with open_zip(feed.as_file(), options) as archive:
        names = archive.namelist()
    for member, kind in _ZIP_CONTENTS:
        if any(member.fullmatch(name) for name in names):
            return kind
    for prefix, words in _OTHER_ZIPS:
        if any(name.startswith(prefix) for name in names):
            raise InputError(f"is {words}, not text", hint=_CONVERT_HINT)
    raise InputError("is a zip archive", hint="unpack it into a folder and name that")
