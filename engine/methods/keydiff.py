"""KeyDiff: keys that point elsewhere than most (Park et al. 2025, "KeyDiff: Key similarity-based KV cache eviction for
long-context LLM inference in resource-constrained environments", section 3, Algorithm 1).

score_i = −cos(k_i, mean of k_j / |k_j|): the mean is over the unit keys of one KV head. As in a stock cache the keys
are compared after RoPE. Departure: the protected prefix is in the mean, but is never evicted.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from engine.methods.candidates import Candidates, asked_for, guard_recent, highest
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]. ``candidates.keys`` [H, protected + n, D] hold the prefix's keys too."""
    keys = asked_for(candidates.keys, "keys").float()
    anchor = F.normalize(keys, dim=-1).mean(dim=1, keepdim=True)
    scores = -F.cosine_similarity(keys, anchor, dim=-1)[:, candidates.protected :]
    return highest(guard_recent(scores, settings.recent, count), count)


METHOD = Method(select, keys=True)
