"""``infinipot bench speed``: the command around the clock. Text to read, wording, file, table, picture."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from engine.errors import SettingsError
from infinipot_cli.bench.curves import draw
from infinipot_cli.bench.harness import Setup
from infinipot_cli.bench.haystack import Filler, Haystack, Repeated, novel, texts
from infinipot_cli.bench.options import BenchOptions, parse_lengths
from infinipot_cli.bench.plots import require_plots
from infinipot_cli.bench.results import Results, digest, require_out
from infinipot_cli.bench.running import loaded
from infinipot_cli.bench.setups import make_setups, wording
from infinipot_cli.bench.speed import Plan, Timing, time_all
from infinipot_cli.bench.speed_report import diagrams, make_table, summarise
from infinipot_cli.bench.table import show
from infinipot_cli.errors import ExitCode, UsageError
from infinipot_cli.options import InputOptions, ModelOptions, PotOptions
from infinipot_cli.prompts import Task, load_task
from infinipot_cli.reading import ingest_options
from infinipot_cli.units import show_count, show_seconds
from infinipot_cli.wiring import App
from infinipot_cli.workbench import Session

BENCH = "speed"
#: What is asked for where no wording is named: a summary, as in the paper's Tables 5 and 6.
_SUMMARY, _VARIANT = "summary", "medium-paragraph"
_QUESTION = "What is the text above about?"


@dataclass(frozen=True)
class Wanted:
    """Documents of ``lengths`` tokens of ``text`` (natural, repeated or a path), each ``repeats`` times; ``write``
    tokens after each; ``give_up`` seconds to the first token end a method's way to longer ones."""

    lengths: Sequence[int]
    repeats: int
    text: str
    write: int
    give_up: float | None

    @classmethod
    def parse(cls, lengths: str, repeats: int, text: str, write: int, give_up: float | None) -> Wanted:
        """From the words of the command line. Raises UsageError."""
        if give_up is not None and give_up <= 0:
            raise UsageError(f"--give-up takes seconds, more than 0, not {give_up:g}")
        return cls(parse_lengths(lengths), repeats, text, write, give_up)


def measure_speed(
    app: App, model: ModelOptions, pot: PotOptions, inputs: InputOptions, bench: BenchOptions, wanted: Wanted
) -> ExitCode:
    """Run the benchmark, or with --dry-run estimate it; write table, JSON and picture."""
    task, after = _wording(app, bench)
    require_plots(bench.plot)
    require_out(bench.out)
    stack = make_text(wanted.text, inputs)
    setups = make_setups(app, pot, task, app.workbench.facts(model).entry_bytes or 1)
    if bench.dry_run:
        _estimate(app, model, setups, wanted)
        return ExitCode.OK
    with loaded(app, model) as session:
        setups = make_setups(app, pot, task, session.entry_bytes)
        plan = Plan(
            setups=setups,
            lengths=wanted.lengths,
            repeats=wanted.repeats,
            document=lambda tokens: document(stack, tokens, session, bench.seed),
            task=task,
            after=after,
            generation=replace(bench.generation(wanted.write), min_new_tokens=wanted.write),
            give_up=wanted.give_up,
        )
        _check_room(session, plan)
        timings = _run(app, session, plan, bench, stack)
    _report(app, bench, session, plan, timings)
    return ExitCode.OK


def make_text(name: str, inputs: InputOptions) -> Haystack:
    """The text to read. Raises InputError for a file that cannot be read."""
    if name == "natural":
        return novel()
    return Repeated() if name == "repeated" else texts([name], ingest_options(inputs))


def document(stack: Haystack, tokens: int, session: Session, seed: int) -> Iterator[str]:
    """So many tokens of the text, to within a few, piece by piece; the text begins again where it ends."""
    filler = Filler(stack.pieces(random.Random(seed)), session.count)
    return (piece for piece, _ in filler.take(tokens, exactly=True))


def _wording(app: App, bench: BenchOptions) -> tuple[Task, str]:
    """(the task, what follows the document)."""
    if app.chosen("prompt"):
        task = wording(app, bench)
        return task, task.turn(_QUESTION)
    task = load_task(_SUMMARY, app.terminal.environ)
    return task, task.turn(task.variants[_VARIANT].question if _VARIANT in task.variants else _QUESTION)


