"""What ask and summarize have in common: one answer from one plan, or one answer per file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infinipot_cli.dryrun import dry_run
from infinipot_cli.errors import ExitCode, InfinipotError, InputError, UsageError, exit_code
from infinipot_cli.flow import Run
from infinipot_cli.ingest import Source
from infinipot_cli.plan import Plan
from infinipot_cli.reading import Feed, open_each
from infinipot_cli.wiring import App
from infinipot_cli.wishes import Options, Wish
from infinipot_cli.workbench import Generation


def give_answer(app: App, command: str, plan: Plan, options: Options, wish: Wish, each: bool = False) -> ExitCode:
    """Answer a wish, from all sources in one pot or from each alone; or only say what it would take."""
    if options.run.dry_run:
        dry_run(app, plan, options, wish, each)
        return ExitCode.OK
    with Run(app, command, options) as run:
        if each:
            return _each(run, command, plan, wish)
        run.fill(plan, wish)
        result = run.answer(wish)
        run.finish()
        return code_of(result)


def code_of(result: Generation) -> ExitCode:
    """The exit code of an answer: Ctrl-C in the middle of it counts as an interrupt."""
    return ExitCode.INTERRUPTED if result.stop_reason == "interrupted" else ExitCode.OK


def _each(run: Run, command: str, plan: Plan, wish: Wish) -> ExitCode:
    """A JSON line per file; a file that cannot be read becomes a line that says so, and the exit code says it too."""
    if plan.pot:
        raise UsageError("--each is for documents; a pot is one already")
    worst = ExitCode.OK
    for name, source in _sources(run, plan):
        if isinstance(source, InfinipotError):
            _write_failure(run, name, source)
            worst = exit_code(source)
            continue
        try:
            code = _one(run, command, source, wish)
        except InputError as error:
            run.progress.stop()
            _write_failure(run, name, error)
            worst = exit_code(error)
        else:
            if code is not ExitCode.OK:
                return code
    return worst


def _sources(run: Run, plan: Plan) -> Iterator[tuple[str, Source | InputError]]:
    """Every document, or what is wrong with it; says which files of a folder were left out."""
    for name, sources in open_each(plan, run.options.inputs):
        try:
            for source in sources:
                yield source.name, source
        except InputError as error:
            yield name, error
        run.progress.stop()
        for text in sources.skipped:
            run.terminal.warn(f"skipped {text}")


def _one(run: Run, command: str, source: Source, wish: Wish) -> ExitCode:
    run.renew(command)
    run.read(Feed(iter([source]), total=source.size), wish)
    result = run.answer(wish, shown=False)
    run.terminal.write_json({"source": source.name} | run.receipt.to_dict(), indent=None)
    return ExitCode.INTERRUPTED if run.receipt.interrupted else code_of(result)


def _write_failure(run: Run, name: str, error: InfinipotError) -> None:
    failure: dict[str, Any] = {"source": name, "error": str(error), "exit_code": int(exit_code(error))}
    run.terminal.write_json(failure | ({"hint": error.hint} if error.hint else {}), indent=None)
    run.terminal.warn(str(error))
