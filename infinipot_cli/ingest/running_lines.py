"""Finding the lines that repeat at the top or bottom of the pages: headers, footers, page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_SHARE = 0.6
_LEAST_PAGES = 3
_EDGE_LINES = 2
_DIGITS = re.compile(r"\d+")


def sample_pages(pages: int, size: int = 40) -> list[int]:
    """Up to ``size`` page indices spread over a book, in neighbouring pairs: odd and even pages differ."""
    if pages <= size:
        return list(range(pages))
    pairs = size // 2
    first = [round(i * (pages - 2) / (pairs - 1)) for i in range(pairs)]
    return sorted({index + step for index in first for step in (0, 1)})


class RunningLines:
    """The running lines of a book, learnt from some of its pages.

    A line runs if, digits folded, it is among the first or last two on more than 60 % of the pages, or of the
    odd ones, or of the even ones. A line without words (12, 3/40) must also count with the pages, so that
    rows of figures are not taken for page numbers.
    """

    def __init__(self, sample: Iterable[tuple[int, str]]) -> None:
        """``sample``: page numbers and texts."""
        keys = [
            (page, {_key(line, page) for line in _edges(text.split("\n")).values()}) for page, text in sample if text
        ]
        self._everywhere = _frequent([found for _, found in keys])
        self._by_parity = tuple(_frequent([found for page, found in keys if page % 2 == parity]) for parity in (0, 1))
        self.dropped = 0

    def strip(self, page: int, text: str) -> str:
        """The text without its running lines, unless that is all there is; ``dropped`` counts them."""
        running = self._everywhere | self._by_parity[page % 2]
        if not running:
            return text
        lines = text.split("\n")
        drop = {index for index, line in _edges(lines).items() if _key(line, page) in running}
        kept = "\n".join(line for index, line in enumerate(lines) if index not in drop)
        if not kept.strip():
            return text
        self.dropped += len(drop)
        return kept


def _edges(lines: list[str]) -> dict[int, str]:
    """The first and last lines that are not blank, by index."""
    filled = [index for index, line in enumerate(lines) if line.strip()]
    return {index: lines[index] for index in filled[:_EDGE_LINES] + filled[-_EDGE_LINES:]}


def _key(line: str, page: int) -> str:
    """What a line looks like on every page it runs on."""
    folded = _DIGITS.sub("#", " ".join(line.casefold().split()))
    number = _DIGITS.search(line)
    if number is None or sum(char.isalpha() for char in folded) >= 3:
        return folded
    return f"{folded} at page{int(number[0][:9]) - page:+d}"


def _frequent(pages: list[set[str]]) -> set[str]:
    counts = Counter(key for keys in pages for key in keys)
    least = max(_LEAST_PAGES, int(_SHARE * len(pages)) + 1)
    return {key for key, count in counts.items() if count >= least}
