"""Continual context distillation (section 3.2): fill the pot, distil it, read on.

Tokens are read in blocks whose borders depend only on how full the pot is, never on how the tokens arrived,
so feeding one by one, in pieces or all at once gives the same pot, bit for bit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.distil import distil, require_distillable
from engine.errors import SettingsError
from engine.forward import forward
from engine.methods import REGISTRY
from engine.novelty import block_novelty
from engine.pot import Batch, Pot

if TYPE_CHECKING:
    from engine.model import Model


class Distiller:
    """Feeds tokens to a pot and distils it with ``catalyst`` [p] whenever it is full.

    A full pot is distilled when the next token arrives, not before: the last fill stays whole (see ``make_room``).
    """

    def __init__(self, model: Model, pot: Pot, catalyst: Tensor) -> None:
        require_distillable(pot)
        pot.settings.check_room(pot.protected, len(catalyst))
        self.model = model
        self.pot = pot
        self.catalyst = catalyst
        self.method = REGISTRY[pot.settings.method]
        if self.method.attention and len(catalyst) == 0:
            raise SettingsError(f"the method {pot.settings.method} needs a catalyst, and it is empty")
        self.seconds_distilling = 0.0
        self._waiting: list[Batch] = []
        self._count = 0
        self._scores: dict[int, Tensor] | None = None

    def feed(self, batch: Batch) -> None:
        """Take in tokens; reads every block that is complete."""
        self._waiting.append(batch)
        self._count += len(batch)
        while self._count >= (size := self._block_size()):
            self._read(self._take(size))

    def flush(self) -> None:
        """Read what still waits for its block to fill."""
        if self._count:
            self._read(self._take(self._count))

    def _free(self) -> int:
        """Entries that this fill may still take: |M| - occupied - |P|."""
        return self.pot.capacity - len(self.catalyst) - self.pot.entries

    def _block_size(self) -> int:
        free = self._free()
        if free <= 0:
            free = self.pot.capacity - len(self.catalyst) - self.pot.protected - self.pot.settings.kept
        return min(self.pot.settings.block, free)

    def _take(self, count: int) -> Batch:
        waiting = Batch.join(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting = [waiting[count:]] if len(waiting) > count else []
        self._count -= count
        return waiting[:count]

    def _read(self, batch: Batch) -> None:
        """Read one block; on an error its tokens wait again, and the pot is as it was before them."""
        try:
            if self._free() <= 0:
                self._distil()
            with self.pot.whole():
                self._take_in(batch)
        except BaseException:
            self._waiting.insert(0, batch)
            self._count += len(batch)
            raise

    def _take_in(self, batch: Batch) -> None:
        start = {index: store.length for index, store in self.pot.stores.items()}
        full = self._free() == len(batch)
        catalyst = self.catalyst if full and self.method.attention else None
        hidden, scores = forward(self.model, self.pot, batch.ids, catalyst)
        novel = None
        if self.method.novelty:
            novel = block_novelty(self.model, self.pot.last_hidden, hidden, batch.ids.to(hidden.device))
        for index, store in self.pot.stores.items():
            store.note(start[index], batch)
            store.novelty[:, start[index] : store.length] = 0.0 if novel is None else novel
        self._scores = scores if full else None
        self.pot.last_hidden = hidden[-1:].clone()
        self.pot.tokens_read += int((batch.position >= 0).sum())

    def _distil(self) -> None:
        began = time.perf_counter()
        scores = self._scores
        if scores is None:
            scores = score(self.model, self.pot, self.catalyst)
        distil(self.pot, scores, self.pot.settings.kept)
        self._scores = None
        self.seconds_distilling += time.perf_counter() - began


def score(model: Model, pot: Pot, catalyst: Tensor) -> dict[int, Tensor]:
    """Catalyst scores of a pot at rest, in a pass of their own: per layer [H, entries].

    Where less room is left than the catalyst is long, its last tokens speak for it: they are the ones that
    lead into the answer.
    """
    if not REGISTRY[pot.settings.method].attention:
        return {}
    room = min(len(catalyst), pot.capacity - pot.entries)
    if room == 0:
        raise SettingsError("the pot is full to the last entry: no catalyst fits", hint="raise --capacity")
    return forward(model, pot, catalyst[:0], catalyst[len(catalyst) - room :])[1]


def make_room(model: Model, pot: Pot, need: int, catalyst: Tensor) -> None:
    """The last-fill rule: leave the pot whole if ``need`` more entries fit, else distil it just enough.

    Raises SettingsError if the protected prefix and ``need`` alone exceed the capacity.
    """
    if pot.entries + need <= pot.capacity:
        return
    keep = pot.capacity - need - pot.protected
    if keep < 1:
        raise SettingsError(
            f"question and answer need {need} entries beside {pot.protected} protected ones, "
            f"more than the capacity of {pot.capacity}",
            hint="ask for a shorter answer (--max-tokens) or raise --capacity",
        )
    distil(pot, score(model, pot, catalyst), keep)


def as_ids(ids: list[int] | Tensor) -> Tensor:
    """Token ids as an int64 tensor [n]."""
    return torch.as_tensor(ids, dtype=torch.int64)
