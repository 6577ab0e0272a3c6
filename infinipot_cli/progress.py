"""Progress on stderr: a moving line on a terminal, a plain line every ten seconds elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

from infinipot_cli.terminal import Terminal, one_line, printable
from infinipot_cli.units import share, show_bytes, show_count

if TYPE_CHECKING:
    from infinipot_cli.workbench import Stats

PLAIN_EVERY = 10.0


class Place(Protocol):
    """What is being read, and how far: an ``ingest.Source``, or a case of a benchmark."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def pages(self) -> int | None: ...
    @property
    def pages_read(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...


class Progress(Protocol):
    """What a run tells about itself while it runs."""

    def stage(self, text: str) -> None:
        """Say what goes on now, of unknown length."""

    def reading(self, source: Place, stats: Stats, done: int, total: int | None) -> None:
        """Say how far reading is; ``done`` of ``total`` bytes over all sources."""

    def stop(self) -> None:
        """Take the progress away, before something else is written."""


def make_progress(terminal: Terminal) -> Progress:
    """The progress that suits the terminal."""
    if terminal.quiet:
        return Silent()
    return Lively(terminal) if terminal.lively else Plain(terminal)


def describe(source: Place, stats: Stats, seconds: float) -> str:
    """Where reading is, in one line of bounded length: place, tokens, speed, cycles, pot fill."""
    place = show_bytes(source.bytes_read)
    if source.pages:
        place = f"{source.unit} {source.pages_read}/{source.pages}"
    read = stats.tokens + stats.waiting
    speed = f"{read / seconds:,.0f} tokens/s" if seconds > 0.5 else "…"
    fill = f"pot {share(stats.entries, stats.capacity)}" if stats.capacity else f"pot {stats.entries:,} entries"
    return " · ".join([place, f"{read:,} tokens", speed, show_count(stats.cycles, "cycle"), fill])


class Silent:
    """No progress."""

    def stage(self, text: str) -> None: ...

    def reading(self, source: Place, stats: Stats, done: int, total: int | None) -> None: ...

    def stop(self) -> None: ...


class Plain:
    """A line now and then, for logs."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._last = time.monotonic()
        self._began: float | None = None

    def stage(self, text: str) -> None:
        self._began = None

    def reading(self, source: Place, stats: Stats, done: int, total: int | None) -> None:
        now = time.monotonic()
        self._began = self._began or now
        if now - self._last < PLAIN_EVERY:
            return
        self._last = now
        known = f" ({share(done, total)})" if total else ""
        self._terminal.say(f"reading {one_line(source.name)}{known}: {describe(source, stats, now - self._began)}")

    def stop(self) -> None:
        self._began = None


class Lively:
    """One moving line, drawn by rich, gone when the work is done."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._bar: Any = None
        self._task: Any = None
        self._began: float | None = None

    def stage(self, text: str) -> None:
        self._began = None
        self._show(text, None, None)

    def reading(self, source: Place, stats: Stats, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now
            self.stop_bar()  # a new task starts its own clock
        self._show(PurePath(source.name).name, done, total, describe(source, stats, now - self._began))

    def stop(self) -> None:
        self._began = None
        self.stop_bar()

    def stop_bar(self) -> None:
        """Take the line off the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self, text: str, done: int | None, total: int | None, info: str = "") -> None:
        if self._bar is None:
            self._bar = self._make()
            self._bar.start()
            self._task = self._bar.add_task("", total=None, info="")
        self._bar.update(self._task, description=one_line(printable(text)), completed=done or 0, total=total, info=info)

    def _make(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        def text(template: str, **column: Any) -> TextColumn:
            # Names are other people's text, so no markup; a narrow window cuts the line, never wraps it.
            return TextColumn(template, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", **column))

        console = Console(
            file=self._terminal.stderr,
            force_terminal=True,
            no_color=not self._terminal.colored,
            highlight=False,
        )
        columns = (
            SpinnerColumn(),
            text("{task.description}", max_width=30),
            BarColumn(bar_width=16),
            text("{task.fields[info]}"),
            TimeRemainingColumn(compact=True),
        )
        return Bar(*columns, console=console, transient=True, refresh_per_second=5)
