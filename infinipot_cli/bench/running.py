"""What every command of `bench` does around its cases: load the model, show how far it is, run, estimate, report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.settings import GenerationSettings
from infinipot_cli.bench.harness import Case, Outcome, Scorer, Setup, origin_of, run_all
from infinipot_cli.bench.options import ResultOptions
from infinipot_cli.options import ModelOptions
from infinipot_cli.progress import Progress, make_progress
from infinipot_cli.prompts import Task
from infinipot_cli.terminal import Terminal
from infinipot_cli.units import show_count, show_seconds
from infinipot_cli.wiring import App
from infinipot_cli.workbench import Session, Stats


@contextmanager
def loaded(app: App, options: ModelOptions) -> Iterator[Session]:
    """The model, loaded with progress on stderr; whatever progress is shown goes away at the end."""
    progress = make_progress(app.terminal)
    progress.stage(f"Loading {options.model}")
    try:
        session = app.workbench.load(options, app.terminal.say)
    finally:
        progress.stop()
    described = session.describe()
    app.terminal.say(f"{described['name']} on {described.get('device')}, {described.get('dtype')}", "dim")
    yield session


def run_watched(
    terminal: Terminal,
    session: Session,
    cases: Sequence[Case],
    setups: Sequence[Setup],
    bench: ResultOptions,
    *,
    name: str,
    task: Task,
    generation: GenerationSettings,
    scorer: Scorer,
    about: Mapping[str, Any] | None = None,
    part: bool = False,
) -> list[Outcome]:
    """``run_all`` with progress on stderr; Ctrl-C says how the run goes on.

    ``part``: of a benchmark of several runs with one file, where outcomes of the others are no news.
    """
    tokens = sum(case.tokens or 0 for case in readings_of(cases, setups))
    watcher = Watcher(terminal, bench, tokens, part)
    try:
        return run_all(
            session,
            cases,
            setups,
            bench.out,
            bench=name,
            task=task,
            generation=generation,
            scorer=scorer,
            seed=bench.seed,
            about=about,
            watch=watcher,
        )
    except KeyboardInterrupt:
        watcher.interrupted()
        raise
    finally:
        watcher.stop()


@dataclass
class _Place:
    """The case being read, as progress shows a source: pages that are tokens."""

    name: str
    pages: int | None
    pages_read: int = 0
    bytes_read: int = 0
    unit: str = "token"


class Watcher:
    """Tells stderr how far a benchmark is. ``total`` counts the tokens of all readings, 0 if nobody knows."""

    def __init__(self, terminal: Terminal, bench: ResultOptions, total: int, part: bool = False) -> None:
        self._terminal, self._bench, self._total, self._part = terminal, bench, total, part
        self._progress: Progress = make_progress(terminal)
        self._count = self._wanted = self._read = 0
        self._place = _Place("", None)

    def start(self, total: int, known: int, others: int) -> None:
        self._wanted = total
        if known:
            self._terminal.say(f"{known:,} of {total:,} outcomes are in {self._bench.out} already; going on from there")
        if others and not self._part:
            kept = show_count(others, "outcome")
            self._terminal.say(f"{self._bench.out} also holds {kept} of other cases, settings, models or versions")

    def begin(self, case: Case, setup: Setup) -> None:
        # No slashes: progress takes a name for a path, and shows the last part of it.
        what = f"{setup.name} {case.id}".replace("/", " ")
        self._place = _Place(f"{self._count + 1} of {self._wanted} {what}", case.tokens)
        self._progress.stage(self._place.name)

    def reading(self, stats: Stats) -> None:
        self._place.pages_read = stats.tokens + stats.waiting
        self._progress.reading(self._place, stats, self._read + self._place.pages_read, self._total or None)

    def done(self, outcome: Outcome, resumed: bool) -> None:
        self._count += 1
        # A question to a pot that has read already reads nothing more.
        self._read += outcome.tokens if resumed else self._place.pages_read
        if not resumed:
            self._progress.stop()
            self._terminal.detail(line_of(outcome))

    def stop(self) -> None:
        """Take the progress away."""
        self._progress.stop()

    def interrupted(self) -> None:
        """Say what is left of a run that was broken off."""
        self._progress.stop()
        kept = f"the same command goes on from {self._bench.out}" if self._bench.out else "without --out none is kept"
        self._terminal.say(f"stopped after {self._count:,} of {self._wanted:,} outcomes; {kept}")


def line_of(outcome: Outcome) -> str:
    """An outcome in one line, for people."""
    seconds = show_seconds(sum(outcome.seconds.values()))
    said = outcome.error or repr(outcome.answer)
    return f"{outcome.score:.2f}  {outcome.setup}  {outcome.case}  {said}  {', '.join(outcome.accepted)!r}  {seconds}"


@dataclass(frozen=True)
class Estimate:
    """What a benchmark would take; ``seconds`` is None where nothing tells how fast the model reads here."""

    bench: str
    outcomes: int
    readings: int
    tokens: int
    seconds: float | None
    seconds_measured: bool
    model: str


def estimate(app: App, model: ModelOptions, name: str, cases: Sequence[Case], setups: Sequence[Setup]) -> None:
    """--dry-run: print how many outcomes and tokens, and how long, as lines or as JSON. Loads no model."""
    facts = app.workbench.facts(model)
    readings = readings_of(cases, setups)
    tokens = sum(case.tokens or 0 for case in readings)
    speed = facts.tokens_per_second
    seconds = None if speed is None else round(tokens / speed, 1)
    result = Estimate(name, len(cases) * len(setups), len(readings), tokens, seconds, facts.measured, facts.name)
    if app.terminal.json:
        app.terminal.write_json(vars(result))
    else:
        app.terminal.write("".join(f"{line}\n" for line in _lines(result)))


def readings_of(cases: Sequence[Case], setups: Sequence[Setup]) -> list[Case]:
    """The cases whose documents are read, each as often as there are different pots to read it into."""
    return list({origin_of(case, setup): case for setup in setups for case in cases}.values())


def _lines(result: Estimate) -> list[str]:
    time = f"not known; {result.model} has not read on this machine yet"
    if result.seconds is not None:
        basis = "as fast as it read here last" if result.seconds_measured else "a guess from the size of the model"
        time = f"about {show_seconds(result.seconds)} to read with {result.model} ({basis}), answers not counted"
    return [
        f"outcomes: {result.outcomes:,} ({show_count(result.readings, 'reading')})",
        f"tokens: about {result.tokens:,}",
        f"time: {time}",
    ]
