"""Answers on the CPU in bfloat16: one token at a time, each at the rate at which weights and entries are read.

A step multiplies matrices with a single row. For that, oneDNN's products and torch's fused attention are made ready at
more cost than the work itself; torch's own product and the textbook attention are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.backends import mkldnn
from transformers import AttentionInterface

from engine.forward import attention_by
from engine.tiles import attend_in_tiles

if TYPE_CHECKING:
    from engine.model import Model

NAME = "infinipot_writing"


def suits(model: Model) -> bool:
    """Whether the model's steps can be taken this way: in bfloat16 on the CPU, with plain attention to everything."""
    if model.device.type != "cpu" or model.dtype is not torch.bfloat16:
        return False
    return not model.capped and not model.sinking and all(spec.window is None for spec in model.layers)


@contextmanager
def quick_steps(model: Model) -> Iterator[None]:
    """Within it ``generate`` on a stock cache takes quick steps, if the model suits; else nothing changes."""
    if not suits(model):
        yield
        return
    before = mkldnn.enabled
    hook = model.module.register_forward_pre_hook(_choose_products, with_kwargs=True)
    try:
        with attention_by(model.module, NAME):
            yield
    finally:
        hook.remove()
        mkldnn.enabled = before


def _choose_products(_: nn.Module, __: tuple[Any, ...], options: dict[str, Any]) -> None:
    """oneDNN's products for the prompt, torch's own for a single row."""
    ids = options.get("input_ids")
    mkldnn.enabled = ids is None or ids.shape[-1] > 1  # type: ignore[assignment]


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [1, Hq, T, D], rotated key and value [1, Hkv, n, D] -> [1, T, Hq, Dv].

    Causal, and the queries are the last T of n: no mask is needed, and transformers makes none for this name.
    """
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    return attend_in_tiles(query, key, value, scale).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attend)
