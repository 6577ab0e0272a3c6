"""What LongBench came to: a score per task, their means by group and in all, as a table, plain values or a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from infinipot_cli.bench.harness import Outcome, Setup
from infinipot_cli.bench.longbench.cases import Part
from infinipot_cli.bench.longbench.tasks import LongTask, all_tasks, groups
from infinipot_cli.bench.plots import new_figure, save
from infinipot_cli.bench.scoring import interval
from infinipot_cli.bench.table import MEMORY, Table

AVERAGE = "average"


@dataclass(frozen=True)
class Report:
    """The outcomes of a run over ``parts``; one column per setup. Scores are per cent."""

    model: Mapping[str, Any]
    parts: Sequence[Part]
    setups: Sequence[Setup]
    outcomes: Sequence[Outcome]

    @property
    def tasks(self) -> list[LongTask]:
        return [part.task for part in self.parts]

    def of(self, task: LongTask, setup: Setup) -> list[Outcome]:
        """The outcomes of one cell."""
        return [made for made in self.outcomes if made.labels["task"] == task.name and made.setup == setup.name]

    def score(self, task: LongTask, setup: Setup) -> float | None:
        """The mean score to two decimals, as the official evaluation gives it; None if memory ran out."""
        found = self.of(task, setup)
        if any(outcome.error for outcome in found):
            return None
        return round(100 * sum(outcome.score for outcome in found) / len(found), 2)

    def mean(self, tasks: Sequence[LongTask], setup: Setup) -> float | None:
        """The plain mean over tasks to two decimals, as the paper's; None if one of them has no score."""
        scores = [self.score(task, setup) for task in tasks]
        known = [score for score in scores if score is not None]
        return round(fmean(known), 2) if len(known) == len(scores) else None

    def means(self, setup: Setup) -> dict[str, float | None]:
        """The mean of every group, and of all tasks."""
        by_group = {group: self.mean(tasks, setup) for group, tasks in groups(self.tasks).items()}
        return by_group | {AVERAGE: self.mean(self.tasks, setup)}

    def table(self) -> Table:
        """Tasks by group, in the order of the paper's Table 1; a group's line is the mean of those below it."""
        made = Table(self._title(), ["", *(setup.name for setup in self.setups)], notes=self.notes())
        means = [self.means(setup) for setup in self.setups]
        for group, tasks in groups(self.tasks).items():
            made.add(group, *(_shown(mean[group]) for mean in means))
            for task in tasks:
                made.add(f"  {task.name}", *(_shown(self.score(task, setup)) for setup in self.setups))
        made.add(AVERAGE, *(_shown(mean[AVERAGE]) for mean in means))
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain values: means by method, a cell per method and task with its 95 % interval, and every outcome."""
        return {
            "bench": "longbench",
            "model": dict(self.model),
            "means": {setup.name: self.means(setup) for setup in self.setups},
            "cells": [self._cell(task, setup) for setup in self.setups for task in self.tasks],
            "notes": self.notes(),
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }

    def notes(self) -> list[str]:
        """What keeps these numbers from being those of the whole benchmark."""
        drawn = [f"{len(part.cases)} of {part.examples}" for part in self.parts if len(part.cases) < part.examples]
        made = [f"examples per task: {', '.join(dict.fromkeys(drawn))}"] if drawn else []
        if len(self.parts) < len(all_tasks()):
            made.append(f"{AVERAGE}: over {len(self.parts)} of {len(all_tasks())} tasks")
        return made

    def _cell(self, task: LongTask, setup: Setup) -> dict[str, Any]:
        found = self.of(task, setup)
        errors = sorted({outcome.error for outcome in found if outcome.error})
        spread = None if errors else interval([100 * outcome.score for outcome in found])
        bounds = {name: spread and round(getattr(spread, name), 2) for name in ("low", "high")}
        labels = {"method": setup.name, "task": task.name, "group": task.group}
        return {**labels, "score": self.score(task, setup), **bounds, "count": len(found), "errors": errors}

    def _title(self) -> str:
        method = f", {self.setups[0].name}" if len(self.setups) == 1 else ""
        return f"LongBench: {self.model['name']}, pot of {self.setups[0].settings.capacity:,} entries{method}"


def draw(path: Path, report: Report) -> None:
    """The means by group and in all as bars, one colour per setup; a bar that is missing ran out of memory."""
    means = [report.means(setup) for setup in report.setups]
    names = list(means[0])
    width = 0.8 / len(means)
    figure = new_figure(1.6 * len(names) + 1, 4)
    axis = figure.subplots()
    for number, (setup, mean) in enumerate(zip(report.setups, means, strict=True)):
        places = [index + (number - (len(means) - 1) / 2) * width for index in range(len(names))]
        bars = axis.bar(places, [mean[name] or 0.0 for name in names], width, label=setup.name)
        axis.bar_label(bars, [_shown(mean[name]) for name in names], fontsize=7)
    axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("score")
    axis.set_title(f"LongBench ({report.model['name']})", fontsize=10)
    axis.legend()
    save(figure, path)


def _shown(score: float | None) -> str:
    return MEMORY if score is None else f"{score:.2f}"
