"""Equally long documents read at once: a pot each, filled and distilled in step.

The heads of all documents stand in one row, as if one document had so many: what a method chooses, and how entries are
gathered, is per head, and needs to know no more. Tokens come as batches whose ids are [n, documents].
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from engine import attention
from engine.attention import attend, catalyst_scores
from engine.ccd import Distiller
from engine.forward import attention_by, over_the_pot
from engine.model import Model
from engine.novelty import novelty
from engine.pot import Batch, Pot, PotLayer
from engine.scope import agreed
from engine.settings import PotSettings
from engine.tiles import suits

NAME = "infinipot_documents"


class Layer(PotLayer):
    """The entries of one layer of all documents: the heads of the first, of the second, …"""

    documents = 1

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Raw key and value [B, H, t, D]; all entries [B, H, length, D]."""
        rows = super().append(key.flatten(0, 1)[None], value.flatten(0, 1)[None])
        return rows[0][0].unflatten(0, (self.documents, -1)), rows[1][0].unflatten(0, (self.documents, -1))

    def note(self, start: int, batch: Batch) -> None:
        """Where tokens came from: ids, positions and places [n, B], the same for all heads of a document."""
        part = slice(start, start + len(batch))
        heads = self.token.shape[0] // self.documents
        for name, values in (("token", batch.ids), ("position", batch.position), ("place", batch.place)):
            getattr(self, name)[:, part] = values.T.to(self.token.device).repeat_interleave(heads, 0)


def pot_of(model: Model, settings: PotSettings, documents: int) -> Pot:
    """A pot for each of so many documents, in one."""
    specs = [replace(spec, kv_heads=spec.kv_heads * documents) for spec in model.layers]
    pot = Pot(specs, settings, model.device, model.dtype)
    for index, store in pot.stores.items():
        own = Layer(store.spec, store.bank, store.row)
        own.documents = documents
        pot.stores[index] = own
    return pot


def together(parts: list[Batch]) -> Batch:
    """The same stretch of every document, side by side."""
    return Batch(*(torch.stack([getattr(part, name) for part in parts], 1) for name in ("ids", "position", "place")))


class Documents(Distiller):
    """Feeds batches of [n, B] to the pot of ``pot_of``; the catalyst [p] is the same for every document."""

    def __init__(self, model: Model, settings: PotSettings, documents: int, prefix: Tensor, catalyst: Tensor) -> None:
        self.documents, self._alone = documents, settings
        # Heads of one document may agree, never those of several: that is done here, before the cycle.
        pot = pot_of(model, replace(settings, scope="head"), documents)
        pot.protected = len(prefix)
        super().__init__(model, pot, catalyst)
        before = Batch(prefix, torch.full_like(prefix, -1), torch.full_like(prefix, -1))
        self.feed(together([before] * documents))

    def _take_in(self, batch: Batch) -> None:
        start = {index: store.length for index, store in self.pot.stores.items()}
        full = self._free() == len(batch)
        looking = self.catalyst if full else self.catalyst[:0]
        ids = batch.ids.T.to(self.model.device)
        hidden, scores = forward(self.model, self.pot, ids, looking)
        if self.method.novelty:
            novel = self._novelty(hidden, ids)
        for index, store in self.pot.stores.items():
            store.note(start[index], batch)
            part = store.novelty[:, start[index] : store.length]
            part.copy_(novel.repeat_interleave(len(part) // self.documents, 0)) if self.method.novelty else part.zero_()
        self._scores = scores if full and self.method.attention else None
        self.pot.last_hidden = hidden[:, -1:].clone()
        self.pot.tokens_read += batch.counted

    def _distil(self) -> None:
        if self._scores is not None and self.method.scoped:
            with self.stopwatch.span():
                self._scores = self._agreed(self._scores)
        super()._distil()

    def _agreed(self, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        """Scores [B x H, n] of every layer after the heads of each document have agreed among themselves."""
        split = {layer: rows.unflatten(0, (self.documents, -1)) for layer, rows in scores.items()}
        each = [
            agreed({layer: rows[i] for layer, rows in split.items()}, self._alone, self.pot.protected)
            for i in range(self.documents)
        ]
        return {layer: torch.cat([one[layer] for one in each]) for layer in scores}

    def _novelty(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Novelty [B, n] of ids [B, n]: the state before each token predicts it; nothing predicts the very first."""
        if self.pot.last_hidden is None:
            known = novelty(self.model, hidden[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            first = torch.full((self.documents, 1), float("inf"), device=hidden.device)
            return torch.cat([first, known.unflatten(0, (self.documents, -1))], 1)
        states = torch.cat([self.pot.last_hidden, hidden[:, :-1]], 1)
        return novelty(self.model, states.flatten(0, 1), ids.flatten()).unflatten(0, ids.shape)


@torch.inference_mode()
def forward(model: Model, pot: Pot, ids: Tensor, catalyst: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
    """Read ids [B, t] into the pot and let the catalyst [p] look: hidden states [B, t, hidden], scores [B x H, n]."""
    tokens = torch.cat([ids, catalyst.to(ids.device).expand(len(ids), -1)], 1)
    start = pot.entries
    positions = torch.arange(start, start + tokens.shape[1], device=ids.device)[None]
    with over_the_pot(model, pot, start + tokens.shape[1], len(catalyst)) as run, _attending(model):
        output = model.base(input_ids=tokens, position_ids=positions, past_key_values=pot, use_cache=True)
    pot.drop_last(len(catalyst))
    return output.last_hidden_state[:, : ids.shape[1]], run.scores


@contextmanager
def _attending(model: Model) -> Iterator[None]:
    with attention_by(model.base, NAME):
        yield


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
    """All documents in one call, but where attention comes in tiles of one document."""
    if not suits(query):
        return attend(module, query, key, value, None, **options)
    each = zip(query.split(1), key.split(1), value.split(1), strict=True)
    return torch.cat([attend(module, q, k, v, None, **options)[0] for q, k, v in each]), None


def attend_each(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Any:
    """The engine's attention for [B, …]. It knows how the catalyst looks at one document, so each has its own look."""
    run = attention.current.get()
    spec = run.layers[int(module.layer_idx)]
    looking, run.catalyst = run.catalyst, 0
    try:
        output = _attend(module, query, key, value, **options)
    finally:
        run.catalyst = looking
    if looking and spec.window is None:
        cos, sin = run.tables[spec.rotary]  # type: ignore[index]
        last, entries = query.shape[2] - looking, key.shape[2]
        seen = spec.rotate(query[:, :, last:], cos[:, entries - looking : entries], sin[:, entries - looking : entries])  # type: ignore[misc]
        turned = spec.rotate(key, cos[:, :entries], sin[:, :entries])  # type: ignore[misc]
        scale = options.get("scaling") or query.shape[-1] ** -0.5
        each = zip(seen.split(1), turned.split(1), strict=True)
        run.scores[spec.index] = torch.cat([catalyst_scores(q, k, looking, run.reduce, scale) for q, k in each])
    return output


AttentionInterface.register(NAME, attend_each)
