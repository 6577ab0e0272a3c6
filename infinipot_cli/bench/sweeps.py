"""Sweeps: named lists of setups that differ in one thing, after the paper's tables and what the paper leaves open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import SettingsError
from engine.settings import CATALYSED, POOLINGS, POOLS, REDUCTIONS, SCOPES, PotSettings
from infinipot_cli.bench.harness import Setup
from infinipot_cli.errors import UsageError
from infinipot_cli.prompts import Catalyst, load_catalyst

#: Methods for which novelty's decay matters.
_BY_NOVELTY = ("infinipot", "nuc", "sirllm")
_CATALYSTS = {"CaP-G": "cap-g", "CaP-Q": "cap-q", "CaP-P": "cap-p", "CaP-U": "cap-u", "CaP-G1": "cap-g1"} | {
    "CaP-G2": "cap-g2"
}
_ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
_CAPACITIES = (512, 1024, 2048, 4096, 8192)
_SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
_DECAYS = (1.0, 0.95, 0.9, 0.8, 0.5)
_FOCI = (1024, 768, 512, 384, 256, 128)
_NORMS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
_RECENT = (0, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Base:
    """What a sweep varies: settings and catalyst. ``environ`` says where the user's own prompts are."""

    settings: PotSettings
    catalyst: Catalyst
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One setup of a sweep; ``against`` names the row it is compared with, None for none."""

    label: str
    setup: Setup
    against: str | None


@dataclass(frozen=True)
class Sweep:
    """A table to be: ``note`` says what it is to be read with."""

    name: str
    title: str
    rows: Sequence[Row]
    note: str = ""


@dataclass(frozen=True)
class _Choice:
    """One row to be."""

    label: str
    settings: PotSettings
    catalyst: Catalyst
    focus: int | None = None


#: Only some methods let a question decide what an answer is written from, so where methods stand beside each other all
#: answers are written from all of the pot.
_ALL = 0


def make_sweep(name: str, base: Base) -> Sweep:
    """The sweep of that name. Raises UsageError where the base and the sweep do not go together."""
    title, note, make = SWEEPS[name]
    choices = list(make(base))
    first = choices[0].label
    if name == "capacity":
        partner = {choice.label: _partner(choice.label) for choice in choices}
    else:
        partner = {choice.label: None if choice.label == first else first for choice in choices}
    rows = [
        Row(choice.label, setup_of(choice.settings, choice.catalyst, choice.focus), partner[choice.label])
        for choice in choices
    ]
    return Sweep(name, title, rows, note)


def setup_of(settings: PotSettings, catalyst: Catalyst, focus: int | None = None) -> Setup:
    """A setup named by all that is not default in it, so that sweeps share the outcomes of setups that they share."""
    usual = PotSettings(capacity=settings.capacity).to_dict() | {"capacity": None, "method": settings.method}
    parts = [f"{name}={value}" for name, value in settings.to_dict().items() if value != usual[name]]
    parts += [] if focus is None else [f"focus={focus}"]
    return Setup(" ".join([settings.method, *parts, catalyst.name]), settings, catalyst.text, focus)


def setups_of(sweeps: Sequence[Sweep]) -> list[Setup]:
    """The setups of all sweeps, each once."""
    return list({row.setup.name: row.setup for sweep in sweeps for row in sweep.rows}.values())


def _catalysts(base: Base) -> Iterator[_Choice]:
    if base.settings.method not in CATALYSED:
        raise UsageError(
            f"the method {base.settings.method} looks at no catalyst", hint="use --method cap or infinipot"
        )
    for label, name in _CATALYSTS.items():
        yield _Choice(label, base.settings, load_catalyst(name, base.environ))


def _alpha(base: Base) -> Iterator[_Choice]:
    yield _Choice("without CaP, NuC", _with(base, method="recent"), base.catalyst, _ALL)
    for alpha in _ALPHAS:
        hint = {0.0: " (CaP only)", 1.0: " (NuC only)"}.get(alpha, "")
        yield _Choice(f"{100 * alpha:.0f} %{hint}", _with(base, method="infinipot", alpha=alpha), base.catalyst, _ALL)


def _parts(base: Base) -> Iterator[_Choice]:
    for label, method, reset in (
        ("InfiniPot", "infinipot", True),
        ("without NuC", "cap", True),
        ("without CaP", "nuc", True),
        ("without CaP, NuC", "recent", True),
        ("without CR-RoPE", "infinipot", False),
        ("without CR-RoPE, CaP, NuC", "recent", False),
    ):
        yield _Choice(label, _with(base, method=method, reset=reset), base.catalyst, _ALL)


def _capacity(base: Base) -> Iterator[_Choice]:
    """Truncation and the base's method, side by side; |C| keeps its share of |M|."""
    share = base.settings.kept / base.settings.capacity
    for capacity in _CAPACITIES:
        settings = _with(base, capacity=capacity, distilled=max(round(share * capacity), 1))
        for method in dict.fromkeys(("truncate", base.settings.method)):
            yield _Choice(f"{method} {capacity:,}", replace(settings, method=method), base.catalyst, _ALL)


