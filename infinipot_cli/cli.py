"""The program: its commands and what --help says about it. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from infinipot_cli import version
from infinipot_cli.commands import ask, bench, chat, config, doctor, models, pot, prompts, summarize, tokens
from infinipot_cli.errors import ExitCode
from infinipot_cli.wiring import Command

EPILOG = "Exit codes: " + " · ".join(f"{code.value} {code.meaning}" for code in ExitCode)

app = typer.Typer(
    name="infinipot",
    help="Read documents of any length through a local language model in a fixed amount of memory.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

READ, LOOK = "Read and answer", "Look around"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"infinipot {version()}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, metavar="", help="Print the version.")
    ] = False,
) -> None:
    """Read documents of any length through a local language model in a fixed amount of memory."""


app.command("ask", cls=Command, epilog=ask.EPILOG, rich_help_panel=READ)(ask.ask)
app.command("summarize", cls=Command, epilog=summarize.EPILOG, rich_help_panel=READ)(summarize.summarize)
app.command("chat", cls=Command, epilog=chat.EPILOG, rich_help_panel=READ)(chat.chat)
app.add_typer(pot.app, name="pot", rich_help_panel=READ)
app.command("tokens", cls=Command, epilog=tokens.EPILOG, rich_help_panel=LOOK)(tokens.tokens)
app.add_typer(models.app, name="models", rich_help_panel=LOOK)
app.add_typer(bench.app, name="bench", rich_help_panel=LOOK)
app.add_typer(prompts.app, name="prompts", rich_help_panel=LOOK)
app.add_typer(config.app, name="config", rich_help_panel=LOOK)
app.command("doctor", cls=Command, rich_help_panel=LOOK)(doctor.doctor)
