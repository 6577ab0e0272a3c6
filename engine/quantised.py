"""Numbers in 4 or 8 bits: x ≈ scale · (code + zero), with a scale and a zero for every group of neighbours.

Groups lie along one axis: what is large in keys before RoPE is large in a whole channel, what is large in values in a
whole token (KIVI, Liu et al. 2024). So keys are grouped over entries, values over channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import InfinipotError

SCALE, ZERO, CODE = torch.bfloat16, torch.int16, torch.uint8
_LEAST = torch.finfo(torch.float32).tiny
# A scale is at least the group's largest number over this, so that every zero is an int16.
_MOST_STEPS = 32_000.0


@dataclass(frozen=True)
class Quantised:
    """A tensor [H, n, D] in few bits: ``codes`` uint8 [H, n, D], or [H, n, ceil(D / 2)] where a byte holds two, the
    even channel in its low half; ``scale`` bfloat16 and ``zero`` int16, one per group along the axis."""

    codes: Tensor
    scale: Tensor
    zero: Tensor


def shapes_of(shape: tuple[int, int, int], bits: int, group: int, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the codes, and of scale and zero, of a tensor [H, n, D]."""
    heads, length, channels = shape
    codes = (heads, length, -(-channels // 2) if bits == 4 else channels)
    groups = [heads, length, channels]
    groups[axis] = -(-groups[axis] // group)
    return codes, tuple(groups)


def quantise(x: Tensor, bits: int, group: int, axis: int) -> Quantised:
    """``x`` [H, n, D] in ``bits`` (4 or 8), in groups of up to ``group`` along ``axis`` (1: entries, 2: channels).

    |x - dequantised| <= scale / 2, where scale is (max - min) / (2^bits - 1) of the group, rounded up to bfloat16 (and
    at least max|x| / 32,000); what the model's own dtype rounds comes on top. Raises InfinipotError where a number is
    not finite.
    """
    _, groups = shapes_of((x.shape[0], x.shape[1], x.shape[2]), bits, group, axis)
    codes = torch.empty(x.shape, dtype=CODE, device=x.device)
    scale, zero = (torch.empty(groups, dtype=kind, device=x.device) for kind in (SCALE, ZERO))
    for head in range(x.shape[0]):  # one after the other: what lies between takes little memory, and caches hold it
        _quantise(x[head], 2**bits - 1, group, axis - 1, Quantised(codes[head], scale[head], zero[head]))
    return Quantised(_packed(codes) if bits == 4 else codes, scale, zero)


def _quantise(x: Tensor, levels: int, group: int, axis: int, out: Quantised) -> None:
    if not bool(torch.isfinite(x).all()):
        raise InfinipotError("the pot holds numbers that are not finite", hint="save it with --pot-dtype raw")
    for numbers, groups, width in _blocks(x.shape[axis], group):
        block = x.narrow(axis, *numbers).unflatten(axis, (-1, width)).float()
        step, offset = _grid(block, levels, axis + 1)
        code = (block / step).round_().sub_(offset).clamp_(0, levels)
        out.codes.narrow(axis, *numbers).copy_(code.flatten(axis, axis + 1))
        out.scale.narrow(axis, *groups).copy_(step.squeeze(axis + 1))
        out.zero.narrow(axis, *groups).copy_(offset.squeeze(axis + 1))


def dequantise(parts: Quantised, bits: int, group: int, axis: int, out: Tensor) -> None:
    """Write the numbers into ``out`` [H, n, D], in its own dtype."""
    for head in range(out.shape[0]):
        codes = _unpacked(parts.codes[head], out.shape[2]) if bits == 4 else parts.codes[head]
        _dequantise(Quantised(codes, parts.scale[head], parts.zero[head]), group, axis - 1, out[head])


def _dequantise(parts: Quantised, group: int, axis: int, out: Tensor) -> None:
    for numbers, groups, width in _blocks(out.shape[axis], group):
        step, offset = (t.narrow(axis, *groups).unsqueeze(axis + 1).float() for t in (parts.scale, parts.zero))
        block = parts.codes.narrow(axis, *numbers).unflatten(axis, (-1, width)) + offset
        out.narrow(axis, *numbers).copy_(block.mul_(step).flatten(axis, axis + 1))


def _blocks(size: int, group: int) -> Iterator[tuple[tuple[int, int], tuple[int, int], int]]:
    """The whole groups at once, then what is left as a group of its own: (first, count) of the numbers and of the
    groups, and how many numbers make a group."""
    whole, left = divmod(size, group)
    if whole:
        yield (0, whole * group), (0, whole), group
    if left:
        yield (whole * group, left), (whole, 1), left


def _grid(block: Tensor, levels: int, dim: int) -> tuple[Tensor, Tensor]:
    """(step, offset) of every group along ``dim``, which stays as 1; the grid's points are whole multiples of a step,
    so that 0 is one where it lies in the range."""
    low, high = torch.aminmax(block, dim=dim, keepdim=True)
    range_ = high / levels - low / levels  # divided first: the difference of two large numbers may be infinite
    largest = torch.maximum(low.abs(), high.abs())
    step = _rounded_up(torch.maximum(range_, largest / _MOST_STEPS).clamp_min(_LEAST))
    return step, (low / step).round()


def _rounded_up(x: Tensor) -> Tensor:
    """Positive float32 numbers at the next bfloat16, so that a range is never cut short."""
    return ((x.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)


def _packed(codes: Tensor) -> Tensor:
    """Two codes of 4 bits a byte."""
    packed = codes[..., ::2].clone()
    packed[..., : codes.shape[-1] // 2] |= codes[..., 1::2] << 4
    return packed


def _unpacked(packed: Tensor, channels: int) -> Tensor:
    """The codes of 4 bits, [n, channels]."""
    codes = packed.new_empty((packed.shape[0], channels))
    codes[:, ::2] = packed & 15
    codes[:, 1::2] = packed[:, : channels // 2] >> 4
    return codes
