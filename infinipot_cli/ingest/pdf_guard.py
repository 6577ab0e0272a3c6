"""Looking for decompression bombs in a PDF file before PDFium unpacks them into memory.

PDFium unpacks a stream whole, and needs up to eighty bytes of memory for one byte of page description: a
file of 100 kB can take 8 GB. So every stream but pictures, which nobody decodes for their text, is unpacked
here first, a little at a time and into nothing.
"""

from __future__ import annotations

import base64
import binascii
import mmap
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from infinipot_cli.errors import InputError

MAX_STREAM = 64 << 20
"""Most bytes of one stream when unpacked. The page descriptions of detailed maps have ten million."""
MAX_STREAM_RATIO = 250
"""Page descriptions pack three to ten times."""
_RATIO_FREE = 1 << 20
_STREAM = re.compile(rb"(?<!end)stream\r?\n")
_FILTER = re.compile(rb"/(FlateDecode|Fl|ASCII85Decode|A85|ASCIIHexDecode|AHx)\b")
_PICTURE = re.compile(rb"/Subtype\s*/Image\b")
_DICTIONARY_BYTES = 1 << 16
_ZLIB = b"\x78"
_STEP = 1 << 16


def refuse_bombs(path: Path) -> None:
    """Raise InputError if a stream of the file unpacks to too much. Encrypted streams cannot be looked into."""
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _STREAM.finditer(data):
            dictionary = _dictionary(data, match.start())
            filters = [name.decode() for name in _FILTER.findall(dictionary)]
            if not filters and data[match.end() : match.end() + 1] == _ZLIB:
                filters = ["FlateDecode"]  # whatever its dictionary says, or wherever it stands
            if filters and not _PICTURE.search(dictionary):
                _check(data, match.end(), filters)


def _dictionary(data: mmap.mmap, end: int) -> bytes:
    """What stands between the beginning of an object and its stream at ``end``; nothing where that is far away."""
    begin = data.rfind(b"obj", max(0, end - _DICTIONARY_BYTES), end)
    return data[begin + 3 : end] if begin >= 0 else b""


def _check(data: mmap.mmap, start: int, filters: list[str]) -> None:
    """Unpack one stream through its filters."""
    pieces: Iterator[bytes] = (data[at : at + _STEP] for at in range(start, len(data), _STEP))
    if filters[0] in ("ASCII85Decode", "A85", "ASCIIHexDecode", "AHx"):
        end = data.find(b"endstream", start)
        pieces = iter([_from_ascii(data[start : end if end >= 0 else len(data)], filters[0])])
    packed = [0]
    pieces = _counted(pieces, packed)
    for name in filters:
        if name in ("FlateDecode", "Fl"):
            pieces = _inflated(pieces)
    unpacked = 0
    for piece in pieces:
        unpacked += len(piece)
        if unpacked > MAX_STREAM:
            raise InputError(f"holds a page description or font of more than {MAX_STREAM:,} bytes")
        if unpacked > _RATIO_FREE and unpacked > MAX_STREAM_RATIO * packed[0]:
            raise InputError(
                f"holds data that expand more than {MAX_STREAM_RATIO} times: this looks like a decompression bomb"
            )


def _counted(pieces: Iterator[bytes], total: list[int]) -> Iterator[bytes]:
    for piece in pieces:
        total[0] += len(piece)
        yield piece


def _from_ascii(text: bytes, name: str) -> bytes:
    try:
        if name in ("ASCII85Decode", "A85"):
            return base64.a85decode(text.partition(b"~>")[0])
        digits = re.sub(rb"\s", b"", text.partition(b">")[0])
        return binascii.unhexlify(digits + b"0" * (len(digits) % 2))
    except ValueError:
        return b""  # damaged: PDFium gets nothing out of it either


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack in small steps; ends quietly where the data do, or are damaged."""
    inflate = zlib.decompressobj()
    for piece in pieces:
        while piece:
            try:
                output = inflate.decompress(piece, _STEP)
            except zlib.error:
                return
            if output:
                yield output
            if inflate.eof:
                return
            piece = inflate.unconsumed_tail
