"""``infinipot bench analyse``: what a pot keeps, beside what matters when everything is in memory.

Figures 2 and 3 of the paper (section 3.4): the hit rate, the overlap of CaP with CaP + NuC over cycles, the novelty of
what is kept, and how often tokens are kept over the length of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.settings import CATALYSED, CONSTRAINED
from infinipot_cli.bench.analyse_report import report
from infinipot_cli.bench.harness import Case, Setup
from infinipot_cli.bench.haystack import Haystack, Repeated, novel, texts
from infinipot_cli.bench.needles import TASKS, Request
from infinipot_cli.bench.options import BenchOptions, parse_length, parse_list
from infinipot_cli.bench.plots import require_plots
from infinipot_cli.bench.results import Results, digest, require_out
from infinipot_cli.bench.running import estimate, loaded
from infinipot_cli.bench.setups import wording
from infinipot_cli.errors import ExitCode, InputError, UsageError
from infinipot_cli.ingest import IngestOptions, open_sources
from infinipot_cli.options import InputOptions, ModelOptions, PotOptions
from infinipot_cli.progress import Progress, make_progress
from infinipot_cli.prompts import Task, load_catalyst
from infinipot_cli.reading import ingest_options
from infinipot_cli.wiring import App
from infinipot_cli.wishes import pot_settings
from infinipot_cli.workbench import Session

BENCH = "analyse"
#: The paper's: nothing but recency, CaP, and CaP with NuC; the question known, and not.
METHODS, CATALYSTS = "recent,cap,infinipot", "cap-q,cap-g"
#: What other methods are compared with, catalyst by catalyst.
BESIDE = "cap"
#: Equal parts of the document, for how often tokens are kept where.
BINS = 20


@dataclass(frozen=True)
class Wanted:
    """Documents of the user's with a question, or as many generated ones as ``trials``."""

    names: tuple[str, ...]
    question: str | None
    task: str
    tokens: int
    depth: float
    trials: int
    haystack: str

    @classmethod
    def parse(
        cls,
        names: Sequence[str],
        question: str | None,
        task: str,
        length: str,
        depth: float,
        trials: int,
        haystack: str,
    ) -> Wanted:
        """From the words of the command line. Raises UsageError or InputError."""
        if names and not (question or "").strip():
            raise UsageError("a document needs a question", hint='infinipot bench analyse FILE --question "Who…?"')
        if question is not None and not names:
            raise UsageError("a question needs a document", hint='infinipot bench analyse FILE --question "Who…?"')
        for name in names:
            if not Path(name).exists():
                raise InputError(f"{name}: there is no such file or folder")
        if task not in TASKS:
            raise UsageError(f"--task knows no {task!r}", hint=f"choose from: {', '.join(TASKS)}")
        return cls(tuple(names), question, task, parse_length(length, "--length"), depth, trials, haystack)


def make_ways(app: App, pot: PotOptions, entry_bytes: int) -> list[Setup]:
    """Every method with every catalyst that it looks at. Raises UsageError or SettingsError."""
    methods = parse_list(pot.method if app.chosen("method") else METHODS, "--method", CONSTRAINED)
    names = parse_list(pot.catalyst or CATALYSTS, "--catalyst")
    catalysts = [load_catalyst(name, app.terminal.environ) for name in names]
    ways = []
    # What others are compared with comes first.
    for method in sorted(methods, key=lambda name: name != BESIDE):
        settings = pot_settings(replace(pot, method=method), entry_bytes)
        if method in CATALYSED:
            ways += [Setup(f"{method} {catalyst.name}", settings, catalyst.text) for catalyst in catalysts]
        else:
            ways.append(Setup(method, settings, catalysts[0].text))
    return ways


def beside(way: str, names: Sequence[str]) -> str | None:
    """The name of the way that ``way`` is compared with: CaP with the same catalyst, else the first CaP there is."""
    method, _, catalyst = way.partition(" ")
    if method == BESIDE:
        return None
    found = [name for name in names if name.partition(" ")[0] == BESIDE]
    return next((name for name in found if name == f"{BESIDE} {catalyst}"), found[0] if found else None)


def make_cases(wanted: Wanted, inputs: InputOptions, seed: int, count: Callable[[str], int]) -> list[Case]:
    """The user's documents as one case, or one generated case per trial; ``count`` counts tokens."""
    if not wanted.names:
        stack = _haystack(wanted.haystack, inputs)
        return [_generated(wanted, stack, trial, seed, count) for trial in range(wanted.trials)]
    options = ingest_options(inputs)
    assert wanted.question is not None
    return [
        Case(
            id=f"{texts(wanted.names, options).name} {digest(wanted.question)}",
            document=lambda: _passages(wanted.names, options),
            question=wanted.question,
            accepted=(),
            tokens=sum(map(count, _passages(wanted.names, options))),
        )
    ]


def _passages(names: Sequence[str], options: IngestOptions) -> Iterator[str]:
    for source in open_sources(list(names), options):
        for passage in source.passages():
            yield passage.text


