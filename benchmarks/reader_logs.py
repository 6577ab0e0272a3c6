"""Logs made for the benchmark, with faults that are known: which of them `summarize --task logs` lists."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from benchmarks.reader_cases import Count
from infinipot_cli.bench.harness import Case
from infinipot_cli.bench.scoring import contains
from training.logs import NOTHING_WRONG, log

#: Time, program, message, how often.
_POINT = re.compile(r"- \d\d:\d\d:\d\d (?:\w+: )?(.*?)(?: \((?:twice|three times|many times)\))?")


def log_cases(lengths: Sequence[int], count: int, seed: int, tokens: Count) -> Iterator[Case]:
    """``count`` logs for each of ``lengths``: about so many lines."""
    for lines in lengths:
        for number in range(count):
            text = log(random.Random(f"measured {seed} {lines} {number}"), lines)
            points = text.asks[0].answer.splitlines()
            yield Case(
                id=f"logs {lines} {number}",
                document=lambda text=text.text: [text],  # type: ignore[misc]
                question="",
                accepted=tuple(points),
                labels={"part": "logs", "kind": "logs", "answerable": int(points != [NOTHING_WRONG]), "lines": lines},
                tokens=tokens(text.text),
            )


def named(answer: str, points: Sequence[str]) -> float:
    """The share of ``points`` whose message stands in a line of ``answer``, whatever time and number it gives."""
    return sum(any(_names(line, point) for line in answer.splitlines()) for point in points) / len(points)


def right(answer: str, points: Sequence[str]) -> float:
    """The share of the lines of ``answer`` that name one of ``points``; 0 where there is no line."""
    lines = [line for line in answer.splitlines() if line.strip()]
    return sum(any(_names(line, point) for point in points) for line in lines) / max(1, len(lines))


def _names(line: str, point: str) -> bool:
    found = _POINT.fullmatch(point)
    return contains(line, (found[1] if found else point,))
