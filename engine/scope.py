"""Which heads decide together what stays: each KV head alone, those of a layer, or all of the pot.

The paper lets every head keep its own entries. Few heads look where the answer stands, and an answer of which a head
keeps half the tokens is lost to it; when heads decide together, every layer keeps the same passages. They agree by the
norm of their scores, not by the sum: a head that is sure of a passage counts for more than many that spread their
attention over all of the text (docs/decisions.md has the measurements).
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.methods.candidates import pooled
from engine.settings import PotSettings


def agreed(scores: dict[int, Tensor], settings: PotSettings, protected: int) -> dict[int, Tensor]:
    """Catalyst scores per layer [H, n] (equation 2), each head's replaced by that of all heads in its ``scope``.

    That is the ``norm`` over those heads of what each gives to the neighbourhood of an entry (``pooling``), the first
    ``protected`` entries apart, which are nobody's neighbours. "pot" needs layers whose slots hold the same tokens, as
    they do where all cycles were decided by the whole pot.
    """
    if settings.scope == "head" or not scores:
        return scores
    if settings.scope == "layer":
        return {layer: _norm(own, settings, protected).expand_as(own) for layer, own in scores.items()}
    total = _norm(torch.cat(list(scores.values())), settings, protected)
    return {layer: total.expand_as(own) for layer, own in scores.items()}


def _norm(scores: Tensor, settings: PotSettings, protected: int) -> Tensor:
    """One score for all rows of ``scores`` [H, n]: float32 [n]."""
    # In float64, so that it does not depend on how a device orders the additions.
    if settings.norm == 1:  # a sum is pooled afterwards alone, as in pots that were kept before there was a norm
        return scores.sum(0, dtype=torch.float64).float()
    near = scores.double()
    near[:, protected:] = pooled(near[:, protected:], settings.pooling, settings.pool)
    return near.pow(settings.norm).sum(0).pow(1 / settings.norm).float()
