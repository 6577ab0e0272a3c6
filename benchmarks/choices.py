"""Pot settings from a benchmark's --capacity and --set NAME=VALUE."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from engine.settings import PotSettings
from infinipot_cli.errors import UsageError


def pot_settings(options: argparse.Namespace) -> PotSettings:
    """The settings that the options ask for, the others as they are by default. Raises UsageError or SettingsError."""
    return PotSettings(**{"capacity": options.capacity, **settings_of(options.set)})


def settings_of(items: Sequence[str]) -> dict[str, Any]:
    """Pot settings by name, each from its own NAME=VALUE. Raises UsageError for a name that is none."""
    found = dict(map(_choice, items))
    if strange := found.keys() - {field.name for field in fields(PotSettings)}:
        raise UsageError(f"--set knows no pot setting {min(strange)!r}")
    return found


def _choice(item: str) -> tuple[str, Any]:
    name, _, value = item.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
