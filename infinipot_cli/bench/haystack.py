"""Haystacks: endless text in pieces, and what cuts it to a number of tokens.

A haystack hands out pieces of about PIECE characters that end where a sentence ends, if sentences there are; the
reading tokenises piece by piece, so tokens that were counted piece by piece are the tokens that are read.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from infinipot_cli.errors import InputError, UsageError
from infinipot_cli.ingest import IngestOptions, is_pot, open_sources

#: Text -> its tokens.
Count = Callable[[str], int]

PIECE = 2000
GARBAGE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
"""The filler of Mohtashami & Jaggi's pass key text (epfml/landmark-attention, Apache-2.0)."""

_SENTENCE_END = re.compile(r"[.!?…]['\"’”)\]]*\s+|[。！？]\s*|\n+")
_WORD_END = re.compile(r"\s+")
#: A sentence that leaves more tokens than this unused is cut within.
_SLACK = 64
#: Pieces whose token counts are kept.
_REMEMBERED = 2048


class Haystack(Protocol):
    """Endless text. ``name`` stands for the text in the ids of cases: another text has another name."""

    @property
    def name(self) -> str: ...

    def pieces(self, chance: random.Random, avoid: Collection[str] = ()) -> Iterator[str]:
        """The text from its beginning. What is made by ``chance`` has none of ``avoid`` in it."""


@dataclass(frozen=True)
class Repeated:
    """The pass key text's five sentences, over and over: the most predictable text there is."""

    name: str = "repeated"

    def pieces(self, chance: random.Random, avoid: Collection[str] = ()) -> Iterator[str]:
        return itertools.repeat(GARBAGE * (PIECE // len(GARBAGE)))


@dataclass(frozen=True)
class Texts:
    """Files of the user's, or the novel, from the beginning, and again from the beginning when they end."""

    name: str
    sources: tuple[str, ...]
    options: IngestOptions

    def pieces(self, chance: random.Random, avoid: Collection[str] = ()) -> Iterator[str]:
        while True:
            yield from whole_sentences(self._once())

    def _once(self) -> Iterator[str]:
        """The texts once; what one lacks at its end parts it from the next. Raises InputError as ingestion does."""
        for source in open_sources(list(self.sources), self.options):
            last = ""
            for passage in source.passages():
                last = passage.text
                yield last
            if not last.endswith("\n"):
                yield "\n\n"

    def tokens(self, count: Count, enough: int) -> int:
        """How long the texts are, once; not counted beyond ``enough``."""
        total = 0
        for piece in whole_sentences(self._once()):
            total += count(piece)
            if total >= enough:
                break
        return total


def novel() -> Texts:
    """The novel that came with infinipot (CC0). Raises InputError where it was left out."""
    here = Path(__file__).resolve().parent.parent
    for folder in (here / "novel", here.parent / "examples" / "the-weight-of-albert-noon"):
        # Named one by one: a folder would be read by the rules of whatever .gitignore it is under.
        if chapters := sorted(map(str, folder.glob("*.md"))):
            return Texts("natural", tuple(chapters), IngestOptions())
    raise InputError("the novel is not in this installation", hint="name a text of your own: --haystack FILE")


def texts(names: Sequence[str], options: IngestOptions) -> Texts:
    """The user's files and folders, named by what is in them. Raises InputError for what cannot be read again."""
    for name in names:
        if not Path(name).exists():
            raise InputError(f"{name}: there is no such file or folder", hint="--haystack takes files and folders")
        if Path(name).is_file() and (not _is_regular(name) or is_pot(name)):
            raise InputError(f"{name} is no document that can be read again and again")
    found = Texts("", tuple(names), options)
    digest = hashlib.sha256()
    for text in found._once():
        digest.update(text.encode("utf-8", "replace"))
    label = "+".join(Path(name).name for name in names)
    return Texts(f"{label}~{digest.hexdigest()[:8]}", tuple(names), options)


def _is_regular(name: str) -> bool:
    return Path(name).resolve().is_file()


def whole_sentences(passages: Iterable[str]) -> Iterator[str]:
    """The same text in pieces of at least PIECE characters that end with a sentence, where there are any."""
    held = ""
    for passage in passages:
        held += passage
        while len(held) >= PIECE:
            ends = [match.end() for match in _SENTENCE_END.finditer(held[: 2 * PIECE])]
            cut = next((end for end in ends if end >= PIECE), ends[-1] if ends else PIECE)
            yield held[:cut]
            held = held[cut:]
    if held:
        yield held


class Filler:
    """Hands out a haystack by tokens."""

    def __init__(self, pieces: Iterator[str], count: Count) -> None:
        self._pieces, self._rest = pieces, ""
        self._count = lru_cache(_REMEMBERED)(count)

    def take(self, tokens: int, exactly: bool = False) -> Iterator[tuple[str, int]]:
        """Pieces, each with its tokens, that make up at most ``tokens``: up to the end of a sentence near there, or,
        if ``exactly`` so many are wanted, to within a word or a character. What is cut off comes next time."""
        left = tokens
        while left > 0:
            piece = self._rest or next(self._pieces)
            size = self._count(piece)
            if size > left:
                self._rest = piece
                yield from self._part(left, exactly)
                return
            self._rest = ""
            left -= size
            yield piece, size

    def _part(self, left: int, exactly: bool) -> Iterator[tuple[str, int]]:
        """The beginning of the rest that fits into ``left`` tokens."""
        head, size = self._head(_SENTENCE_END, left)
        if exactly or left - size > _SLACK:
            head, size = self._head(_WORD_END, left)
        if exactly and left - size > 4:
            head, size = self._head(re.compile(""), left)
        if head:
            self._rest = self._rest[len(head) :]
            yield head, size

    def _head(self, ends: re.Pattern[str], left: int) -> tuple[str, int]:
        """The longest beginning of the rest, ending where ``ends`` matches, of at most ``left`` tokens."""
        cuts = [match.end() for match in ends.finditer(self._rest)]
        found = bisect_right(cuts, left, key=lambda cut: self._count(self._rest[:cut]))
        # A tokenizer may need fewer tokens for more text, so what the search found is looked at again.
        while found and self._count(self._rest[: cuts[found - 1]]) > left:
            found -= 1
        head = self._rest[: cuts[found - 1]] if found else ""
        return head, self._count(head) if head else 0


@dataclass(frozen=True)
class Needle:
    """A line to hide at ``depth``: the share of the haystack, 0 to 1, that stands before it."""

    depth: float
    text: str


def hide(needles: Sequence[Needle], tokens: int, intro: str, pieces: Iterator[str], count: Count) -> Iterator[str]:
    """A document of ``tokens`` tokens, to within a few: ``intro``, then the haystack with the needles in it.

    Each needle stands on a line of its own, at its depth or the end of the sentence before; of needles at one depth
    the first comes first. Raises UsageError where the needles alone are longer than that.
    """
    hidden = sorted(needles, key=lambda needle: needle.depth)
    lines = [f"\n{needle.text}\n" for needle in hidden]
    room = tokens - count(intro) - sum(map(count, lines))
    if room < 0:
        raise UsageError(
            f"{tokens} tokens are too few: what is to be hidden takes {tokens - room}",
            hint="ask for longer documents with --lengths",
        )
    filler, done = Filler(pieces, count), 0
    yield intro
    for needle, line in zip(hidden, lines, strict=True):
        for piece, size in filler.take(round(needle.depth * room) - done):
            done += size
            yield piece
        yield line
    for piece, _ in filler.take(room - done, exactly=True):
        yield piece
