"""Plain text of any length: logs, Markdown, source code, JSON, CSV, kept as they are."""

from __future__ import annotations

from collections.abc import Iterator

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.decoding import TextDecoder, damage_note
from infinipot_cli.ingest.sniffing import HEAD
from infinipot_cli.ingest.source import Extractor, Piece
from infinipot_cli.ingest.streams import CHUNK
from infinipot_cli.ingest.types import SourceReport


class TextExtractor(Extractor):
    """Streams text: CRLF becomes LF, NULs are dropped and counted, nothing else changes."""

    def pieces(self, report: SourceReport) -> Iterator[Piece]:
        """The text as it arrives."""
        failure: InputError | None = None
        with self.feed.open() as stream:
            decoder = TextDecoder(self.options.encoding, stream.peek(self.feed.head_size))
            cleaner = _Cleaner()
            # Of UTF-16 it is known by now, and there NULs are no sign of anything.
            wary = decoder.encoding is None and self.options.input_type != "text"
            position = 0
            try:
                while data := stream.read1(CHUNK):
                    if wary and position < HEAD:
                        _refuse_nul(data, HEAD - position)
                    position += len(data)
                    yield None, cleaner.feed(decoder.feed(data))
                    report.encoding = decoder.encoding
            except InputError as error:  # what the decoder holds still goes out
                failure = error
        yield None, cleaner.feed(decoder.finish(), final=True)
        _note(report, decoder, cleaner)
        if failure is not None:
            raise failure


def _refuse_nul(data: bytes, size: int) -> None:
    """A pipe's first 8 KiB are looked at as they come, so as not to wait for them."""
    if data.find(b"\x00", 0, size) >= 0:
        raise InputError("is binary data, not text", hint="--input-type text reads it all the same")


class _Cleaner:
    """Newlines to LF, whatever the cut of the pieces; NULs out."""

    def __init__(self) -> None:
        self._held = ""
        self.nuls = 0

    def feed(self, text: str, final: bool = False) -> str:
        text = self._held + text
        self._held = "\r" if text.endswith("\r") and not final else ""
        text = text.removesuffix("\r") if self._held else text
        if "\x00" in text:
            self.nuls += text.count("\x00")
            text = text.replace("\x00", "")
        return text.replace("\r\n", "\n")


def _note(report: SourceReport, decoder: TextDecoder, cleaner: _Cleaner) -> None:
    report.encoding = decoder.encoding
    if decoder.replaced:
        report.warnings.append(damage_note(decoder.replaced, decoder.encoding))
    if cleaner.nuls:
        report.warnings.append(f"{cleaner.nuls:,} NUL characters were dropped")
