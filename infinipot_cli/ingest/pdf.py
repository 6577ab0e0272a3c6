"""PDF: the text page by page, without running headers; scans are told from texts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.pdf_backends import PageDamaged, Pages, open_pages
from infinipot_cli.ingest.pdf_guard import refuse_bombs
from infinipot_cli.ingest.pdf_text import PageCleaner
from infinipot_cli.ingest.running_lines import RunningLines, sample_pages
from infinipot_cli.ingest.source import PagedExtractor, Piece
from infinipot_cli.ingest.types import SourceReport

_THIN = 20
"""Characters below which a page counts as one without text."""
_SCANNED_SHARE = 0.8
_OCR_HINT = "this looks like a scan; make its text readable first: ocrmypdf in.pdf out.pdf"


class PdfExtractor(PagedExtractor):
    """Reads a PDF page by page; holds one page at a time, and a sample of pages while it begins."""

    kind = "pdf"
    unit = "page"

    def prepare(self) -> None:
        """Open the file once, for the number of pages."""
        refuse_bombs(self.feed.as_file())
        pages, _ = open_pages(self.feed.as_file(), self.options.password)
        self.pages = len(pages)
        pages.close()
        if self.pages > self.options.max_pages:
            raise InputError(f"has {self.pages:,} pages, more than {self.options.max_pages:,}")

    def pieces(self, report: SourceReport) -> Iterator[Piece]:
        """Page by page."""
        path = self.feed.as_file()
        self.feed.measure()
        pages, warnings = open_pages(path, self.options.password)
        report.warnings.extend(warnings)
        if not warnings and not _has_end(path):
            report.warnings.append("does not end as a PDF file should: it may be cut off")
        try:
            sample = {index: _raw_text(pages, index) for index in sample_pages(len(pages))}
            _refuse_scan(pages, sample)
            yield from self._read(pages, sample, report)
        finally:
            pages.close()

    def _read(self, pages: Pages, sample: _Sample, report: SourceReport) -> Iterator[Piece]:
        """Clean and hand on page after page, those of the sample without reading them again."""
        cleaner = PageCleaner()
        running = self._running_lines(sample, cleaner)
        remarks: dict[int, str] = {}
        try:
            for index in range(len(pages)):
                raw = sample.pop(index) if index in sample else _raw_text(pages, index)
                number = index + 1
                if raw is None or len(raw.strip()) < _THIN:
                    remarks[number] = _remark(pages, index, raw)
                yield number, running.strip(number, cleaner.clean(raw or ""))
                self.pages_read = number
        finally:
            report.skipped.extend(_sentences({number: remark for number, remark in remarks.items() if remark}))
            if running.dropped:
                report.skipped.append(f"running headers and footers ({running.dropped:,} lines)")

    def _running_lines(self, sample: _Sample, cleaner: PageCleaner) -> RunningLines:
        texts = [(index + 1, raw) for index, raw in sample.items() if raw]
        for _, raw in texts:
            cleaner.learn(raw)
        if self.options.keep_headers:
            return RunningLines([])
        return RunningLines((number, cleaner.clean(raw)) for number, raw in texts)


_Sample = dict[int, str | None]
"""Raw texts of some pages by index, None for a damaged page."""


def _raw_text(pages: Pages, index: int) -> str | None:
    try:
        return pages.text(index)
    except PageDamaged:
        return None


def _is_thin(pages: Pages, index: int, raw: str | None) -> bool:
    """Whether a page has hardly any text, and perhaps a picture of some."""
    size = _THIN if raw is None else len(raw.strip())
    return size < _THIN and (size == 0 or pages.has_image(index))


def _refuse_scan(pages: Pages, sample: _Sample) -> None:
    """Raise InputError if most pages are pictures. The sample decides whether to look at all pages."""
    thin = sum(_is_thin(pages, index, raw) for index, raw in sample.items())
    if thin <= _SCANNED_SHARE * len(sample):
        return
    if len(sample) < len(pages):
        thin = sum(_is_thin(pages, index, _raw_text(pages, index)) for index in range(len(pages)))
    if thin > _SCANNED_SHARE * len(pages):
        raise InputError(f"{thin} of its {len(pages)} pages hold no text", hint=_OCR_HINT)


def _remark(pages: Pages, index: int, raw: str | None) -> str:
    """What to say of a page with hardly any text; nothing if it is just short."""
    if raw is None:
        return "damaged"
    if pages.has_image(index):
        return "almost no text, an image" if raw.strip() else "no text, an image"
    return "" if raw.strip() else "no text"


def _sentences(remarks: dict[int, str]) -> list[str]:
    """Remarks on pages, those on neighbouring pages in one: "pages 3-7: no text, an image"."""
    runs = groupby(enumerate(sorted(remarks.items())), key=lambda entry: (entry[1][0] - entry[0], entry[1][1]))
    sentences = []
    for (_, remark), run in runs:
        numbers = [number for _, (number, _) in run]
        where = f"page {numbers[0]}" if len(numbers) == 1 else f"pages {numbers[0]}-{numbers[-1]}"
        sentences.append(f"{where}: {remark}")
    return sentences


def _has_end(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 2048))
        return b"%%EOF" in file.read()
