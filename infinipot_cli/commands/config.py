"""``infinipot config``: where the settings come from."""

from __future__ import annotations

import math
from typing import Any

import typer

from infinipot_cli.options import (
    AnswerOptions,
    InputOptions,
    ModelOptions,
    OutputOptions,
    PotOptions,
    RunOptions,
    SaveOptions,
    SummaryOptions,
)
from infinipot_cli.wiring import App, Command, takes

app = typer.Typer(no_args_is_help=True, help="Show the settings and the file they may stand in.")

_SECRET = ("password",)


@app.command("path", cls=Command)
def path(ctx: typer.Context) -> None:
    """Print where the config file is, or would be."""
    # Without `takes`: a config file that cannot be read must not hide its own name.
    from infinipot_cli.folders import config_file

    terminal = ctx.obj.terminal
    terminal.write(f"{config_file(terminal.environ)}\n")


@app.command("show", cls=Command)
@takes
def show(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    saving: SaveOptions,
    inputs: InputOptions,
    answer: AnswerOptions,
    summary: SummaryOptions,
    run: RunOptions,
    output: OutputOptions,
) -> None:
    """Show every setting that holds now, and where it comes from: a flag, the environment, the file, or the default."""
    from infinipot_cli.config import settings

    values: dict[str, Any] = {}
    for group in (model, pot, saving, inputs, answer, summary, run, output):
        values |= vars(group)
    rows = [
        {"name": name, "value": _shown(name, values[name]), "from": app.origins[name], "variable": setting.variable}
        for name, setting in settings().items()
    ]
    if output.json:
        app.terminal.write_json(rows)
        return
    names = max(len(row["name"]) for row in rows)
    texts = max(len(_text(row["value"])) for row in rows)
    for row in rows:
        app.terminal.write(f"{row['name']:<{names}}  {_text(row['value']):<{texts}}  {row['from']}\n")


def _shown(name: str, value: Any) -> Any:
    if name in _SECRET and value:
        return "(set)"
    # JSON has no numbers for inf and nan.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
