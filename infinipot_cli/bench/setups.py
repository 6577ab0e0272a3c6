"""From options to what the harness runs: setups, and the wording of the question."""

from __future__ import annotations

from dataclasses import replace

from engine.settings import METHODS
from infinipot_cli.bench.harness import Setup
from infinipot_cli.bench.options import BenchOptions, parse_list
from infinipot_cli.errors import UsageError
from infinipot_cli.options import PotOptions
from infinipot_cli.prompts import Task, load_catalyst, load_task
from infinipot_cli.wiring import App
from infinipot_cli.wishes import pot_settings


def wording(app: App, bench: BenchOptions) -> Task:
    """The task whose wording asks the questions. Raises UsageError for one that asks none."""
    task = load_task(bench.prompt, app.terminal.environ)
    if not task.asks:
        raise UsageError(f"the task {task.name} takes no question", hint="name one that does with --prompt")
    return task


def make_setups(app: App, pot: PotOptions, task: Task, entry_bytes: int) -> list[Setup]:
    """One setup for every method in ``--method a,b,c``, all else the same. Raises UsageError or SettingsError.

    Only some methods let a question decide what an answer is written from, so of several all answers are written from
    all of the pot.
    """
    catalyst = load_catalyst(pot.catalyst or task.catalyst, app.terminal.environ).text
    names = parse_list(pot.method, "--method", METHODS)
    focus = None if len(names) == 1 else 0
    return [Setup(name, pot_settings(replace(pot, method=name), entry_bytes), catalyst, focus) for name in names]
