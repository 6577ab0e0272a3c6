"""In which dtype a pot file holds keys and values. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import SettingsError


@dataclass(frozen=True)
class Packing:
    """Keys and values in ``bits`` (4 or 8) per number, in groups that share a scale and a zero (``engine.quantised``).

    key_group    that many entries of one channel of the keys are a group.
    value_group  that many channels of one entry of the values are a group.
    front        the first entries are kept as they are: all others attend to them most.
    """

    bits: int
    key_group: int
    value_group: int
    front: int

    def __post_init__(self) -> None:
        sizes = (self.key_group, self.value_group, self.front)
        if self.bits not in (4, 8) or any(type(size) is not int for size in sizes) or min(sizes) < 0 or 0 in sizes[:2]:
            raise SettingsError(f"there is no such packing: {self}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Packing:
        """A packing as a pot file's header names it. Raises TypeError or SettingsError for what is none."""
        return cls(**values)


#: What `--pot-dtype` takes: as the cache holds them, rounded to bfloat16, or packed (groups by measurement,
#: docs/pot-format.md).
PACKINGS = {"int8": Packing(8, 128, 64, 4), "int4": Packing(4, 32, 64, 4)}
POT_DTYPES = ("raw", "bf16", *PACKINGS)
DEFAULT_DTYPE = "raw"


def require_dtype(name: str) -> str:
    """``name`` if it is one of POT_DTYPES. Raises SettingsError."""
    if name not in POT_DTYPES:
        raise SettingsError(f"pot dtype must be one of {', '.join(POT_DTYPES)}, not {name!r}")
    return name
