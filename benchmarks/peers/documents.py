"""The documents that every peer gets: a book's sentences, and among them a pass key or the paragraph that answers a
question."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infinipot_cli.bench.needles import PASSKEY_LINE, PASSKEY_QUESTION
from infinipot_cli.ingest import IngestOptions, open_sources

DEPTHS = (0.5, 0.1, 0.9, 0.3, 0.7)

Count = Callable[[str], int]


@dataclass(frozen=True)
class Needle:
    """What is hidden: ``text``, the ``question`` that it answers, and the answers that count."""

    id: str
    kind: str
    text: str
    question: str
    accepted: tuple[str, ...]


class Haystack:
    """A book as sentences with their sizes in tokens, repeated where a document is longer than the book."""

    def __init__(self, text: str, count: Count) -> None:
        self.count = count
        self.sentences = sentences(text)
        self.sizes = [count(sentence) for sentence in self.sentences]

    def hide(self, needle: Needle, depth: float, tokens: int) -> str:
        """About ``tokens`` tokens, never more by the sum of the parts, with the needle at ``depth`` (0..1).

        Where the needle is from this book, its sentences stand nowhere else. Raises ValueError if the needle alone is
        too long.
        """
        hidden = f"\n\n{needle.text}\n\n"
        room = tokens - self.count(hidden)
        if room < 0:
            raise ValueError(f"{needle.id} alone is longer than {tokens} tokens")
        own = set(map(_plain, sentences(needle.text)))
        around = list(self._take(room, own))
        middle = round(len(around) * depth)
        return "".join(around[:middle]).rstrip() + hidden + "".join(around[middle:]).strip()

    def _take(self, room: int, without: set[str]) -> Iterator[str]:
        pairs = [(s, n) for s, n in zip(self.sentences, self.sizes, strict=True) if _plain(s) not in without and n]
        number = 0
        while pairs:
            sentence, size = pairs[number % len(pairs)]
            room -= size
            if room < 0:
                return
            yield sentence
            number += 1


def sentences(text: str) -> list[str]:
    """Sentences with the white space that follows them; together they are the text."""
    return re.findall(r".+?(?:[.!?][\"'”’)]*\s+|\n\s*\n|\Z)", text, re.DOTALL)


def _plain(sentence: str) -> str:
    return " ".join(sentence.split())


def book_text(path: str) -> str:
    """The text of any document that infinipot reads."""
    return "\n".join(p.text for source in open_sources([path], IngestOptions()) for p in source.passages())


def pass_key(seed: int, trial: int) -> Needle:
    """Mohtashami and Jaggi's line, asked for as ``infinipot bench nih`` does."""
    key = str(random.Random(f"{seed} {trial}").randint(10_000, 99_999))
    return Needle(f"key-{key}", "passkey", PASSKEY_LINE.format(key=key), PASSKEY_QUESTION, (key,))


def questions(path: str, book: str) -> list[Needle]:
    """A question set: JSON lines with context, question and answers, or YAML with pages of the book, as in examples/.

    Questions without an answer, or with one that stands on two pages, are left out.
    """
    if path.endswith((".yaml", ".yml")):
        pages = _pages(book)
        entries = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        return [_needle(e, pages[e["page"]]) for e in entries if e["answerable"] and isinstance(e["page"], int)]
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [_needle(e, e["context"]) for e in map(json.loads, lines) if e["answers"] and e["context"]]


def _needle(entry: dict[str, Any], text: str) -> Needle:
    name = entry.get("id") or hashlib.sha256(entry["question"].encode()).hexdigest()[:8]
    return Needle(str(name), "question", text, entry["question"], tuple(entry["answers"]))


def _pages(book: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for source in open_sources([book], IngestOptions()):
        for passage in source.passages():
            found[passage.place] = found.get(passage.place, "") + passage.text
    return found


def pick(needles: Sequence[Needle], count: int, seed: int) -> list[Needle]:
    """``count`` needles, or as many as there are, in an order that the seed fixes."""
    return random.Random(seed).sample(list(needles), min(count, len(needles)))
