"""What a pot holds: every token of the text that some (layer, KV head) still has an entry of, counted.

Pure functions over provenance; nothing here needs torch, so that a pot file can be looked at without a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.errors import SettingsError
from engine.places import unpack_place
from engine.potfile import PotInfo, read_info, read_provenance

if TYPE_CHECKING:
    from engine.pot import Pot

Provenance = Mapping[str, np.ndarray]
_ROWS = 4096
_COLUMNS = ("source", "position", "unit", "token", "held")


class Token(NamedTuple):
    """A token of the text: where it stands, and by how many heads of each counted layer it is held."""

    source: int
    position: int
    unit: int
    token: int
    held: tuple[int, ...]


@dataclass(frozen=True)
class Census:
    """Tokens that a pot still holds, in the order of the text.

    source, position (characters), unit (page or line), token: int64 [n]; held: uint16 [n, layers].
    ``layers`` are the counted layers, ``heads`` the KV heads counted in each; ``windowed`` are layers with a sliding
    window, which hold the last tokens only and count only when asked for. ``nowhere`` is how many entries of the
    counted slots stand in no source (chat template, headings between files, a conversation).
    """

    source: np.ndarray
    position: np.ndarray
    unit: np.ndarray
    token: np.ndarray
    held: np.ndarray
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    windowed: tuple[int, ...]
    nowhere: int

    def __len__(self) -> int:
        return int(self.source.shape[0])

    @property
    def slots(self) -> int:
        """How many (layer, head) slots were counted: the most that can hold one token."""
        return sum(self.heads)

    @property
    def sources(self) -> list[int]:
        """The sources that tokens are held of."""
        return [int(number) for number in np.unique(self.source)]

    def part(self, source: int, positions: tuple[int, int | None], units: tuple[int, int] | None) -> Census:
        """The tokens of one source, within positions [first, end) and pages or lines [first, last]."""
        first, end = positions
        chosen = (self.source == source) & (self.position >= first)
        if end is not None:
            chosen &= self.position < end
        if units is not None:
            chosen &= (self.unit >= units[0]) & (self.unit <= units[1])
        return replace(self, **{name: getattr(self, name)[chosen] for name in _COLUMNS})

    def __iter__(self) -> Iterator[Token]:
        for start in range(0, len(self), _ROWS):
            part = slice(start, start + _ROWS)
            columns = (getattr(self, name)[part].tolist() for name in _COLUMNS)
            for source, position, unit, token, held in zip(*columns, strict=True):
                yield Token(source, position, unit, token, tuple(held))


def census_of_file(path: str | Path, layer: int | None = None, head: int | None = None) -> tuple[PotInfo, Census]:
    """The header of a pot file and the census of its entries, of one layer or KV head where they are named.

    Raises PotDamaged, and SettingsError for a layer or head that the pot does not have.
    """
    info = read_info(path)
    return info, take_census(read_provenance(path), layer, head)


def census_of_pot(pot: Pot, layer: int | None = None, head: int | None = None) -> Census:
    """The same for a pot in memory."""
    return take_census(provenance(pot), layer, head)


def provenance(pot: Pot) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Layer by layer, where the entries of a pot came from, as ``engine.potfile.read_provenance`` gives it."""
    for index, store in sorted(pot.stores.items()):
        parts = {"token": store.token, "position": store.position, "place": store.place}
        yield index, {name: part[:, : store.length].cpu().numpy() for name, part in parts.items()}


def take_census(layers: Iterable[tuple[int, Provenance]], layer: int | None, head: int | None) -> Census:
    """Count the entries of layers, one layer at a time. Raises SettingsError as ``census_of_file`` does."""
    counts: dict[int, _Count] = {}
    lengths: dict[int, int] = {}
    for index, parts in layers:
        lengths[index] = parts["token"].shape[1]
        if layer in (None, index):
            counts[index] = _count(parts, head)
    _require(lengths, layer)
    if not counts or not max(count.heads for count in counts.values()):
        raise SettingsError(f"there is no KV head {head} in the pot", hint="KV heads are counted from 0")
    fullest = max(lengths.values())
    windowed = tuple(index for index, length in lengths.items() if length < fullest)
    if layer is None:
        counts = {index: count for index, count in counts.items() if index not in windowed}
    return _joined(counts, windowed)


