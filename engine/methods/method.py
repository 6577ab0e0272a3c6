"""The protocol of a method: which entries a cycle keeps, and what it must be shown to decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from engine.methods.candidates import Candidates
from engine.settings import PotSettings

Selection = Callable[[Candidates, int, PotSettings], Tensor]


@dataclass(frozen=True)
class Method:
    """``select(candidates, count, settings)`` -> slots [H, count], ascending; and what it must be given.

    attention  the catalyst's attention to the entries (equation 2).
    novelty    −log p of the tokens as they come in; costs the output layer.
    received   attention that the text's own queries gave: the "sum" over all of them, or what the "last" gave.
    keys       the keys as the attention sees them, rotated.
    scoped     whether heads may decide together (the setting ``scope``); else each decides alone.
    reduce     how the catalyst's attention is reduced, where the method's paper says so; else the setting.
    sees       what a query attends to: "all" entries, a "window" of the last |C|, or all in "groups" of positions.
    stays      kept entries keep their source positions whatever ``reset`` says.
    """

    select: Selection
    attention: bool = False
    novelty: bool = False
    received: Literal["sum", "last"] | None = None
    keys: bool = False
    scoped: bool = False
    reduce: str | None = None
    sees: Literal["all", "window", "groups"] = "all"
    stays: bool = False


def never(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """The selection of methods that evict nothing."""
    raise RuntimeError(f"the method {settings.method} evicts nothing")
