"""Tables of results on stdout: drawn by rich on a terminal, aligned plain text elsewhere, Markdown where asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from infinipot_cli.bench.harness import OUT_OF_MEMORY, Outcome
from infinipot_cli.bench.scoring import interval
from infinipot_cli.terminal import Terminal

NOTHING = "–"
MEMORY = "OOM"


@dataclass
class Table:
    """``rows`` have as many cells as ``columns``; the first ``labels`` columns are words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    labels: int = 1
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Add a row. Raises ValueError where it has not one cell per column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)


def cell(outcomes: Sequence[Outcome], scale: float = 100.0, spread: bool = False) -> str:
    """The mean score of a cell, times ``scale``; with ``spread`` also its 95 % interval; OOM where memory ran out."""
    if not outcomes:
        return NOTHING
    if any(outcome.error == OUT_OF_MEMORY for outcome in outcomes):
        return MEMORY
    found = interval([outcome.score * scale for outcome in outcomes])
    return f"{found.mean:.1f} [{found.low:.1f}, {found.high:.1f}]" if spread else f"{found.mean:.1f}"


def show(terminal: Terminal, table: Table, markdown: bool = False) -> None:
    """Write the table to stdout."""
    if markdown:
        terminal.write(as_markdown(table))
    elif terminal.stdout_tty:
        _drawn(terminal, table)
    else:
        terminal.write(as_text(table))


def as_text(table: Table) -> str:
    """Aligned columns, two blanks apart, under the title; notes below."""
    lines = [list(table.columns), *(list(row) for row in table.rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(table.columns))]
    text = [table.title, *("  ".join(_aligned(line, widths, table.labels)).rstrip() for line in lines), *table.notes]
    return "".join(f"{line}\n" for line in text)


def _aligned(cells: Sequence[str], widths: Sequence[int], labels: int) -> list[str]:
    sides = zip(cells, widths, strict=True)
    return [text.ljust(width) if index < labels else text.rjust(width) for index, (text, width) in enumerate(sides)]


def as_markdown(table: Table) -> str:
    """A Markdown table under the title in bold; notes below."""

    def line(cells: Sequence[str]) -> str:
        escaped = (text.replace("|", "\\|").replace("\n", " ") for text in cells)
        return f"| {' | '.join(escaped)} |"

    rule = ["---" if index < table.labels else "---:" for index in range(len(table.columns))]
    lines = [f"**{table.title}**", "", line(table.columns), line(rule), *map(line, table.rows)]
    lines += ["", *table.notes] if table.notes else []
    return "".join(f"{text}\n" for text in lines)


def _drawn(terminal: Terminal, table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid()
    for index, name in enumerate(table.columns):
        grid.add_column(Text(name), justify="left" if index < table.labels else "right")
    for row in table.rows:
        grid.add_row(*map(Text, row))  # Text: names may hold what rich would take for markup
    console = Console(
        file=terminal.stdout, force_terminal=True, no_color=not terminal.takes_color(tty=True), highlight=False
    )
    console.print(Text(table.title, style="bold"), grid, *map(Text, table.notes), sep="\n")
