"""Telling what bytes are from how they begin."""

from __future__ import annotations

import re
from pathlib import Path

HEAD = 8192
"""Bytes of a file that are looked at."""
STREAM_HEAD = 2048
"""Bytes of a pipe that are looked at: no more than the shortest passage, so that looking delays nothing."""

_COMPRESSIONS = ((b"\x1f\x8b\x08", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"))
_ZSTD_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?>(?:<!--.*?-->\s*)*)<(?:!doctype\s+html|html|head|body)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_POT_HEADER_LIMIT = 100_000_000

_NAMES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"BM", "a bitmap image"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a program (Windows)"),
    (b"\xcf\xfa\xed\xfe", "a program (Mach-O)"),
    (b"\xca\xfe\xba\xbe", "a program (Mach-O or Java class)"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Microsoft Office document"),
    (b"{\\rtf", "an RTF document"),
    (b"%!PS", "a PostScript document"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x04\x22\x4d\x18", "LZ4 data"),
    (b"\x1f\x9d", "compress (.Z) data"),
    (b"!<arch>\n", "an ar archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"GGUF", "a GGUF model"),
    (b"PAR1", "a Parquet table"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x80\x04\x95", "a Python pickle"),
    (b"OggS", "Ogg audio"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"\x1aE\xdf\xa3", "a Matroska video"),
    (b"\x00asm", "a WebAssembly module"),
    (b"wOF2", "a font"),
    (b"\x00\x01\x00\x00\x00", "a TrueType font"),
)
# Beginnings that text can have too ("BM…", "MZ…"): believed only of bytes that are not text.
_ALSO_TEXT = (b"BM", b"MZ", b"ID3", b"GGUF", b"PAR1", b"GIF8", b"OggS", b"fLaC", b"wOF2")
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b\x0b\x0e\x0f")) + b"\x7f"


def is_pot(source: str | Path | bytes) -> bool:
    """Whether a file, or the first bytes of a stream (30 are enough), are a pot: a safetensors file.

    That is an 8-byte little-endian header length, below 100 MB, and a JSON header that begins with metadata.
    A file that cannot be read is no pot.
    """
    if not isinstance(source, bytes):
        path = Path(source)
        try:
            if not path.is_file():
                return False
            with path.open("rb") as file:
                source = file.read(64)
        except (OSError, ValueError):
            return False
    length = int.from_bytes(source[:8], "little")
    return 2 <= length < _POT_HEADER_LIMIT and source[8:].lstrip(b" ").startswith(b'{"__metadata__"')


def compression_of(head: bytes) -> str | None:
    """The compression that the first bytes belong to: gzip, bzip2, xz, zstd or None."""
    if _ZSTD_SKIPPABLE.match(head):
        return "zstd"
    for magic, name in _COMPRESSIONS:
        if head.startswith(magic):
            return name if name != "bzip2" or _BZIP2.match(head) else None
    return None


def kind_of(head: bytes) -> str | None:
    """The kind of document that the first bytes belong to.

    One of "pdf", "zip" (to be opened to know more), "html", "pot"; None for text and for all else.
    """
    # Readers accept a PDF that begins within its first 1,024 bytes; only a line start makes that convincing.
    if head.startswith(b"%PDF-") or re.search(rb"[\r\n\x00]%PDF-\d\.\d", head[:1024]):
        return "pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if is_pot(head):
        return "pot"
    return "html" if _HTML.match(head[:4096]) else None


def binary_name(head: bytes) -> str | None:
    """What the bytes are when they are not text, as in "is a PNG image"; None for text of one byte a unit.

    UTF-16 and UTF-32 also look binary from here: ask for those first (decoding.wide_encoding).
    """
    looks_binary = b"\x00" in head or _control_share(head) > 0.1
    for magic, name in _NAMES:
        if head.startswith(magic) and (looks_binary or magic not in _ALSO_TEXT):
            return name
    if head[257:262] == b"ustar":
        return "a tar archive"
    if head[4:8] == b"ftyp":
        return "an MP4 video or similar"
    if head[:4] == b"RIFF" and looks_binary:
        return "a RIFF file (audio, video or WebP image)"
    return "binary data" if looks_binary else None


def _control_share(head: bytes) -> float:
    return (len(head) - len(head.translate(None, _CONTROLS))) / max(len(head), 1)