def _haystack(name: str, inputs: InputOptions) -> Haystack:
    if name == Repeated.name:
        return Repeated()
    return novel() if name == "natural" else texts([name], ingest_options(inputs))


def _generated(wanted: Wanted, stack: Haystack, trial: int, seed: int, count: Callable[[str], int]) -> Case:
    task = TASKS[wanted.task]
    labels: dict[str, Any] = {"task": wanted.task, "length": wanted.tokens}
    labels |= {"depth": wanted.depth} if task.by_depth else {}
    labels |= {"haystack": stack.name, "trial": trial, "seed": seed}
    origin = " ".join(f"{name}={value}" for name, value in labels.items())
    puzzle = task.make(Request(wanted.tokens, labels.get("depth"), origin, stack, 3 if task.distracted else 0))
    return Case(
        id=origin,
        document=lambda: puzzle.document(count),
        question=puzzle.question,
        accepted=puzzle.accepted,
        labels=labels,
        tokens=wanted.tokens,
    )


def measure_analyse(
    app: App, model: ModelOptions, pot: PotOptions, inputs: InputOptions, bench: BenchOptions, wanted: Wanted
) -> ExitCode:
    """Run the analysis, or with --dry-run estimate it; write tables, JSON and picture."""
    task = wording(app, bench)
    require_plots(bench.plot)
    require_out(bench.out)
    ways = make_ways(app, pot, app.workbench.facts(model).entry_bytes or 1)
    if bench.dry_run:
        counter = app.workbench.counter(model, app.chosen("model"), app.terminal.say)
        cases = make_cases(wanted, inputs, bench.seed, counter.count)
        everything = replace(ways[0], name="global scoring", settings=replace(ways[0].settings, method="full"))
        estimate(app, model, BENCH, cases, [*ways, everything])
        return ExitCode.OK
    with loaded(app, model) as session:
        ways = make_ways(app, pot, session.entry_bytes)
        cases = make_cases(wanted, inputs, bench.seed, session.count)
        for case in cases:
            _ids(session, case, ways, task)  # which finds out what has no room, before anything is read
        _warn_of_length(app, session, cases)
        records = run_studies(app, session, cases, ways, bench, task)
    report(app.terminal, bench, session.describe(), records)
    return ExitCode.OK


def _warn_of_length(app: App, session: Session, cases: Sequence[Case]) -> None:
    longest = max(case.tokens or 0 for case in cases)
    trained = session.describe().get("context_length")
    if trained and longest > trained:
        app.terminal.warn(
            f"global scoring reads {longest:,} tokens at once, and the model was trained on {trained:,}: "
            "what it attends to there may mean little"
        )


def run_studies(
    app: App, session: Session, cases: Sequence[Case], ways: Sequence[Setup], bench: BenchOptions, task: Task
) -> list[dict[str, Any]]:
    """A study of every case; each is a line of --out as soon as it is done, and not done again if it is there."""
    header = {
        "bench": BENCH,
        "seed": bench.seed,
        "about": {"bins": BINS},
        "model": session.describe() | {"identity": session.identity()},
        "task": {"name": task.name, "system": task.system, "before": task.before, "after": list(task.after)},
        "setups": [{**vars(way), "settings": way.settings.to_dict()} for way in ways],
    }
    progress = make_progress(app.terminal)
    records = []
    try:
        with Results(bench.out, header) as results:
            for number, case in enumerate(cases, 1):
                key = digest([case.id, case.question, header["model"], header["task"], header["setups"], results.scope])
                record = results.known(key)
                if record is None:
                    tell = partial(_tell, progress, f"{number}/{len(cases)}")
                    record = _record(case, key, results.run, _study(session, case, ways, task, tell))
                    results.add(record)
                records.append(record)
    finally:
        progress.stop()
    return records


def _tell(progress: Progress, place: str, name: str) -> None:
    progress.stage(f"{place} {name}")


def _study(
    session: Session, case: Case, ways: Sequence[Setup], task: Task, tell: Callable[[str], None]
) -> dict[str, Any]:
    prefix, question, wanted = _ids(session, case, ways, task)
    return session.study(prefix, case.document(), question, wanted, BINS, tell)


def _ids(session: Session, case: Case, ways: Sequence[Setup], task: Task) -> tuple[list[int], list[int], list[Any]]:
    """Token ids of what stands before and behind the document, and the ways with those of their catalysts.

    Raises SettingsError where a way would have no room to read.
    """
    framing = session.framing(task.before, task.system)
    question = framing.suffix_ids(task.turn(case.question))
    names, wanted = [way.name for way in ways], []
    for way in ways:
        catalyst = question if way.catalyst is None else framing.suffix_ids(way.catalyst)
        way.settings.check_room(len(framing.prefix_ids), len(catalyst))
        wanted.append((way.name, way.settings, catalyst, beside(way.name, names)))
    return framing.prefix_ids, question, wanted


def _record(case: Case, key: str, run: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "case": case.id,
        "setup": BENCH,
        "accepted": list(case.accepted),
        "question": case.question,
        "labels": dict(case.labels),
        "key": key,
        "run": run,
        **found,
    }
