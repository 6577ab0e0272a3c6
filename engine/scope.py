"""Which heads decide together what stays: each KV head alone, those of a layer, or all of the pot.

The paper lets every head keep its own entries. Few heads of a small model look where the answer stands, and an answer
of which a head keeps half the tokens is lost to it; when attention is added up over all heads before the selection,
those few decide for all, and every layer keeps the same passages (docs/decisions.md has the measurement).
"""

from __future__ import annotations

import torch
from torch import Tensor


def agreed(scores: dict[int, Tensor], scope: str) -> dict[int, Tensor]:
    """Catalyst scores per layer [H, n] (equation 2), each head's replaced by the sum over all heads in its ``scope``.

    "pot" needs layers whose slots hold the same tokens, as they do where all cycles were decided by the whole pot.
    """
    if scope == "head" or not scores:
        return scores
    if scope == "layer":
        return {layer: own.sum(0, keepdim=True).expand_as(own) for layer, own in scores.items()}
    # In float64, so that the sum does not depend on how a device orders the additions.
    total = torch.stack([own.sum(0, dtype=torch.float64) for own in scores.values()]).sum(0).float()
    return {layer: total.expand_as(own) for layer, own in scores.items()}
