"""One cycle of continual context distillation (section 3.2): choose what to keep, keep it, restart the slots."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.methods.candidates import Candidates
from engine.pot import Pot, PotLayer
from engine.scope import agreed


def distil(pot: Pot, scores: dict[int, Tensor], count: int) -> None:
    """Keep the protected prefix and ``count`` further entries per KV head of every layer that sees everything.

    scores: per layer, what the method asked to see of all entries: the catalyst's attention [H, n] (equation 2), or
    the keys [H, n, D]. Layers with a sliding window keep
    their last window instead, and never more than the others. Novelty fades by ``decay``.
    """
    if pot.method.scoped:
        scores = agreed(scores, pot.settings, pot.protected)
    with pot.rearranging():
        if count < pot.entries_distilled - pot.protected:
            _keep(pot, scores, count)
        keep_windows(pot)
    pot.cycles += 1


def _keep(pot: Pot, scores: dict[int, Tensor], count: int) -> None:
    if pot.method.scoped and pot.settings.scope == "pot":
        pot.keep(_chosen(pot, pot.distilled_stores[0], scores, count)[0])
    else:
        for store in pot.distilled_stores:
            store.keep(_chosen(pot, store, scores, count))
    if pot.settings.decay != 1.0:
        for store in pot.distilled_stores:
            store.novelty.mul_(pot.settings.decay)


def _chosen(pot: Pot, store: PotLayer, scores: dict[int, Tensor], count: int) -> Tensor:
    """Slots of one layer that stay [H, protected + count], ascending."""
    candidates = candidates_of(pot, store, scores.get(store.spec.index))
    return with_prefix(pot.method.select(candidates, count, pot.settings) + pot.protected, pot.protected)


def keep_windows(pot: Pot) -> None:
    """Cut every layer that slides a window to its last window, and to no more than the others hold."""
    kept = pot.entries_distilled
    for store in pot.stores.values():
        if store.spec.window is not None:
            store.keep_last(min(store.spec.window - 1, kept))


def require_distillable(pot: Pot) -> None:
    """Raise SettingsError for a model whose every layer slides a window narrower than the pot: nothing to distil."""
    if not pot.distilled_stores:
        window = max(store.spec.window or 0 for store in pot.stores.values())
        if not pot.settings.bounded:
            raise SettingsError(
                f"the method {pot.settings.method} has nothing to choose from: every layer of this model attends to a "
                f"window of {window} tokens"
            )
        raise SettingsError(
            f"every layer of this model attends to a window of {window} tokens, less than the pot's {pot.capacity}",
            hint=f"use --capacity {window} or less",
        )


def candidates_of(pot: Pot, store: PotLayer, shown: Tensor | None, end: int | None = None) -> Candidates:
    """What the method may choose from in one layer, up to slot ``end``, with what it asked to see."""
    part, method = slice(pot.protected, store.length if end is None else end), pot.method
    return Candidates(
        novelty=store.novelty[:, part],
        attention=shown[:, part] if shown is not None and method.attention else None,
        received=None if store.received is None else store.received[:, part],
        keys=shown if method.keys else None,
        protected=pot.protected,
    )


def with_prefix(slots: Tensor, protected: int) -> Tensor:
    """``slots`` [H, m] with the protected ones before them."""
    prefix = torch.arange(protected, device=slots.device).expand(slots.shape[0], -1)
    return torch.cat([prefix, slots], dim=1)
