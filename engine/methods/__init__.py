"""Methods: each says which entries a cycle keeps. One protocol, one registry, one file each.

A method sees the candidates of one layer (everything but the protected prefix) and returns, per KV head,
the slots to keep. The loop around it is the same for all, so a comparison differs in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from engine.methods import cap, infinipot, nuc, recent
from engine.methods.candidates import Candidates
from engine.settings import PotSettings

Selection = Callable[[Candidates, int, PotSettings], Tensor]


@dataclass(frozen=True)
class Method:
    """``select(candidates, count, settings)`` -> slots [H, count], ascending; and what it must be given."""

    select: Selection
    attention: bool
    novelty: bool


REGISTRY: dict[str, Method] = {
    "infinipot": Method(infinipot.select, attention=True, novelty=True),
    "cap": Method(cap.select, attention=True, novelty=False),
    "nuc": Method(nuc.select, attention=False, novelty=True),
    "recent": Method(recent.select, attention=False, novelty=False),
}
