"""What flash-attn is handed, checked against a stand-in that does what its documentation says: it needs a GPU."""

from __future__ import annotations

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


def test_a_build_for_another_torch_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def broken(name: str, *args: object, **kwargs: object) -> object:
        if name == "flash_attn":
            raise OSError("undefined symbol")
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", broken)
    attention._imported_flash.cache_clear()
    try:
        assert attention.flash_attention(torch.device("cuda"), torch.bfloat16) is None
    finally:
        attention._imported_flash.cache_clear()
