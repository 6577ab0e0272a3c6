"""Attention over the pot: raw queries and keys come in, are rotated by slot, and meet the fastest kernel there is.

Registered with transformers under the name ``infinipot``. One forward over the pot is described by a ``Pass``,
which also collects what the catalyst attends to (equation 2).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from engine.grouped import attend_grouped, mix, softmax
from engine.rope import RotaryKey, Rotation, Tables, rotate_by_head
from engine.tiles import attend_in_tiles, suits

NAME = "infinipot"
#: The modules of FlashAttention 3 and 2; their functions take the same arguments.
FLASH = ("flash_attn_interface", "flash_attn")


@dataclass(frozen=True)
class LayerSpec:
    """What a probe of the model found out about one attention layer."""

    index: int
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    rotary: RotaryKey | None
    rotate: Rotation | None


@dataclass
class Pass:
    """One forward: ``catalyst`` is how many of its last tokens are the catalyst, ``reduce`` how its scores combine.

    What some methods ask for besides: ``placed`` gives a layer's cos and sin [H, n, R] by the entries' own positions,
    where slots do not restart; ``received`` captures the attention that the queries give; ``window`` bounds what every
    query sees, but for the first ``front`` slots; ``groups`` are Self-Extend's group size and window.
    """

    layers: dict[int, LayerSpec]
    tables: Tables
    catalyst: int = 0
    reduce: str = "max"
    placed: Callable[[LayerSpec], tuple[Tensor, Tensor]] | None = None
    received: str | None = None
    window: int | None = None
    front: int = 0
    groups: tuple[int, int] | None = None
    scores: dict[int, Tensor] = field(default_factory=dict)
    masks: dict[tuple[int, int, int | None, int], Tensor] = field(default_factory=dict)

    def mask(self, queries: int, keys: int, window: int | None, like: Tensor, front: int = 0) -> Tensor:
        """Additive causal mask [queries, keys] aligned bottom-right; made once per pass and shape."""
        key = (queries, keys, window, front)
        if key not in self.masks:
            self.masks[key] = causal_mask(queries, keys, window, like, front)
        return self.masks[key]

    def window_of(self, spec: LayerSpec) -> tuple[int | None, int]:
        """The narrower of the layer's own window and the method's, and how many first slots are seen in spite of it."""
        if self.window is not None and (spec.window is None or self.window < spec.window):
            return self.window, self.front
        return spec.window, 0


current: ContextVar[Pass] = ContextVar("infinipot_pass")


def causal_mask(queries: int, keys: int, window: int | None, like: Tensor, front: int = 0) -> Tensor:
    """0 where query i may see key j, -inf elsewhere: j <= i + keys - queries, and within ``window`` of it, unless
    j is one of the first ``front``."""
    row = torch.arange(keys - queries, keys, device=like.device)[:, None]
    column = torch.arange(keys, device=like.device)[None]
    hidden = column > row
    if window is not None:
        hidden |= (column <= row - window) & (column >= front)
    return like.new_zeros(queries, keys).masked_fill_(hidden, float("-inf"))


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [1, Hq, T, D], key and value [1, Hkv, n, D] -> [1, T, Hq, Dv].

    Keys are raw; slot i of the layer has position i unless entries stay where they were, and the T queries are the last
    T slots.
    """
    run = current.get()
    spec = run.layers[int(module.layer_idx)]
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    queries, keys = query.shape[2], key.shape[2]
    if run.groups is not None and spec.rotary is not None:
        return attend_grouped(run, spec, query, key, value, scale, softcap, s_aux), None
    query, key = _rotated(run, spec, query, key)
    if spec.window is None:
        if run.catalyst:
            run.scores[spec.index] = catalyst_scores(query, key, run.catalyst, run.reduce, scale, softcap, s_aux)
        elif run.received is not None:
            run.scores[spec.index] = received_scores(query, key, run.received, scale, softcap, s_aux)
    window, front = run.window_of(spec)
    window = window if window is not None and window < keys else None
    if s_aux is None and front == 0 and (flash := flash_attention(query.device, query.dtype)) is not None:
        return by_flash(flash, query, key, value, scale, window, softcap), None
    if softcap is not None or s_aux is not None:
        output = _plain(query, key, value, run.mask(queries, keys, window, query, front), scale, softcap, s_aux)
    else:
        output = _fused(run, query, key, value, scale, window, front)
    return output.transpose(1, 2).contiguous(), None


