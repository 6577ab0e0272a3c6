"""TOVA: what the last query attends to (Oren et al. 2024, "Transformers are multi-state RNNs", section 3.2).

The score of an entry is the attention that the last token read gives it, averaged over all query heads of the layer:
all KV heads of a layer keep the same tokens. No recent entries are favoured. Departures: evictions come cycle by
cycle, not token by token; the protected prefix stays.
"""

from __future__ import annotations

from torch import Tensor

from engine.methods.candidates import Candidates, asked_for, guard_recent, highest
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    scores = asked_for(candidates.received, "the last query's attention")
    return highest(guard_recent(scores, settings.recent, count), count)


METHOD = Method(select, received="last")
