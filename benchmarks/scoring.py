"""How answers are judged: SQuAD's normalisation, containment and token F1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence


def normalised(text: str) -> str:
    """Lower case, no punctuation, no articles, single blanks."""
    text = "".join(c if c not in string.punctuation + "’‘“”" else " " for c in text.lower().replace("’", "'"))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def contains(answer: str, accepted: Sequence[str]) -> bool:
    """Whether any accepted answer stands in the answer, word for word."""
    padded = f" {normalised(answer)} "
    return any(f" {normalised(wanted)} " in padded for wanted in accepted)


def exact(answer: str, accepted: Sequence[str]) -> bool:
    """Whether the answer is an accepted one and nothing else."""
    return normalised(answer) in {normalised(wanted) for wanted in accepted}


def token_f1(answer: str, accepted: Sequence[str]) -> float:
    """The best token F1 over the accepted answers."""
    return max(_f1(normalised(answer).split(), normalised(wanted).split()) for wanted in accepted)


def _f1(left: list[str], right: list[str]) -> float:
    common = sum((Counter(left) & Counter(right)).values())
    return 2 * common / (len(left) + len(right)) if common else 0.0
