"""One cycle of continual context distillation (section 3.2): choose what to keep, keep it, restart the slots."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.methods import REGISTRY
from engine.methods.candidates import Candidates
from engine.pot import Pot, PotLayer


def distil(pot: Pot, scores: dict[int, Tensor], count: int) -> None:
    """Keep the protected prefix and ``count`` further entries per KV head of every layer that sees everything.

    scores: per layer, the catalyst's attention to all entries [H, n] (equation 2). Layers with a sliding window keep
    their last window instead, and never more than the others. Novelty fades by ``decay``.
    """
    method = REGISTRY[pot.settings.method]
    for store in pot.distilled_stores:
        if count >= store.length - pot.protected:
            continue
        candidates = _candidates(store, pot.protected, scores.get(store.spec.index))
        chosen = method.select(candidates, count, pot.settings) + pot.protected
        store.keep(_with_prefix(chosen, pot.protected))
        store.novelty *= pot.settings.decay
    kept = pot.entries_distilled
    for store in pot.stores.values():
        if store.spec.window is not None:
            store.keep_last(min(store.spec.window - 1, kept))
    pot.cycles += 1


def require_distillable(pot: Pot) -> None:
    """Raise SettingsError for a model whose every layer slides a window narrower than the pot: nothing to distil."""
    if not pot.distilled_stores:
        window = max(store.spec.window or 0 for store in pot.stores.values())
        raise SettingsError(
            f"every layer of this model attends to a window of {window} tokens, less than the pot's {pot.capacity}",
            hint=f"use --capacity {window} or less",
        )


def _candidates(store: PotLayer, protected: int, attention: Tensor | None) -> Candidates:
    part = slice(protected, store.length)
    return Candidates(store.novelty[:, part], None if attention is None else attention[:, part])


def _with_prefix(slots: Tensor, protected: int) -> Tensor:
    prefix = torch.arange(protected, device=slots.device).expand(slots.shape[0], -1)
    return torch.cat([prefix, slots], dim=1)
