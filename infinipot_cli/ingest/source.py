"""A source: one document, read as passages, with a report of what was read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.feeds import Feed
from infinipot_cli.ingest.passages import Cutter
from infinipot_cli.ingest.types import IngestOptions, Passage, SourceReport

Piece = tuple[int | None, str]
"""Text, and the page or chapter it is of (None: lines are counted)."""


class Extractor:
    """What gets the text out of one kind of document."""

    kind = "text"
    unit = "line"
    pages: int | None = None

    def __init__(self, feed: Feed, options: IngestOptions) -> None:
        self.feed = feed
        self.options = options
        self.pages_read = 0

    def prepare(self) -> None:
        """Look at the document without reading it all: what is wrong with it is raised here, as InputError."""

    def pieces(self, report: SourceReport) -> Iterator[Piece]:
        """The text in order; notes in ``report`` what was left out. Raises InputError without the name."""
        raise NotImplementedError

    @property
    def bytes_read(self) -> int:
        """Raw bytes read so far, for progress."""
        return self.feed.bytes_read


class PagedExtractor(Extractor):
    """For formats that a library reads as a file: progress goes by pages or chapters."""

    @property
    def bytes_read(self) -> int:
        """The share of the raw bytes that the pages read so far stand for."""
        return self.feed.bytes_read * self.pages_read // (self.pages or 1)


class Source:
    """One document. It holds no open file until ``passages`` is called, unless it is a stream."""

    def __init__(
        self, name: str, path: Path | None, size: int | None, extractor: Extractor, tolerant: bool = False
    ) -> None:
        """``tolerant``: it was found in a folder, so errors end it quietly and go to the report."""
        self.name = name
        self.path = path
        self.size = size
        self._extractor = extractor
        self._tolerant = tolerant
        self._report = self._new_report()
        self._barren = False

    @property
    def kind(self) -> str:
        """ "text", "html", "pdf", "epub" or "docx"."""
        return self._extractor.kind

    @property
    def unit(self) -> str:
        """What a place counts: "page", "chapter" or "line"."""
        return self._extractor.unit

    @property
    def pages(self) -> int | None:
        """Pages or chapters in all, None where there are none."""
        return self._extractor.pages

    @property
    def bytes_read(self) -> int:
        """Raw bytes read so far; at the end it equals ``size`` where that is known."""
        return self._extractor.bytes_read

    @property
    def pages_read(self) -> int:
        """Pages or chapters read so far."""
        return self._extractor.pages_read

    @property
    def is_barren(self) -> bool:
        """Whether reading it has ended without giving anything."""
        return self._barren

    def passages(self) -> Iterator[Passage]:
        """Read the document from its beginning; a file can be read again, a stream only once.

        Raises InputError, its message beginning with the name, when the document is unreadable, damaged or
        without text. What could be read before the damage has been handed on by then.
        """
        report = self._report = self._new_report()
        self._extractor.pages_read, self._barren = 0, False
        cutter = Cutter()
        failure: InputError | None = None
        try:
            for place, text in self._extractor.pieces(report):
                for passage in cutter.feed(text, place):
                    report.chars += len(passage.text)
                    yield passage
        except InputError as error:
            failure = named(self.name, error)
        except OSError as error:
            failure = InputError(f"{self.name}: cannot be read: {error.strerror or error}")
        for passage in cutter.flush():
            report.chars += len(passage.text)
            yield passage
        self._barren = not cutter.has_text
        if failure is None and self._barren:
            failure = InputError(f"{self.name}: there is no text in it")
        self._finish(report, failure)

    def report(self) -> SourceReport:
        """What was read so far; final once ``passages`` is exhausted."""
        report, feed = self._report, self._extractor.feed
        report.bytes, report.sha256 = feed.bytes_read, feed.sha256
        report.compression, report.pages = feed.compression, self.pages
        return report

    def _finish(self, report: SourceReport, failure: InputError | None) -> None:
        report.warnings.extend(self._extractor.feed.warnings)
        if failure is None:
            report.complete = True
            return
        report.warnings.append(str(failure).removeprefix(f"{self.name}: "))
        if not self._tolerant:
            raise failure

    def _new_report(self) -> SourceReport:
        return SourceReport(self.name, self.kind, self.unit)


def named(name: str, error: InputError) -> InputError:
    """The same error, its message beginning with the name of the source."""
    renamed = InputError(f"{name}: {error}", hint=error.hint)
    renamed.__cause__ = error
    return renamed
