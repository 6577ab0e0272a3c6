"""What ingestion hands on: passages of text, a report of what was read, and the options that steer it."""

from __future__ import annotations

import codecs
from dataclasses import asdict, dataclass, field
from typing import Any

from infinipot_cli.errors import UsageError

MAX_PASSAGE = 4096
"""Most characters of one passage."""

KINDS = ("text", "html", "pdf", "epub", "docx")
"""The kinds of document that can be read, which are also the values of ``input_type``."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a source's extracted text.

    ``text`` is never empty and at most ``MAX_PASSAGE`` characters. ``place`` is the 1-based page or chapter,
    or the 1-based line of ``text[0]``. ``offset`` counts characters from the start of the extracted text.
    The texts of all passages of a source, put together, are its extracted text.
    """

    text: str
    place: int
    offset: int


@dataclass
class SourceReport:
    """What was read of one source, and what was not.

    ``bytes`` and ``sha256`` (hexadecimal) describe the raw bytes read; ``chars`` counts the text handed on;
    ``skipped`` and ``warnings`` hold sentences for people. ``complete`` is False as long as reading goes on
    and after an error.
    """

    name: str
    kind: str
    unit: str
    bytes: int = 0
    sha256: str = ""
    pages: int | None = None
    chars: int = 0
    encoding: str | None = None
    compression: str | None = None
    skipped: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    complete: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class IngestOptions:
    """How to read. Raises UsageError for values that mean nothing.

    ``max_ratio`` bounds expansion (unpacked over packed bytes, looked at past 16 MiB), ``max_bytes`` what is
    unpacked or spooled for a format that cannot be streamed, ``max_pages`` the pages or chapters of a document.
    ``include`` and ``exclude`` are patterns as in .gitignore, for files found in folders.
    """

    password: str | None = None
    encoding: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    keep_headers: bool = False
    input_type: str | None = None
    max_ratio: float = 1000.0
    max_pages: int = 50_000
    max_bytes: int = 2 << 30

    def __post_init__(self) -> None:
        if self.input_type is not None and self.input_type not in KINDS:
            raise UsageError(f"unknown input type {self.input_type!r}", hint=f"one of: {', '.join(KINDS)}")
        if self.encoding is not None and not _is_text_encoding(self.encoding):
            raise UsageError(f"unknown encoding {self.encoding!r}", hint="for example utf-8, latin-1, shift_jis")
        if self.max_ratio < 1 or self.max_pages < 1 or self.max_bytes < 1:
            raise UsageError("max_ratio, max_pages and max_bytes must be at least 1")


def _is_text_encoding(name: str) -> bool:
    try:
        # Codecs such as base64 also have a name; only text encodings decode bytes to str piece by piece.
        return isinstance(codecs.getincrementaldecoder(name)().decode(b""), str)
    except (LookupError, UnicodeError, TypeError, ValueError):
        return False
