"""One forward pass of the base model over the pot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine import attention
from engine.attention import LayerSpec, Pass
from engine.pot import Pot
from engine.rope import placed_table, raw_keys, slot_tables

if TYPE_CHECKING:
    from engine.model import Model

AttentionInterface.register(attention.NAME, attention.attend)


_CONFIGS: WeakKeyDictionary[nn.Module, list[Any]] = WeakKeyDictionary()


def _configs(module: nn.Module) -> list[Any]:
    """The distinct configs of a module and all in it; looked for once, since every forward asks."""
    if module not in _CONFIGS:
        found = {id(child.config): child.config for child in module.modules() if hasattr(child, "config")}
        _CONFIGS[module] = list(found.values())
    return _CONFIGS[module]


@contextmanager
def attention_by(module: nn.Module, name: str) -> Iterator[None]:
    """Let every attention layer of ``module`` call the attention function registered as ``name``; always restores."""
    configs = _configs(module)
    before = [config._attn_implementation_internal for config in configs]
    try:
        for config in configs:
            config._attn_implementation_internal = name
        yield
    finally:
        for config, own in zip(configs, before, strict=True):
            config._attn_implementation_internal = own


@contextmanager
def over_the_pot(model: Model, pot: Pot, slots: int, catalyst: int = 0) -> Iterator[Pass]:
    """Within it a forward of the model with ``pot`` as its cache reads into the pot, up to ``slots`` entries in all."""
    method, settings = pot.method, pot.settings
    tables = slot_tables(model.rotary, 1 if pot.stays else slots, model.device, model.dtype)
    run = Pass(
        layers={index: store.spec for index, store in pot.stores.items()},
        tables=tables,
        catalyst=catalyst,
        reduce=method.reduce or settings.reduce,
        placed=partial(placed, model, pot) if pot.stays else None,
        received=method.received,
        window=settings.kept if method.sees == "window" else None,
        front=pot.protected,
        groups=(settings.group, settings.window) if method.sees == "groups" else None,
    )
    with raw_keys(model.base, tables), attention_by(model.base, attention.NAME):
        token = attention.current.set(run)
        try:
            yield run
        finally:
            attention.current.reset(token)


def placed(model: Model, pot: Pot, spec: LayerSpec) -> tuple[Tensor, Tensor]:
    """cos and sin [H, n, R] of a layer's entries at the positions they keep."""
    store = pot.stores[spec.index]
    assert store.index is not None
    assert spec.rotary is not None
    return placed_table(model.rotary[spec.rotary], store.index[:, : store.length], model.dtype)


@torch.inference_mode()
def forward(
    model: Model, pot: Pot, ids: Tensor, catalyst: Tensor | None = None, observers: int | None = None
) -> tuple[Tensor, dict[int, Tensor]]:
    """Read ``ids`` [t] into the pot and, in the same pass, let the ``catalyst`` [p] look at everything.

    Returns the hidden states of ``ids`` [t, hidden] and, per distilled layer, scores of the entries [H, n]: the
    catalyst's, or the attention that ``ids`` gave where the method asks for it; empty without either. The
    catalyst's own entries are gone again on return. ``observers`` are the last tokens that look, if not just the
    catalyst; their scores are of what stands before them.
    """
    tokens = ids if catalyst is None else torch.cat([ids, catalyst])
    extra = len(tokens) - len(ids)
    pot.require_whole()
    start = pot.entries
    slots = start + len(tokens)
    if not pot.fits(len(tokens)):
        raise RuntimeError(f"pot overflow: {slots} entries of {pot.capacity}")
    positions = torch.arange(start, slots, device=model.device)
    with pot.whole(), over_the_pot(model, pot, slots, extra if observers is None else observers) as run:
        output = model.base(
            input_ids=tokens.to(model.device)[None],
            position_ids=positions[None],
            past_key_values=pot,
            use_cache=True,
        )
    pot.drop_last(extra)
    return output.last_hidden_state[0, : len(ids)], run.scores
