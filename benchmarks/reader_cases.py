"""The reader's questions as cases: with their paragraph alone, and with it hidden among other paragraphs.

Rows are those of ``training/prepare.py``: documents with questions, held back from training by document. One question
is taken of a document. Everything drawn by chance is drawn from the seed and the question itself, so that a question
is the same whatever else is measured.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from benchmarks.bm25 import ranked
from infinipot_cli.bench.harness import Case, Label
from infinipot_cli.bench.scoring import contains, normalised
from infinipot_cli.errors import UsageError

Count = Callable[[str], int]
#: Questions with an answer, and those without one as the data has them.
ANSWERABLE, UNANSWERABLE = ("extractive",), ("swapped", "near")
BETWEEN = "\n\n"


@dataclass(frozen=True, eq=False)
class Document:
    """A prepared document: ``number`` is its line, ``group`` the article, story or product that it is part of."""

    number: int
    source: str
    group: str
    task: str
    text: str
    asks: tuple[dict[str, Any], ...]

    @cached_property
    def words(self) -> str:
        """The text as answers are looked for in it."""
        return f" {normalised(self.text)} "


@dataclass(frozen=True)
class Item:
    """A question drawn from a document. ``kind`` is the data's, or ``absent``: its paragraph is left out."""

    document: Document
    question: str
    accepted: tuple[str, ...]
    kind: str

    @property
    def id(self) -> str:
        """The same for the same question to the same text."""
        said = f"{self.document.text}\0{self.question}\0{self.kind}"
        return f"{self.document.source} {hashlib.sha256(said.encode()).hexdigest()[:10]} {self.kind}"

    def labels(self, part: str) -> dict[str, Label]:
        """What every case of this question carries."""
        answerable = int(self.kind in ANSWERABLE)
        return {"part": part, "source": self.document.source, "kind": self.kind, "answerable": answerable}


def load(path: Path, sources: Collection[str] = ()) -> list[Document]:
    """The documents of a prepared set, of some sources or of all. Raises UsageError for a file that is none."""
    try:
        with path.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        found = [_document(number, row) for number, row in enumerate(rows)]
    except FileNotFoundError:
        raise UsageError(f"there is no {path}", hint="python training/prepare.py CORPUS makes it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a prepared set: {error}") from error
    known = {document.source for document in found}
    if strange := set(sources) - known:
        raise UsageError(f"{path} has no source {min(strange)!r}", hint=f"it has {', '.join(sorted(known))}")
    return [document for document in found if not sources or document.source in sources]


def _document(number: int, row: dict[str, Any]) -> Document:
    return Document(number, row["source"], row["group"], row["task"], row["document"], tuple(row["asks"]))


def draw(documents: Sequence[Document], kinds: Collection[str], count: int, seed: int) -> list[Item]:
    """At most ``count`` questions of these kinds, each once and from another row; more of them begin with fewer."""
    chance = random.Random(f"{seed} {sorted(kinds)}")
    found: dict[str, Item] = {}
    for document in chance.sample(list(documents), len(documents)):
        asks = [ask for ask in document.asks if ask["kind"] in kinds]
        if asks and len(found) < count:
            ask = chance.choice(asks)
            item = Item(document, ask["question"], tuple(ask["accepted"]), ask["kind"])
            found.setdefault(item.id, item)  # a passage may stand in several rows
    return list(found.values())


def gold_cases(items: Sequence[Item], count: Count, name: str = "gold", part: str = "gold") -> list[Case]:
    """Each question with the document that it was written for, and nothing else."""
    return [
        Case(
            id=f"{name} {item.id}",
            document=lambda text=item.document.text: [text],  # type: ignore[misc]
            question=item.question,
            accepted=item.accepted,
            labels=item.labels(part),
            tokens=count(item.document.text),
        )
        for item in items
    ]


def without_paragraph(items: Sequence[Item]) -> list[Item]:
    """The same questions, to be asked where their own document is not: then nothing answers them."""
    return [Item(item.document, item.question, item.accepted, "absent") for item in items]


