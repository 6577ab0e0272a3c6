"""SnapKV's way of filling a pot: read everything, then compress once, by what the end of the prompt attends to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.ccd import Distiller
from engine.distil import candidates_of, keep_windows, with_prefix
from engine.forward import forward
from engine.methods.snapkv import WINDOW
from engine.pot import Batch, Pot

if TYPE_CHECKING:
    from engine.model import Model


class Snapshot(Distiller):
    """Feeds tokens to a pot that grows, and compresses it at the end to |M| less the catalyst, which then comes as the
    question. The observation window is the catalyst's last tokens; where it is shorter than the window, the text's
    last tokens observe too, and stay.
    """

    def __init__(self, model: Model, pot: Pot, catalyst: Tensor) -> None:
        super().__init__(model, pot, catalyst)
        # The window must leave room for at least one entry that it chooses.
        room = pot.capacity - pot.protected - len(self.catalyst) - 1
        self._back = min(max(WINDOW - len(self.catalyst), 0), room)

    def flush(self) -> None:
        """Read what waits; compress if text and catalyst exceed the capacity."""
        if self.pot.entries + self._count + len(self.catalyst) <= self.pot.capacity:
            super().flush()
            return
        window = min(self._back, self._count)
        self._read_until(window)
        batch = self._take(window) if window else Batch.of([])
        with self._waits_again(batch), self.stopwatch.span():
            self._compress(batch)

    def _compress(self, window: Batch) -> None:
        """Read the window with the catalyst behind it, and keep what the last of both attend to."""
        pot, observers = self.pot, min(WINDOW, len(window) + len(self.catalyst))
        read = window.counted
        window = window.to(self.model.device)
        with pot.whole():
            hidden, scores = forward(self.model, pot, window.ids, self.catalyst, observers)
            pot.note(window)
        if len(window):
            pot.last_hidden = hidden[-1:].clone()
        pot.tokens_read += read
        with pot.rearranging():
            for store in pot.distilled_stores:
                self._keep(store.spec.index, scores[store.spec.index], len(window))
            keep_windows(pot)
        pot.cycles += 1

    def _keep(self, layer: int, scores: Tensor, window: int) -> None:
        """In one layer: the protected prefix, what the window attends to most, and the window."""
        pot, store = self.pot, self.pot.stores[layer]
        before = store.length - window
        count = pot.capacity - len(self.catalyst) - pot.protected - window
        candidates = candidates_of(pot, store, scores[:, :before], before)
        chosen = with_prefix(self.method.select(candidates, count, pot.settings) + pot.protected, pot.protected)
        last = torch.arange(before, store.length, device=chosen.device).expand(len(chosen), -1)
        store.keep(torch.cat([chosen, last], dim=1))
