"""Rotary positions by slot: the model hands over raw keys, and rotation happens when attention is computed.

Every ``*rotary_emb`` module is made to return cos = 1 and sin = 0 for the duration of a forward, so the model's
own rotation is the identity and the cache receives keys before RoPE. The real cos and sin, for slots 0..n-1,
are kept aside as tables; the model's own ``apply_rotary_pos_emb`` applies them later. This is CR-RoPE
(section 3.5) at no cost, and rounding never accumulates over cycles: a kept key is rotated once, from raw.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

# One entry per way in which the model calls its rotary module: (module name, extra argument such as layer type).
RotaryKey = tuple[str, str]
RotaryCall = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Tables = dict[RotaryKey, tuple[Tensor, Tensor]]
Rotation = Callable[[Tensor, Tensor, Tensor], Tensor]


_ROTARY: WeakKeyDictionary[nn.Module, dict[str, nn.Module]] = WeakKeyDictionary()


def rotary_modules(module: nn.Module) -> dict[str, nn.Module]:
    """The modules that make cos and sin, by name; looked for once, since every forward asks."""
    if module not in _ROTARY:
        named = module.named_modules()
        _ROTARY[module] = {name: child for name, child in named if name.rpartition(".")[2].endswith("rotary_emb")}
    return _ROTARY[module]


@contextmanager
def replaced_rotary(
    module: nn.Module, answer: Callable[[RotaryKey, RotaryCall, Tensor, Tensor], tuple[Tensor, Tensor]]
) -> Iterator[None]:
    """Let ``answer(key, original, x, position_ids)`` speak for every rotary module; always restores."""
    modules = rotary_modules(module)
    # Other libraries, too, put a forward on the instance.
    before: dict[str, Any] = {name: child.__dict__.get("forward") for name, child in modules.items()}

    def wrapped(name: str, original: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
        def forward(x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            key = (name, repr((args, sorted(kwargs.items()))) if args or kwargs else "")
            return answer(key, lambda x, positions: original(x, positions, *args, **kwargs), x, position_ids)

        return forward

    try:
        for name, child in modules.items():
            child.forward = wrapped(name, child.forward)
        yield
    finally:
        for name, child in modules.items():
            child.__dict__.pop("forward", None)
            if before[name] is not None:
                child.forward = before[name]


@contextmanager
def raw_keys(module: nn.Module, tables: Tables) -> Iterator[None]:
    """Within it the model does not rotate: its rotary modules answer cos = 1, sin = 0 in the tables' dims and dtype."""

    def answer(key: RotaryKey, _: RotaryCall, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = tables[key]
        shape = (1, position_ids.shape[-1], cos.shape[-1])
        return cos.new_ones(shape), sin.new_zeros(shape)

    with replaced_rotary(module, answer):
        yield


def slot_tables(calls: Mapping[RotaryKey, RotaryCall], slots: int, device: torch.device, dtype: torch.dtype) -> Tables:
    """The real cos and sin of slots 0..slots-1 for every rotary call, each [1, slots, rotary dims]."""
    x = torch.empty(0, device=device, dtype=dtype)
    positions = torch.arange(slots, device=device)[None]
    return {key: _without_history(call, x, positions) for key, call in calls.items()}


def placed_table(call: RotaryCall, index: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The real cos and sin at the positions ``index`` [H, n], each [H, n, rotary dims].

    Dynamic and long RoPE choose their angles by the largest position asked for: all that shall be compared with each
    other must be in ``index``.
    """
    x = torch.empty(0, device=index.device, dtype=dtype)
    flat = index.new_zeros(1, index.numel() + 1)  # one more, at 0, so that there is a largest even of none
    flat[0, 1:] = index.flatten()
    cos, sin = (table[0, 1:] for table in _without_history(call, x, flat))
    return cos.reshape(*index.shape, cos.shape[-1]), sin.reshape(*index.shape, sin.shape[-1])


def angles_shift(calls: Mapping[RotaryKey, RotaryCall], before: int, after: int, device: torch.device) -> bool:
    """Whether a position is rotated otherwise when the text grows from ``before`` to ``after`` tokens (dynamic and long
    RoPE, past the trained length)."""
    ends = torch.tensor([[1, max(before, 2) - 1], [1, max(after, 2) - 1]], device=device)
    pairs = ((placed_table(call, end[None], torch.float32)[0][0, 0] for end in ends) for call in calls.values())
    return any(not torch.equal(one, other) for one, other in pairs)


def rotate_by_head(rotate: Rotation, key: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``key`` [1, H, n, D] rotated by angles [H, n, R] that differ from head to head."""
    return rotate(key.transpose(0, 1), cos, sin).transpose(0, 1)  # heads take the place of the batch


def _without_history(call: RotaryCall, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Dynamic RoPE remembers the longest text it has seen; asked for position 0 alone, it forgets."""
    start = positions.new_zeros(1, 1)
    call(x, start)
    table = call(x, positions)
    call(x, start)
    return table


def rotation_of(attention: nn.Module) -> Rotation | None:
    """How this attention layer rotates: a function (x [1, H, n, D], cos [1, n, R], sin) -> rotated x, or None.

    It is the ``apply_rotary_pos_emb`` beside the layer's own class, so half, interleaved and partial
    rotations are whatever the model says they are.
    """
    apply = getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
    if apply is None:
        return None

    if list(inspect.signature(apply).parameters).index("cos") == 1:
        return apply  # it rotates one tensor (Gemma 4)

    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        # No heads in the second argument: the function rotates two tensors, and only one is wanted.
        return apply(x, x[:, :0], cos, sin)[0]

    return rotate


def partial(rotate: Rotation) -> Rotation:
    """The same rotation for layers that slice off the rotary dims before they call it."""

    def rotate_part(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size = cos.shape[-1]
        return torch.cat([rotate(x[..., :size], cos, sin), x[..., size:]], dim=-1)

    return rotate_part
