"""SnapKV: read everything, then compress once (Li et al. 2024, "SnapKV: LLM knows what you are looking for before
generation", sections 4.1 and 4.2, Listing 1).

The last 32 tokens of the prompt observe: their attention to each entry before them is summed, max-pooled over 7
entries, and the highest stay, with the window itself, |M| in all. The prompt ends with the catalyst, which with CaP-Q
is the very question (``engine.snapshot``). Kept entries keep their source positions, whatever ``reset`` says, and the
answer may grow past |M|, as in the paper. Departures: one score per KV head, summed over the queries that share it;
the protected prefix and all of the question stay.
"""

from __future__ import annotations

from torch import Tensor

from engine.methods.candidates import Candidates, highest
from engine.methods.method import Method
from engine.settings import PotSettings

#: Observing tokens, and width of the max-pool, of the paper's LongBench runs.
WINDOW = 32
KERNEL = 7


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    return highest(candidates.catalyst(KERNEL, "max"), count)


METHOD = Method(select, attention=True, reduce="sum", stays=True)