class Hay:
    """Documents to hide others among; token counts are kept."""

    def __init__(self, documents: Sequence[Document], count: Count, seed: int) -> None:
        self.documents = [document for document in documents if document.task == "question"]
        self.count = lru_cache(None)(count)
        self._seed = seed

    def around(self, item: Item, tokens: int) -> list[str]:
        """Paragraphs of ``tokens`` tokens at most, the question's own at a random place among them (unless absent).

        The others are of other articles and hold none of the accepted answers. Raises UsageError if they run out.
        """
        chance = random.Random(f"{self._seed} {item.id}")
        place = chance.random()
        own = [] if item.kind == "absent" else [item.document.text.strip()]
        left = tokens - sum(self.count(text + BETWEEN) for text in own)
        others = list(self._others(item, left, chance, tokens))
        at = round(place * len(others))
        return others[:at] + own + others[at:]

    def _others(self, item: Item, left: int, chance: random.Random, tokens: int) -> Iterator[str]:
        smallest = min((self.count(document.text) for document in self.documents), default=0)
        taken: set[str] = set()
        for other in chance.sample(self.documents, len(self.documents)):
            if left < smallest:
                return
            text = other.text.strip()
            size = self.count(text + BETWEEN)
            if size <= left and text not in taken and _strange(other, item):
                left -= size
                taken.add(text)
                yield text
        if left > max(300, tokens // 10):
            raise UsageError(f"the data have too few paragraphs for {tokens:,} tokens", hint="use fewer --lengths")


def _strange(other: Document, item: Item) -> bool:
    """Whether a document has nothing to do with a question."""
    answers = [] if item.kind in UNANSWERABLE else [answer for answer in item.accepted if normalised(answer)]
    said = any(f" {normalised(answer)} " in other.words for answer in answers)
    asked = any(ask["question"] == item.question for ask in other.asks)
    return other.group != item.document.group and not said and not asked


def hidden_cases(items: Sequence[Item], hay: Hay, lengths: Sequence[int]) -> list[Case]:
    """Each question with its paragraph somewhere in documents of these lengths, question by question."""
    cases = []
    for item in items:
        for length in lengths:
            parts = hay.around(item, length)
            labels = item.labels("hidden") | {"length": length}
            size = sum(hay.count(part + BETWEEN) for part in parts)
            cases.append(_spread(f"hidden {length} {item.id}", parts, item, labels, size))
    return cases


def retrieved_cases(items: Sequence[Item], hay: Hay, lengths: Sequence[int], budget: int, name: str) -> list[Case]:
    """The same questions with what BM25 finds in the same documents, ``budget`` tokens of it."""
    cases = []
    for item in items:
        for length in lengths:
            paragraphs = [text for part in hay.around(item, length) for text in part.split(BETWEEN) if text.strip()]
            room = budget - hay.count(item.question)
            parts = retrieve(paragraphs, item.question, room, hay.count)
            labels = item.labels("hidden") | {"length": length}
            cases.append(_spread(f"{name} {length} {item.id}", parts, item, labels, min(room, length)))
    return cases


def _spread(name: str, parts: Sequence[str], item: Item, labels: dict[str, Label], tokens: int) -> Case:
    return Case(name, lambda: [part + BETWEEN for part in parts], item.question, item.accepted, labels, tokens=tokens)


def retrieve(paragraphs: Sequence[str], question: str, budget: int, count: Count) -> list[str]:
    """The best paragraphs by BM25 until ``budget`` tokens are full, the last one cut; in document order."""
    chosen: dict[int, str] = {}
    for index in ranked(paragraphs, question):
        text = cut(paragraphs[index], budget, count)
        if text:
            chosen[index] = text
        budget -= count(text + BETWEEN)
        if budget <= 0 or text != paragraphs[index]:
            break
    return [chosen[index] for index in sorted(chosen)]


def cut(text: str, tokens: int, count: Count) -> str:
    """The text, or as many of its first words as ``tokens`` tokens hold with a paragraph's end."""
    if count(text + BETWEEN) <= tokens:
        return text
    words = text.split(" ")
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(" ".join(words[:middle]) + BETWEEN) <= tokens else (low, middle - 1)
    return " ".join(words[:low])


def says_nothing(answer: str) -> bool:
    """Whether an answer says that the document does not say; in the taught words or in others of that sense."""
    return contains(answer, REFUSALS)


REFUSALS = (
    "does not say", "doesn't say", "not say", "not mentioned", "does not mention", "doesn't mention", "not stated",
    "does not state", "not specified", "does not specify", "not provided", "does not provide", "no information",
    "not given",
)  # fmt: skip
