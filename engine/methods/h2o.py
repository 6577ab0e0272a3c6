"""H2O: heavy hitters by accumulated attention, and the last entries (Zhang et al. 2023, "H2O: Heavy-hitter oracle for
efficient generative inference of large language models", section 4.2 and Algorithm 1).

An entry's score is the attention that all queries since it came in have given it, summed; kept entries carry theirs on.
Half of the room goes to the highest scores, half to the last entries, as in the paper (equal budgets).
Departures: one score per KV head, summed over the queries that share it; evictions come cycle by cycle, not token by
token; the protected prefix stays.
"""

from __future__ import annotations

from torch import Tensor

from engine.methods.candidates import Candidates, asked_for, guard_recent, highest
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    scores = asked_for(candidates.received, "accumulated attention")
    return highest(guard_recent(scores, max(count - count // 2, settings.recent), count), count)


METHOD = Method(select, received="sum")
