"""What is made of an ablation: scores and paired differences with intervals, tables, and pictures."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infinipot_cli.bench.curves import Bars, Lines, Point
from infinipot_cli.bench.harness import Outcome
from infinipot_cli.bench.scoring import Interval
from infinipot_cli.bench.sweeps import Sweep
from infinipot_cli.bench.table import MEMORY, NOTHING, Table
from infinipot_cli.units import show_count

_ROUNDS = 1000


def paired(outcomes: Sequence[Outcome], others: Sequence[Outcome], seed: int = 0) -> Interval:
    """Mean difference of scores on the cases that both have, with its 95 % interval; see ``clustered``."""
    known = {other.case: other.score for other in others}
    both = [outcome for outcome in outcomes if outcome.case in known]
    return clustered([(_cluster(outcome), outcome.score - known[outcome.case]) for outcome in both], seed)


def clustered(values: Sequence[tuple[str, float]], seed: int = 0, rounds: int = _ROUNDS) -> Interval:
    """The mean of (cluster, value) pairs and the 95 % interval of the mean, clusters drawn with replacement.

    Questions about one document succeed and fail together, so documents are drawn, not questions. Raises ValueError
    for no values.
    """
    if not values:
        raise ValueError("there is no mean of no values")
    groups: dict[str, list[float]] = {}
    for cluster, value in values:
        groups.setdefault(cluster, []).append(value)
    sums = [(sum(group), len(group)) for group in groups.values()]
    chance = random.Random(seed)
    means = sorted(_mean(chance.choices(sums, k=len(sums))) for _ in range(rounds))
    mean = statistics.fmean(value for _, value in values)
    return Interval(mean, means[int(0.025 * rounds)], means[int(0.975 * rounds)], len(values))


def _mean(sums: Sequence[tuple[float, int]]) -> float:
    return sum(total for total, _ in sums) / sum(count for _, count in sums)


def _cluster(outcome: Outcome) -> str:
    return str(outcome.labels.get("document", outcome.case))


@dataclass(frozen=True)
class Line:
    """What a row of a sweep came to, 0 to 1; ``score`` is None where memory ran out on a case."""

    label: str
    setup: str
    score: Interval | None
    difference: Interval | None
    tasks: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        def plain(interval: Interval | None) -> dict[str, Any] | None:
            return None if interval is None else {name: _rounded(value) for name, value in vars(interval).items()}

        intervals = {"score": plain(self.score), "difference": plain(self.difference)}
        return vars(self) | intervals | {"tasks": {task: _rounded(value) for task, value in self.tasks.items()}}


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else round(value, 4)


def lines(sweep: Sweep, outcomes: Sequence[Outcome]) -> Iterator[Line]:
    """A sweep's rows, each with its difference to the row that it is compared with."""
    by_setup: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_setup.setdefault(outcome.setup, []).append(outcome)
    rows = {row.label: by_setup.get(row.setup.name, []) for row in sweep.rows}
    for row in sweep.rows:
        own, other = rows[row.label], rows.get(row.against or "", [])
        if not own or any(outcome.error for outcome in own):
            yield Line(row.label, row.setup.name, None, None, {})
            continue
        difference = None if not other or any(outcome.error for outcome in other) else paired(own, other)
        score = clustered([(_cluster(outcome), outcome.score) for outcome in own])
        yield Line(row.label, row.setup.name, score, difference, _by_task(own))


def _by_task(outcomes: Sequence[Outcome]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for outcome in outcomes:
        groups.setdefault(str(outcome.labels["task"]), []).append(outcome.score)
    return {task: statistics.fmean(scores) for task, scores in groups.items()}


def make_table(sweep: Sweep, outcomes: Sequence[Outcome], what: str) -> Table:
    """The sweep as a table, in per cent: each task, all cases, and the difference, with intervals."""
    found = list(lines(sweep, outcomes))
    tasks = list(dict.fromkeys(str(outcome.labels["task"]) for outcome in outcomes))
    several = tasks if len(tasks) > 1 else []
    reference = {row.against for row in sweep.rows} - {None}
    compared = f"against {reference.pop()}" if len(reference) == 1 else "difference"
    table = Table(f"{sweep.title}: {what}", ["", *several, "score [95 %]", f"{compared} [95 %]"])
    for line in found:
        cells = [f"{100 * line.tasks[task]:.1f}" if task in line.tasks else NOTHING for task in several]
        table.add(line.label, *cells, _cell(line.score) if line.score else MEMORY, _cell(line.difference, "+"))
    count = max((line.score.count for line in found if line.score), default=0)
    table.notes.append(f"per cent, {show_count(count, 'case')} under every setup; differences are paired by case")
    if sweep.note:
        table.notes.append(sweep.note)
    return table


def _cell(interval: Interval | None, sign: str = "") -> str:
    if interval is None:
        return NOTHING
    mean, low, high = (f"{100 * value:{sign}.1f}" for value in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def diagram(sweep: Sweep, outcomes: Sequence[Outcome]) -> Lines | Bars:
    """Figure 6 for the capacity, a line a method; bars for every other sweep."""
    points = [(line, _point(line.score)) for line in lines(sweep, outcomes) if line.score is not None]
    if sweep.name != "capacity":
        return Bars(sweep.title, "score (%)", [(line.label, point) for line, point in points])
    capacities = {row.label: row.setup.settings for row in sweep.rows}
    methods: dict[str, list[Point]] = {}
    for line, point in points:
        settings = capacities[line.label]
        methods.setdefault(settings.method, []).append(Point(settings.capacity, point.y, point.low, point.high))
    return Lines(sweep.title, "entries", "score (%)", methods)


def _point(interval: Interval) -> Point:
    return Point(0, 100 * interval.mean, 100 * interval.low, 100 * interval.high)
