"""``infinipot pot``: save what was read, ask it later, look at it, check it."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot_cli.commands.show import EPILOG as SHOW_EPILOG
from infinipot_cli.commands.show import show
from infinipot_cli.commands.summarize import Names
from infinipot_cli.errors import ExitCode, UsageError, not_written
from infinipot_cli.options import (
    AnswerOptions,
    InputOptions,
    ModelOptions,
    OutputOptions,
    PotOptions,
    RunOptions,
    SaveOptions,
)
from infinipot_cli.units import show_bytes, show_count
from infinipot_cli.wiring import App, Command, takes

if TYPE_CHECKING:
    from infinipot_cli.flow import Run
    from infinipot_cli.plan import Plan
    from infinipot_cli.terminal import Terminal

app = typer.Typer(no_args_is_help=True, help="Save what was read as a pot, and use it again.")

SAVE_EPILOG = """\
infinipot pot save book.pdf -o book.pot

cat notes/*.txt | infinipot pot save > notes.pot
"""
LOAD_EPILOG = """\
infinipot pot load book.pot "When does it happen?"

infinipot pot load book.pot | infinipot ask - "And where?"
"""

PotFile = Annotated[str, typer.Argument(metavar="POT", show_default=False, help="A pot file, or - for stdin.")]


@app.command("save", cls=Command, epilog=SAVE_EPILOG)
@takes
def save(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    saving: SaveOptions,
    inputs: InputOptions,
    run: RunOptions,
    output: OutputOptions,
    names: Names = None,
    target: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; stdout if left out.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace FILE if it exists.")] = False,
    note: Annotated[str, typer.Option("--note", help="A line to keep in the pot.", show_default=False)] = "",
) -> ExitCode:
    """Read documents into a pot and save it."""
    from engine.packing import require_dtype
    from infinipot_cli.dryrun import dry_run
    from infinipot_cli.flow import Run, ahead
    from infinipot_cli.plan import plan_sources
    from infinipot_cli.prompts import load_task
    from infinipot_cli.wishes import Options, open_wish

    options = Options(model, pot, inputs, run)
    dtype = require_dtype(saving.pot_dtype)
    path = _target(app.terminal, target, force, run.dry_run)
    wish = open_wish(app, options, load_task("question", app.terminal.environ))
    plan = plan_sources(app.terminal, names or [])
    if plan.pot:
        raise UsageError(f"{plan.names[0]} is a pot already")
    if run.dry_run:
        dry_run(app, plan, options, wish)
        return ExitCode.OK
    with Run(app, "pot save", options) as reading:
        reading.fill(plan, wish)
        _write(reading, path, dtype, note, ahead(wish.task))
    return ExitCode.OK


@app.command("load", cls=Command, epilog=LOAD_EPILOG)
@takes
def load(
    app: App,
    pot_file: PotFile,
    model: ModelOptions,
    answer: AnswerOptions,
    output: OutputOptions,
    question: Annotated[
        str | None,
        typer.Argument(metavar="[QUESTION]", show_default=False, help="Left out: pass the pot on to a pipe."),
    ] = None,
) -> ExitCode:
    """Ask a saved pot; or, into a pipe, pass it on after checking it."""
    from infinipot_cli.answering import give_answer
    from infinipot_cli.plan import plan_question
    from infinipot_cli.prompts import load_task
    from infinipot_cli.wishes import Options, make_wish

    if question is None:
        if output.json:
            raise UsageError(
                "there is no question to answer as JSON", hint="`infinipot pot info --json` describes a pot"
            )
        return _pass_on(app, pot_file)
    options = Options(model, PotOptions(), InputOptions(), RunOptions(), answer)
    task = load_task(answer.task or "question", app.terminal.environ)
    plan = plan_question(app.terminal, [pot_file, question])
    _require_pot(plan)
    return give_answer(app, "pot load", plan, options, make_wish(app, options, task, plan.question or ""))


@app.command("info", cls=Command)
@takes
def info(app: App, pot_file: PotFile, output: OutputOptions) -> None:
    """Say what a pot was made from, with which model and settings."""
    with open_pot(app, pot_file) as path:
        content = app.workbench.pot_info(path)
        size = path.stat().st_size
    if output.json:
        app.terminal.write_json({"file": pot_file, "bytes": size} | content)
    else:
        app.terminal.write("".join(f"{line}\n" for line in _info_lines(pot_file, size, content)))


@app.command("verify", cls=Command)
@takes
def verify(
    app: App,
    output: OutputOptions,
    pots: Annotated[list[str], typer.Argument(metavar="POT…", show_default=False, help="Pot files.")],
) -> None:
    """Check every checksum of pots; the exit code is 5 at the first damaged one."""
    for name in pots:
        with open_pot(app, name) as path:
            content = app.workbench.verify_pot(path)
        if output.json:
            app.terminal.write_json({"file": name, "sound": True, "version": content["version"]}, indent=None)
        else:
            app.terminal.write(f"{name}: sound\n")


app.command("show", cls=Command, epilog=SHOW_EPILOG)(show)


def _target(terminal: Terminal, target: str | None, force: bool, dry: bool) -> Path | None:
    """Where the pot goes, None for stdout, which a dry run does not need. Raises UsageError before anything is read
    in vain."""
    if target is None or target == "-":
        if dry:
            return None
        if terminal.stdout_tty:
            raise UsageError("a pot is not for a terminal", hint="name a file with -o, or pipe it on")
        if terminal.json:
            raise UsageError("--json and a pot cannot both go to stdout", hint="name a file with -o")
        return None
    return writable(target, force)


def writable(target: str, force: bool) -> Path:
    """Where a file may be written. Raises UsageError before anything is done in vain."""
    if not target.strip():
        raise UsageError("the name of the file to write is empty")
    path = Path(target)
    if is_sink(path):
        return path
    path = path.resolve() if path.is_symlink() else path  # what it points to is replaced, not the link
    if path.is_dir():
        raise UsageError(f"{target} is a folder", hint="name a file in it")
    if path.exists() and not force:
        raise UsageError(f"{target} exists already", hint="--force replaces it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"the folder {path.parent.absolute()} cannot be written to")
    return path


def is_sink(path: Path) -> bool:
    """Whether a path is a pipe or a device: written straight to, never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _write(run: Run, path: Path | None, dtype: str, note: str, ahead: dict[str, str | None]) -> None:
    from infinipot_cli import version

    meta = {
        "sources": run.receipt.sources,
        "catalyst": run.receipt.settings["catalyst"],
        "prompt": {"task": run.receipt.settings["task"]} | ahead,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "created_by": f"infinipot {version()}",
        "note": note,
    }
    run.progress.stage("Saving")
    with run.timed("saving"):
        size = _save(run, path, meta, dtype)
    kept = {"raw": run.session.describe()["dtype"], "bf16": "bfloat16"}.get(dtype, dtype)
    run.receipt.pot |= {"file": str(path) if path else "stdout", "file_bytes": size, "file_dtype": kept}
    run.finish()


def _save(run: Run, path: Path | None, meta: dict[str, Any], dtype: str) -> int:
    try:
        if path is not None and is_sink(path):
            with path.open("wb") as stream:
                return run.session.save(run.pot, stream, meta, dtype)
        return run.session.save(run.pot, path or run.terminal.binary, meta, dtype)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise not_written(path or "stdout", error) from error


def _pass_on(app: App, pot_file: str) -> ExitCode:
    """Copy a verified pot to stdout, from the very file that was verified."""
    if app.terminal.stdout_tty:
        raise UsageError(
            "there is no question, and a pot is not for a terminal",
            hint=f'infinipot pot load {pot_file} "QUESTION", or pipe it on, or `infinipot pot info {pot_file}`',
        )
    with open_pot(app, pot_file) as path, path.open("rb") as stream:
        app.workbench.verify_pot(path)
        shutil.copyfileobj(stream, app.terminal.binary, 1 << 20)
        app.terminal.binary.flush()
    return ExitCode.OK


def open_pot(app: App, name: str) -> Any:
    """A context that gives the pot as a file."""
    from infinipot_cli.plan import plan_sources

    plan = plan_sources(app.terminal, [name])
    _require_pot(plan)
    return plan.pot_file()


def _require_pot(plan: Plan) -> None:
    from infinipot_cli.plan import not_a_pot

    if not plan.pot:
        raise not_a_pot(plan.names[0])


def _info_lines(name: str, size: int, content: dict[str, Any]) -> list[str]:
    meta, settings = content["meta"], content["settings"]
    rows: list[tuple[str, str]] = [
        ("pot", f"{name}, {show_bytes(size)}, format version {content['version']}"),
        ("made", " by ".join(part for part in (meta["created"], meta["created_by"]) if part)),
        ("model", content["identity"]["name"]),
        *(("from" if not index else "", _source(source)) for index, source in enumerate(meta["sources"])),
        ("holds", _content(content, settings)),
        ("numbers", _numbers(content)),
        ("method", f"{settings['method']}, catalyst {meta['catalyst'].get('name', 'unknown')}"),
        ("note", meta["note"]),
    ]
    return [f"{label:<8}{text}" for label, text in rows if text]


def _content(content: dict[str, Any], settings: dict[str, Any]) -> str:
    from engine.settings import CONSTRAINED
    from infinipot_cli.receipt import show_fill

    fill = show_fill(content["entries"], settings["capacity"] if settings["method"] in CONSTRAINED else None)
    parts = (show_count(content["tokens_read"], "token"), show_count(content["cycles"], "cycle"))
    return f"{fill} from {', '.join(parts)}"


def _numbers(content: dict[str, Any]) -> str:
    """How the file holds keys and values."""
    text = f"keys and values in {content['dtype']}, {show_bytes(content['nbytes'])}"
    if packing := content.get("packing"):
        groups = f"{packing['key_group']} entries of a key's channel, {packing['value_group']} channels of a value"
        text += f"; a scale for {groups}; the first {packing['front']} entries as they were"
    return text


def _source(source: dict[str, Any]) -> str:
    pages = f", {show_count(source['pages'], source.get('unit', 'page'))}" if source.get("pages") else ""
    return f"{source.get('name')}{pages}, {show_count(source.get('tokens') or 0, 'token')}"
