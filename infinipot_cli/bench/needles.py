"""What is hidden, what is asked, and what counts: the pass key, and RULER's tasks for keys, variables and words.

Wordings and numbers are those of Mohtashami & Jaggi's pass key (epfml/landmark-attention, Apache-2.0) and of RULER
(NVIDIA/RULER, Apache-2.0: scripts/data/synthetic, scripts/eval/synthetic). Differences: the question is asked as `ask`
asks it, so there is no beginning of the answer for the model to continue ("The pass key is") and no worked example;
answers may be longer by what that beginning would have said. Without it, small models take "What is the pass key?" for
a question about meaning, so it reads "What number is the pass key?". Keys come from this project's own words.
"""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from infinipot_cli.bench import words
from infinipot_cli.bench.haystack import Count, Haystack, Needle, hide
from infinipot_cli.bench.scoring import all_parts, first_number
from infinipot_cli.bench.wordlists import COMMON, CommonWords, FrequentWords, Listing, document

PASSKEY_INTRO = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there.\n"
)
PASSKEY_LINE = "The pass key is {key}. Remember it. {key} is the pass key."
PASSKEY_QUESTION = "What number is the pass key?"
_ONE = (
    "A special magic {kind} is hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind} afterwards.\n"
)
_SOME = (
    "Some special magic {kind}s are hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind}s afterwards.\n"
)
_NEEDLE = "One of the special magic {kind}s for {key} is: {value}."
_CHAIN_INTRO = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
VALUES = QUERIES = 4
HOPS = 4


@dataclass(frozen=True)
class Puzzle:
    """A question, its accepted answers, and the document that they are about.

    ``document`` makes its passages, given what counts tokens. ``needles`` is empty where all of it is the puzzle.
    """

    question: str
    accepted: tuple[str, ...]
    document: Callable[[Count], Iterator[str]]
    needles: tuple[Needle, ...] = ()


@dataclass(frozen=True)
class Request:
    """How a puzzle is wanted: ``tokens`` long, its needle at ``depth`` (None: anywhere), drawn by ``seed``.

    ``distractors`` is how many lines like the needle ``multikey`` hides beside it.
    """

    tokens: int
    depth: float | None
    seed: str
    haystack: Haystack
    distractors: int = 0

    def chance(self, what: str) -> random.Random:
        """A random stream of its own for every purpose, the same in every process."""
        return random.Random(f"{self.seed} {what}")


@dataclass(frozen=True)
class NeedleTask:
    """A kind of puzzle. ``by_depth``: it has one needle, at the depth asked for; ``haystack``: it stands in one;
    ``keyed``: its haystack may also be made of distractors; ``distracted``: some are hidden in any haystack."""

    make: Callable[[Request], Puzzle]
    score: Callable[[str, tuple[str, ...]], float]
    max_new_tokens: int
    by_depth: bool = False
    haystack: bool = True
    keyed: bool = False
    distracted: bool = False


def _hidden(
    request: Request,
    intro: str,
    needles: list[Needle],
    question: str,
    accepted: tuple[str, ...],
    avoid: frozenset[str] = frozenset(),
) -> Puzzle:
    def passages(count: Count) -> Iterator[str]:
        pieces = request.haystack.pieces(request.chance("haystack"), avoid)
        return hide(needles, request.tokens, intro, pieces, count)

    return Puzzle(question, accepted, passages, tuple(needles))


def _anywhere(chance: random.Random) -> float:
    """A depth as RULER draws it: one of forty, evenly spaced."""
    return chance.randrange(40) / 39


def passkey(request: Request) -> Puzzle:
    """One number in the text, between 1 and 50,000; the first number of the answer counts."""
    chance = request.chance("needles")
    key = str(chance.randint(1, 50_000))
    depth = _anywhere(chance) if request.depth is None else request.depth
    needle = Needle(depth, PASSKEY_LINE.format(key=key))
    return _hidden(request, PASSKEY_INTRO, [needle], PASSKEY_QUESTION, (key,))


def multikey(request: Request) -> Puzzle:
    """One UUID asked for by its UUID key, among distractors of the same form: nothing but the key tells them apart."""
    chance = request.chance("needles")
    depth = _anywhere(chance) if request.depth is None else request.depth
    key, value = new_uuid(chance), new_uuid(chance)
    needles = [Needle(depth, _NEEDLE.format(kind="uuid", key=key, value=value))]
    for _ in range(request.distractors):
        needles.append(Needle(_anywhere(chance), uuid_line(chance)))
    question = f"What is the special magic uuid for {key} mentioned in the provided text?"
    return _hidden(request, _ONE.format(kind="uuid"), needles, question, (value,), frozenset((key, value)))


def multivalue(request: Request) -> Puzzle:
    """Four numbers under one key, all of them asked for."""
    chance = request.chance("needles")
    key = words.key(chance.randrange(words.COUNT))
    values = _numbers(chance, VALUES)
    question = f"What are all the special magic numbers for {key} mentioned in the provided text?"
    return _numbered(request, chance, [(key, value) for value in values], question)


