"""``infinipot doctor``: whether everything is there, what it is, and what this machine can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from infinipot_cli.folders import config_file
from infinipot_cli.options import OutputOptions
from infinipot_cli.wiring import App, takes

#: What a finding is called in the first column.
WORDS = {"ok": "ok", "warn": "warning", "fail": "FAILS"}


@takes
def doctor(app: App, output: OutputOptions) -> None:
    """Look over this installation and machine; exit code 1 if infinipot cannot work here."""
    from infinipot_cli import health, machine

    here = machine.look()
    checks = []
    for check in health.examine(here, _config_dir(app)):
        checks.append(check)
        if not output.json:
            _show(app, check)
    sound = health.usable(checks)
    if output.json:
        app.terminal.write_json(_report(sound, here, checks))
    if not sound:
        raise typer.Exit(1)


def _config_dir(app: App) -> Path | None:
    try:
        return config_file(app.terminal.environ).absolute().parent
    except RuntimeError:
        return None


def _show(app: App, check: Any) -> None:
    lines = [f"{WORDS[check.state]:8} {check.name + ':':19} {check.value}"]
    if check.hint:
        lines.append(f"{'':28} hint: {check.hint}")
    app.terminal.write("\n".join(lines) + "\n")


def _report(sound: bool, here: Any, checks: list[Any]) -> dict[str, Any]:
    return {"usable": sound, "machine": here.to_dict(), "checks": [check.to_dict() for check in checks]}
