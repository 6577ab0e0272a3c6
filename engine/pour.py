"""Pour: turn a pot into an ordinary transformers cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import DynamicCache

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
    tables = slot_tables(model.rotary, pot.entries, model.device, model.dtype)
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
def pour(model: Model, pot: Pot) -> DynamicCache:
    """A stock cache that holds the pot's entries at positions 0..n-1; the pot itself is untouched.

    Where entries stay at their source positions, the next token's position is ``pot.taken`` instead of n.
    """
    cache = DynamicCache(config=model.module.config)
    for index, key in rotated_keys(model, pot).items():
        store = pot.stores[index]
        cache.update(key[None], store.value[None, :, : store.length].clone(), index)
    for layer in cache.layers:
        # A stock sliding layer counts what it has seen, and masks by that count.
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = pot.entries
    return cache
