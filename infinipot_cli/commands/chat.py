"""``infinipot chat``: question after question on one pot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot_cli.errors import ExitCode, UsageError
from infinipot_cli.options import AnswerOptions, InputOptions, ModelOptions, OutputOptions, PotOptions, RunOptions
from infinipot_cli.wiring import App, takes

if TYPE_CHECKING:
    from infinipot_cli.flow import Run
    from infinipot_cli.wishes import Wish

EPILOG = """\
infinipot chat book.pdf

infinipot chat book.pot --fresh < questions.txt
"""
PROMPT = "> "


@takes
def chat(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    inputs: InputOptions,
    answer: AnswerOptions,
    run: RunOptions,
    output: OutputOptions,
    names: Annotated[
        list[str], typer.Argument(metavar="SOURCE…", show_default=False, help="Files, folders, or a pot; not stdin.")
    ],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget each question and answer before the next.", rich_help_panel="Run")
    ] = False,
) -> ExitCode:
    """Ask several questions, typed at a prompt or one per line from stdin."""
    from infinipot_cli.dryrun import dry_run
    from infinipot_cli.flow import Run
    from infinipot_cli.plan import STDIN, plan_sources
    from infinipot_cli.prompts import load_task
    from infinipot_cli.wishes import Options, open_wish

    if STDIN in names:
        raise UsageError(
            "chat reads its questions from stdin, so the document cannot come from there",
            hint="save a pot first: … | infinipot pot save > x.pot, then infinipot chat x.pot",
        )
    options = Options(model, pot, inputs, run, answer)
    task = load_task(answer.task or "question", app.terminal.environ)
    if not task.asks:
        raise UsageError(f"the task {task.name} takes no question")
    wish = open_wish(app, options, task)
    plan = plan_sources(app.terminal, names)
    if run.dry_run:
        dry_run(app, plan, options, wish)
        return ExitCode.OK
    with Run(app, "chat", options) as reading:
        reading.fill(plan, wish)
        reading.progress.stop()
        for line in reading.receipt.lines():
            app.terminal.say(line, "dim")
        return _Chat(reading, wish, fresh).talk()


class _Chat:
    """The conversation: the pot it stands on, and how the next question joins on."""

    def __init__(self, run: Run, wish: Wish, fresh: bool) -> None:
        self.run = run
        self.wish = wish
        self.fresh = fresh
        self.framing = run.framing(wish.task)
        self.suffix: Callable[[str], list[int]] = self._first

    def talk(self) -> ExitCode:
        """Answer until there are no more questions."""
        terminal = self.run.terminal
        if terminal.stdin_tty:
            terminal.say("Ctrl-D ends the chat.")
        while (question := self._question()) is not None:
            if not question.strip():
                continue
            code = self._answer(question.strip())
            if code is not ExitCode.OK and not terminal.stdin_tty:
                return code
        return ExitCode.OK

    def _question(self) -> str | None:
        terminal = self.run.terminal
        try:
            return terminal.read_line(PROMPT)
        except KeyboardInterrupt:
            if not terminal.stdin_tty:
                raise
            terminal.say("\nCtrl-D ends the chat.")
            return ""

    def _answer(self, question: str) -> ExitCode:
        from dataclasses import replace

        from infinipot_cli.answering import code_of

        wish, ids = replace(self.wish, question=question), self.suffix(question)
        result = self.run.answer(wish, ids)
        if self.run.terminal.json:
            self.run.terminal.write_json(self.run.receipt.to_dict(), indent=None)
        if not self.fresh and result.stop_reason != "interrupted":
            self._remember(ids, result)
        self.run.receipt.timings.clear()
        return code_of(result)

    def _first(self, question: str) -> list[int]:
        return self.framing.suffix_ids(self.wish.task.turn(question))

    def _remember(self, ids: list[int], result: Any) -> None:
        """Add question and answer to the pot; the end-of-turn token comes with the next question."""
        from infinipot_cli.wishes import catalyst_ids

        said = result.token_ids[:-1] if result.stop_reason == "stop" else result.token_ids
        catalyst = catalyst_ids(self.framing, self.wish)
        self.run.pot = self.run.session.extend(self.run.pot, [*ids, *said], catalyst)
        self.suffix = self.framing.next_turn_ids
