"""What flash-attn is handed, checked against a stand-in that does what its documentation says: it needs a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor

from engine import attention
from engine.attention import by_flash, causal_mask


def documented(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
) -> Tensor:
    """flash_attn_func by its documentation: [B, length, heads, D]; causal aligned bottom-right; query i sees keys
    i + nk - nq - left .. i + nk - nq + right, where -1 is no bound; grouped heads."""
    nq, nk, groups = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)
    logits = torch.einsum("bihd,bjhd->bhij", q, k) * softmax_scale
    if softcap:
        logits = torch.tanh(logits / softcap) * softcap
    left, right = window_size
    for i in range(nq):
        for j in range(nk):
            centre = i + nk - nq
            outside = (
                (left >= 0 and j < centre - left) or (right >= 0 and j > centre + right) or (causal and j > centre)
            )
            if outside:
                logits[:, :, i, j] = float("-inf")
    return torch.einsum("bhij,bjhd->bihd", logits.softmax(-1), v)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_flash_is_handed_the_same_attention(window: int | None, softcap: float | None) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 8)
    ours = by_flash(documented, query, key, value, 0.4, window, softcap)
    plain = attention._plain(query, key, value, causal_mask(3, 9, window, query), 0.4, softcap, None)
    assert torch.allclose(ours, plain.transpose(1, 2), atol=1e-6)


def test_flash_is_not_used_on_a_cpu_or_in_float32() -> None:
    assert attention.flash_attention(torch.device("cpu"), torch.bfloat16) is None
    assert attention.flash_attention(torch.device("cuda"), torch.float32) is None


@pytest.fixture
def fresh() -> Iterator[None]:
    """What was imported is forgotten before and after."""
    attention._imported_flash.cache_clear()
    yield
    attention._imported_flash.cache_clear()


def module(name: str, mark: float) -> ModuleType:
    """A stand-in whose function gives ``mark``."""
    made = ModuleType(name)
    made.flash_attn_func = lambda *_, **__: torch.full((1,), mark)  # type: ignore[attr-defined]
    return made


def test_a_build_for_another_torch_counts_as_absent(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    def broken(name: str) -> ModuleType:
        raise OSError("undefined symbol")

    monkeypatch.setattr(attention, "import_module", broken)
    assert attention.flash_attention(torch.device("cuda"), torch.bfloat16) is None


@pytest.mark.parametrize(("capability", "release"), [((9, 0), 3.0), ((8, 0), 2.0), ((10, 0), 2.0)])
def test_release_3_serves_hopper_and_release_2_all_others(
    capability: tuple[int, int], release: float, monkeypatch: pytest.MonkeyPatch, fresh: None
) -> None:
    for name, mark in zip(attention.FLASH, (3.0, 2.0), strict=True):
        monkeypatch.setitem(sys.modules, name, module(name, mark))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    flash = attention.flash_attention(torch.device("cuda"), torch.bfloat16)
    assert flash is not None
    assert float(flash()) == release


def test_a_log_sum_exp_beside_the_output_is_left_out() -> None:
    query = torch.randn(1, 2, 3, 8)
    alone = by_flash(documented, query, query, query, 0.4, None, None)
    beside = by_flash(lambda *given, **named: (documented(*given, **named), None), *[query] * 3, 0.4, None, None)
    assert torch.equal(alone, beside)