def _check_room(session: Session, plan: Plan) -> None:
    """Raise SettingsError where question and answer would not fit into a pot, before anything is measured."""
    framing = session.framing(plan.task.before, plan.task.system)
    need = len(framing.prefix_ids) + len(framing.suffix_ids(plan.after)) + plan.generation.max_new_tokens
    smallest = min(setup.settings.capacity for setup in plan.setups)
    if need >= smallest:
        raise SettingsError(
            f"question and answer need {need} entries, and the pot has {smallest} in all",
            hint="raise --capacity or lower --write",
        )


def _run(app: App, session: Session, plan: Plan, bench: BenchOptions, stack: Haystack) -> list[Timing]:
    """Measure, with a line on stderr for each run and one in the file."""
    started = datetime.now(UTC).isoformat()
    header = {
        "bench": BENCH,
        "seed": bench.seed,
        # Runs of another process are another experiment: only those of one are compared.
        "about": {"text": stack.name, "repeats": plan.repeats, "process": started},
        "model": session.describe() | {"identity": session.identity()},
        "task": {"name": plan.task.name, "after": plan.after},
        "generation": vars(plan.generation),
        "setups": [{**vars(setup), "settings": setup.settings.to_dict()} for setup in plan.setups],
    }
    timings = []
    with Results(bench.out, header) as results:
        for timing in time_all(session, plan, lambda line: app.terminal.say(line, "dim")):
            timings.append(timing)
            results.add(_record(timing, results.run))
            app.terminal.detail(line_of(timing))
    return timings


def _record(timing: Timing, run: str) -> dict[str, Any]:
    """A timing as an outcome of the file: its case is the length and the repeat."""
    case = f"{timing.length} tokens, run {timing.repeat + 1}"
    named = {"case": case, "setup": timing.method, "accepted": [], "run": run}
    return {"key": digest([run, case, timing.method]), **named, **timing.to_dict()}


def line_of(timing: Timing) -> str:
    """A timing in one line, for people."""
    if timing.error is not None:
        return f"{timing.method}: {timing.error}"
    return (
        f"{timing.method}: {timing.tokens:,} tokens, first token after {show_seconds(timing.first_token)}, "
        f"{timing.reading_rate:,.0f} tokens/s, {timing.times_floor:.2f} times the floor"
    )


def _report(app: App, bench: BenchOptions, session: Session, plan: Plan, timings: Sequence[Timing]) -> None:
    described = session.describe()
    if app.terminal.json:
        rows = [row.to_dict() for row in summarise(timings)]
        lines = [timing.to_dict() for timing in timings]
        app.terminal.write_json({"bench": BENCH, "model": described, "rows": rows, "timings": lines})
    else:
        settings = plan.setups[0].settings
        title = (
            f"Speed of {described['name']} on {described.get('device')}, {described.get('dtype')}; "
            f"pot of {settings.capacity:,} entries, {settings.kept:,} distilled"
        )
        show(app.terminal, make_table(title, timings), bench.markdown)
    if bench.plot is not None:
        draw(bench.plot, diagrams(timings))
        app.terminal.say(f"drawn: {bench.plot}")


def _estimate(app: App, model: ModelOptions, setups: Sequence[Setup], wanted: Wanted) -> None:
    """--dry-run: how many runs, tokens and seconds, if every method reads as fast as the model did last."""
    facts = app.workbench.facts(model)
    runs = len(setups) * len(wanted.lengths) * wanted.repeats
    tokens = len(setups) * sum(wanted.lengths) * wanted.repeats
    speed = facts.tokens_per_second
    seconds = None if speed is None else round(tokens / speed, 1)
    if app.terminal.json:
        values = {"bench": BENCH, "runs": runs, "tokens": tokens, "seconds": seconds, "model": facts.name}
        app.terminal.write_json(values)
        return
    time = "not known" if seconds is None else f"about {show_seconds(seconds)} to read, answers not counted"
    lines = [f"runs: {show_count(runs, 'run')}", f"tokens: about {tokens:,}", f"time: {time}"]
    app.terminal.write("".join(f"{line}\n" for line in lines))
