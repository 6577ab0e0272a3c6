"""What pots keep, compared: with each other and with a ranking of all tokens. Pure functions over numpy arrays.

A token is known by its number in the document, 0 to N - 1; what is kept is a sorted array of such numbers per
(layer, KV head). Kim et al. 2024, section 3.4, Figures 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

#: Of every layer, of every KV head: the numbers of the kept tokens, ascending.
Sets = list[list[np.ndarray]]


@dataclass(frozen=True)
class Kept:
    """What a pot keeps of a document at one moment, after ``read`` tokens of it."""

    layers: tuple[int, ...]
    sets: Sets
    read: int

    def only(self, layers: Sequence[int]) -> Kept:
        """The same for some of its layers."""
        return Kept(tuple(layers), [self.sets[self.layers.index(layer)] for layer in layers], self.read)

    @property
    def size(self) -> float:
        """Kept tokens per (layer, head), on average."""
        return float(np.mean([len(kept) for heads in self.sets for kept in heads]))


def per_head(kept: Kept, measure: Callable[[int, int, np.ndarray], float]) -> np.ndarray:
    """``measure(row, head, kept)`` of every slot: float64 [layers, heads], NaN where a layer has fewer heads."""
    values = np.full((len(kept.sets), max(len(heads) for heads in kept.sets)), np.nan)
    for row, heads in enumerate(kept.sets):
        for head, tokens in enumerate(heads):
            values[row, head] = measure(row, head, tokens)
    return values


def overlap(kept: Kept, other: Kept) -> np.ndarray:
    """Share of what is kept that ``other`` keeps in the same slot, too (Figure 3, top): [layers, heads]."""
    return per_head(kept, lambda row, head, tokens: _share(tokens, other.sets[row][head]))


def hit_rate(kept: Kept, scores: Sequence[np.ndarray]) -> np.ndarray:
    """Share of what is kept that is among as many tokens of highest score in the same slot: [layers, heads].

    scores: per layer [heads, N]; only those of the tokens read so far count. With the attention of the first generated
    token when everything is in memory ("global scoring"), this is the hit rate of Figure 2, top.
    """

    def measure(row: int, head: int, tokens: np.ndarray) -> float:
        return _share(tokens, highest(scores[row][head][: kept.read], len(tokens)))

    return per_head(kept, measure)


def mass(kept: Kept, scores: Sequence[np.ndarray]) -> np.ndarray:
    """Share of all scores (not negative) that falls on what is kept: [layers, heads]."""

    def measure(row: int, head: int, tokens: np.ndarray) -> float:
        all_of_it = float(scores[row][head].sum(dtype=np.float64))
        return float(scores[row][head][tokens].sum(dtype=np.float64)) / all_of_it if all_of_it else 0.0

    return per_head(kept, measure)


def total(kept: Kept, values: np.ndarray) -> np.ndarray:
    """Sum of the ``values`` [N] of what is kept (Figure 3, bottom, with the novelty of tokens): [layers, heads]."""
    return per_head(kept, lambda row, head, tokens: float(values[tokens].sum(dtype=np.float64)))


def highest_total(values: np.ndarray, read: int, count: int) -> float:
    """The largest total that ``count`` of the first ``read`` tokens can have."""
    return float(values[highest(values[:read], count)].sum(dtype=np.float64))


def frequency(kept: Kept, tokens: int, bins: int) -> np.ndarray:
    """How many tokens are kept of each of ``bins`` equal parts of the document (Figure 2, bottom).

    int64 [layers, heads, bins]; 0 where a layer has fewer heads.
    """
    counts = np.zeros((len(kept.sets), max(len(heads) for heads in kept.sets), bins), dtype=np.int64)
    for row, heads in enumerate(kept.sets):
        for head, numbers in enumerate(heads):
            counts[row, head] = np.bincount(numbers * bins // tokens, minlength=bins)
    return counts


def highest_of(scores: Sequence[np.ndarray], like: Kept) -> Kept:
    """What would be kept if the scores alone decided, of each slot as many as ``like`` keeps there."""
    sets = [
        [np.sort(highest(scores[row][head], len(tokens))) for head, tokens in enumerate(heads)]
        for row, heads in enumerate(like.sets)
    ]
    return Kept(like.layers, sets, like.read)


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Numbers of the ``count`` highest scores [n]; of equals the earlier."""
    return np.argsort(-scores, kind="stable")[:count]


def _share(tokens: np.ndarray, others: np.ndarray) -> float:
    return len(np.intersect1d(tokens, others, assume_unique=True)) / len(tokens) if len(tokens) else 0.0
