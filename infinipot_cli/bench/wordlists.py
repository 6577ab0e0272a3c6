"""Documents that are all words: RULER's common words and frequent words (NVIDIA/RULER, Apache-2.0), of any length.

Nothing is held but the few words that matter: which word stands where is computed, not stored.
"""

from __future__ import annotations

import math
import random
import string
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from infinipot_cli.bench import words
from infinipot_cli.bench.haystack import Count
from infinipot_cli.errors import UsageError

COMMON_INTRO = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n"
)
FREQUENT_INTRO = (
    "Read the following coded text and track the frequency of each coded word. "
    "Find the three most frequently appeared coded words. "
)
DOTS = "...."
COMMON, RATIO, RARE = 10, 10, 3
EXPONENT = 2.0
_ZETA = 1.6449340668482264  # sum of k ** -2
_LETTERS = 6
CODES = len(string.ascii_lowercase) ** _LETTERS
#: Words of one passage, and words that the mean length is estimated from.
_BATCH, _SAMPLE = 64, 256
#: The share of a document that is planned; the rest is filled with rare words until the length is right.
_PLANNED = 0.95
_HINT = "ask for longer documents with --lengths"
_ROUNDS, _ODD, _MASK = 6, 0x9E3779B97F4A7C15, (1 << 64) - 1


class Shuffle:
    """A random order of 0..size-1 that takes no memory: ``shuffle[place]`` is the item at a place, another one at
    every place. A Feistel network on pairs of numbers below ``side``, walked until it falls inside."""

    def __init__(self, size: int, chance: random.Random) -> None:
        self.size = size
        self._side = math.isqrt(max(size - 1, 0)) + 1  # the smallest whose square has room for all
        self._keys = [chance.getrandbits(64) for _ in range(_ROUNDS)]

    def __getitem__(self, place: int) -> int:
        if not 0 <= place < self.size:
            raise IndexError(place)
        place = self._once(place)
        while place >= self.size:
            place = self._once(place)
        return place

    def _once(self, value: int) -> int:
        left, right = divmod(value, self._side)
        for key in self._keys:
            # The upper half of a product with a large odd number depends on every bit of the other one.
            left, right = right, (left + (((right ^ key) * _ODD & _MASK) >> 32)) % self._side
        return left * self._side + right


class Listing(Protocol):
    """A document of words, by number: the words with the lowest numbers are the ones to find.

    ``place`` is where a word stands in the document, ``index`` its place before the shuffle.
    """

    intro: str

    def word(self, number: int) -> str:
        """The word of a number; another one for every number."""

    def item(self, place: int, word: str) -> str:
        """A word as it stands in the document."""

    def plan(self, items: int) -> Plan:
        """How often which word stands among about ``items``. Raises UsageError for too few."""


class Plan(Protocol):
    """``total`` words to shuffle, of ``kinds`` different ones."""

    @property
    def total(self) -> int: ...
    @property
    def kinds(self) -> int: ...

    def number(self, index: int) -> int:
        """The word at an index before the shuffle."""


@dataclass(frozen=True)
class CommonPlan:
    """COMMON words RATIO * ``rare`` times each, ``others`` words ``rare`` times each."""

    rare: int
    others: int

    @property
    def total(self) -> int:
        return self.rare * (COMMON * RATIO + self.others)

    @property
    def kinds(self) -> int:
        return COMMON + self.others

    def number(self, index: int) -> int:
        often = self.rare * RATIO
        return index // often if index < COMMON * often else COMMON + (index - COMMON * often) // self.rare


