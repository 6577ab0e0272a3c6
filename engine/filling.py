"""How a method fills a pot and makes room in it: cycle by cycle, cut in the middle, or compressed at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from engine import ccd
from engine.ccd import Distiller
from engine.pot import Batch, Pot
from engine.snapshot import Snapshot
from engine.truncation import Truncator, shorten

if TYPE_CHECKING:
    from engine.model import Model


class Filler(Protocol):
    """Takes tokens in any pieces and reads them into a pot; ``flush`` reads what still waits."""

    @property
    def seconds_distilling(self) -> float: ...

    def feed(self, batch: Batch) -> None: ...

    def flush(self) -> None: ...


def filler(model: Model, pot: Pot, catalyst: Tensor) -> Filler:
    """What fills ``pot`` by its method, with ``catalyst`` [p] where the method looks at one. Raises SettingsError."""
    if pot.settings.method == "truncate":
        return Truncator(model, pot)
    if pot.settings.method == "snapkv":
        return Snapshot(model, pot, catalyst)
    return Distiller(model, pot, catalyst)


def make_room(model: Model, pot: Pot, need: int, catalyst: Tensor) -> None:
    """Let ``need`` more entries fit into the pot. Raises SettingsError if they cannot."""
    if pot.settings.method == "truncate" and not pot.fits(need):
        shorten(model, pot, need)
    else:
        ccd.make_room(model, pot, need, catalyst)
