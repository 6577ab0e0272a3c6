"""Pot settings from a benchmark's --capacity and --set NAME=VALUE."""

from __future__ import annotations

import argparse
import json
from typing import Any

from engine.settings import PotSettings


def pot_settings(options: argparse.Namespace) -> PotSettings:
    """The settings that the options ask for, the others as they are by default."""
    return PotSettings.from_dict({"capacity": options.capacity, **dict(map(_choice, options.set))})


def _choice(item: str) -> tuple[str, Any]:
    name, _, value = item.partition("=")
    return name, json.loads(value) if value[:1].isdigit() else value
