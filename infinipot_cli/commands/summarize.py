"""``infinipot summarize``: what documents or a pot say, in short."""

from __future__ import annotations

from typing import Annotated

import typer

from infinipot_cli.commands.ask import Each
from infinipot_cli.errors import ExitCode, UsageError
from infinipot_cli.options import (
    LENGTHS,
    STYLES,
    AnswerOptions,
    InputOptions,
    ModelOptions,
    OutputOptions,
    PotOptions,
    RunOptions,
    SummaryOptions,
)
from infinipot_cli.prompts import Task, Variant
from infinipot_cli.wiring import App, takes

EPILOG = """\
infinipot summarize report.pdf --length short

zcat app.log.gz | infinipot summarize --task logs

infinipot summarize minutes/ --each --style bullets | jq -r .answer
"""

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE…]", show_default=False, help="Files, folders, a pot, or - for stdin; stdin if none is named."
    ),
]


@takes
def summarize(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    inputs: InputOptions,
    answer: AnswerOptions,
    summary: SummaryOptions,
    run: RunOptions,
    output: OutputOptions,
    names: Names = None,
    each: Each = False,
) -> ExitCode:
    """Summarise documents of any length, or a saved pot."""
    from infinipot_cli.answering import give_answer
    from infinipot_cli.plan import plan_sources
    from infinipot_cli.prompts import load_task
    from infinipot_cli.wishes import Options, make_wish

    options = Options(model, pot, inputs, run, answer)
    task = load_task(answer.task or "summary", app.terminal.environ)
    wish = make_wish(app, options, task, variant=_variant(app, task, summary))
    return give_answer(app, "summarize", plan_sources(app.terminal, names or []), options, wish, each)


def _variant(app: App, task: Task, summary: SummaryOptions) -> Variant | None:
    """The form of the task that length and style choose. Raises UsageError where it has no such form."""
    if summary.length not in LENGTHS:
        raise UsageError(f"--length must be {', '.join(LENGTHS)}, not {summary.length!r}")
    if summary.style not in STYLES:
        raise UsageError(f"--style must be {' or '.join(STYLES)}, not {summary.style!r}")
    if task.asks:
        raise UsageError(f"the task {task.name} needs a question", hint=f'infinipot ask --task {task.name} FILE "…"')
    if task.variants:
        name = f"{summary.length}-{summary.style}"
        if name not in task.variants:
            raise UsageError(f"the task {task.name} has no variant {name}", hint=f"it has: {', '.join(task.variants)}")
        return task.variants[name]
    for option in ("length", "style"):
        if app.origins.get(option, "").startswith("flag"):
            raise UsageError(f"the task {task.name} knows no --{option}")
    return None
