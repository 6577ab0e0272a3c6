"""CaP only: the entries that the catalyst attends to most (Table 3, alpha = 0 %)."""

from __future__ import annotations

from torch import Tensor

from engine.methods.candidates import Candidates, guard_recent, highest
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    return highest(guard_recent(candidates.catalyst(settings.pooling, settings.pool), settings.recent, count), count)


METHOD = Method(select, attention=True, scoped=True)