def _require(lengths: Mapping[int, int], layer: int | None) -> None:
    if not lengths or (layer is not None and layer not in lengths):
        hint = f"its layers are {min(lengths)} to {max(lengths)}" if lengths else None
        raise SettingsError(f"there is no layer {layer} in the pot", hint=hint)


@dataclass(frozen=True)
class _Count:
    """Of one layer: columns [5, m] (source, position, token, unit, rank), how many heads hold each [m], heads counted.

    A rank puts tokens of one position (the pieces of one character) in the order in which they were read.
    """

    columns: np.ndarray
    held: np.ndarray
    heads: int
    nowhere: int


def _count(parts: Provenance, head: int | None) -> _Count:
    """Distinct tokens of one layer. A head that holds two entries of one token and place counts once."""
    rows = slice(None) if head is None else slice(head, head + 1)
    token, position, place = (parts[name][rows] for name in ("token", "position", "place"))
    heads, entries = token.shape
    source, unit = unpack_place(place)
    known = (position >= 0).ravel()
    owner = np.repeat(np.arange(heads), entries)
    rank = _rank(position, source).ravel()
    columns = np.stack([part.ravel() for part in (source, position, token, unit, rank)] + [owner])[:, known]
    by_head, _ = _distinct(columns, (5, 2, 1, 0))
    distinct, held = _distinct(by_head[:5], _KEY)
    return _Count(distinct, held, heads, int((~known).sum()))


#: Rows that tell tokens apart, in the order of np.lexsort: token, position, source.
_KEY = (2, 1, 0)


def _rank(position: np.ndarray, source: np.ndarray) -> np.ndarray:
    """How many entries of the same position stand right before each in its row [H, n]."""
    index = np.broadcast_to(np.arange(position.shape[1]), position.shape)
    begins = np.ones(position.shape, dtype=bool)
    begins[:, 1:] = (position[:, 1:] != position[:, :-1]) | (source[:, 1:] != source[:, :-1])
    return index - np.maximum.accumulate(np.where(begins, index, 0), axis=1)


def _distinct(columns: np.ndarray, order: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Columns sorted by the rows ``order`` (last first), one of each kind, and how many there were of it."""
    columns = columns[:, np.lexsort([columns[row] for row in order])]
    kinds = _kinds(columns, order)
    return _firsts(columns, kinds), np.bincount(kinds)


def _kinds(columns: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Of sorted columns, which kind each is: 0 for the first, one more wherever a row of ``order`` changes."""
    compared = columns[list(order)]
    changes = (compared[:, 1:] != compared[:, :-1]).any(axis=0)
    return np.concatenate([np.zeros(min(columns.shape[1], 1), dtype=np.int64), np.cumsum(changes)])


def _firsts(columns: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """The first column of each kind, with the highest rank (row 4) of its kind."""
    starts = np.flatnonzero(np.diff(kinds, prepend=-1))
    distinct = columns[:, starts]
    if len(starts):
        distinct[4] = np.maximum.reduceat(columns[4], starts)
    return distinct


def _joined(counts: Mapping[int, _Count], windowed: tuple[int, ...]) -> Census:
    """One table of all layers: a row for every token, a column of ``held`` for every layer."""
    columns = np.concatenate([count.columns for count in counts.values()], axis=1)
    layer = np.repeat(np.arange(len(counts)), [len(count.held) for count in counts.values()])
    order = np.lexsort([columns[row] for row in _KEY])
    kinds = _kinds(columns[:, order], _KEY)
    union = _firsts(columns[:, order], kinds)
    held = np.zeros((union.shape[1], len(counts)), dtype=np.uint16)
    held[kinds, layer[order]] = np.concatenate([count.held for count in counts.values()])[order]
    source, position, token, unit, rank = union
    reading = np.lexsort([token, rank, position, source])
    source, position, unit, token = (part[reading] for part in (source, position, unit, token))
    heads = tuple(count.heads for count in counts.values())
    nowhere = sum(count.nowhere for count in counts.values())
    return Census(source, position, unit, token, held[reading], tuple(counts), heads, windowed, nowhere)
