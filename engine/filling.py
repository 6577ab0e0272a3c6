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


def ready(pot: Pot, need: int, focus: int | None) -> bool:
    """Whether an answer can be written from the pot as it is: ``need`` entries fit, and it holds no more than
    ``focus`` where the method lets a question decide."""
    most = _focus(pot, focus)
    return pot.fits(need) and (most is None or pot.entries - pot.protected <= most)


def make_room(model: Model, pot: Pot, need: int, catalyst: Tensor, focus: int | None = None) -> None:
    """Let ``need`` more entries fit into the pot, and let it hold ``focus`` at most. Raises SettingsError."""
    if pot.settings.method == "truncate" and not pot.fits(need):
        shorten(model, pot, need)
    else:
        ccd.make_room(model, pot, need, catalyst, _focus(pot, focus))


def _focus(pot: Pot, focus: int | None) -> int | None:
    """What ``focus`` is worth to the pot's method: one without a catalyst would keep any entries, not the best."""
    return focus if pot.method.scoped else None
