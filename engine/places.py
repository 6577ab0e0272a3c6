"""Where a token stands, as one number: which source, and which page or line of it. Imports no torch."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

_UNIT_BITS = 40
_UNIT_MASK = (1 << _UNIT_BITS) - 1

Place = TypeVar("Place", int, np.ndarray)


def pack_place(source: int, unit: int) -> int:
    """One int64 for page or line ``unit`` (1-based) of source number ``source`` (0-based)."""
    return source << _UNIT_BITS | unit


def unpack_place(place: Place) -> tuple[Place, Place]:
    """(source, unit) of a packed place, or of an array of them."""
    return place >> _UNIT_BITS, place & _UNIT_MASK
