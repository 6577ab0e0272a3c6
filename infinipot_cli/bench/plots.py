"""Pictures of results, drawn with matplotlib, which is an extra and only imported when a picture is asked for."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infinipot_cli.bench.options import show_length
from infinipot_cli.errors import UsageError, not_written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_CELL, _MARGIN = 0.62, 1.6  # inches
_DPI = 150


def require_plots(path: Path | None) -> None:
    """Find out before anything is measured whether ``path`` can be drawn. Raises UsageError."""
    if path is None:
        return
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot writes {', '.join(SUFFIXES)} files, not {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.absolute().parent} for {path.name}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed", hint="pip install matplotlib")


def new_figure(width: float, height: float) -> Figure:
    """An empty picture, in inches, that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def lengths_across(axis: Axes, lengths: Collection[float]) -> None:
    """Count across in powers, with a tick at each of the ``lengths``."""
    ticks = sorted(set(lengths))
    axis.set_xscale("log")
    axis.set_xticks(ticks, [show_length(round(tick)) for tick in ticks], fontsize=8)
    axis.set_xticks([], minor=True)


def powers_up(axis: Axes) -> None:
    """Count upwards in powers, with plain numbers at one, two and five of each."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path) -> None:
    """Write the picture in the format of its suffix. Raises InfinipotError where it cannot be written."""
    try:
        figure.savefig(path, dpi=_DPI)
    except OSError as error:
        raise not_written(path, error) from error


@dataclass(frozen=True)
class Panel:
    """One heat map: ``values[row][column]`` in per cent, None where there is none. Axes are named ``x`` and ``y``."""

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float | None]]
    x: str
    y: str


def draw_heat_maps(path: Path, panels: Sequence[Panel]) -> None:
    """The panels one below the other, red (0 %) to green (100 %), as in Figures 4 and 5 of the paper."""
    width = max(len(panel.columns) for panel in panels) * _CELL + 3 * _MARGIN
    heights = [len(panel.rows) * _CELL + _MARGIN for panel in panels]
    figure = new_figure(width, sum(heights))
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    images = [_heat_map(axis, panel) for axis, panel in zip(axes, panels, strict=True)]
    bar = figure.colorbar(images[0], ax=list(axes), label="found (%)")
    bar.set_ticks([0, 25, 50, 75, 100])
    save(figure, path)


def _heat_map(axis: Any, panel: Panel) -> Any:
    """Draw one panel; gives what the colour bar explains."""
    known = [[float("nan") if value is None else value for value in row] for row in panel.values]
    axis.set_facecolor("lightgrey")
    image = axis.imshow(known, cmap="RdYlGn", vmin=0, vmax=100, aspect="auto")
    axis.set_title(panel.title, fontsize=10)
    axis.set_xticks(range(len(panel.columns)), panel.columns)
    axis.set_yticks(range(len(panel.rows)), panel.rows)
    axis.set_xlabel(panel.x)
    axis.set_ylabel(panel.y)
    for y, row in enumerate(panel.values):
        for x, value in enumerate(row):
            color = "white" if value is not None and not 12 < value < 88 else "black"
            said = "OOM" if value is None else f"{value:.0f}"
            axis.text(x, y, said, ha="center", va="center", fontsize=9, color=color)
    return image
