"""``infinipot bench nih``: needles hidden in long documents, asked for, and counted; Figures 4 and 5 of the paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infinipot_cli.bench.harness import Case, Outcome, Setup
from infinipot_cli.bench.haystack import Count, Haystack, Repeated, Texts, novel, texts
from infinipot_cli.bench.needles import TASKS, Distractors, NeedleTask, Request
from infinipot_cli.bench.options import (
    BenchOptions,
    NeedleOptions,
    parse_lengths,
    parse_list,
    parse_shares,
    show_length,
)
from infinipot_cli.bench.plots import Panel, draw_heat_maps, require_plots
from infinipot_cli.bench.results import require_out
from infinipot_cli.bench.running import estimate, loaded, run_watched
from infinipot_cli.bench.scoring import interval
from infinipot_cli.bench.setups import make_setups, wording
from infinipot_cli.bench.table import Table, cell, show
from infinipot_cli.errors import ExitCode, UsageError
from infinipot_cli.options import InputOptions, ModelOptions, PotOptions
from infinipot_cli.reading import ingest_options
from infinipot_cli.units import show_count
from infinipot_cli.wiring import App

BENCH = "nih"
ALL = "all"
#: An answer that nobody asked for in this length never takes more than this share of a pot, as in `ask`.
_ANSWER_SHARE = 4


@dataclass(frozen=True)
class Wanted:
    """Which needles at which places of which haystack; ``haystack`` is a name or a path."""

    tasks: Sequence[str]
    lengths: Sequence[int]
    depths: Sequence[float]
    trials: int
    haystack: str = "repeated"
    distractors: int = 3

    @classmethod
    def parse(cls, options: NeedleOptions) -> Wanted:
        """From the words of the command line. Raises UsageError."""
        tasks = options.tasks or ""
        names = list(TASKS) if tasks.strip() == ALL else parse_list(tasks, "--task", (*TASKS, ALL))
        if ALL in names:
            raise UsageError(f"--task {ALL} stands alone")
        if options.haystack == "needles" and (strange := [name for name in names if not TASKS[name].keyed]):
            keyed = ", ".join(name for name, task in TASKS.items() if task.keyed)
            raise UsageError(f"--haystack needles is for {keyed}, not {strange[0]}")
        lengths, depths = parse_lengths(options.lengths, "--lengths"), parse_shares(options.depths, "--depths")
        return cls(names, lengths, depths, options.trials, options.haystack, options.distractors)

    def labels(self, name: str, seed: int) -> Iterator[dict[str, Any]]:
        """The labels of every case of a task: length by length, depth by depth, trial by trial."""
        depths: list[dict[str, Any]] = [{"depth": depth} for depth in self.depths] if TASKS[name].by_depth else [{}]
        for tokens, depth, trial in itertools.product(self.lengths, depths, range(self.trials)):
            yield {"task": name, "length": tokens, **depth, "trial": trial, "seed": seed}


def make_haystacks(wanted: Wanted, inputs: InputOptions) -> dict[str, Haystack]:
    """The haystack of every task. Raises InputError for files that cannot be read."""
    if wanted.haystack == "needles":
        return {name: Distractors("uuid" if name == "multikey" else "number") for name in wanted.tasks}
    made: Haystack = Repeated()
    if wanted.haystack == "natural":
        made = novel()
    elif wanted.haystack != made.name:
        made = texts([wanted.haystack], ingest_options(inputs))
    return dict.fromkeys(wanted.tasks, made)


def make_cases(wanted: Wanted, seed: int, stacks: Mapping[str, Haystack], count: Count, most: int) -> list[Case]:
    """The cases; documents are made as they are read. ``most`` bounds the answers' tokens."""
    return [
        _case(TASKS[name], labels, stacks[name], wanted.distractors, count, most)
        for name in wanted.tasks
        for labels in wanted.labels(name, seed)
    ]


def _case(
    task: NeedleTask, labels: dict[str, Any], haystack: Haystack, distractors: int, count: Count, most: int
) -> Case:
    labels |= {"haystack": haystack.name} if task.haystack else {}
    labels |= {"distractors": distractors} if task.distracted else {}
    # What the case is made of is also what its chance is drawn from.
    origin = " ".join(f"{name}={value}" for name, value in labels.items())
    puzzle = task.make(Request(labels["length"], labels.get("depth"), origin, haystack, distractors))
    return Case(
        id=origin,
        document=lambda: puzzle.document(count),
        question=puzzle.question,
        accepted=puzzle.accepted,
        labels=labels,
        max_new_tokens=min(task.max_new_tokens, most),
        tokens=labels["length"],
    )


