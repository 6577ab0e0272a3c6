"""LongBench's examples as cases of the harness."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from infinipot_cli.bench.harness import Case
from infinipot_cli.bench.longbench.data import Data, Example
from infinipot_cli.bench.longbench.tasks import LongTask
from infinipot_cli.errors import InputError

_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True)
class Part:
    """One task's share of a run: its cases, and how many examples there are in all."""

    task: LongTask
    cases: list[Case]
    classes: dict[str, tuple[str, ...]]
    examples: int

    def score(self, answer: str, case: Case) -> float:
        """The official score of an answer, 0 to 1."""
        return self.task.score(answer, case.accepted, self.classes[case.id])


def make_part(data: Data, task: LongTask, limit: int | None, seed: int) -> Part:
    """All examples of a task, or ``limit`` of them drawn with ``seed``: a larger limit draws the same and more.

    Every line is looked at, so that a damaged one is found before anything is read. Documents are not kept: a case
    reads its own anew. Raises InputError.
    """
    cases, classes = [], {}
    for example in data.examples(task.name):
        case = _case(data, task, example)
        cases.append(case)
        classes[case.id] = example.classes
    if not cases:
        raise InputError(f"{data.name} holds no example of {task.name}")
    drawn = random.Random(f"{seed} {task.name}").sample(range(len(cases)), len(cases))[:limit]
    return Part(task, [cases[index] for index in sorted(drawn)], classes, len(cases))


def _case(data: Data, task: LongTask, example: Example) -> Case:
    number, identity = example.number, example.id  # not the example, which holds the document

    def document() -> Iterator[str]:
        found = next(data.examples(task.name, number), None)
        if found is None or found.id != identity:
            raise InputError(f"{data.name}: line {number} of {task.name} changed during the run")
        # One passage: cut anywhere, it would be other tokens than the official prompt's.
        if found.context:
            yield found.context

    return Case(
        id=f"{task.name}/{identity}",
        document=document,
        question=example.question,
        accepted=example.answers,
        labels={"task": task.name, "group": task.group, "line": example.number, "words": example.words},
        tokens=len(example.context) // _CHARACTERS_A_TOKEN,
    )
