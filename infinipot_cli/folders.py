"""Where infinipot keeps its own files. Nothing here creates a folder or fails for want of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import platformdirs

NAME = "infinipot"


def config_file(environ: Mapping[str, str]) -> Path:
    """INFINIPOT_CONFIG, or ``config.yaml`` in the platform's config folder."""
    chosen = environ.get("INFINIPOT_CONFIG")
    return Path(chosen) if chosen else platformdirs.user_config_path(NAME, appauthor=False) / "config.yaml"


def user_prompts(environ: Mapping[str, str]) -> Path:
    """The folder whose prompts take precedence over the built-in ones: ``prompts`` beside the config file."""
    return config_file(environ).parent / "prompts"
