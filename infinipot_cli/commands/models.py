"""``infinipot models``: which models there are, what this machine can hold, fetching one, and where it lies."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from engine.settings import PotSettings
from infinipot_cli.options import OutputOptions
from infinipot_cli.units import show_bytes, show_seconds
from infinipot_cli.wiring import App, takes

if TYPE_CHECKING:
    from infinipot_cli.catalog import ModelEntry
    from infinipot_cli.machine import Machine
    from infinipot_cli.models import LocalModel


CAPACITY = PotSettings().capacity


class ListByDefault(TyperGroup):
    """A command group that takes ``list`` for granted: ``models --json`` is ``models list --json``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=ListByDefault, help="List, fetch and find models; alone it lists them.")

CapacityOption = Annotated[
    int,
    typer.Option(
        "--capacity", "-c", envvar="INFINIPOT_CAPACITY", min=1, help="Entries of the pot that must fit beside it."
    ),
]
NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", show_default=False, help="A name from the list, or a hub id; else the default."),
]


@app.command("list")
@takes
def list_models(app: App, output: OutputOptions, capacity: CapacityOption = CAPACITY) -> None:
    """List models: size, licence, where they are, and whether this machine holds them."""
    from infinipot_cli import catalog, machine

    here = machine.look()
    rows = describe(here, capacity)
    best = catalog.recommend(here, capacity)
    if output.json:
        device = here.to_dict()
        app.terminal.write_json({"machine": device, "capacity": capacity, "models": rows})
        return
    app.terminal.stdout.write(table(rows))
    app.terminal.say(f"\nRecommended on this machine: --model {best.alias} ({best.licence})")


@app.command("pull")
@takes
def pull_model(
    app: App,
    output: OutputOptions,
    name: NameArgument = None,
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="The default model's .whl or .gguf, already at hand."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", envvar="INFINIPOT_OFFLINE", help="Fetch nothing; only check and convert.")
    ] = False,
) -> None:
    """Fetch a model, check it, and make it ready to load."""
    from infinipot_cli import models

    started = time.monotonic()
    terminal = app.terminal
    path = models.pull(name, given=given, offline=offline, report=terminal.say, bars=terminal.lively)
    seconds = time.monotonic() - started
    if output.json:
        terminal.write_json({"path": str(path), "bytes": models.folder_bytes(path), "seconds": round(seconds, 1)})
    else:
        terminal.say(f"Ready: {path} ({show_bytes(models.folder_bytes(path))}, {show_seconds(seconds)})")


@app.command("path")
@takes
def model_path(app: App, output: OutputOptions, name: NameArgument = None) -> None:
    """Print the folder of a model that is on this machine."""
    from infinipot_cli import models

    path = models.path_of(name)
    if output.json:
        app.terminal.write_json({"path": str(path)})
    else:
        app.terminal.stdout.write(f"{path}\n")


def describe(here: Machine, capacity: int) -> list[dict[str, Any]]:
    """One mapping per model: those of the catalog, smallest first, then others found on this machine."""
    from infinipot_cli import catalog, models

    local = {model.name: model for model in models.list_local()}
    best = catalog.recommend(here, capacity)
    rows = [_known(entry, here, capacity, local.pop(entry.alias, None)) for entry in catalog.CATALOG]
    for row in rows:
        row["default"] = row["name"] == catalog.DEFAULT.alias
        row["recommended"] = row["name"] == best.alias
    return rows + [_other(model) for model in local.values()]


def _known(entry: ModelEntry, here: Machine, capacity: int, local: LocalModel | None) -> dict[str, Any]:
    from infinipot_cli import catalog

    device = catalog.place(entry, here, capacity)
    wanted = device or here.best
    return {
        "name": entry.alias,
        "hub_id": entry.hub_id,
        "licence": entry.licence,
        "gated": entry.gated,
        "parameters": entry.parameters,
        "bytes": local.bytes if local else entry.weight_bytes(2),
        "context": entry.context,
        "where": local.where if local else "hub",
        "path": str(local.path) if local else None,
        "fits": device is not None,
        "fits_on": device.name if device else None,
        "memory_needed": entry.memory_needed(wanted, capacity),
    }


def _other(model: LocalModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "licence": None,
        "bytes": model.bytes,
        "where": model.where,
        "path": str(model.path),
        "fits": None,
        "default": False,
        "recommended": False,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text, one line each, with a heading."""
    lines = [("NAME", "SIZE", "LICENCE", "WHERE", "FITS")]
    lines += [
        (row["name"], show_bytes(row["bytes"]), row["licence"] or "see its card", row["where"], _fits(row))
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    text = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]) for line in lines
    )
    return "".join(line.rstrip() + "\n" for line in text)


def _fits(row: dict[str, Any]) -> str:
    if row["fits"] is None:
        return "not known"
    need = show_bytes(row["memory_needed"])
    notes = [word for word in ("default", "recommended", "gated") if row[word]]
    tail = f" ({', '.join(notes)})" if notes else ""
    return f"yes, {need} on {row['fits_on']}{tail}" if row["fits"] else f"no, needs {need}{tail}"
