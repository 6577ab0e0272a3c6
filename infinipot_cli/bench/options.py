"""What the commands of `bench` have in common: their options, and how lists, lengths and shares are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.settings import GenerationSettings
from infinipot_cli.errors import UsageError

_BENCH = "Benchmark"
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([km]?)", re.IGNORECASE)
_POWERS = {"": 1, "k": 1_000, "m": 1_000_000}


def option(*names: str, help: str, panel: str = _BENCH, **more: Any) -> Any:
    """A typer option of one run: without an environment variable."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclass(frozen=True)
class ResultOptions:
    """Where results go, and how they are shown. ``--method`` of PotOptions may name several, with commas."""

    out: Annotated[
        Path | None,
        option("--out", "-o", metavar="FILE", help="Keep every outcome as a JSON line here; goes on where it ended."),
    ] = None
    plot: Annotated[Path | None, option("--plot", metavar="FILE.png", help="Draw the results as a picture.")] = None
    markdown: Annotated[bool, option("--markdown", help="Write the table as Markdown.")] = False
    seed: Annotated[int, option("--seed", help="Seed of everything drawn by chance.", min=0)] = 0
    dry_run: Annotated[
        bool, option("--dry-run", "-n", help="Only say how many tokens would be read, and how long that takes.")
    ] = False

    def generation(self, max_new_tokens: int) -> GenerationSettings:
        """Greedy, up to ``max_new_tokens`` tokens."""
        return GenerationSettings(max_new_tokens=max_new_tokens, seed=self.seed)


@dataclass(frozen=True)
class BenchOptions(ResultOptions):
    """The same, for benchmarks whose questions may be worded in any way."""

    prompt: Annotated[
        str, option("--prompt", metavar="NAME|PATH", help="The wording of the question (`infinipot prompts list`).")
    ] = "question"


_NEEDLES = "Needles"


@dataclass(frozen=True)
class NeedleOptions:
    """What is hidden where, in documents of which length."""

    tasks: Annotated[
        str | None,
        option(
            "--task",
            panel=_NEEDLES,
            metavar="NAME,…",
            help="passkey, multikey, multivalue, multiquery, variables, common-words, frequent-words, or all.",
        ),
    ] = "passkey"
    lengths: Annotated[
        str, option("--lengths", panel=_NEEDLES, help="Tokens of the documents; k and m are thousands and millions.")
    ] = "4k,8k,16k"
    depths: Annotated[str, option("--depths", panel=_NEEDLES, help="Where the needle is, 0 (start) to 1 (end).")] = (
        "0.1,0.5,0.9"
    )
    trials: Annotated[int, option("--trials", panel=_NEEDLES, min=1, help="Cases per length and depth.")] = 5
    haystack: Annotated[
        str,
        option(
            "--haystack",
            panel=_NEEDLES,
            metavar="repeated|natural|needles|PATH",
            help="The pass key's repeated text, a novel, distractors alone, or your own files.",
        ),
    ] = "repeated"
    distractors: Annotated[
        int, option("--distractors", panel=_NEEDLES, min=0, help="Other keys and values beside the needle.")
    ] = 3


@dataclass(frozen=True)
class MoreNeedles(NeedleOptions):
    """Needles beside other questions: none unless a task is named."""

    tasks: Annotated[
        str | None,
        option(
            "--task",
            panel=_NEEDLES,
            metavar="NAME,…",
            help="Also needles, as in `infinipot bench nih`.",
            show_default="none",
        ),
    ] = None
    lengths: Annotated[str, option("--lengths", panel=_NEEDLES, help="Tokens of the documents with needles.")] = "8k"


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
