"""``config.yaml``: settings that hold where neither a flag nor an environment variable says otherwise.

Keys are the names of the flags (``max-tokens`` or ``max_tokens``); unknown keys and values of the wrong type
are errors that name the line.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from infinipot_cli.errors import UsageError
from infinipot_cli.folders import config_file
from infinipot_cli.options import NOT_IN_CONFIG, SETTINGS_GROUPS
from infinipot_cli.strict_yaml import Item, StrictFile
from infinipot_cli.terminal import Terminal

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", list: "a list of texts"}


@dataclass(frozen=True)
class Setting:
    """One setting: its name, the type of its value, its environment variable, and its default."""

    name: str
    kind: type
    variable: str
    default: Any

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Config:
    """The values of the config file, each with its line; empty if there is none."""

    path: Path
    items: dict[str, Item] = field(default_factory=dict)


@cache
def settings() -> dict[str, Setting]:
    """Every setting by name, in the order of the options."""
    found = {}
    for group in SETTINGS_GROUPS:
        hints = typing.get_type_hints(group, include_extras=True)
        for part in fields(group):
            kind, option = hints[part.name].__args__[0], hints[part.name].__metadata__[0]
            if option.envvar:
                found[part.name] = Setting(part.name, _plain(kind), option.envvar, part.default)
    return found


def load_config(terminal: Terminal) -> Config:
    """Read the config file. Raises UsageError for a bad one, or if INFINIPOT_CONFIG names none."""
    path = config_file(terminal.environ)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        if terminal.environ.get("INFINIPOT_CONFIG"):
            raise UsageError(f"cannot read {path}: {error.strerror}", hint="INFINIPOT_CONFIG names it") from error
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            terminal.warn(f"cannot read {path}: {error.strerror}; going on without it")
        return Config(path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    return Config(path, _checked(StrictFile.parse(text, path)))


def _checked(file: StrictFile) -> dict[str, Item]:
    known = {name: setting for name, setting in settings().items() if name not in NOT_IN_CONFIG}
    spelled = {key.replace("-", "_"): item for key, item in file.items.items()}
    if len(spelled) < len(file.items):
        raise UsageError(f"{file.path} gives a setting twice, once with - and once with _")
    file.only(known, spelled)
    return {name: Item(_typed(file, known[name], item), item.line) for name, item in spelled.items()}


def _typed(file: StrictFile, setting: Setting, item: Item) -> Any:
    value = item.value
    if setting.kind is float and type(value) is int:
        return float(value)
    if setting.kind is str and type(value) is int:
        return str(value)  # pot-size: 536870912
    if setting.kind is list and isinstance(value, str):
        return [value]
    fits = type(value) is setting.kind
    if setting.kind is list:
        fits = fits and all(isinstance(entry, str) for entry in value)
    if not fits:
        raise file.fault(item, f"{setting.name} must be {_WORDS[setting.kind]}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return "a mapping" if isinstance(value, dict) else repr(value)


def _plain(kind: Any) -> type:
    """``int`` for ``int | None``, ``list`` for ``list[str] | None``."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    return typing.get_origin(kind) or kind
