"""Continual context distillation (section 3.2): fill the pot, distil it, read on.

Tokens are read in blocks whose borders depend only on how full the pot is, never on how the tokens arrived,
so feeding one by one, in pieces or all at once gives the same pot, bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.distil import distil, require_distillable
from engine.errors import SettingsError
from engine.forward import forward
from engine.methods.method import never
from engine.novelty import block_novelty
from engine.pot import Batch, Pot
from engine.pour import rotated_keys
from engine.stopwatch import Stopwatch

if TYPE_CHECKING:
    from engine.model import Model


class Distiller:
    """Feeds tokens to a pot and distils it with ``catalyst`` [p] whenever it is full.

    A full pot is distilled when the next token arrives, not before: the last fill stays whole (see ``make_room``).
    A method that does not look at a catalyst leaves no room for it. A pot without bound is never full.
    """

    def __init__(self, model: Model, pot: Pot, catalyst: Tensor) -> None:
        self.model = model
        self.pot = pot
        self.method = pot.method
        self.catalyst = (catalyst if self.method.attention else catalyst[:0]).to(model.device)
        if self.method.attention and len(catalyst) == 0:
            raise SettingsError(f"the method {pot.settings.method} needs a catalyst, and it is empty")
        if self.method.select is not never:
            require_distillable(pot)
        pot.settings.check_room(pot.protected, len(self.catalyst))
        self.stopwatch = Stopwatch(model.device)
        self._waiting: list[Batch] = []
        self._count = 0
        self._back = 0  # tokens that are never read before the end
        self._scores: dict[int, Tensor] | None = None

    def feed(self, batch: Batch) -> None:
        """Take in tokens; reads every block that is complete."""
        self._waiting.append(batch)
        self._count += len(batch)
        while self._count - self._back >= (size := self._block_size()):
            self._read(self._take(size))

    def flush(self) -> None:
        """Read what still waits: less than a block, or what an error left."""
        self._read_until(0)

    def _read_until(self, waiting: int) -> None:
        """Read, in blocks, until no more than ``waiting`` tokens wait."""
        while self._count > waiting:
            self._read(self._take(min(self._count - waiting, self._block_size())))

    def _free(self) -> int:
        """Entries that this fill may still take: |M| - occupied - |P|."""
        if not self.pot.settings.bounded:
            return sys.maxsize
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
        """Read one block; on an error the pot is as it was before it, or torn if it was being distilled."""
        with self._waits_again(batch):
            if self._free() <= 0:
                self._distil()
            with self.pot.whole():
                self._take_in(batch)

    @contextmanager
    def _waits_again(self, batch: Batch) -> Iterator[None]:
        """On an error inside, the tokens wait again."""
        try:
            yield
        except BaseException:
            self._waiting.insert(0, batch)
            self._count += len(batch)
            raise

    def _take_in(self, batch: Batch) -> None:
        full = self._free() == len(batch)
        catalyst = self.catalyst if full and self.method.attention else None
        read = batch.counted  # while the batch lies on the host: the device is not waited for
        batch = batch.to(self.model.device)
        hidden, scores = forward(self.model, self.pot, batch.ids, catalyst)
        novel: Tensor | float = 0.0
        if self.method.novelty:
            novel = block_novelty(self.model, self.pot.last_hidden, hidden, batch.ids)
        self.pot.note(batch, novel)
        if self.method.received:
            for index, attention in scores.items():
                self.pot.stores[index].receive(attention, add=self.method.received == "sum")
        self._scores = scores if full and self.method.attention else None
        self.pot.last_hidden = hidden[-1:].clone()
        self.pot.tokens_read += read

    @property
    def seconds_distilling(self) -> float:
        """Seconds that the device spent on cycles so far."""
        return self.stopwatch.seconds

    def _distil(self) -> None:
        with self.stopwatch.span():
            scores = self._scores
            if scores is None:
                scores = score(self.model, self.pot, self.catalyst)
            distil(self.pot, scores, self.pot.settings.kept)
            self._scores = None


def score(model: Model, pot: Pot, catalyst: Tensor) -> dict[int, Tensor]:
    """What the method asks to see of a pot at rest, per layer: catalyst scores [H, entries], in a pass of their own, or
    keys [H, entries, D]; what it had noted before stands in the pot.

    Where less room is left than the catalyst is long, its last tokens speak for it: they are the ones that
    lead into the answer.
    """
    if not pot.method.attention:
        return rotated_keys(model, pot) if pot.method.keys else {}
    room = min(len(catalyst), pot.capacity - pot.entries)
    if room == 0:
        raise SettingsError("the pot is full to the last entry: no catalyst fits", hint="raise --capacity")
    return forward(model, pot, catalyst[:0], catalyst[len(catalyst) - room :])[1]


def make_room(model: Model, pot: Pot, need: int, catalyst: Tensor, focus: int | None = None) -> None:
    """The last-fill rule: leave the pot whole if ``need`` more entries fit, else distil it just enough; or to
    ``focus`` entries beside the protected ones, if that is less.

    Raises SettingsError if the protected prefix and ``need`` alone exceed the capacity.
    """
    held = pot.entries - pot.protected
    keep = held if pot.fits(need) else room_beside(pot, need)
    if focus is not None:
        keep = min(keep, focus)
    if keep < held:
        distil(pot, score(model, pot, catalyst), keep)


def room_beside(pot: Pot, need: int) -> int:
    """Entries that may stay besides the protected ones when ``need`` come. Raises SettingsError if there are none."""
    room = pot.capacity - need - pot.protected
    if room < 1:
        raise SettingsError(
            f"question and answer need {need} entries beside {pot.protected} protected ones, "
            f"more than the capacity of {pot.capacity}",
            hint="ask for a shorter answer (--max-tokens) or raise --capacity",
        )
    return room


def as_ids(ids: list[int] | Tensor) -> Tensor:
    """Token ids as an int64 tensor [n]."""
    return torch.as_tensor(ids, dtype=torch.int64)
