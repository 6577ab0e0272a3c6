"""Answers at the rate at which memory is read: the pot poured into a cache whose shapes never change.

transformers compiles the step of one token by itself when ``generate`` is handed such a cache on CUDA, and inductor
replays it as one CUDA graph. Compiling takes the better part of a minute, once for each model and length of the cache:
it pays for many answers, or long ones, in one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, StaticCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from engine.forward import attention_by
from engine.pour import rotated_keys
from engine.rope import angles_shift

if TYPE_CHECKING:
    from engine.model import Model
    from engine.pot import Pot

NAME = "infinipot_static"
# What each model answers from, for as long as the model lives.
_caches: WeakKeyDictionary[nn.Module, StaticCache] = WeakKeyDictionary()


def suits(model: Model, pot: Pot, need: int) -> bool:
    """Whether ``need`` more tokens can be read and written behind this pot through a static cache.

    Slots must stand for positions that do not shift, every layer must see everything, and attention must be the plain
    kind. A pot without a bound has no length that stays the same.
    """
    if not pot.settings.bounded or pot.stays or pot.method.sees != "all" or not pot.fits(need):
        return False
    if any(spec.window is not None for spec in model.layers):
        return False
    if getattr(model.config, "attn_logit_softcapping", None) is not None:
        return False
    if any(hasattr(module, "sinks") for module in model.base.modules()):
        return False
    return not angles_shift(model.rotary, pot.entries, pot.entries + need, model.device)


@contextmanager
def poured(model: Model, pot: Pot) -> Iterator[StaticCache]:
    """A static cache of the pot's capacity that holds its entries, and the attention that reads it, for ``generate``.

    The pot must suit; it is untouched. The cache is the model's and the same at the next call: one answer at a time.
    """
    # Tensors born in inference mode cannot be written to outside it, and a compiled step is traced outside.
    with torch.inference_mode(False), torch.no_grad():
        cache = _cache_of(model, pot.capacity)
        for index, key in rotated_keys(model, pot).items():
            layer, store = cache.layers[index], pot.stores[index]
            layer.cumulative_length.zero_()
            layer.update(key[None].clone(), store.value[None, :, : store.length].clone())
    with attention_by(model.module, NAME):
        yield cache


def _cache_of(model: Model, capacity: int) -> StaticCache:
    """The model's static cache, always at the same place: where a CUDA graph was recorded, there it reads."""
    cache = _caches.get(model.module)
    if cache is None or cache.layers[0].max_cache_len != capacity:
        cache = _caches[model.module] = StaticCache(config=model.module.config, max_cache_len=capacity)
    return cache


def forget() -> None:
    """Give up the caches, and the steps that were compiled and recorded for them: other parts need the memory."""
    _caches.clear()
    torch.compiler.reset()


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [B, Hq, T, D], key and value [B, Hkv, n, D], and a mask [B, 1, T, n],
    true where a query sees -> [B, T, Hq, Dv].

    One query at a time reads keys and values once for all query heads that share them. Compiled, transformers' own form
    writes them out for every query head first: at four to one, six times the bytes of the cache.
    """
    if query.shape[2] > 1 or attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    grouped = query[:, :, 0].unflatten(1, (key.shape[1], -1))
    logits = (grouped @ key.transpose(2, 3)).float() * scale
    weights = logits.masked_fill(~attention_mask, float("-inf")).softmax(-1).to(value.dtype)
    return (weights @ value).flatten(1, 2)[:, None], None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
