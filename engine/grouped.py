"""Self-Extend's attention: near keys at their exact positions, far ones at grouped positions, in one softmax.

Jin et al. 2024, equation 4 and Algorithm 1: with group size G and window w, query i and key j meet at i and j where
i − j < w, and at i // G + w − w // G and j // G where not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.attention import LayerSpec, Pass

# Attention logits that exist at a time: 2**24 in float32 are 64 MB.
_LOGITS = 1 << 24


def attend_grouped(
    run: Pass,
    spec: LayerSpec,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Raw query [1, Hq, T, D], key and value [1, Hkv, n, D] -> [1, T, Hq, Dv]; the T queries are the last T slots."""
    assert run.groups is not None
    assert spec.rotary is not None
    assert spec.rotate is not None
    group, window = run.groups
    queries, keys = query.shape[2], key.shape[2]
    cos, sin = run.tables[spec.rotary]
    slots = torch.arange(keys, device=query.device)
    rows = slots[keys - queries :]
    # Where no key is as far as the window, the grouped position may exceed the table; nobody looks at it then.
    far_rows = (rows // group + window - window // group).clamp(max=keys - 1)
    near_query, far_query = (spec.rotate(query, cos[:, at], sin[:, at]) for at in (rows, far_rows))
    near_key, far_key = (spec.rotate(key, cos[:, at], sin[:, at]) for at in (slots, slots // group))
    size = max(_LOGITS // (query.shape[1] * keys), 1)
    parts = []
    for start in range(0, queries, size):
        part = slice(start, start + size)
        logits = _scaled(far_query[:, :, part], far_key, scale, softcap)
        near_from = max(keys - queries + start - window + 1, 0)
        near = _scaled(near_query[:, :, part], near_key[:, :, near_from:], scale, softcap)
        distance = rows[part, None] - slots[None]
        logits[..., near_from:] = torch.where(distance[:, near_from:] < window, near, logits[..., near_from:])
        hidden = distance < 0 if spec.window is None else (distance < 0) | (distance >= spec.window)
        weights = softmax(logits.masked_fill_(hidden, float("-inf")), sinks).to(value.dtype)
        parts.append(mix(weights, value))
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous()


def _scaled(query: Tensor, key: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Attention logits [1, Hq, T, n] in float32; query heads share KV heads in order."""
    shape = (1, key.shape[1], -1, query.shape[3])
    logits = (query.reshape(shape) @ key.transpose(2, 3)).reshape(*query.shape[:3], key.shape[2]).float() * scale
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


def softmax(logits: Tensor, sinks: Tensor | None) -> Tensor:
    """Attention probabilities of float32 logits [1, Hq, T, n]; ``sinks`` [Hq] take a share of them and give nothing."""
    if sinks is None:
        return logits.softmax(-1)
    sink = sinks.float().reshape(1, -1, 1, 1).expand(1, -1, logits.shape[2], 1)
    return torch.cat([logits, sink], dim=-1).softmax(-1)[..., :-1]


def mix(weights: Tensor, value: Tensor) -> Tensor:
    """Weights [1, Hq, T, n] over value [1, Hkv, n, Dv] -> [1, Hq, T, Dv]."""
    heads, rows, keys = weights.shape[1:]
    mixed = weights.reshape(1, value.shape[1], -1, keys) @ value
    return mixed.reshape(1, heads, rows, value.shape[3])
