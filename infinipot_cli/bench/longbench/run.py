"""``infinipot bench longbench``: the tasks one after the other, each under every setup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infinipot_cli.bench.harness import Outcome, Setup, check_room, run_all
from infinipot_cli.bench.longbench.cases import Part, make_part
from infinipot_cli.bench.longbench.data import ARCHIVE, HUB_ID, open_data
from infinipot_cli.bench.longbench.report import Report, draw
from infinipot_cli.bench.longbench.session import literal
from infinipot_cli.bench.longbench.tasks import LongTask, all_tasks
from infinipot_cli.bench.options import ResultOptions, parse_list
from infinipot_cli.bench.plots import require_plots
from infinipot_cli.bench.results import require_out
from infinipot_cli.bench.running import Watcher, estimate, loaded
from infinipot_cli.bench.setups import make_setups
from infinipot_cli.bench.table import show
from infinipot_cli.errors import ExitCode
from infinipot_cli.options import ModelOptions, PotOptions
from infinipot_cli.progress import make_progress
from infinipot_cli.terminal import Terminal
from infinipot_cli.wiring import App
from infinipot_cli.workbench import Session

NAME = "longbench"


@dataclass(frozen=True)
class Wanted:
    """What is to be run: where the examples are (None: on the hub), which tasks, how many examples of each."""

    data: Path | None
    tasks: list[LongTask]
    limit: int | None

    @classmethod
    def parse(cls, data: Path | None, tasks: str | None, limit: int | None) -> Wanted:
        """From the command line. Raises UsageError."""
        known = all_tasks()
        names = list(known) if tasks is None else parse_list(tasks, "--tasks", list(known))
        return cls(data, [task for name, task in known.items() if name in names], limit)


def measure_longbench(
    app: App, model: ModelOptions, pot: PotOptions, results: ResultOptions, wanted: Wanted
) -> ExitCode:
    """Run the tasks and show the scores; or only say what it would take."""
    from infinipot_cli.local import is_offline

    require_plots(results.plot)
    require_out(results.out)
    setups = _setups(app, pot, wanted.tasks, app.workbench.facts(model).entry_bytes or 1)
    parts = _parts(app, wanted, is_offline(model), results.seed)
    if results.dry_run:
        cases = [case for part in parts for case in part.cases]
        estimate(app, model, NAME, cases, next(iter(setups.values())))
        return ExitCode.OK
    with loaded(app, model) as session:
        setups = _setups(app, pot, wanted.tasks, session.entry_bytes)
        outcomes = _run(app, session, parts, setups, results)
        report = Report(session.describe(), parts, next(iter(setups.values())), outcomes)
    _show(app, results, report)
    return ExitCode.OK


def _parts(app: App, wanted: Wanted, offline: bool, seed: int) -> list[Part]:
    """The cases of every task, all lines checked; a download, if it takes one, is seen. Raises InputError."""
    progress = make_progress(app.terminal)
    progress.stage(f"Looking through {wanted.data}" if wanted.data else f"Fetching {ARCHIVE} of {HUB_ID}")
    try:
        data = open_data(wanted.data, list(all_tasks()), offline)
        data.require(task.name for task in wanted.tasks)
        return [make_part(data, task, wanted.limit, seed) for task in wanted.tasks]
    finally:
        progress.stop()


def _show(app: App, results: ResultOptions, report: Report) -> None:
    if app.terminal.json:
        app.terminal.write_json(report.to_dict())
    else:
        show(app.terminal, report.table(), results.markdown)
    if results.plot is not None:
        draw(results.plot, report)
        app.terminal.say(f"drawn: {results.plot}")


def _setups(app: App, pot: PotOptions, tasks: Sequence[LongTask], entry_bytes: int) -> dict[str, list[Setup]]:
    """The setups by task: their catalyst may be the task's own."""
    return {task.name: make_setups(app, pot, task.wording, entry_bytes) for task in tasks}


def _run(
    app: App, session: Session, parts: Sequence[Part], setups: Mapping[str, list[Setup]], results: ResultOptions
) -> list[Outcome]:
    """Every task, after all of them were seen to fit into the pot. Raises SettingsError where one does not."""
    for part in parts:
        for setup in setups[part.task.name]:
            framed, generation = literal(session, part.task.frame), part.task.generation(results.seed)
            check_room(framed, part.cases, setup, part.task.wording, generation)
    outcomes: list[Outcome] = []
    watcher = _Watcher(app.terminal, results, parts, len(next(iter(setups.values()))))
    try:
        for part in parts:
            watcher.task = part.task.name
            outcomes += _run_part(session, part, setups[part.task.name], results, watcher)
    except KeyboardInterrupt:
        watcher.interrupted()
        raise
    finally:
        watcher.stop()
    return outcomes


def _run_part(
    session: Session, part: Part, setups: Sequence[Setup], results: ResultOptions, watcher: Watcher
) -> list[Outcome]:
    return run_all(
        literal(session, part.task.frame),
        part.cases,
        setups,
        results.out,
        bench=NAME,
        task=part.task.wording,
        generation=part.task.generation(results.seed),
        scorer=part.score,
        seed=results.seed,
        watch=watcher,
        taught=False,
    )


class _Watcher(Watcher):
    """Counts over all tasks; that the file holds outcomes of the other tasks too is no news."""

    task = ""

    def __init__(self, terminal: Terminal, results: ResultOptions, parts: Sequence[Part], setups: int) -> None:
        cases = [case for part in parts for case in part.cases]
        super().__init__(terminal, results, setups * sum(case.tokens or 0 for case in cases))
        self._wanted = setups * len(cases)

    def start(self, total: int, known: int, others: int) -> None:
        if known:
            self._terminal.say(f"{self.task}: {known:,} of {total:,} outcomes are in {self._bench.out} already")
