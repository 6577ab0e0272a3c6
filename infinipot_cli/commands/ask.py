"""``infinipot ask``: a question to documents or a pot."""

from __future__ import annotations

from typing import Annotated

import typer

from infinipot_cli.errors import ExitCode, UsageError
from infinipot_cli.options import AnswerOptions, InputOptions, ModelOptions, OutputOptions, PotOptions, RunOptions
from infinipot_cli.wiring import App, takes

EPILOG = """\
infinipot ask book.pdf "Who betrays the captain?"

infinipot ask chapters/ notes.txt "What happens in June?"

zcat app.log.gz | infinipot ask "Why did the service restart?"

infinipot ask book.pot "And where?"
"""

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE…] QUESTION",
        show_default=False,
        help="Files, folders, a pot, or - for stdin; the last word is the question, in quotes.",
    ),
]
Each = Annotated[bool, typer.Option("--each", help="One answer per file, as JSON lines.", rich_help_panel="Run")]


@takes
def ask(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    inputs: InputOptions,
    answer: AnswerOptions,
    run: RunOptions,
    output: OutputOptions,
    words: Words = None,
    each: Each = False,
) -> ExitCode:
    """Ask a question about documents of any length, or about a saved pot."""
    from infinipot_cli.answering import give_answer
    from infinipot_cli.plan import plan_question
    from infinipot_cli.prompts import load_task
    from infinipot_cli.wishes import Options, make_wish

    options = Options(model, pot, inputs, run, answer)
    task = load_task(answer.task or "question", app.terminal.environ)
    if not task.asks:
        raise UsageError(f"the task {task.name} takes no question", hint=f"infinipot summarize --task {task.name}")
    plan = plan_question(app.terminal, words or [])
    return give_answer(app, "ask", plan, options, make_wish(app, options, task, plan.question or ""), each)
