"""Pour: turn a pot into an ordinary transformers cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from engine.forward import placed
from engine.pot import Pot
from engine.rope import rotate_by_head, slot_tables

if TYPE_CHECKING:
    from engine.model import Model


@torch.inference_mode()
def rotated_keys(model: Model, pot: Pot) -> dict[int, Tensor]:
    """The keys of every layer, each rotated once, from raw: [H, n, D].

    A layer with fewer entries than the pot (a sliding window) is placed so that all layers end at the same position.
    Where entries stay at their source positions, each is rotated to its own.
    """
    # Of an empty pot as well: dynamic and long RoPE look for the largest position, and there must be one.
    tables = slot_tables(model.rotary, max(pot.entries, 1), model.device, model.dtype)
    keys = {}
    for index, store in pot.stores.items():
        key, rotate = store.key[None, :, : store.length], store.spec.rotate
        if store.spec.rotary is not None and rotate is not None:
            if pot.stays:
                key = rotate_by_head(rotate, key, *placed(model, pot, store.spec))
            else:
                cos, sin = (table[:, pot.entries - store.length :] for table in tables[store.spec.rotary])
                key = rotate(key, cos, sin)
        keys[index] = key[0]
    return keys


@torch.inference_mode()
def pour(model: Model, pot: Pot, room: int = 0) -> DynamicCache:
    """A stock cache that holds the pot's entries at positions 0..n-1; the pot itself is untouched.

    So many tokens as there is ``room`` for come in without a copy of what is there; more may come. Where entries stay
    at their source positions, the next token's position is ``pot.taken`` instead of n.
    """
    cache = DynamicCache(config=model.module.config)
    for index, key in rotated_keys(model, pot).items():
        store = pot.stores[index]
        if room and type(cache.layers[index]) is DynamicLayer:
            cache.layers[index] = _Roomy(key.shape[1] + room)
        cache.update(key[None], store.value[None, :, : store.length].clone(), index)
    for layer in cache.layers:
        # A stock sliding layer counts what it has seen, and masks by that count.
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = pot.entries
    return cache


class _Roomy(DynamicLayer):
    """A stock layer with room for ``capacity`` entries: to add one, it does not copy all. Past that it does."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if end > self._capacity:
            return super().update(key_states, value_states)
        if self._buffers is None:
            self.lazy_initialization(key_states, value_states)
            self._buffers = _buffer(key_states, self._capacity), _buffer(value_states, self._capacity)
        keys, values = self._buffers
        keys[:, :, start:end], values[:, :, start:end] = key_states, value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values


def _buffer(like: Tensor, capacity: int) -> Tensor:
    return like.new_empty(*like.shape[:2], capacity, like.shape[3])
