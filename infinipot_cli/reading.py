"""Reading: passages from the sources into the pot, with progress, per-source counts, and Ctrl-C looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.wellformed import well_formed
from infinipot_cli.ingest import IngestOptions, Met, Source, Sources, open_sources
from infinipot_cli.interrupts import Interrupts
from infinipot_cli.options import InputOptions
from infinipot_cli.plan import STDIN, Plan
from infinipot_cli.progress import Progress
from infinipot_cli.workbench import Reading


@dataclass
class Feed:
    """Documents for one pot. ``several`` puts a line with the name before each; ``total`` is their bytes, if known."""

    sources: Iterator[Source]
    several: bool = False
    total: int | None = None


@dataclass
class Readout:
    """What was read: a report per source, each with its token count."""

    sources: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False

    @property
    def tokens(self) -> int:
        return sum(source["tokens"] for source in self.sources)


def ingest_options(inputs: InputOptions) -> IngestOptions:
    """The options of ingestion from those of the command line. Raises UsageError."""
    return IngestOptions(
        password=inputs.password,
        encoding=inputs.encoding,
        include=tuple(inputs.include or ()),
        exclude=tuple(inputs.exclude or ()),
        keep_headers=inputs.keep_headers,
        input_type=inputs.input_type,
    )


def open_plan(plan: Plan, inputs: InputOptions) -> Sources:
    """The sources of a plan."""
    return open_sources(plan.names, ingest_options(inputs), plan.stdin)


def open_each(plan: Plan, inputs: InputOptions) -> Iterator[tuple[str, Sources]]:
    """Every name of a plan with its own sources, each file once, so that one bad name does not hide the next."""
    met: Met = set()
    for name in plan.names:
        yield name, open_sources([name], ingest_options(inputs), plan.stdin, met)


def header(name: str, first: bool) -> str:
    """The line that tells the model which of several files begins."""
    line = f"=== {well_formed(name)} ===\n"
    return line if first else f"\n\n{line}"


def total_bytes(names: tuple[str, ...]) -> int | None:
    """Bytes of all sources together, None if that is not known beforehand."""
    sizes = [Path(name).stat().st_size for name in names if name != STDIN and Path(name).is_file()]
    return sum(sizes) if len(sizes) == len(names) else None


def read_sources(feed: Feed, reading: Reading, progress: Progress, interrupts: Interrupts) -> Readout:
    """Read every source, or until Ctrl-C. Raises InputError as ingestion does."""
    return _Loop(feed, reading, progress, interrupts).run()


def patiently(items: Iterator[Any], interrupts: Interrupts) -> Iterator[Any]:
    """The items until Ctrl-C, which also breaks off the wait for the next one."""
    while not interrupts.pressed:
        try:
            with interrupts.waiting():
                item = next(items, None)
        except KeyboardInterrupt:
            return
        if item is None:
            return
        yield item


class _Loop:
    def __init__(self, feed: Feed, reading: Reading, progress: Progress, interrupts: Interrupts) -> None:
        self.feed = feed
        self.reading = reading
        self.progress = progress
        self.interrupts = interrupts
        self.readout = Readout()
        self.done = 0

    def run(self) -> Readout:
        for number, source in enumerate(patiently(self.feed.sources, self.interrupts)):
            self._source(source, number)
        self.readout.interrupted = self.interrupts.pressed
        return self.readout

    def _source(self, source: Source, number: int) -> None:
        if self.feed.several:
            self.reading.aside(header(source.name, first=number == 0))
        before = self._tokens()
        for passage in patiently(source.passages(), self.interrupts):
            self.reading.read(
                passage.text,
                offset=passage.offset,
                place=passage.place,
                source=number,
                lines=source.unit == "line",
            )
            self.progress.reading(source, self.reading.stats, self.done + source.bytes_read, self.feed.total)
        self.done += source.bytes_read
        self.readout.sources.append(source.report().to_dict() | {"tokens": self._tokens() - before})

    def _tokens(self) -> int:
        stats = self.reading.stats
        return stats.tokens + stats.waiting
