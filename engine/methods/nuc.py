"""NuC only: the entries that surprised the model most when they came in (Table 3, alpha = 100 %)."""

from __future__ import annotations

from torch import Tensor

from engine.methods.candidates import Candidates, guard_recent, highest
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    return highest(guard_recent(candidates.novelty, settings.recent, count), count)


METHOD = Method(select, novelty=True)
