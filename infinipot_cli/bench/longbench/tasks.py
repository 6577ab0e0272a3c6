"""The tasks: what tasks.yaml says of each, as the harness wants it."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from engine.settings import GenerationSettings
from infinipot_cli.bench.longbench.metrics import METRICS, Metric, best, first_line
from infinipot_cli.prompts import Task
from infinipot_cli.workbench import Frame

FILE = Path(__file__).with_name("tasks.yaml")
_DEFAULTS = {"chat": True, "first_line": False, "one_line": False}
_NAMES = {"group", "metric", "catalyst", "max_new_tokens", "prompt", *_DEFAULTS}


@dataclass(frozen=True)
class LongTask:
    """One task. ``wording`` holds what stands around document and question; ``frame`` what stands around that."""

    name: str
    group: str
    metric: Metric
    wording: Task
    frame: Frame
    max_new_tokens: int
    first_line: bool
    one_line: bool

    def generation(self, seed: int) -> GenerationSettings:
        """Greedy, as long as the task's answers may be."""
        return GenerationSettings(max_new_tokens=self.max_new_tokens, seed=seed, one_line=self.one_line)

    def score(self, answer: str, accepted: Sequence[str], classes: Sequence[str]) -> float:
        """The official score of an answer as it was written, white space included; 0 to 1."""
        return best(self.metric, first_line(answer) if self.first_line else answer, accepted, classes)


@cache
def all_tasks() -> Mapping[str, LongTask]:
    """Every task by its name, in the order of the paper's Table 1."""
    items = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {name: _task(name, values) for name, values in items.items()}


def groups(tasks: Sequence[LongTask]) -> dict[str, list[LongTask]]:
    """The tasks by group, both in the order of Table 1."""
    chosen = {task.name for task in tasks}
    ordered = [task for task in all_tasks().values() if task.name in chosen]
    return {name: [task for task in ordered if task.group == name] for name in dict.fromkeys(t.group for t in ordered)}


def _task(name: str, values: Mapping[str, Any]) -> LongTask:
    if values.keys() - _NAMES:
        raise ValueError(f"{FILE.name}: {name} has unknown keys")
    values = _DEFAULTS | dict(values)
    before, after = split(values["prompt"])
    return LongTask(
        name=name,
        group=values["group"],
        metric=METRICS[values["metric"]],
        wording=Task(name, f"{name} of LongBench", FILE, values["catalyst"], before, after),
        frame="prompt" if values["chat"] else "bare",
        max_new_tokens=values["max_new_tokens"],
        first_line=values["first_line"],
        one_line=values["one_line"],
    )


def split(prompt: str) -> tuple[str, tuple[str, ...]]:
    """(text before the document, the texts around the question after it); one such text where nothing is asked.

    Raises ValueError unless {context} stands there once, and {input} at most once behind it.
    """
    parts, names = [""], []
    for literal, name, _, _ in string.Formatter().parse(prompt):
        parts[-1] += literal
        if name is not None:
            names.append(name)
            parts.append("")
    if names not in (["context"], ["context", "input"]):
        raise ValueError(f"a prompt holds {{context}}, and perhaps {{input}} behind it, not {names}")
    return parts[0], tuple(parts[1:])
