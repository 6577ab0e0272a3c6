"""Lines and bars: how something changes with the length, the capacity or a choice; with what is known of its spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infinipot_cli.bench.plots import lengths_across, new_figure, save

_WIDTH, _HEIGHT, _BAR, _MARGIN = 4.2, 3.4, 0.36, 1.4  # inches


@dataclass(frozen=True)
class Point:
    """A value at ``x``, between ``low`` and ``high``."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Lines:
    """One diagram: a line for each name. ``log`` counts across in powers."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[Point]]
    log: bool = True


@dataclass(frozen=True)
class Bars:
    """One diagram: a bar for each row, in order, from the top."""

    title: str
    x: str
    rows: Sequence[tuple[str, Point]]


def draw(path: Path, diagrams: Sequence[Lines | Bars]) -> None:
    """The diagrams, lines two abreast, bars one below the other. Raises InfinipotError where it cannot be written."""
    abreast = 2 if len(diagrams) > 1 and all(isinstance(diagram, Lines) for diagram in diagrams) else 1
    rows = [diagrams[start : start + abreast] for start in range(0, len(diagrams), abreast)]
    heights = [max(_height(diagram) for diagram in row) for row in rows]
    figure = new_figure(abreast * _WIDTH + (1 - abreast // 2) * _WIDTH, sum(heights))
    grid = figure.subplots(len(rows), abreast, squeeze=False, height_ratios=heights)
    for row, axes in zip(rows, grid, strict=True):
        for axis in axes[len(row) :]:
            axis.set_axis_off()
        for diagram, axis in zip(row, axes, strict=False):
            if isinstance(diagram, Lines):
                _draw_lines(axis, diagram)
            else:
                _draw_bars(axis, diagram)
    save(figure, path)


def _height(diagram: Lines | Bars) -> float:
    return _HEIGHT if isinstance(diagram, Lines) else _MARGIN + _BAR * len(diagram.rows)


def _draw_lines(axis: Any, diagram: Lines) -> None:
    for name, points in diagram.lines.items():
        across = [point.x for point in points]
        (line,) = axis.plot(across, [point.y for point in points], marker="o", markersize=3, label=name)
        low, high = [point.low for point in points], [point.high for point in points]
        axis.fill_between(across, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if diagram.log:
        lengths_across(axis, {point.x for points in diagram.lines.values() for point in points})
    axis.set_ylim(bottom=0)
    axis.set_title(diagram.title, fontsize=10)
    axis.set_xlabel(diagram.x)
    axis.set_ylabel(diagram.y)
    axis.grid(alpha=0.3)
    if diagram.lines:
        axis.legend(fontsize=8)


def _draw_bars(axis: Any, diagram: Bars) -> None:
    names = [name for name, _ in diagram.rows]
    values = [point.y for _, point in diagram.rows]
    below = [point.y - point.low for _, point in diagram.rows]
    above = [point.high - point.y for _, point in diagram.rows]
    axis.barh(range(len(names)), values, xerr=[below, above], capsize=2, color="steelblue")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_title(diagram.title, fontsize=10)
    axis.set_xlabel(diagram.x)
    axis.set_xlim(left=0)
    axis.grid(axis="x", alpha=0.3)
