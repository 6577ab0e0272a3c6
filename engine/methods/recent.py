"""CCD without CaP and NuC: the last entries, whatever they say (Table 3, first row)."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.methods.candidates import Candidates
from engine.methods.method import Method
from engine.settings import PotSettings


def select(candidates: Candidates, count: int, settings: PotSettings) -> Tensor:
    """Slots to keep, ascending [H, count]."""
    heads, total = candidates.novelty.shape
    return torch.arange(total - count, total, device=candidates.novelty.device).expand(heads, -1)


METHOD = Method(select)
