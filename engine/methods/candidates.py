"""What a method chooses from, and the two steps that all methods share: ranking and pooling."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Candidates:
    """The entries of one layer that may be evicted, in slot order.

    novelty float32 [H, n]; attention float32 [H, n], the catalyst's (equation 2), or None if not asked for.
    """

    novelty: Tensor
    attention: Tensor | None

    @property
    def count(self) -> int:
        return self.novelty.shape[1]

    def catalyst(self, pooling: int) -> Tensor:
        """The catalyst's attention, each entry lifted to the largest score among its ``pooling`` neighbours."""
        if self.attention is None:
            raise RuntimeError("this method needs catalyst scores, and none were captured")
        if pooling == 1:
            return self.attention
        return F.max_pool1d(self.attention[None], pooling, stride=1, padding=pooling // 2)[0]


def highest(scores: Tensor, count: int) -> Tensor:
    """Slots of the ``count`` highest scores per row, ascending [H, count]; of equals, the earlier slot wins."""
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :count]
    return order.sort(dim=1).values


def guard_recent(scores: Tensor, recent: int, count: int) -> Tensor:
    """Raise the last ``recent`` candidates, or as many as ``count`` slots can hold, above everything else."""
    recent = min(recent, count)
    if recent == 0:
        return scores
    guarded = scores.clamp(max=torch.finfo(scores.dtype).max)  # infinite novelty must not tie with the guard
    guarded[:, -recent:] = torch.inf
    return guarded
