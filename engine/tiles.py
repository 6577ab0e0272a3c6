"""Attention on the CPU in half precision, as matrix products of tiles that stay in the cache.

Processors with bfloat16 instructions multiply matrices twice as fast in it as in float32; torch's fused CPU kernel
does not gain from them, plain products do. The textbook form over a few queries at a time needs no mask but for the
last tile's own triangle.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Queries of a tile. Logits of 128 queries, the heads of a group and 2,048 entries are 1.5 MB: about a core's cache.
_QUERIES = 128


def attend_in_tiles(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Query [1, Hq, T, D], key and value [1, Hkv, n, D] -> [1, Hq, T, Dv]; causal, the queries are the last T of n.

    Query heads share KV heads in order. Logits are rounded to the tensors' dtype, the softmax runs in float32.
    """
    heads, queries, keys = key.shape[1], query.shape[2], key.shape[2]
    if queries == 1:
        return attend_once(query, key, value, scale)
    grouped = (query[0] * scale).unflatten(0, (heads, -1))
    output = query.new_empty(heads, query.shape[1] // heads, queries, value.shape[3])
    hidden = query.new_full((_QUERIES, _QUERIES), float("-inf")).triu(1)
    for start in range(0, queries, _QUERIES):
        count = min(_QUERIES, queries - start)
        seen = keys - queries + start + count
        for head in range(heads):
            rows = grouped[head, :, start : start + count].flatten(0, 1)
            logits = (rows @ key[0, head, :seen].T).unflatten(0, (-1, count))
            logits[:, :, seen - count :] += hidden[:count, :count]
            output[head, :, start : start + count] = logits.softmax(-1) @ value[0, head, :seen]
    return output.flatten(0, 1)[None]


def attend_once(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The same for the one query [1, Hq, 1, D] of a new token: -> [1, Hq, 1, Dv].

    In float32: with a single row, widening keys and values costs less than products in bfloat16, and rounds less.
    """
    grouped = query.float().unflatten(1, (key.shape[1], -1))[:, :, :, 0]
    weights = (grouped @ key.float().transpose(2, 3) * scale).softmax(-1)
    return (weights @ value.float()).flatten(1, 2)[:, :, None].to(query.dtype)


def suits(query: Tensor) -> bool:
    """Whether tiles are faster than the fused kernel for this query [1, Hq, T, D]: see docs/decisions.md."""
    return query.device.type == "cpu" and query.dtype is torch.bfloat16
