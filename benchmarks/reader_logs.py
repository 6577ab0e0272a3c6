"""Logs made for the benchmark, with faults that are known: which of them `summarize --task logs` lists."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from benchmarks.reader_cases import Count
from infinipot_cli.bench.harness import Case
from infinipot_cli.bench.scoring import contains
from training.logs import NOTHING_WRONG, log


def log_cases(lengths: Sequence[int], count: int, seed: int, tokens: Count) -> Iterator[Case]:
    """``count`` logs for each of ``lengths``: about so many lines."""
    for lines in lengths:
        for number in range(count):
            text = log(random.Random(f"measured {seed} {lines} {number}"), lines)
            messages = text.asks[0].accepted
            yield Case(
                id=f"logs {lines} {number}",
                document=lambda text=text.text: [text],  # type: ignore[misc]
                question="",
                accepted=messages,
                labels={
                    "part": "logs",
                    "kind": "logs",
                    "answerable": int(messages != (NOTHING_WRONG,)),
                    "lines": lines,
                },
                tokens=tokens(text.text),
            )


def named(answer: str, messages: Sequence[str]) -> float:
    """The share of the faults' ``messages`` that stand in a line of ``answer``."""
    lines = answer.splitlines()
    return sum(any(contains(line, (message,)) for line in lines) for message in messages) / len(messages)


def right(answer: str, messages: Sequence[str]) -> float:
    """The share of the lines of ``answer`` that have one of ``messages`` in them; 0 where there is no line."""
    lines = [line for line in answer.splitlines() if line.strip()]
    return sum(contains(line, tuple(messages)) for line in lines) / max(1, len(lines))