def _rotated(run: Pass, spec: LayerSpec, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Query and key at their positions: the slots, or where each head's entries stood in the source."""
    if spec.rotary is None or spec.rotate is None:
        return query, key
    queries, keys = query.shape[2], key.shape[2]
    if run.placed is None:
        cos, sin = run.tables[spec.rotary]
        query = spec.rotate(query, cos[:, keys - queries : keys], sin[:, keys - queries : keys])
        return query, spec.rotate(key, cos[:, :keys], sin[:, :keys])
    cos, sin = run.placed(spec)  # the queries are the newest tokens, at the same positions for every head
    query = spec.rotate(query, cos[:1, keys - queries :], sin[:1, keys - queries :])
    return query, rotate_by_head(spec.rotate, key, cos, sin)


def catalyst_scores(
    query: Tensor,
    key: Tensor,
    catalyst: int,
    reduce: str,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Equation 2: attention of the last ``catalyst`` queries to the entries before them -> [Hkv, entries], float32.

    query [1, Hq, T, D] and key [1, Hkv, n, D] are rotated. The softmax runs over all that a catalyst token sees,
    other catalyst tokens included (Code 1, line 4); their columns are dropped afterwards. Reduced over
    catalyst tokens and over the queries that share a KV head.
    """
    keys, kv_heads = key.shape[2], key.shape[1]
    # In float32 whatever the model runs in: rounded logits tie, and ties fall to the earlier slot.
    query, key = query[:, :, -catalyst:].float(), key.float()
    weights = _weights(query, key, causal_mask(catalyst, keys, None, query), scale, softcap, sinks)
    weights = weights[0, :, :, : keys - catalyst].reshape(kv_heads, -1, keys - catalyst)
    if reduce == "max":
        return weights.amax(1)
    return weights.sum(1) if reduce == "sum" else weights.mean(1)


# Queries whose attention is written out at a time, to be summed: a whole block's would be its size times the pot's.
_ROWS = 128


def received_scores(
    query: Tensor,
    key: Tensor,
    kind: str,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention that the text's own queries [1, Hq, T, D] give to all n entries -> [Hkv, n], float32.

    "sum": summed over all queries and over the query heads that share the KV head (H2O). "last": the last query's,
    averaged over all query heads, the same for every KV head (TOVA).
    """
    kv_heads, keys = key.shape[1], key.shape[2]
    key = key.float()
    if kind == "last":
        query = query[:, :, -1:].float()
        weights = _weights(query, key, causal_mask(1, keys, None, query), scale, softcap, sinks)
        return weights.mean(1)[0].expand(kv_heads, -1)
    total = key.new_zeros(kv_heads, keys)
    for end in range(query.shape[2], 0, -_ROWS):
        rows = query[:, :, max(end - _ROWS, 0) : end].float()
        seen = keys - query.shape[2] + end
        mask = causal_mask(rows.shape[2], seen, None, rows)
        weights = _weights(rows, key[:, :, :seen], mask, scale, softcap, sinks)
        total[:, :seen] += weights[0].reshape(kv_heads, -1, seen).sum(1)
    return total


def _weights(
    query: Tensor, key: Tensor, mask: Tensor, scale: float, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """Attention probabilities [1, Hq, T, n] in float32."""
    # The queries that share a KV head are rows of one product: repeating keys for them costs more than the product.
    # In place from there: fresh memory of this size costs more than the arithmetic.
    rows = query.reshape(1, key.shape[1], -1, query.shape[3])
    logits = (rows @ key.transpose(2, 3)).mul_(scale).reshape(*query.shape[:3], -1)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    logits = logits.float().add_(mask)
    return softmax(logits, sinks)


def _plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """The textbook form, for models whose attention no fused kernel of torch computes (softcap, sinks)."""
    return mix(_weights(query, key, mask, scale, softcap, sinks).to(query.dtype), value)


def _fused(
    run: Pass, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None, front: int
) -> Tensor:
    """SDPA without a mask tensor where the kernel allows it: one query, an empty past, or CUDA's lower-right causal."""
    queries, keys = query.shape[2], key.shape[2]
    if window is None and suits(query):
        return attend_in_tiles(query, key, value, scale)
    grouped = query.shape[1] != key.shape[1]
    mask, causal = None, False
    if window is not None:
        mask = run.mask(queries, keys, window, query, front)
    elif queries == keys:
        causal = queries > 1
    elif queries > 1:
        mask = causal_lower_right(queries, keys) if query.is_cuda else run.mask(queries, keys, None, query)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def by_flash(
    flash: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """FlashAttention, which is causal aligned bottom-right by itself and knows windows and softcaps: [1, T, Hq, Dv]."""
    # It takes [B, length, heads, D]; a window (left, right) leaves out the query's own position, and -1 is no bound.
    left = -1 if window is None else window - 1
    output = flash(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        softmax_scale=scale,
        causal=True,
        window_size=(left, 0 if window is not None else -1),
        softcap=softcap or 0.0,
    )
    return output[0] if isinstance(output, tuple) else output  # early releases of 3 give the log-sum-exp too


def flash_attention(device: torch.device, dtype: torch.dtype) -> Callable[..., Any] | None:
    """``flash_attn_func`` where it is installed and serves this device and dtype, else None: release 3, which is for
    Hopper processors alone, before release 2."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return None
    return _imported_flash(device)


@cache  # every layer of every block asks
def _imported_flash(device: torch.device) -> Callable[..., Any] | None:
    hopper = torch.cuda.is_available() and torch.cuda.get_device_capability(device) == (9, 0)
    for name in FLASH if hopper else FLASH[1:]:
        try:
            return cast("Callable[..., Any]", import_module(name).flash_attn_func)
        except (ImportError, OSError, AttributeError):  # OSError: built for another torch or CUDA
            continue
    return None


def kernel_name(device: torch.device, dtype: torch.dtype, softcap: bool, sinks: bool) -> str:
    """Which kernel reads, and why, for ``doctor`` and the receipt."""
    if sinks:
        return "plain torch (the model has attention sinks, which no fused kernel here knows)"
    if flash_attention(device, dtype) is not None:
        return "flash-attn"
    if softcap:
        return "plain torch (the model caps its attention logits; flash-attn would be faster on CUDA)"
    if device.type == "cuda":
        return "SDPA, fused lower-right causal"
    return "tiled matrix products on the CPU" if dtype is torch.bfloat16 else "SDPA on the CPU"
