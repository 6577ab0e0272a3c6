"""The text of one source as pieces, in order: what is held, by how many, and what is not.

Everything streams: a piece holds a token, or at most one passage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from infinipot_cli.ingest import Passage

# Hardly a token is longer than this many characters; two that stand further apart have something between them.
_LONGEST = 16
_WORD = re.compile(r"\s*(?:\w+|[^\w\s]+)|\s+")


class Token(Protocol):
    """A held token (``engine.census.Token``): by how many heads of each counted layer."""

    @property
    def source(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def unit(self) -> int: ...
    @property
    def token(self) -> int: ...
    @property
    def held(self) -> tuple[int, ...]: ...


class Vocabulary(Protocol):
    """Token ids back to text (``engine.vocabulary``)."""

    def join(self, ids: list[int]) -> str: ...

    def text(self, token: int) -> str: ...

    def lead(self, text: str) -> int: ...


@dataclass(frozen=True)
class View:
    """The part to show: characters [first, end) of each source, and pages or lines [first, last]."""

    first: int = 0
    end: int | None = None
    units: tuple[int, int] | None = None

    @property
    def whole(self) -> bool:
        return self.first == 0 and self.end is None and self.units is None


@dataclass(frozen=True)
class Held:
    """Text that is still held: the tokens at one position, mostly one, with the page or line they stand on."""

    text: str
    offset: int
    unit: int
    tokens: tuple[Token, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """By how many heads of each layer it is held: of pieces of one character, the best held piece counts."""
        return tuple(max(column) for column in zip(*(token.held for token in self.tokens), strict=True))


@dataclass(frozen=True)
class Gap:
    """Text that nothing holds: ``size`` characters, or None where their number is not known; ``text`` if it is."""

    offset: int
    unit: int
    size: int | None
    text: str | None = None


Piece = Held | Gap


def pieces_of(
    tokens: Iterable[Token],
    vocabulary: Vocabulary | None,
    view: View,
    chars: int | None,
    passages: Iterable[Passage] | None,
    lines: bool,
) -> Iterator[Piece]:
    """The pieces of one source: with its ``passages``, gaps have their text; without, their size.

    tokens: those held within the view, in order. chars: how much of the source was read. lines: whether its places
    are lines, counted on inside a passage.
    """
    cells = (list(cell) for _, cell in groupby(tokens, key=lambda token: token.position))
    if passages is None:
        return _from_pot(cells, vocabulary, view, chars)
    return _from_source(cells, vocabulary, _clipped(passages, view, chars, lines))


def _from_pot(
    cells: Iterator[list[Token]], vocabulary: Vocabulary | None, view: View, chars: int | None
) -> Iterator[Piece]:
    """What the pot alone knows. Gaps before and after are counted only where the whole source is shown."""
    at: int | None = view.first if view.units is None else None
    unit = 1
    for cell in cells:
        position, unit = cell[0].position, cell[0].unit
        text = _decoded(cell, vocabulary)
        begin = position - (vocabulary.lead(text) if vocabulary else 0)
        if at is not None and (gap := _gap(at, begin, unit, vocabulary is not None)):
            yield gap
        yield Held(text, position, unit, tuple(cell))
        at = max(begin + len(text), position) if vocabulary else position + 1
    end = chars if view.end is None else min(view.end, chars if chars is not None else view.end)
    if (
        at is not None
        and view.units is None
        and end is not None
        and (gap := _gap(at, end, unit, vocabulary is not None))
    ):
        yield gap


def _gap(begin: int, end: int, unit: int, exact: bool) -> Gap | None:
    if exact:
        return Gap(begin, unit, end - begin) if end > begin else None
    return Gap(begin, unit, None) if end - begin > _LONGEST else None


def _decoded(cell: list[Token], vocabulary: Vocabulary | None) -> str:
    ids = [token.token for token in cell]
    if vocabulary is None:
        return "".join(f"‹{number}›" for number in ids)
    return vocabulary.text(ids[0]) if len(ids) == 1 else vocabulary.join(ids)


def _from_source(
    cells: Iterator[list[Token]], vocabulary: Vocabulary | None, passages: Iterable[Passage]
) -> Iterator[Piece]:
    """The source's own text, cut where held tokens begin and end."""
    waiting = next(cells, None)
    for passage in passages:
        at, stop = passage.offset, passage.offset + len(passage.text)
        while waiting is not None and waiting[0].position < at:  # of a part that is not shown
            waiting = next(cells, None)
        while waiting is not None and waiting[0].position < stop:
            cell, waiting = waiting, next(cells, None)
            border = stop if waiting is None else max(min(waiting[0].position, stop), cell[0].position)
            begin, end = _span(cell, vocabulary, passage, border)
            begin, end = max(begin, at), max(end, at)
            if begin > at:
                yield _read(passage, at, begin)
            if end > begin:
                yield Held(_slice(passage, begin, end), begin, cell[0].unit, tuple(cell))
            at = end
        if stop > at:
            yield _read(passage, at, stop)


def _span(cell: list[Token], vocabulary: Vocabulary | None, passage: Passage, border: int) -> tuple[int, int]:
    """Where a cell begins and ends in the source: as its tokens say, or else up to the end of the word.

    A tokenizer that changes letters before it cuts (their case, say) says other letters than the source.
    """
    position = cell[0].position
    if vocabulary is not None:
        said = _decoded(cell, vocabulary)
        begin = position - vocabulary.lead(said)
        if said and begin >= passage.offset and _matches(said, _slice(passage, begin, begin + len(said))):
            return begin, begin + len(said)
    word = _WORD.match(passage.text, position - passage.offset)
    end = passage.offset + word.end() if word else position + 1
    return position, max(min(end, border), position + 1)


def _matches(said: str, written: str) -> bool:
    return len(said) == len(written) and all(a in (b, "\ufffd") for a, b in zip(said, written, strict=True))


def _slice(passage: Passage, begin: int, end: int) -> str:
    return passage.text[begin - passage.offset : end - passage.offset]


def _read(passage: Passage, begin: int, end: int) -> Gap:
    return Gap(begin, passage.place, end - begin, _slice(passage, begin, end))


def _clipped(passages: Iterable[Passage], view: View, chars: int | None, lines: bool) -> Iterator[Passage]:
    """The passages within the view, cut to it; ends behind it, without reading on. With ``lines``, line by line."""
    end = view.end if chars is None else chars if view.end is None else min(view.end, chars)
    for passage in passages:
        if end is not None and passage.offset >= end:
            return
        for part in _by_lines(passage) if lines and view.units else (passage,):
            if view.units is not None and part.place > view.units[1]:
                return
            if view.units is None or part.place >= view.units[0]:
                yield from _cut(part, view.first, end)


def _by_lines(passage: Passage) -> Iterator[Passage]:
    offset = passage.offset
    # Only newlines count: other line ends that Python knows are text.
    for number, line in enumerate(passage.text.split("\n")):
        text = line if offset + len(line) == passage.offset + len(passage.text) else line + "\n"
        if text:
            yield Passage(text, passage.place + number, offset)
        offset += len(text)


def _cut(passage: Passage, first: int, end: int | None) -> Iterator[Passage]:
    begin = max(first - passage.offset, 0)
    text = passage.text[begin : None if end is None else max(end - passage.offset, 0)]
    if text:
        yield Passage(text, passage.place, passage.offset + begin)