def check_lengths(cases: Sequence[Case]) -> None:
    """Begin the shortest document of every task, which raises UsageError where it is too short for its puzzle."""
    shortest = {case.labels["task"]: case for case in sorted(cases, key=lambda case: -(case.tokens or 0))}
    for case in shortest.values():
        next(iter(case.document()), None)


def score(answer: str, case: Case) -> float:
    """The score by the rule of the case's task, 0 to 1."""
    return TASKS[str(case.labels["task"])].score(answer, case.accepted)


def measure_nih(
    app: App, model: ModelOptions, pot: PotOptions, inputs: InputOptions, bench: BenchOptions, wanted: Wanted
) -> ExitCode:
    """Run the benchmark, or with --dry-run estimate it; write table, JSON and picture."""
    task = wording(app, bench)
    require_plots(bench.plot)
    require_out(bench.out)
    stacks = make_haystacks(wanted, inputs)
    facts = app.workbench.facts(model)
    setups = make_setups(app, pot, task, facts.entry_bytes or 1)
    if bench.dry_run:
        estimate(app, model, BENCH, make_cases(wanted, bench.seed, stacks, len, 1), setups)
        return ExitCode.OK
    with loaded(app, model) as session:
        setups = make_setups(app, pot, task, session.entry_bytes)
        most = max(min(setup.settings.capacity for setup in setups) // _ANSWER_SHARE, 1)
        cases = make_cases(wanted, bench.seed, stacks, session.count, most)
        check_lengths(cases)
        _note_repeats(app, wanted, stacks, session.count)
        outcomes = run_watched(
            app.terminal,
            session,
            cases,
            setups,
            bench,
            name=BENCH,
            task=task,
            generation=bench.generation(most),
            scorer=score,
        )
    report(app, bench, wanted, session.describe(), setups, outcomes)
    return ExitCode.OK


def report(
    app: App,
    bench: BenchOptions,
    wanted: Wanted,
    model: Mapping[str, Any],
    setups: Sequence[Setup],
    outcomes: Sequence[Outcome],
) -> None:
    """The table on stdout, or all of it as JSON; and the picture."""
    if app.terminal.json:
        cells = [group.to_dict() for group in cells_of(outcomes)]
        lines = [outcome.to_dict() for outcome in outcomes]
        app.terminal.write_json({"bench": BENCH, "model": dict(model), "cells": cells, "outcomes": lines})
    else:
        show(app.terminal, table(wanted, model, setups, outcomes), bench.markdown)
    if bench.plot is not None:
        draw_heat_maps(bench.plot, panels(wanted, model, setups, outcomes))
        app.terminal.say(f"drawn: {bench.plot}")


@dataclass(frozen=True)
class Cell:
    """The outcomes of one setup, task, length and depth."""

    setup: str
    labels: Mapping[str, Any]
    outcomes: Sequence[Outcome]

    def to_dict(self) -> dict[str, Any]:
        """Mean score, 0 to 1, with its 95 % interval; null where memory ran out."""
        errors = sorted({outcome.error for outcome in self.outcomes if outcome.error})
        found = None if errors else interval([outcome.score for outcome in self.outcomes])
        means = {name: found and round(getattr(found, name), 4) for name in ("mean", "low", "high")}
        return {"method": self.setup, **self.labels, **means, "count": len(self.outcomes), "errors": errors}


def cells_of(outcomes: Sequence[Outcome]) -> list[Cell]:
    """The outcomes by setup, task, length and depth, in the order in which they came."""
    groups: dict[tuple[Any, ...], list[Outcome]] = {}
    for outcome in outcomes:
        labels = outcome.labels
        groups.setdefault((outcome.setup, labels["task"], labels["length"], labels.get("depth")), []).append(outcome)
    return [
        Cell(setup, {"task": task, "length": length, "depth": depth}, found)
        for (setup, task, length, depth), found in groups.items()
    ]


def _rows(wanted: Wanted, setups: Sequence[Setup]) -> list[tuple[str, str, float | None]]:
    """(setup, task, depth) of every row: by depth for a single task that has depths, else by task."""
    single = len(wanted.tasks) == 1 and TASKS[wanted.tasks[0]].by_depth
    depths: Sequence[float | None] = wanted.depths if single else (None,)
    return [(setup.name, name, depth) for setup in setups for name in wanted.tasks for depth in depths]


def _select(
    outcomes: Sequence[Outcome], setup: str, task: str, depth: float | None, length: int | None
) -> list[Outcome]:
    """Those of a row, and of a column if ``length`` is one."""
    return [
        outcome
        for outcome in outcomes
        if outcome.setup == setup
        and outcome.labels["task"] == task
        and depth in (None, outcome.labels.get("depth"))
        and length in (None, outcome.labels["length"])
    ]


def table(wanted: Wanted, model: Mapping[str, Any], setups: Sequence[Setup], outcomes: Sequence[Outcome]) -> Table:
    """Rows: method, task, depth, as far as there are several; columns: lengths, and all of them with an interval."""
    rows = _rows(wanted, setups)
    several: list[tuple[str, Callable[[tuple[str, str, float | None]], str]]] = []
    if len(setups) > 1:
        several.append(("method", lambda row: row[0]))
    if len(wanted.tasks) > 1:
        several.append(("task", lambda row: row[1]))
    if any(row[2] is not None for row in rows) or not several:
        several.append(("depth", lambda row: "any" if row[2] is None else f"{row[2]:g}"))
    names = [name for name, _ in several]
    lengths = [show_length(length) for length in wanted.lengths]
    made = Table(_title(wanted, model, setups), [*names, *lengths, "all [95 %]"], labels=len(names))
    for row in rows:
        cells = [cell(_select(outcomes, *row, length)) for length in wanted.lengths]
        made.add(*(text(row) for _, text in several), *cells, cell(_select(outcomes, *row, None), spread=True))
    each = f"{show_count(wanted.trials, 'trial')} of each task, length and depth"
    made.notes.append(f"per cent found; {each}, documents of so many tokens")
    if len(setups) > 1:
        made.notes.append("of several methods, all answers are written from all of the pot")
    return made


def _title(wanted: Wanted, model: Mapping[str, Any], setups: Sequence[Setup]) -> str:
    tasks = wanted.tasks[0] if len(wanted.tasks) == 1 else "needles"
    methods = f", {setups[0].name}" if len(setups) == 1 else ""
    stack = f" in {wanted.haystack} text" if wanted.haystack in ("repeated", "natural") else f" in {wanted.haystack}"
    where = stack if any(TASKS[name].haystack for name in wanted.tasks) else ""
    return f"{tasks}{where}: {model['name']}, pot of {setups[0].settings.capacity:,} entries{methods}"


def panels(
    wanted: Wanted, model: Mapping[str, Any], setups: Sequence[Setup], outcomes: Sequence[Outcome]
) -> list[Panel]:
    """One heat map per method: lengths across, depths or tasks down."""
    rows = _rows(wanted, setups)
    by_depth = any(row[2] is not None for row in rows)
    made = []
    for setup in setups:
        own = [row for row in rows if row[0] == setup.name]
        values = [[_mean(_select(outcomes, *row, length)) for length in wanted.lengths] for row in own]
        names = [f"{row[2]:g}" if row[2] is not None else row[1] for row in own]
        title = f"{setup.name}, pot of {setup.settings.capacity:,} ({model['name']})"
        lengths = [show_length(length) for length in wanted.lengths]
        made.append(Panel(title, lengths, names, values, "tokens", "depth" if by_depth else "task"))
    return made


def _mean(outcomes: Sequence[Outcome]) -> float | None:
    """Per cent, None where memory ran out."""
    if not outcomes or any(outcome.error for outcome in outcomes):
        return None
    return interval([outcome.score * 100 for outcome in outcomes]).mean


def _note_repeats(app: App, wanted: Wanted, stacks: Mapping[str, Haystack], count: Count) -> None:
    """Say where a natural text is shorter than the documents: what is read again surprises less."""
    longest = max(wanted.lengths)
    for stack in {stacks[name] for name in wanted.tasks if TASKS[name].haystack}:
        if isinstance(stack, Texts) and (size := stack.tokens(count, longest)) < longest:
            often = f"in documents of {longest:,} it stands {longest / size:.1f} times"
            app.terminal.warn(f"the {wanted.haystack} text has {size:,} tokens; {often}")
