"""SirLLM: token entropy, carried with decay (Yao et al. 2024, "SirLLM: Streaming infinite retentive LLM", section 3).

The score of a token is its surprise −log p when it came in; it is carried with the entry and faded by ``decay`` at
every eviction, and the first 4 tokens of the stream always stay. All heads and layers keep the same tokens.
Departures: the protected prefix counts towards the 4; evictions come cycle by cycle instead of turn by turn; the
number of recent tokens kept besides is the setting ``recent`` (0 by default). With a prefix of 4 tokens and more
this is ``nuc``.
"""

from __future__ import annotations

from torch import Tensor

from engine.methods.candidates import Candidates, guard_recent, guard_starts, highest
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    scores = guard_starts(candidates.novelty, candidates.starts)
    return highest(guard_recent(scores, settings.recent, count), count)


METHOD = Method(select, novelty=True)
