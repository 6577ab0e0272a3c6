"""StreamingLLM: attention sinks and the last entries (Xiao et al. 2024, "Efficient streaming language models with
attention sinks", section 3.2 and Figure 4).

The cache is the first 4 tokens of the stream and a rolling window of the last ones; with CR-RoPE, positions are those
within the cache, as in the paper. Departures: the protected prefix counts towards the 4 sinks and stays whole even if
it is longer, and the window rolls cycle by cycle, from |M| down to |C|, not token by token. With
|C| = |M| − protected − 1 it rolls token by token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.methods.candidates import Candidates, guard_recent, guard_starts, highest
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    age = torch.arange(candidates.count, device=candidates.novelty.device, dtype=torch.float32)
    scores = guard_starts(age.expand_as(candidates.novelty), candidates.starts)
    return highest(guard_recent(scores, settings.recent, count), count)


METHOD = Method(select)
