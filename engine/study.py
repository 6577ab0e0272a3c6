"""A study of one document and question: every way of reading beside global scoring, as plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.analysis import Document, GlobalScoring, Trace, score_globally, trace
from engine.overlap import Kept, frequency, highest_of, highest_total, hit_rate, mass, overlap, total
from engine.settings import PotSettings

GLOBAL = "global scoring"
_DIGITS = 5


@dataclass(frozen=True)
class Way:
    """A way of reading. ``beside`` names the one that what it keeps is compared with, if any, among those before."""

    name: str
    settings: PotSettings
    catalyst_ids: Sequence[int]
    beside: str | None = None


def study(
    document: Document, suffix_ids: Sequence[int], ways: Sequence[Way], bins: int, report: Callable[[str], None]
) -> dict[str, Any]:
    """Everything that the comparison gives, JSON-ready (docs/json.md). ``report`` is told what is read next.

    Raises ModelError where memory does not hold the whole document, SettingsError where a way has no room to read.
    """
    report(GLOBAL)
    everything = score_globally(document, suffix_ids)
    traces: dict[str, Trace] = {}
    rows = []
    for way in ways:
        report(way.name)
        traces[way.name] = trace(document, way.settings, way.catalyst_ids)
        rows.append(_row(document, everything, way, traces, bins))
    layers = _common(everything, traces.values())
    best = highest_of(_scores(everything, layers), traces[ways[0].name].final.only(layers))
    return {
        "tokens": len(document),
        "first_token": {"id": everything.first, "text": document.model.tokenizer.decode([everything.first])},
        "global": {"layers": list(layers), "frequency": frequency(best, len(document), bins).tolist()},
        "ways": rows,
    }


def _row(
    document: Document, everything: GlobalScoring, way: Way, traces: Mapping[str, Trace], bins: int
) -> dict[str, Any]:
    made = traces[way.name]
    layers = _common(everything, [made])
    final, scores = made.final.only(layers), _scores(everything, layers)
    hits, masses = hit_rate(final, scores), mass(final, scores)
    return {
        "name": way.name,
        "settings": way.settings.to_dict(),
        "layers": list(layers),
        "kept": round(final.size, 1),
        "chance": _rounded(final.size / len(document)),
        "hit": _mean(hits),
        "hits": _table(hits),
        "mass": _mean(masses),
        "masses": _table(masses),
        "read": [kept.read for kept in made.cycles],
        "hit_cycles": [_mean(hit_rate(kept.only(layers), scores)) for kept in made.cycles],
        "novelty": [_mean(total(kept.only(layers), everything.novelty)) for kept in made.cycles],
        "highest_novelty": [_highest(everything, kept.only(layers)) for kept in made.cycles],
        "overlap": _overlap(made, traces[way.beside], way.beside) if way.beside else None,
        "frequency": frequency(final, len(document), bins).tolist(),
    }


def _overlap(made: Trace, other: Trace, name: str) -> dict[str, Any]:
    """Cycle by cycle, where both were at the same token; and of what is held in the end."""
    pairs = zip(made.cycles, other.cycles, strict=False)
    same = [(kept, theirs) for kept, theirs in pairs if kept.read == theirs.read]
    return {
        "with": name,
        "read": [kept.read for kept, _ in same],
        "cycles": [_mean(overlap(*pair)) for pair in same],
        "final": _mean(overlap(made.final, other.final)),
    }


def _highest(everything: GlobalScoring, kept: Kept) -> float:
    return _rounded(highest_total(everything.novelty, kept.read, round(kept.size)))


def _common(everything: GlobalScoring, traces: Any) -> tuple[int, ...]:
    """Layers that see everything in every reading: a window as wide as a small pot binds in a large one."""
    return tuple(layer for layer in everything.layers if all(layer in made.final.layers for made in traces))


def _scores(everything: GlobalScoring, layers: Sequence[int]) -> list[np.ndarray]:
    return [everything.attention[everything.layers.index(layer)] for layer in layers]


def _mean(values: np.ndarray) -> float:
    return _rounded(float(np.nanmean(values)))


def _table(values: np.ndarray) -> list[list[float | None]]:
    return [[None if np.isnan(value) else _rounded(float(value)) for value in row] for row in values]


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
