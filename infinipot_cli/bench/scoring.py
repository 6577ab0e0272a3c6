"""How answers are judged: containment and token F1, near SQuAD's; RULER's and the pass key's rules; means."""

from __future__ import annotations

import random
import re
import statistics
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


def normalised(text: str) -> str:
    """Lower case, no articles, single blanks. Punctuation parts words; SQuAD's own rule, LongBench's too, drops it."""
    text = "".join(c if c not in string.punctuation + "’‘“”" else " " for c in text.lower().replace("’", "'"))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def contains(answer: str, accepted: Sequence[str]) -> bool:
    """Whether any accepted answer that has words stands in the answer, word for word."""
    padded = f" {normalised(answer)} "
    return any(f" {words} " in padded for wanted in accepted if (words := normalised(wanted)))


def exact(answer: str, accepted: Sequence[str]) -> bool:
    """Whether the answer is an accepted one and nothing else."""
    return normalised(answer) in {normalised(wanted) for wanted in accepted}


def token_f1(answer: str, accepted: Sequence[str]) -> float:
    """The best token F1 over the accepted answers."""
    return max(_f1(normalised(answer).split(), normalised(wanted).split()) for wanted in accepted)


def _f1(left: list[str], right: list[str]) -> float:
    common = sum((Counter(left) & Counter(right)).values())
    return 2 * common / (len(left) + len(right)) if common else 0.0


def all_parts(answer: str, accepted: Sequence[str]) -> float:
    """The share of the wanted parts that stand in the answer, upper and lower case alike (RULER's string_match_all)."""
    return sum(wanted.lower() in answer.lower() for wanted in accepted) / len(accepted)


def first_number(answer: str, accepted: Sequence[str]) -> float:
    """1.0 if the first number in the answer is an accepted one (Mohtashami & Jaggi's rule for pass keys), else 0.0."""
    found = re.search(r"\d+", answer)
    return float(found is not None and found[0] in accepted)


@dataclass(frozen=True)
class Interval:
    """A mean of ``count`` scores and its 95 % bootstrap interval; the scores' own unit."""

    mean: float
    low: float
    high: float
    count: int


def interval(scores: Sequence[float], rounds: int = 1000, seed: int = 0) -> Interval:
    """The mean of ``scores`` and the 2.5 % and 97.5 % quantiles of the means of ``rounds`` resamples.

    The same for the same arguments. Raises ValueError for no scores.
    """
    if not scores:
        raise ValueError("there is no mean of no scores")
    mean = statistics.fmean(scores)
    if min(scores) == max(scores):
        return Interval(mean, mean, mean, len(scores))
    chance = random.Random(seed)
    means = sorted(statistics.fmean(chance.choices(scores, k=len(scores))) for _ in range(rounds))
    return Interval(mean, means[int(0.025 * rounds)], means[int(0.975 * rounds)], len(scores))