def multiquery(request: Request) -> Puzzle:
    """Four keys with a number each, all of them asked for."""
    chance = request.chance("needles")
    keys = [words.key(number) for number in chance.sample(range(words.COUNT), QUERIES)]
    asked = f"{', '.join(keys[:-1])}, and {keys[-1]}"
    question = f"What are all the special magic numbers for {asked} mentioned in the provided text?"
    return _numbered(request, chance, list(zip(keys, _numbers(chance, QUERIES), strict=True)), question)


def _numbered(request: Request, chance: random.Random, pairs: list[tuple[str, str]], question: str) -> Puzzle:
    needles = [Needle(_anywhere(chance), _NEEDLE.format(kind="number", key=key, value=value)) for key, value in pairs]
    values = tuple(value for _, value in pairs)
    avoid = frozenset((*values, *(key for key, _ in pairs)))
    return _hidden(request, _SOME.format(kind="number"), needles, question, values, avoid)


def variables(request: Request) -> Puzzle:
    """A chain of assignments from a number through five variables, all of them asked for."""
    chance = request.chance("needles")
    names: list[str] = []
    while len(names) <= HOPS:
        name = "".join(chance.choices(string.ascii_uppercase, k=5))
        names += [] if name in names else [name]
    value = str(chance.randint(10_000, 99_999))
    values = [value, *(f"VAR {name}" for name in names)]
    # The chain stands in the text in its own order.
    depths = sorted(_anywhere(chance) for _ in names)
    lines = [f"VAR {name} = {before}" for name, before in zip(names, values, strict=False)]
    needles = [Needle(depth, line) for depth, line in zip(depths, lines, strict=True)]
    question = f"Find all variables that are assigned the value {value} in the text above."
    return _hidden(request, _CHAIN_INTRO, needles, question, tuple(names))


def common_words(request: Request) -> Puzzle:
    """The ten words that stand ten times as often as the others in a numbered list."""
    listing = CommonWords(request.chance("words"))
    wanted = tuple(listing.word(number) for number in range(COMMON))
    return Puzzle("What are the 10 most common words in the above list?", wanted, _listed(request, listing))


def frequent_words(request: Request) -> Puzzle:
    """The three most frequent made-up words of a text in which frequency falls with the square of the rank."""
    listing = FrequentWords(request.chance("words"))
    wanted = tuple(listing.word(number) for number in (1, 2, 3))
    question = (
        "Do not provide any explanation. Please ignore the dots '....'. "
        "What are the three most frequently appeared words in the above coded text?"
    )
    return Puzzle(question, wanted, _listed(request, listing))


def _listed(request: Request, listing: Listing) -> Callable[[Count], Iterator[str]]:
    return lambda count: document(listing, request.tokens, count, request.chance("order"))


#: By the name that --task takes. Longest answers: RULER's, and what its beginning of the answer would take.
TASKS: dict[str, NeedleTask] = {
    "passkey": NeedleTask(passkey, first_number, 32, by_depth=True),
    "multikey": NeedleTask(multikey, all_parts, 128, by_depth=True, keyed=True, distracted=True),
    "multivalue": NeedleTask(multivalue, all_parts, 128, keyed=True),
    "multiquery": NeedleTask(multiquery, all_parts, 128, keyed=True),
    "variables": NeedleTask(variables, all_parts, 64),
    "common-words": NeedleTask(common_words, all_parts, 144, haystack=False),
    "frequent-words": NeedleTask(frequent_words, all_parts, 64, haystack=False),
}


@dataclass(frozen=True)
class Distractors:
    """A haystack of lines like the needle, as in RULER's multi-key tasks 2 and 3: ``kind`` is uuid or number."""

    kind: str
    name: str = "needles"

    def pieces(self, chance: random.Random, avoid: Collection[str] = ()) -> Iterator[str]:
        make = uuid_line if self.kind == "uuid" else number_line
        while True:
            lines = (make(chance) for _ in range(20))
            yield "".join(f"{line}\n" for line in lines if not any(text in line for text in avoid))


def uuid_line(chance: random.Random) -> str:
    """A line like the needle of ``multikey``."""
    return _NEEDLE.format(kind="uuid", key=new_uuid(chance), value=new_uuid(chance))


def number_line(chance: random.Random) -> str:
    """A line like the needles of ``multivalue`` and ``multiquery``."""
    key, value = words.key(chance.randrange(words.COUNT)), _numbers(chance, 1)[0]
    return _NEEDLE.format(kind="number", key=key, value=value)


def new_uuid(chance: random.Random) -> str:
    """A random UUID (version 4)."""
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _numbers(chance: random.Random, count: int) -> list[str]:
    """Different numbers of seven digits."""
    return [str(number) for number in chance.sample(range(1_000_000, 10_000_000), count)]
