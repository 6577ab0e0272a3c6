"""``infinipot bench ablate``: what each part and each choice of the method gives, on the same cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import SettingsError
from engine.settings import GenerationSettings
from infinipot_cli.bench import nih
from infinipot_cli.bench.ablate_report import diagram, lines, make_table
from infinipot_cli.bench.curves import draw
from infinipot_cli.bench.harness import Case, Outcome, check_room
from infinipot_cli.bench.options import BenchOptions, parse_length, parse_list
from infinipot_cli.bench.plots import require_plots
from infinipot_cli.bench.questions import QUESTIONS, Questions, load_questions, make_cases, pick
from infinipot_cli.bench.results import require_out
from infinipot_cli.bench.running import estimate, loaded, run_watched
from infinipot_cli.bench.scoring import contains, exact, token_f1
from infinipot_cli.bench.setups import wording
from infinipot_cli.bench.sweeps import SWEEPS, Base, Row, Sweep, make_sweep, setups_of
from infinipot_cli.bench.table import show
from infinipot_cli.errors import ExitCode, UsageError
from infinipot_cli.options import InputOptions, ModelOptions, PotOptions
from infinipot_cli.prompts import Task, load_catalyst
from infinipot_cli.reading import ingest_options
from infinipot_cli.wiring import App
from infinipot_cli.wishes import pot_settings
from infinipot_cli.workbench import Session

BENCH = "ablate"
ALL = "all"
#: Rules by which an answer to a question of a file counts.
SCORES: dict[str, Callable[[str, Sequence[str]], float]] = {"contained": contains, "f1": token_f1, "exact": exact}


@dataclass(frozen=True)
class Wanted:
    """Which sweeps over which cases: ``count`` questions of a file, and needles."""

    sweeps: Sequence[str]
    questions: Path | None
    document: Path | None
    kinds: Sequence[str]
    count: int | None
    fill: int | None
    score: str
    needles: nih.Wanted | None

    @classmethod
    def parse(
        cls,
        sweeps: str,
        questions: Path | None,
        document: Path | None,
        kinds: str | None,
        count: int | None,
        fill: str | None,
        score: str,
        needles: nih.Wanted | None,
    ) -> Wanted:
        """From the words of the command line. Raises UsageError."""
        if questions is None and needles is None:
            raise UsageError("there is nothing to ask", hint="name --questions FILE, or --task passkey, or both")
        names = list(SWEEPS) if sweeps.strip() == ALL else parse_list(sweeps, "--sweep", (*SWEEPS, ALL))
        if ALL in names:
            raise UsageError(f"--sweep {ALL} stands alone")
        if score not in SCORES:
            raise UsageError(f"--score must be {', '.join(SCORES)}, not {score!r}")
        chosen = parse_list(kinds, "--kinds") if kinds is not None else []
        tokens = None if fill is None else parse_length(fill, "--fill")
        return cls(names, questions, document, chosen, count, tokens, score, needles)

    def scorer(self, answer: str, case: Case) -> float:
        """By --score for questions of a file that the document answers, by whether it says so for others, by the task's
        own rule for needles."""
        if case.labels["task"] != QUESTIONS:
            return nih.score(answer, case)
        rule = SCORES[self.score] if case.labels["answerable"] else contains
        return float(rule(answer, case.accepted))


def measure_ablate(
    app: App, model: ModelOptions, pot: PotOptions, inputs: InputOptions, bench: BenchOptions, wanted: Wanted
) -> ExitCode:
    """Run the benchmark, or with --dry-run estimate it; write tables, JSON and picture."""
    task = wording(app, bench)
    require_plots(bench.plot)
    require_out(bench.out)
    questions = None
    if wanted.questions is not None:
        questions = load_questions(wanted.questions, wanted.document, ingest_options(inputs))
    sweeps = _sweeps(app, pot, task, wanted, app.workbench.facts(model).entry_bytes or 1)
    if bench.dry_run:
        cases = _cases(wanted, questions, inputs, bench, len, 1)
        estimate(app, model, BENCH, cases, setups_of(sweeps))
        return ExitCode.OK
    with loaded(app, model) as session:
        sweeps = _sweeps(app, pot, task, wanted, session.entry_bytes)
        most = _longest_answer(task, sweeps)
        cases = _cases(wanted, questions, inputs, bench, session.count, most)
        nih.check_lengths([case for case in cases if case.labels["task"] != QUESTIONS])
        sweeps = _fitting(app, session, task, sweeps, cases, most)
        outcomes = run_watched(
            app.terminal,
            session,
            cases,
            setups_of(sweeps),
            bench,
            name=BENCH,
            task=task,
            generation=bench.generation(most),
            scorer=wanted.scorer,
            about={"score": wanted.score},
        )
    _report(app, bench, wanted, session.describe(), sweeps, outcomes)
    return ExitCode.OK


def _sweeps(app: App, pot: PotOptions, task: Task, wanted: Wanted, entry_bytes: int) -> list[Sweep]:
    environ = app.terminal.environ
    catalyst = load_catalyst(pot.catalyst or task.catalyst, environ)
    base = Base(pot_settings(pot, entry_bytes), catalyst, environ)
    return [make_sweep(name, base) for name in wanted.sweeps]


def _longest_answer(task: Task, sweeps: Sequence[Sweep]) -> int:
    """The task's own length, or a quarter of the smallest pot, as in `ask`; the same for all setups."""
    smallest = min(setup.settings.capacity for setup in setups_of(sweeps))
    return max(min(task.max_new_tokens or smallest, smallest // 4), 1)


def _cases(
    wanted: Wanted,
    questions: Questions | None,
    inputs: InputOptions,
    bench: BenchOptions,
    count: Callable[[str], int],
    most: int,
) -> list[Case]:
    cases: list[Case] = []
    if questions is not None:
        asks = pick(questions.asks, wanted.count, wanted.kinds, bench.seed)
        cases += make_cases(asks, questions.documents, wanted.fill, count, most, bench.seed)
    if wanted.needles is not None:
        stacks = nih.make_haystacks(wanted.needles, inputs)
        cases += nih.make_cases(wanted.needles, bench.seed, stacks, count, most)
    return cases


def _fitting(
    app: App, session: Session, task: Task, sweeps: Sequence[Sweep], cases: Sequence[Case], most: int
) -> list[Sweep]:
    """The sweeps without the rows whose pot has no room for the longest question; says which. Raises SettingsError
    where a sweep's first row is one of them."""
    found = []
    for sweep in sweeps:
        rows = []
        for row in sweep.rows:
            try:
                check_room(session, cases, row.setup, task, GenerationSettings(most))
                rows.append(row)
            except SettingsError as error:
                if row is sweep.rows[0]:
                    raise
                app.terminal.warn(f"{sweep.name}, {row.label} is left out: {error}")
        labels = {row.label for row in rows}
        rows = [row if row.against in labels else Row(row.label, row.setup, None) for row in rows]
        found.append(Sweep(sweep.name, sweep.title, rows, sweep.note))
    return found


def _report(
    app: App,
    bench: BenchOptions,
    wanted: Wanted,
    model: Mapping[str, Any],
    sweeps: Sequence[Sweep],
    outcomes: Sequence[Outcome],
) -> None:
    """Tables on stdout, or all of it as JSON; and the picture."""
    if app.terminal.json:
        found = [{"sweep": sweep.name, "rows": [line.to_dict() for line in lines(sweep, outcomes)]} for sweep in sweeps]
        every = [outcome.to_dict() for outcome in outcomes]
        app.terminal.write_json({"bench": BENCH, "model": dict(model), "sweeps": found, "outcomes": every})
    else:
        for number, sweep in enumerate(sweeps):
            app.terminal.write("\n" if number else "")
            show(app.terminal, make_table(sweep, outcomes, str(model["name"])), bench.markdown)
    if bench.plot is not None:
        draw(bench.plot, [diagram(sweep, outcomes) for sweep in sweeps])
        app.terminal.say(f"drawn: {bench.plot}")
