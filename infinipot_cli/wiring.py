"""Between the argument parser and the commands: option groups, precedence of settings, and what a command is given."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from engine.errors import SettingsError
from infinipot_cli.config import Config, load_config, settings
from infinipot_cli.errors import UsageError
from infinipot_cli.options import EXCLUSIVE, OutputOptions
from infinipot_cli.terminal import COLORS, Terminal
from infinipot_cli.workbench import Workbench

_RANKS = ("default", "config", "environment", "flag")


class Command(TyperCommand):
    """A command whose usage line shows its arguments as they are named, without further brackets."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = [str(param.metavar or param.name) for param in self.params if param.param_type_name == "argument"]
        return [self.options_metavar or "", *words]


@dataclass
class App:
    """What every command is given: the terminal, the engine, and where each of its settings came from."""

    terminal: Terminal
    workbench: Workbench
    origins: dict[str, str] = field(default_factory=dict)

    def chosen(self, name: str) -> bool:
        """Whether somebody set this setting, be it by flag, environment or config file."""
        return self.origins.get(name, "default") != "default"


def takes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a typer command of ``function``, whose first parameter is the App and whose others may be option groups.

    A parameter annotated with a dataclass of options becomes all of its options; the function gets the dataclass
    back with flags, environment, config file and defaults merged in that order. OutputOptions are applied to the
    terminal before the function runs.
    """
    parameters, groups = _expand(function)

    @functools.wraps(function)
    def command(ctx: typer.Context, **values: Any) -> Any:
        app: App = ctx.obj
        resolved = _resolve(ctx, app, values)
        arguments = {name: _build(group, resolved) for name, group in groups.items()}
        rest = {
            name: resolved[name]
            for name in inspect.signature(function).parameters
            if name in resolved and name not in groups
        }
        for group in arguments.values():
            if isinstance(group, OutputOptions):
                _apply_output(app.terminal, group)
        try:
            return function(app, **arguments, **rest)
        except SettingsError as error:
            raise _as_given(error, app.origins) from error

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    signature = inspect.Signature([context, *parameters])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {part.name: part.annotation for part in signature.parameters.values()}
    return command


def _expand(function: Callable[..., Any]) -> tuple[list[inspect.Parameter], dict[str, type]]:
    """The parameters that typer is to see, and which of the function's own are groups of them."""
    hints = typing.get_type_hints(function, include_extras=True)
    seen: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        kind = hints[parameter.name]
        if is_dataclass(kind) and isinstance(kind, type):
            groups[parameter.name] = kind
            inner = typing.get_type_hints(kind, include_extras=True)
            seen += [_parameter(part.name, inner[part.name], part.default) for part in fields(kind)]
        else:
            seen.append(_parameter(parameter.name, kind, parameter.default))
    return seen, groups


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    for info in getattr(kind, "__metadata__", ()):
        if isinstance(info, OptionInfo) and info.metavar is None and (info.count or typing.get_args(kind)[0] is bool):
            info.metavar = ""  # --help would show a type, as if the flag took a value
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _build(group: type, values: dict[str, Any]) -> Any:
    return group(**{part.name: values[part.name] for part in fields(group)})


def _resolve(ctx: typer.Context, app: App, values: dict[str, Any]) -> dict[str, Any]:
    """Put the config file under flags and environment, and note where each value came from."""
    config = load_config(app.terminal)
    resolved = dict(values)
    for name in values:
        app.origins[name] = _origin(ctx, name)
        if app.origins[name] == "default" and name in config.items and name in settings():
            resolved[name] = config.items[name].value
            app.origins[name] = _config_origin(config, name)
    for pair in EXCLUSIVE:
        if all(name in values for name in pair):
            _exclude(app, resolved, pair)
    return resolved


def _origin(ctx: typer.Context, name: str) -> str:
    source = ctx.get_parameter_source(name)
    if source is None or source.name not in ("COMMANDLINE", "ENVIRONMENT"):
        return "default"
    if source.name == "COMMANDLINE":
        return f"flag --{name.replace('_', '-')}"
    return f"environment {settings()[name].variable}"


def _as_given(error: SettingsError, origins: Mapping[str, str]) -> SettingsError:
    """The error with its setting named as whoever gave it did: by flag, variable, or place in the file."""
    name, _, said = str(error).partition(" ")
    kind, _, given = origins.get({"max_new_tokens": "max_tokens"}.get(name, name), "default").partition(" ")
    if kind == "default":
        return error
    return SettingsError(f"{given}: {name} {said}" if kind == "config" else f"{given} {said}", hint=error.hint)


def _config_origin(config: Config, name: str) -> str:
    return f"config {config.path}:{config.items[name].line}"


def _exclude(app: App, values: dict[str, Any], pair: Sequence[str]) -> None:
    """Of two settings that exclude each other, the one from the better source stays."""
    ranks = {name: _RANKS.index(app.origins[name].split()[0]) for name in pair}
    first, second = pair
    if ranks[first] == ranks[second]:
        if ranks[first] > 0:
            flags = (f"--{name.replace('_', '-')}" for name in pair)
            raise UsageError(f"{' and '.join(flags)} exclude each other", hint="give one of them")
        return
    loser = min(pair, key=lambda name: ranks[name])
    if ranks[loser] > 0:
        values[loser] = settings()[loser].default
        app.origins[loser] = "default"


def _apply_output(terminal: Terminal, output: OutputOptions) -> None:
    if output.color not in COLORS:
        raise UsageError(f"--color must be {', '.join(COLORS)}, not {output.color!r}")
    terminal.color = output.color
    terminal.quiet, terminal.verbose = output.quiet, output.verbose
    terminal.json, terminal.debug = output.json, output.debug
