"""Truncation in the middle: the first and the last half of what fits are read, and nothing between (LongBench).

The text may be of any length: the head is read as it comes, the tail waits in a buffer of bounded size.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from engine.ccd import Distiller, as_ids, room_beside
from engine.pot import Batch, Pot

if TYPE_CHECKING:
    from engine.model import Model


class Truncator:
    """Stands where a ``Distiller`` stands; ``room`` bounds the text in the pot, by default all that is not protected.

    A pot that holds more than its head already is taken up where it stands: its tail waits again.
    """

    seconds_distilling = 0.0

    def __init__(self, model: Model, pot: Pot, room: int | None = None) -> None:
        self.pot = pot
        self._reader = Distiller(model, pot, as_ids([]))
        self._room = pot.capacity - pot.protected if room is None else room
        self._head_end = pot.protected + self._room // 2
        self._head = pot.entries  # tokens of prefix and head that were fed
        self._total = pot.taken
        self._tail: deque[Batch] = deque()
        self._waiting = 0
        self._cut = False
        self._take_back()

    def feed(self, batch: Batch) -> None:
        """Take in tokens; the head is read at once, of the rest only the last stay."""
        self._take_back()
        self._total += len(batch)
        head = min(max(self._head_end - self._head, 0), len(batch))
        self._head += head
        if head < len(batch):
            self._wait(batch[head:])
        if head:
            self._reader.feed(batch[:head])

    def flush(self) -> None:
        """Read the tail."""
        self._reader.flush()
        if not self._waiting:
            return
        tail = Batch.join(list(self._tail))
        if self._cut or len(tail) > self._room - self._room // 2:
            tail = self._last(tail, self._room // 2)
        self._tail.clear()
        self._waiting = 0
        for store in self.pot.stores.values():
            store.next = self._total - len(tail)
        self._reader.feed(tail)
        self._reader.flush()

    def _wait(self, batch: Batch) -> None:
        """Put tokens into the ring; drop what more than fills it from its old end."""
        self._tail.append(batch)
        self._waiting += len(batch)
        size = self._room - self._room // 2
        while self._waiting - len(self._tail[0]) >= size:
            dropped = self._tail.popleft()
            self._waiting -= len(dropped)
            self._drop(dropped)

    def _last(self, tail: Batch, count: int) -> Batch:
        self._drop(tail[: len(tail) - count])
        return tail[len(tail) - count :]

    def _drop(self, batch: Batch) -> None:
        """Tokens that are not kept were read all the same, as far as the count goes; the model never saw them."""
        if len(batch):
            self._cut = True
            self.pot.tokens_read += batch.counted

    def _take_back(self) -> None:
        """Let what stands in the pot behind the head wait again: more may come, or less may fit."""
        pot = self.pot
        count = pot.entries - self._head_end
        if count <= 0:
            return
        store = next(iter(pot.stores.values()))
        part = slice(store.length - count, store.length)
        tail = Batch(*(getattr(store, name)[0, part].cpu().clone() for name in ("token", "position", "place")))
        self._cut = self._cut or pot.taken > pot.entries
        pot.drop_last(count)
        pot.tokens_read -= tail.counted
        self._head = pot.entries
        self._wait(tail)


def shorten(model: Model, pot: Pot, need: int) -> None:
    """Let ``need`` more entries fit: a text cut shorter is read anew, as if it had been cut so at first."""
    truncator = Truncator(model, pot, room_beside(pot, need))
    truncator.flush()
