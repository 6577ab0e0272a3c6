"""One document and one question, read in several ways: what each way keeps, beside reading with everything in memory.

Kim et al. 2024, section 3.4. "Global scoring" is the attention that the first generated token pays to the document when
nothing was evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.forward import forward
from engine.overlap import Kept
from engine.pot import Batch, Pot, PotLayer
from engine.reader import Reader
from engine.settings import PotSettings
from engine.text import Encoder

if TYPE_CHECKING:
    from engine.model import Model

# Reads everything and evicts nothing where the pot is large enough, and notes the novelty of every token.
_GLOBAL = "nuc"


@dataclass(frozen=True)
class GlobalScoring:
    """Everything in memory: ``attention`` per layer [KV heads, N] of the first generated token (mean over the queries
    that share a KV head), ``novelty`` [N] of the tokens (−log p, nats), and that first token."""

    layers: tuple[int, ...]
    attention: list[np.ndarray]
    novelty: np.ndarray
    first: int


@dataclass(frozen=True)
class Trace:
    """What a reading kept right after every cycle, and what the pot holds in the end, its last fill included."""

    cycles: list[Kept]
    final: Kept


class Document:
    """A document as tokens, numbered from 0, behind a prefix; held in memory (8 bytes a token)."""

    def __init__(self, model: Model, prefix_ids: Sequence[int], passages: Iterable[str]) -> None:
        self.model = model
        self.prefix_ids = list(prefix_ids)
        encoder = Encoder(model.tokenizer)
        parts: list[Tensor] = []
        for text in passages:
            bare = len(self.prefix_ids) <= 1 and not parts
            parts.append(encoder.batch(text, 0, 0, lines=False, first=bare).ids)
        self.ids = torch.cat([torch.zeros(0, dtype=torch.int64), *parts])
        if not len(self):
            raise SettingsError("the document has no tokens")

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def part(self, start: int, end: int) -> Batch:
        """Tokens whose source position is their number."""
        ids = self.ids[start:end]
        return Batch(ids, torch.arange(start, start + len(ids)), torch.zeros_like(ids))


def score_globally(document: Document, suffix_ids: Sequence[int]) -> GlobalScoring:
    """Read everything into memory, then the question, and see what its first answered token attends to.

    Raises ModelError if memory does not hold it.
    """
    model = document.model
    need = len(document.prefix_ids) + len(document) + len(suffix_ids) + 2
    settings = PotSettings(capacity=max(need, 16), distilled=1, method=_GLOBAL, reduce="mean")
    reader = Reader(model, settings, document.prefix_ids, [])
    reader.feed(document.part(0, len(document)))
    pot = reader.finish()
    novelty = _novelty(pot, len(document))
    hidden, _ = forward(model, pot, torch.tensor(list(suffix_ids), dtype=torch.int64))
    first = model.logits(hidden[-1:]).argmax(-1).cpu()
    _, scores = forward(model, pot, first[:0], first)
    stores = [store for store in pot.distilled_stores if store.spec.index in scores]
    part = slice(pot.protected, pot.protected + len(document))
    attention = [scores[store.spec.index][:, part].float().cpu().numpy() for store in stores]
    return GlobalScoring(tuple(store.spec.index for store in stores), attention, novelty, int(first))


def _novelty(pot: Pot, tokens: int) -> np.ndarray:
    """Novelty of the document's tokens; the first of all tokens, which nothing foretells, counts as 0."""
    noted = pot.distilled_stores[0].novelty[0, pot.protected : pot.protected + tokens].cpu()
    return torch.where(noted.isfinite(), noted, 0.0).numpy()


def trace(document: Document, settings: PotSettings, catalyst_ids: Sequence[int]) -> Trace:
    """Read the document with ``settings`` and note what every cycle keeps. Raises SettingsError."""
    reader = Reader(document.model, settings, document.prefix_ids, catalyst_ids)
    free = settings.capacity - len(document.prefix_ids) - settings.kept - len(catalyst_ids)
    step = max(min(settings.block, free), 1)  # never long enough for two cycles
    cycles: list[Kept] = []
    for start in range(0, len(document), step):
        reader.feed(document.part(start, start + step))
        _note(cycles, reader.pot)
    pot = reader.finish()
    _note(cycles, pot)
    return Trace(cycles, _kept(pot, None, len(document)))


def _note(cycles: list[Kept], pot: Pot) -> None:
    """After a cycle: what it kept stands in front, what was read since behind it."""
    if pot.cycles == len(cycles):
        return
    if pot.cycles != len(cycles) + 1:
        raise RuntimeError(f"{pot.cycles - len(cycles)} cycles at once")
    cycles.append(_kept(pot, pot.settings.kept, None))


def _kept(pot: Pot, count: int | None, read: int | None) -> Kept:
    """The document's tokens in the first ``count`` entries of every slot behind the prefix, or in all of them."""
    stores = pot.distilled_stores
    end = None if count is None else pot.protected + count
    if read is None:
        # The first token behind those kept is the first that the cycle had not read.
        read = int(stores[0].position[0, end]) if end is not None and stores[0].length > end else pot.tokens_read
    layers = tuple(store.spec.index for store in stores)
    return Kept(layers, [_numbers(store, pot.protected, end) for store in stores], read)


def _numbers(store: PotLayer, begin: int, end: int | None) -> list[np.ndarray]:
    end = store.length if end is None else min(end, store.length)
    rows = store.position[:, begin:end].cpu().numpy()
    return [np.sort(row[row >= 0]) for row in rows]
