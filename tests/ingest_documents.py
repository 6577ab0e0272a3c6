"""Small documents made in code, for the tests of ingestion."""

from __future__ import annotations

import io
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from infinipot_cli.ingest import IngestOptions, Passage, Source, open_sources


class Pieces(io.RawIOBase):
    """A stream that gives its bytes in the pieces it was made of, as a pipe does."""

    def __init__(self, pieces: Iterator[bytes] | Sequence[bytes]) -> None:
        super().__init__()
        self._pieces = iter(pieces)
        self._rest = b""

    def read1(self, size: int = -1) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        size = len(self._rest) if size < 0 else size
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def stream_source(pieces: Iterator[bytes] | Sequence[bytes], **options: object) -> Source:
    """The source that standard input is, when it gives these pieces."""
    return next(open_sources(["-"], IngestOptions(**options), stdin=Pieces(pieces)))  # type: ignore[arg-type]


def file_source(path: Path, **options: object) -> Source:
    """The source of one file."""
    return next(open_sources([str(path)], IngestOptions(**options)))  # type: ignore[arg-type]


def text_of(source: Source) -> str:
    """All the text of a source, its passages checked on the way."""
    return check_passages(source, list(source.passages()))


def check_passages(source: Source, passages: list[Passage]) -> str:
    """Put passages together, checking sizes, offsets and line numbers."""
    offset, line = 0, 1
    for passage in passages:
        assert 0 < len(passage.text) <= 4096
        assert passage.offset == offset
        assert source.unit != "line" or passage.place == line
        offset += len(passage.text)
        line += passage.text.count("\n")
    return "".join(passage.text for passage in passages)


def make_pdf(path: Path, pages: Sequence[Sequence[str]], **canvas_options: object) -> Path:
    """A PDF with the given lines on its pages. A line "[image]" is a picture."""
    from PIL import Image
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), invariant=1, **canvas_options)  # type: ignore[arg-type]
    for lines in pages:
        for row, line in enumerate(lines):
            if line == "[image]":
                canvas.drawImage(ImageReader(Image.new("RGB", (40, 40), "navy")), 72, 200, 300, 300)
            else:
                canvas.drawString(72, 800 - 14 * row, line)
        canvas.showPage()
    canvas.save()
    return path


CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
    '<rootfiles><rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)


def make_epub(path: Path, chapters: Sequence[str], prolog: str = "", extra: dict[str, bytes] | None = None) -> Path:
    """An EPUB whose chapters have the given bodies (XHTML)."""
    items = "".join(
        f'<item id="c{i}" href="text/ch%20{i}.xhtml" media-type="application/xhtml+xml"/>' for i in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{i}"/>' for i in range(len(chapters)))
    package = (
        f'<?xml version="1.0"?>{prolog}<package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("OEBPS/book.opf", package)
        for i, body in reversed(list(enumerate(chapters))):
            archive.writestr(
                f"OEBPS/text/ch {i}.xhtml",
                '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml">'
                f"<head><title/></head><body>{body}</body></html>",
            )
        for name, data in (extra or {}).items():
            archive.writestr(name, data)
    return path


def trickle(lines: Sequence[bytes], seconds: float, end: threading.Event) -> int:
    """The reading end of a pipe into which lines are written slowly; it is closed once ``end`` is set."""
    import os

    reader, writer = os.pipe()

    def write() -> None:
        for line in lines:
            os.write(writer, line)
            time.sleep(seconds)
        end.wait(20)
        os.close(writer)

    threading.Thread(target=write, daemon=True).start()
    return reader
