"""Attention in tiles against the textbook, and when it is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine import processor
from engine.attention import causal_mask
from engine.tiles import attend_in_tiles, suits


def textbook(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Softmax of all logits at once in float64, every query head with the KV head of its group."""
    query, key, value = (tensor.double() for tensor in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(groups, 1).mT * scale
    mask = causal_mask(query.shape[2], key.shape[2], None, query)
    return (logits + mask).softmax(-1) @ value.repeat_interleave(groups, 1)


@given(
    queries=st.integers(1, 300),
    past=st.integers(0, 40),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1), (4, 4)]),
    sizes=st.sampled_from([(8, 8), (16, 4)]),
    seed=st.integers(0, 99),
)
def test_tiles_give_what_the_textbook_gives(queries, past, heads, sizes, seed):
    make = torch.Generator().manual_seed(seed)
    query = torch.randn(1, heads[0], queries, sizes[0], generator=make)
    key = torch.randn(1, heads[1], queries + past, sizes[0], generator=make)
    value = torch.randn(1, heads[1], queries + past, sizes[1], generator=make)
    expected = textbook(query, key, value, 0.3)
    found = attend_in_tiles(query, key, value, 0.3)
    assert found.shape == expected.shape
    assert torch.allclose(found.double(), expected, atol=1e-5)
    halves = [tensor.bfloat16() for tensor in (query, key, value)]
    assert torch.allclose(attend_in_tiles(*halves, 0.3).double(), textbook(*halves, 0.3), atol=0.06)


def test_only_bfloat16_on_the_cpu_goes_in_tiles():
    block = torch.zeros(1, 1, 5, 8)
    assert suits(block.bfloat16())
    assert suits(block.bfloat16()[:, :, :1])
    assert not suits(block)


def test_one_query_rounds_only_its_answer():
    make = torch.Generator().manual_seed(5)
    query, key, value = (
        torch.randn(1, heads, n, 8, generator=make).bfloat16() for heads, n in ((6, 1), (2, 70), (2, 70))
    )
    exact = textbook(query, key, value, 0.3).bfloat16()
    assert torch.equal(attend_in_tiles(query, key, value, 0.3), exact)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fpu avx512f avx512_bf16 sse", True), ("fpu amx_tile amx_bf16", True), ("fpu avx512f avx512_bf16x", False)],
)
def test_the_processor_says_whether_it_computes_in_bfloat16(tmp_path: Path, monkeypatch, flags, expected):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t:\n")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    assert processor.has_bfloat16.__wrapped__() is expected


def test_a_processor_that_says_nothing_computes_in_float32(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "nothing")
    assert processor.has_bfloat16.__wrapped__() is False