class CommonWords:
    """A numbered list in which ten words stand RATIO times as often as the others.

    As in RULER the others stand RARE times, 30 against 3; once in a document too short for that, and more often in
    one so long that the words would run out.
    """

    intro = COMMON_INTRO

    def __init__(self, chance: random.Random) -> None:
        self._order = Shuffle(words.COUNT, chance)

    def word(self, number: int) -> str:
        return words.key(self._order[number % words.COUNT])

    def item(self, place: int, word: str) -> str:
        return f"{place + 1}. {word} "

    def plan(self, items: int) -> CommonPlan:
        rare = max(RARE, -(-items // (words.COUNT // 2)))
        if items // rare < COMMON * (RATIO + 1):
            rare = 1
        plan = CommonPlan(rare, items // rare - COMMON * RATIO)
        if plan.others < COMMON:
            raise UsageError(f"a list of {items} words is too short to have {COMMON} common ones in it", _HINT)
        return plan


class FrequentPlan:
    """Word k (from 0) stands floor(items * (k + 1) ** -EXPONENT / zeta) times, as long as that is once or more."""

    def __init__(self, items: int) -> None:
        ranks = range(1, int((items / _ZETA) ** (1 / EXPONENT)) + 1)
        counts = [int(items / _ZETA / rank**EXPONENT) for rank in ranks]
        self._ends = list(accumulate(counts))
        self.total, self.kinds = sum(counts), len(counts)
        # The third word must stand out from the next, or no answer would be the right one.
        if self.kinds < 5 or counts[3] <= counts[4]:
            raise UsageError(f"a text of {items} words is too short for some to be frequent", _HINT)

    def number(self, index: int) -> int:
        return bisect_right(self._ends, index)


class FrequentWords:
    """Made-up words whose frequency falls with the square of the rank; the first is dots, and does not count."""

    intro = FREQUENT_INTRO

    def __init__(self, chance: random.Random) -> None:
        self._order = Shuffle(CODES, chance)

    def word(self, number: int) -> str:
        return DOTS if number == 0 else coded(self._order[number % CODES])

    def item(self, place: int, word: str) -> str:
        return f"{word} "

    def plan(self, items: int) -> FrequentPlan:
        return FrequentPlan(items)


def coded(value: int) -> str:
    """The six letters that stand for 0..CODES - 1."""
    letters = []
    for _ in range(_LETTERS):
        value, letter = divmod(value, len(string.ascii_lowercase))
        letters.append(string.ascii_lowercase[letter])
    return "".join(letters)


def document(listing: Listing, tokens: int, count: Count, chance: random.Random) -> Iterator[str]:
    """A document of ``tokens`` tokens, to within a word. Raises UsageError where that is too short for its puzzle."""
    room = tokens - count(listing.intro)
    plan = listing.plan(_items(listing, int(room * _PLANNED), count, chance))
    yield listing.intro
    for passage in _passages(listing, plan, Shuffle(plan.total, chance)):
        size = count(passage)
        if size > room:
            yield from _fitting(passage, room, count)
            return
        room -= size
        yield passage


def _items(listing: Listing, room: int, count: Count, chance: random.Random) -> int:
    """How many words take about ``room`` tokens, from the mean of a sample of those that the plan would have."""
    items = max(room // 4, 1)
    for _ in range(3):  # numbers of more digits take more tokens, so the mean depends on the answer
        plan = listing.plan(items)
        places = [chance.randrange(plan.total) for _ in range(_SAMPLE)]
        numbers = [plan.number(chance.randrange(plan.total)) for _ in range(_SAMPLE)]
        drawn = zip(places, map(listing.word, numbers), strict=True)
        text = "".join(listing.item(place, word) for place, word in drawn)
        items = max(int(room * _SAMPLE / max(count(text), 1)), 1)
    return items


def _passages(listing: Listing, plan: Plan, order: Shuffle) -> Iterator[str]:
    """The shuffled words in passages, then, without end, words that stand once."""
    place = 0
    while True:
        batch = []
        for _ in range(_BATCH):
            number = plan.number(order[place]) if place < plan.total else plan.kinds + place - plan.total
            batch.append(listing.item(place, listing.word(number)))
            place += 1
        yield "".join(batch)


def _fitting(passage: str, room: int, count: Count) -> Iterator[str]:
    """The words at the beginning of ``passage`` that fit."""
    cuts = [index + 1 for index, letter in enumerate(passage) if letter == " "]
    while cuts and count(passage[: cuts[-1]]) > room:
        cuts.pop()
    if cuts:
        yield passage[: cuts[-1]]
