"""One forward pass of the base model over the pot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine import attention
from engine.attention import Pass
from engine.pot import Pot
from engine.rope import raw_keys, slot_tables

if TYPE_CHECKING:
    from engine.model import Model

AttentionInterface.register(attention.NAME, attention.attend)


@contextmanager
def attention_by(module: nn.Module, name: str) -> Iterator[None]:
    """Let every attention layer of ``module`` call the attention function registered as ``name``; always restores."""
    configs: dict[int, Any] = {id(child.config): child.config for child in module.modules() if hasattr(child, "config")}
    before = {key: config._attn_implementation_internal for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation_internal = name
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation_internal = before[key]


@torch.inference_mode()
def forward(model: Model, pot: Pot, ids: Tensor, catalyst: Tensor | None = None) -> tuple[Tensor, dict[int, Tensor]]:
    """Read ``ids`` [t] into the pot and, in the same pass, let the ``catalyst`` [p] look at everything.

    Returns the hidden states of ``ids`` [t, hidden] and, per distilled layer, the catalyst scores of all
    entries [H, n] (empty without a catalyst). The catalyst's own entries are gone again on return.
    """
    tokens = ids if catalyst is None else torch.cat([ids, catalyst])
    extra = len(tokens) - len(ids)
    start = pot.entries
    slots = start + len(tokens)
    if slots > pot.capacity:
        raise RuntimeError(f"pot overflow: {slots} entries of {pot.capacity}")
    positions = torch.arange(start, slots, device=model.device)
    tables = slot_tables(model.rotary, slots, model.device, model.dtype)
    with pot.whole(), raw_keys(model.base, tables), attention_by(model.base, attention.NAME):
        run = Pass({i: s.spec for i, s in pot.stores.items()}, tables, extra, pot.settings.reduce)
        token = attention.current.set(run)
        try:
            output = model.base(
                input_ids=tokens.to(model.device)[None],
                position_ids=positions[None],
                past_key_values=pot,
                use_cache=True,
            )
        finally:
            attention.current.reset(token)
    pot.drop_last(extra)
    return output.last_hidden_state[0, : len(ids)], run.scores
