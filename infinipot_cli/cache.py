"""The cache folder: where converted models live, and making one there unless it is ready."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.convert import expected_manifest
from engine.errors import ModelError
from engine.folders import flaw

Report = Callable[[str], None]

ELSEWHERE = "set INFINIPOT_CACHE to a folder that can be written"


def cache_dir() -> Path:
    """Where converted models live: INFINIPOT_CACHE, else the platform's cache folder. Raises ModelError."""
    import platformdirs

    given = os.environ.get("INFINIPOT_CACHE")
    try:
        if given:
            return Path(given).expanduser().absolute()
        path = Path(platformdirs.user_cache_dir("infinipot", appauthor=False))
    except RuntimeError:
        path = Path("~")
    # Without a home folder the answer is an error, or relative to wherever the user stands.
    if not path.is_absolute():
        raise ModelError("there is no home folder to keep the model in", ELSEWHERE)
    return path


def models_dir() -> Path:
    """The folder of converted models; may not exist yet."""
    return cache_dir() / "models"


def ensure(
    target: Path,
    about: Mapping[str, Any],
    make: Callable[[], object],
    report: Report | None,
    *,
    thorough: bool = False,
) -> Path:
    """``target`` as it is where it is sound and ``about`` describes it; else after ``make()``. Raises ModelError."""
    # Looked at before anything is written, so that a read-only cache with a sound model works.
    found = flaw(target, expected_manifest(about), thorough=thorough)
    if found is None:
        return target
    if target.exists() and report is not None:
        report(f"The converted model must be made again: {found}.")
    try:
        make()
    except ModelError as exc:
        raise exc if exc.hint else ModelError(str(exc), _hint(exc)) from exc
    return target


def _hint(exc: ModelError) -> str | None:
    words = str(exc)
    if "disk is full" in words:
        return "free some space, or " + ELSEWHERE
    return ELSEWHERE if words.startswith(("cannot write", "cannot store")) else None
