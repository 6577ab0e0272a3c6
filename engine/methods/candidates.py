"""What a method chooses from, and the steps that methods share: ranking, pooling, and what always stays."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Start tokens that StreamingLLM and SirLLM always keep (start_size of both).
START = 4


@dataclass(frozen=True)
class Candidates:
    """The entries of one layer that may be evicted, in slot order; behind ``protected`` others that may not.

    novelty float32 [H, n]. What a method did not ask for is None: attention float32 [H, n], the catalyst's
    (equation 2); received float32 [H, n], the text's own queries'; keys [H, n, D], rotated.
    """

    novelty: Tensor
    attention: Tensor | None = None
    received: Tensor | None = None
    keys: Tensor | None = None
    protected: int = 0

    @property
    def count(self) -> int:
        return self.novelty.shape[1]

    def catalyst(self, pooling: int, pool: str) -> Tensor:
        """The catalyst's attention: of its ``pooling`` neighbours each entry takes the largest ("max") or the mean."""
        return pooled(asked_for(self.attention, "catalyst scores"), pooling, pool)

    @property
    def starts(self) -> int:
        """How many of the first candidates are start tokens: those that the protected prefix does not cover."""
        return min(max(START - self.protected, 0), self.count)


def pooled(scores: Tensor, pooling: int, pool: str) -> Tensor:
    """Each entry of ``scores`` [H, n] takes the largest ("max") or the mean of the ``pooling`` entries around it."""
    if pooling == 1:
        return scores
    if pool == "mean":
        return F.avg_pool1d(scores[None], pooling, 1, pooling // 2, count_include_pad=False)[0]
    return F.max_pool1d(scores[None], pooling, stride=1, padding=pooling // 2)[0]


def asked_for(what: Tensor | None, name: str) -> Tensor:
    """``what``, which the method's registration asks for."""
    if what is None:
        raise RuntimeError(f"this method needs {name}, and none were captured")
    return what


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


def guard_starts(scores: Tensor, starts: int) -> Tensor:
    """Raise the first ``starts`` candidates above everything else but the recent ones; the earlier of equals wins."""
    guarded = scores.clone()
    guarded[:, :starts] = torch.inf
    return guarded