def _partner(label: str) -> str | None:
    method, _, capacity = label.partition(" ")
    return None if method == "truncate" else f"truncate {capacity}"


def _distilled(base: Base) -> Iterator[_Choice]:
    capacity = base.settings.capacity
    kept = [max(round(share * capacity), 1) for share in _SHARES]
    yield from _varied(base, "distilled", kept, lambda value: f"{value:,} ({100 * value / capacity:.1f} % of |M|)")


def _decay(base: Base) -> Iterator[_Choice]:
    method = base.settings.method if base.settings.method in _BY_NOVELTY else "infinipot"
    yield from _varied(replace(base, settings=_with(base, method=method)), "decay", _DECAYS, str)


def _focus(base: Base) -> Iterator[_Choice]:
    for focus in (0, *(size for size in _FOCI if size < base.settings.capacity)):
        yield _Choice(f"{focus:,}" if focus else "all of the pot", base.settings, base.catalyst, focus)


def _varied(base: Base, name: str, values: Sequence[Any], label: Callable[[Any], str]) -> Iterator[_Choice]:
    """The base's own value first, which the others are compared with; values that it cannot take are left out."""
    own = getattr(base.settings, name)
    for value in dict.fromkeys((own, *values)):
        try:
            settings = _with(base, **{name: value})
        except SettingsError:
            continue
        yield _Choice(label(value), settings, base.catalyst)


def _simply(name: str, values: Sequence[Any]) -> Callable[[Base], Iterator[_Choice]]:
    return lambda base: _varied(base, name, values, str)


def _with(base: Base, **changes: Any) -> PotSettings:
    return replace(base.settings, **changes)


#: Title, note and maker of every sweep, in the order of ``--sweep all``.
SWEEPS: dict[str, tuple[str, str, Callable[[Base], Iterator[_Choice]]]] = {
    "catalysts": (
        "Catalysts (Table 2)",
        "CaP-G is the authors' published wording, CaP-Q the question itself; the paper does not print P, U, G1 and "
        "G2: those words are ours",
        _catalysts,
    ),
    "alpha": ("Share of novelty, α (Table 3)", "", _alpha),
    "parts": ("Without a part (Table 4)", "without NuC: CaP alone; without CaP: novelty alone", _parts),
    "capacity": (
        "Capacity (Figure 6)",
        "|C| keeps its share of |M|; compared with truncation at the same capacity",
        _capacity,
    ),
    "distilled": ("Distilled entries, |C|", "", _distilled),
    "reduce": ("How a catalyst's attention is reduced", "the paper sums", _simply("reduce", REDUCTIONS)),
    "scope": ("Heads that decide together", "in the paper, each alone", _simply("scope", SCOPES)),
    "norm": ("How the heads agree", "1 is the sum; in the paper, each alone", _simply("norm", _NORMS)),
    "pooling": ("Pooling of scores", "the paper pools nothing", _simply("pooling", POOLINGS)),
    "pool": ("Pools of the largest or of the mean", "the paper pools nothing", _simply("pool", POOLS)),
    "focus": ("Entries that an answer is written from", "in the paper, all of the pot", _focus),
    "decay": ("Decay of carried novelty", "the paper does not carry novelty", _decay),
    "recent": ("Newest entries kept", "the paper keeps none", _simply("recent", _RECENT)),
}
