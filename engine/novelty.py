"""Novelty under compression (equations 3 and 4): -log p of each token given what the pot held when it came in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.model import Model

# Logits exist for this many tokens at a time, never for a whole block: 64 rows of a 128K vocabulary are 32 MB.
ROWS = 64


@torch.inference_mode()
def novelty(model: Model, hidden: Tensor, targets: Tensor) -> Tensor:
    """-log p(targets[i] | hidden[i]) in nats: hidden [t, hidden], targets [t] -> float32 [t]."""
    parts = []
    for rows, wanted in zip(hidden.split(ROWS), targets.to(hidden.device).split(ROWS), strict=True):
        logits = model.logits(rows).float()
        parts.append(logits.logsumexp(-1) - logits.gather(1, wanted[:, None])[:, 0])
    return torch.cat(parts)


def block_novelty(model: Model, previous: Tensor | None, hidden: Tensor, ids: Tensor) -> Tensor:
    """Novelty of a block's tokens, shifted by one across blocks: the state before each token predicts it.

    previous [1, hidden] is the last state of the block before. The very first token has no past; it is
    infinitely novel, so that models without a start token keep their attention sink.
    """
    if previous is None:
        first = torch.full((1,), float("inf"), device=hidden.device)
        return torch.cat([first, novelty(model, hidden[:-1], ids[1:])]) if len(ids) > 1 else first
    return novelty(model, torch.cat([previous, hidden[:-1]]), ids)
