"""What is made of timings: means and spreads by length and method, the table of the paper's Tables 5 and 6."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from infinipot_cli.bench.curves import Lines, Point
from infinipot_cli.bench.harness import OUT_OF_MEMORY
from infinipot_cli.bench.options import show_length
from infinipot_cli.bench.speed import PARTS, Timing
from infinipot_cli.bench.table import MEMORY, NOTHING, Table
from infinipot_cli.units import show_count

_MIB = 1 << 20

#: What is measured, by name; None where a run has no such value.
MEASURES: dict[str, Callable[[Timing], float | None]] = {
    "first_token": lambda timing: timing.first_token,
    **{part: (lambda timing, part=part: timing.seconds[part]) for part in PARTS},  # type: ignore[misc]
    "total": lambda timing: timing.total,
    "distilling_share": lambda timing: timing.distilling_share,
    "reading_rate": lambda timing: timing.reading_rate,
    "writing_rate": lambda timing: timing.writing_rate,
    "memory_peak": lambda timing: timing.memory_peak,
    "memory_before": lambda timing: timing.memory_before,
    "floor": lambda timing: timing.floor,
    "times_floor": lambda timing: timing.times_floor,
}


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (0 for one run)."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Row:
    """All runs of a method on one length; ``measures`` is empty where one of them failed, by ``error``."""

    method: str
    length: int
    runs: int
    tokens: int
    measures: dict[str, Spread]
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"measures": {name: vars(spread) for name, spread in self.measures.items()}}


def summarise(timings: Sequence[Timing]) -> list[Row]:
    """One row per length and method, lengths ascending, methods in the order in which they ran."""
    groups: dict[tuple[int, str], list[Timing]] = {}
    for timing in timings:
        groups.setdefault((timing.length, timing.method), []).append(timing)
    methods = list(dict.fromkeys(timing.method for timing in timings))
    order = sorted(groups, key=lambda group: (group[0], methods.index(group[1])))
    return [_row(groups[group]) for group in order]


def _row(timings: Sequence[Timing]) -> Row:
    first = timings[0]
    error = next((timing.error for timing in timings if timing.error is not None), None)
    if error is not None:
        return Row(first.method, first.length, len(timings), first.tokens, {}, error)
    measures = {}
    for name, measure in MEASURES.items():
        values = [value for timing in timings if (value := measure(timing)) is not None]
        if values:
            measures[name] = Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
    return Row(first.method, first.length, len(timings), first.tokens, measures)


COLUMNS = (
    "tokens",
    "method",
    "first token s",
    "reading s",
    "distilling s",
    "prompt s",
    "distilling",
    "read tokens/s",
    "write tokens/s",
    "peak MiB",
    "floor s",
    "× floor",
)


def make_table(title: str, timings: Sequence[Timing]) -> Table:
    """Means, with ± the standard deviation where there are several runs; what failed says why."""
    table = Table(title, COLUMNS, labels=2)
    for row in summarise(timings):
        table.add(show_length(row.length), row.method, *_cells(row))
    table.notes += _notes(timings)
    return table


def _cells(row: Row) -> list[str]:
    if row.error is not None:
        word = MEMORY if row.error == OUT_OF_MEMORY else row.error
        return [word] + [NOTHING] * (len(COLUMNS) - 3)
    several = row.runs > 1
    return [
        _shown(row, "first_token", "{:.2f}", several),
        _shown(row, "reading", "{:.2f}"),
        _shown(row, "distilling", "{:.2f}"),
        _shown(row, "prompt", "{:.2f}"),
        _shown(row, "distilling_share", "{:.1f} %", scale=100),
        _shown(row, "reading_rate", "{:,.0f}", several),
        _shown(row, "writing_rate", "{:.1f}", several),
        _shown(row, "memory_peak", "{:,.0f}", scale=1 / _MIB),
        _shown(row, "floor", "{:.2f}"),
        _shown(row, "times_floor", "{:.2f}"),
    ]


def _shown(row: Row, name: str, form: str, several: bool = False, scale: float = 1.0) -> str:
    spread = row.measures.get(name)
    if spread is None:
        return NOTHING
    text = form.format(spread.mean * scale)
    return f"{text} ± {form.format(spread.deviation * scale)}" if several else text


def _notes(timings: Sequence[Timing]) -> list[str]:
    good = [timing for timing in timings if timing.error is None]
    if not good:
        return []
    rates = [timing.matrix_rate / 1e9 for timing in good]
    runs = max(timing.repeat for timing in good) + 1
    how = ", ".join(dict.fromkeys(timing.memory_how for timing in good))
    return [
        f"{show_count(runs, 'run')} of each, in turn"
        + ("; ± is the standard deviation over the runs" if runs > 1 else ""),
        f"peak: {how}{_before(good)}",
        f"floor: the model's own operations at {min(rates):,.0f} to {max(rates):,.0f} GFLOP/s, measured on its own "
        "matrices before each round",
        f"write: {show_count(good[0].written, 'token')} after each reading",
        *(["truncate: what it cuts out counts as read"] if any(one.method == "truncate" for one in good) else []),
    ]


def _before(timings: Sequence[Timing]) -> str:
    """How much of the peak was there when the runs began: the model, and what else the process holds."""
    held = [timing.memory_before / _MIB for timing in timings if timing.memory_before is not None]
    return f"; {min(held):,.0f} to {max(held):,.0f} MiB when a run began" if held else ""


def diagrams(timings: Sequence[Timing]) -> list[Lines]:
    """The four diagrams of the paper's Figure 7: memory, first token, writing and the whole, against the length."""
    rows = [row for row in summarise(timings) if row.error is None]
    return [
        Lines("Memory", "tokens", "peak MiB", _lines(rows, "memory_peak", 1 / _MIB)),
        Lines("Time to first token", "tokens", "s", _lines(rows, "first_token")),
        Lines("Writing", "tokens", "tokens/s", _lines(rows, "writing_rate")),
        Lines("Whole run", "tokens", "s", _lines(rows, "total")),
    ]


def _lines(rows: Sequence[Row], name: str, scale: float = 1.0) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for row in rows:
        if (found := row.measures.get(name)) is not None:
            mean, deviation = found.mean * scale, found.deviation * scale
            point = Point(row.length, mean, mean - deviation, mean + deviation)
            lines.setdefault(row.method, []).append(point)
    return lines
