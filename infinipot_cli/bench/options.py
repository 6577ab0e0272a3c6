"""What the commands of `bench` have in common: their options, and setups, wording and lengths made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.settings import METHODS, GenerationSettings
from infinipot_cli.bench.harness import Setup
from infinipot_cli.errors import UsageError
from infinipot_cli.options import PotOptions
from infinipot_cli.prompts import Task, load_catalyst, load_task
from infinipot_cli.wiring import App
from infinipot_cli.wishes import pot_settings

_BENCH = "Benchmark"
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([km]?)", re.IGNORECASE)
_POWERS = {"": 1, "k": 1_000, "m": 1_000_000}


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_BENCH, **more)


@dataclass(frozen=True)
class ResultOptions:
    """Where results go, and how they are shown. ``--method`` of PotOptions may name several, with commas."""

    out: Annotated[
        Path | None,
        _option("--out", "-o", metavar="FILE", help="Keep every outcome as a JSON line here; goes on where it ended."),
    ] = None
    plot: Annotated[Path | None, _option("--plot", metavar="FILE.png", help="Draw the results as a picture.")] = None
    markdown: Annotated[bool, _option("--markdown", help="Write the table as Markdown.")] = False
    seed: Annotated[int, _option("--seed", help="Seed of everything drawn by chance.", min=0)] = 0
    dry_run: Annotated[
        bool, _option("--dry-run", "-n", help="Only say how many tokens would be read, and how long that takes.")
    ] = False

    def generation(self, max_new_tokens: int) -> GenerationSettings:
        """Greedy, up to ``max_new_tokens`` tokens."""
        return GenerationSettings(max_new_tokens=max_new_tokens, seed=self.seed)


@dataclass(frozen=True)
class BenchOptions(ResultOptions):
    """The same, for benchmarks whose questions may be worded in any way."""

    prompt: Annotated[
        str, _option("--prompt", metavar="NAME|PATH", help="The wording of the question (`infinipot prompts list`).")
    ] = "question"


def wording(app: App, bench: BenchOptions) -> Task:
    """The task whose wording asks the questions. Raises UsageError for one that asks none."""
    task = load_task(bench.prompt, app.terminal.environ)
    if not task.asks:
        raise UsageError(f"the task {task.name} takes no question", hint="name one that does with --prompt")
    return task


def make_setups(app: App, pot: PotOptions, task: Task, entry_bytes: int) -> list[Setup]:
    """One setup for every method in ``--method a,b,c``, all else the same. Raises UsageError or SettingsError."""
    catalyst = load_catalyst(pot.catalyst or task.catalyst, app.terminal.environ).text
    names = parse_list(pot.method, "--method", METHODS)
    return [Setup(name, pot_settings(replace(pot, method=name), entry_bytes), catalyst) for name in names]


def parse_list(text: str, flag: str, known: Sequence[str] = ()) -> list[str]:
    """Names between commas, none twice, each a ``known`` one if some are. Raises UsageError."""
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise UsageError(f"{flag} names something between every two commas, not {text!r}")
    _require_distinct(names, flag)
    if known and (strange := [name for name in names if name not in known]):
        raise UsageError(f"{flag} knows no {strange[0]!r}", hint=f"choose from: {', '.join(known)}")
    return names


def parse_length(text: str, flag: str = "--lengths") -> int:
    """Tokens of a length such as 4000, 4k or 1m, in thousands and millions. Raises UsageError."""
    match = _LENGTH.fullmatch(text.strip())
    tokens = float(match[1]) * _POWERS[match[2].lower()] if match else 0.0
    if tokens < 1 or tokens != int(tokens):
        raise UsageError(f"{flag} takes lengths such as 4000, 8k or 1m, not {text.strip()!r}")
    return int(tokens)


def parse_lengths(text: str, flag: str = "--lengths") -> list[int]:
    """Lengths between commas, none twice, in the order given. Raises UsageError."""
    lengths = [parse_length(part, flag) for part in text.split(",")]
    _require_distinct(lengths, flag)
    return lengths


def parse_shares(text: str, flag: str) -> list[float]:
    """Numbers from 0 to 1 between commas, none twice. Raises UsageError."""
    shares = []
    for part in text.split(","):
        try:
            share = float(part)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise UsageError(f"{flag} takes numbers from 0 to 1, not {part.strip()!r}")
        shares.append(share)
    _require_distinct(shares, flag)
    return shares


def show_length(tokens: int) -> str:
    """8000 -> 8K, 1000000 -> 1M, 4321 -> 4321."""
    for power, letter in ((1_000_000, "M"), (1_000, "K")):
        if tokens >= power and tokens * 10 % power == 0:
            return f"{tokens / power:g}{letter}"
    return str(tokens)


def _require_distinct(items: Sequence[Any], flag: str) -> None:
    if len(set(items)) < len(items):
        twice = next(item for item in items if items.count(item) > 1)
        raise UsageError(f"{flag} names {twice} twice")
