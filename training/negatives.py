"""Questions that a document does not answer: another document's, or its own with one name or number changed."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from infinipot_cli.catalog import REFUSAL
from training.corpus import Ask, Text, answers_in

NOT_SAID = REFUSAL
#: Kinds of questions that their document does not answer.
NEGATIVES = ("swapped", "near")

_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*|\b\d[\d,.]*\d\b")


def swapped(document: str, others: Sequence[Text], rng: random.Random) -> Ask | None:
    """A question of another passage whose answers do not stand in this one."""
    for _ in range(8):
        other = rng.choice(others)
        ask = rng.choice(other.asks)
        if other.text not in document and not answers_in(document, ask):
            return Ask(ask.question, NOT_SAID, (NOT_SAID,), "swapped")
    return None


def near_miss(document: str, asks: Sequence[Ask], others: Sequence[Text], rng: random.Random) -> Ask | None:
    """One of the document's own questions, about somebody, somewhere or some year that it does not mention."""
    for ask in rng.sample(list(asks), len(asks)):
        for name in _NAME.findall(ask.question):
            if name in document and (other := _stranger(name, document, others, rng)):
                return Ask(ask.question.replace(name, other), NOT_SAID, (NOT_SAID,), "near")
    return None


def _stranger(name: str, document: str, others: Sequence[Text], rng: random.Random) -> str | None:
    """A name (or number) from other passages' questions, as many words long, that the document does not hold."""
    for _ in range(12):
        for other in _NAME.findall(rng.choice(rng.choice(others).asks).question):
            alike = other[0].isdigit() == name[0].isdigit() and len(other.split()) == len(name.split())
            if alike and other.lower() not in document.lower():
                return other
    return None
