"""InfiniPot: novelty first, then the catalyst (Kim et al. 2024, section 3.3.3 and Code 1).

T = round(alpha * count) slots go to the highest novelty, the rest to the highest catalyst attention.
Departures: per KV head instead of per query head, and novelty is the one each entry came in with (equation 4 is
undefined once heads keep different tokens); see docs/decisions.md. Code 1 raises the novelty-chosen entries to the
maximum score, where a tie could still evict them; here they rank above it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.methods.candidates import Candidates, guard_recent, highest
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    chosen = min(round(settings.alpha * count), candidates.count)
    by_novelty = candidates.novelty.sort(dim=1, descending=True, stable=True).indices[:, :chosen]
    scores = candidates.catalyst(settings.pooling, settings.pool)
    # Among themselves they stay in the order of novelty: where recent entries take slots too, the least novel yields.
    above = scores.amax() + torch.arange(chosen, 0, -1, device=scores.device, dtype=scores.dtype)
    scores = scores.scatter(1, by_novelty, above.expand(len(scores), -1))
    return highest(guard_recent(scores, settings.recent, count), count)


METHOD = Method(select, attention=True, scoped=True, novelty=True)
