"""Reader: text goes in, piece by piece; a pot comes out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.ccd import as_ids
from engine.filling import Filler, filler
from engine.pot import Batch, Pot
from engine.settings import PotSettings
from engine.text import Encoder, pack_place

if TYPE_CHECKING:
    from engine.model import Model


@dataclass(frozen=True)
class ReadStats:
    """How far a reader is. ``tokens`` of the sources have entered the pot, ``waiting`` ones still fill a block.

    ``capacity`` is None where the method holds everything it reads.
    """

    tokens: int
    waiting: int
    cycles: int
    entries: int
    capacity: int | None
    seconds_reading: float
    seconds_distilling: float


class Reader:
    """Reads a document of any length into a pot of fixed size, or whole if the method is not bounded.

    ``prefix_ids`` stand before the document and are never evicted; ``catalyst_ids`` decide what matters.
    Raises SettingsError if the two leave no room to read.
    """

    def __init__(
        self, model: Model, settings: PotSettings, prefix_ids: Sequence[int], catalyst_ids: Sequence[int]
    ) -> None:
        self.pot = Pot(model.layers, settings, model.device, model.dtype)
        self.pot.protected = len(prefix_ids)
        self._encoder = Encoder(model.tokenizer)
        self._filler: Filler = filler(model, self.pot, as_ids(list(catalyst_ids)))
        self._bare = len(prefix_ids) <= 1  # at most a start token: no text stands before the document
        self._begun = False  # whether any text was fed
        self._fed = 0  # tokens of the sources among it
        self._seconds = 0.0
        if prefix_ids:
            self._filler.feed(Batch.of(prefix_ids))

    def read(self, text: str, *, offset: int = 0, place: int = 1, source: int = 0, lines: bool = False) -> None:
        """Read one passage: ``offset`` is its character position in source ``source``, ``place`` its page or line.

        With ``lines`` the place counts newlines on inside the passage.
        """
        first = self._bare and not self._begun
        self.feed(self._encoder.batch(text, offset, pack_place(source, place), lines, first))

    def feed(self, batch: Batch) -> None:
        """Read tokens that already know where they stand."""
        began = time.perf_counter()
        self._begun = self._begun or len(batch) > 0
        self._fed += batch.counted
        self._filler.feed(batch)
        self._seconds += time.perf_counter() - began

    def finish(self) -> Pot:
        """Read what still waits, and hand out the pot; its last fill is not distilled."""
        began = time.perf_counter()
        self._filler.flush()
        self._seconds += time.perf_counter() - began
        self.pot.require_whole()
        return self.pot

    @property
    def stats(self) -> ReadStats:
        pot = self.pot
        distilling = self._filler.seconds_distilling
        return ReadStats(
            tokens=pot.tokens_read,
            waiting=self._fed - pot.tokens_read,
            cycles=pot.cycles,
            entries=pot.entries,
            capacity=pot.capacity if pot.settings.bounded else None,
            seconds_reading=self._seconds - distilling,
            seconds_distilling=distilling,
        )
