"""Finding the lines that repeat at the top or bottom of the pages: headers, footers, page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations

_SHARE = 0.6
_LEAST_PAGES = 3
_EDGE_LINES = 2
_NUMBER = re.compile(r"(\d+)")
_MOST_NUMBERS = 4
_WORD_LETTERS = 3


def sample_pages(pages: int, size: int = 40) -> list[int]:
    """Up to ``size`` page indices spread over a book, in neighbouring pairs: odd and even pages differ."""
    if pages <= size:
        return list(range(pages))
    pairs = size // 2
    first = [round(i * (pages - 2) / (pairs - 1)) for i in range(pairs)]
    return sorted({index + step for index in first for step in (0, 1)})


class RunningLines:
    """The running lines of a book, learnt from some of its pages.

    A line runs if it is among the first or last two on more than 60 % of the pages, or of the odd ones, or of the
    even ones, with the same numbers or with numbers that count with the pages: those of invoices do neither. In a line
    without words (12, 3/40) one must count, so that rows of figures are not taken for page numbers.
    """

    def __init__(self, sample: Iterable[tuple[int, str]]) -> None:
        """``sample``: page numbers and texts."""
        keys = [
            (page, {key for line in _edges(text.split("\n")).values() for key in _keys(line, page)})
            for page, text in sample
            if text
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
        drop = {index for index, line in _edges(lines).items() if _keys(line, page) & running}
        kept = "\n".join(line for index, line in enumerate(lines) if index not in drop)
        if not kept.strip():
            return text
        self.dropped += len(drop)
        return kept


def _edges(lines: list[str]) -> dict[int, str]:
    """The first and last lines that are not blank, by index."""
    filled = [index for index, line in enumerate(lines) if line.strip()]
    return {index: lines[index] for index in filled[:_EDGE_LINES] + filled[-_EDGE_LINES:]}


def _keys(line: str, page: int) -> set[str]:
    """What a line may look like on every page it runs on: each number as it stands, or as it counts with the pages."""
    words = " ".join(line.casefold().split())
    parts = _NUMBER.split(words)
    numbers = range(1, len(parts), 2)[:_MOST_NUMBERS]
    fixed = not numbers or sum(char.isalpha() for char in words) >= _WORD_LETTERS
    keys = {words} if fixed else set()
    for counting in _some(numbers):
        keys.add("".join(_from_page(part, page) if at in counting else part for at, part in enumerate(parts)))
    return keys


def _some(places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every choice of at least one of the places."""
    return chain.from_iterable(combinations(places, size) for size in range(1, len(places) + 1))


def _from_page(number: str, page: int) -> str:
    return f" page{int(number[:9]) - page:+d} "


def _frequent(pages: list[set[str]]) -> set[str]:
    counts = Counter(key for keys in pages for key in keys)
    least = max(_LEAST_PAGES, int(_SHARE * len(pages)) + 1)
    return {key for key, count in counts.items() if count >= least}
