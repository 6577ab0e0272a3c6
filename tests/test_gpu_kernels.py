"""What only a CUDA device can show: every attention kernel against the plain form, and a cycle that waits for nothing.

Run by `make gpu-test`; elsewhere skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.watch import Watch
from engine import attention
from engine.admission import prove
from engine.attention import FLASH, Pass, by_flash, causal_mask
from engine.models import wrap
from engine.pot import Pot
from engine.reader import Reader
from engine.settings import PotSettings
from tests.tiny import contents, document, module, random_ids, tokenizer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

# (queries, keys): the middle of a fill, an empty pot, one query, lengths that no tile divides.
LENGTHS = [(128, 640), (256, 256), (1, 300), (65, 127), (2000, 4096)]
# (query heads, KV heads, head dim): grouped as in Llama 8B and 1B, alone, an odd size.
HEADS = [(32, 8, 128), (32, 8, 64), (4, 4, 64), (8, 2, 80)]
DTYPES = [torch.bfloat16, torch.float16]
# ‖ours − plain‖ / ‖plain‖ for operands rounded to 8 and 11 bits.
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3}


def operands(lengths: tuple[int, int], heads: tuple[int, int, int], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Query, key and value on the device; value is a view into a larger buffer, as a pot's is."""
    (queries, keys), (query_heads, kv_heads, size) = lengths, heads
    own = torch.Generator("cuda").manual_seed(queries + keys + size)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", dtype=dtype, generator=own)

    buffer = noise(kv_heads, keys + 77, size)
    return noise(1, query_heads, queries, size), noise(1, kv_heads, keys, size), buffer[None, :, :keys]


def plainly(
    query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None, softcap: float | None
) -> Tensor:
    """The textbook form in float64."""
    query, key, value = query.double(), key.double(), value.double()
    mask = causal_mask(query.shape[2], key.shape[2], window, query)
    groups = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scale
    logits = logits if softcap is None else torch.tanh(logits / softcap) * softcap
    return (logits + mask).softmax(-1) @ value.repeat_interleave(groups, 1)


def distance(ours: Tensor, plain: Tensor) -> float:
    return float((ours.double() - plain).norm() / plain.norm())


class Names(TorchDispatchMode):
    """The operations that are asked for, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_sdpa_lower_right_is_the_plain_form(
    lengths: tuple[int, int], heads: tuple[int, int, int], dtype: torch.dtype
) -> None:
    query, key, value = operands(lengths, heads, dtype)
    ours = attention._fused(Pass({}, {}), query, key, value, 0.1, None, 0)
    assert distance(ours, plainly(query, key, value, 0.1, None, None)) < TOLERANCE[dtype]


@pytest.mark.parametrize("window", [1, 100])
def test_sdpa_with_a_window_is_the_plain_form(window: int) -> None:
    query, key, value = operands((128, 640), (32, 8, 128), torch.bfloat16)
    ours = attention._fused(Pass({}, {}), query, key, value, 0.1, window, 0)
    assert distance(ours, plainly(query, key, value, 0.1, window, None)) < TOLERANCE[torch.bfloat16]


def test_reading_makes_no_mask_and_runs_a_fused_kernel() -> None:
    query, key, value = operands((512, 2048), (32, 8, 128), torch.bfloat16)
    run = Pass({}, {})
    with Names() as seen:
        attention._fused(run, query, key, value, 0.1, None, 0)
    assert not run.masks
    assert any("flash_attention" in name or "efficient_attention" in name for name in seen.names), seen.names
    assert not any("softmax" in name or "tril" in name for name in seen.names), seen.names


def flash_kernels() -> list[Callable[..., Any]]:
    """flash-attn 2 and 3, whichever are installed."""
    found = []
    for name in FLASH:
        try:
            found.append(__import__(name).flash_attn_func)
        except (ImportError, OSError, AttributeError):
            continue
    return found


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_flash_attn_is_the_plain_form(lengths: tuple[int, int], window: int | None, softcap: float | None) -> None:
    kernels = flash_kernels()
    if not kernels:
        pytest.skip("flash-attn is not installed")
    query, key, value = operands(lengths, (32, 8, 128), torch.bfloat16)
    plain = plainly(query, key, value, 0.1, window, softcap)
    for kernel in kernels:
        output = by_flash(kernel, query, key, value, 0.1, window, softcap)
        ours = output[0] if isinstance(output, tuple) else output
        assert distance(ours.transpose(1, 2), plain) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.float32, *DTYPES])
@pytest.mark.parametrize("name", ["llama", "llama-llama3", "qwen3", "gemma2", "gemma3", "mistral"])
def test_models_are_admitted_on_the_device(name: str, dtype: torch.dtype) -> None:
    prove(wrap(module(name, dtype).to("cuda"), tokenizer(), name))


@contextmanager
def on_cuda(name: str, dtype: torch.dtype) -> Iterator[Any]:
    """A tiny model on the device; the one of the other tests goes back."""
    made = module(name, dtype)
    try:
        yield wrap(made.to("cuda"), tokenizer(), name)
    finally:
        made.to("cpu")


def read(model: Any, settings: PotSettings, tokens: int) -> Reader:
    reader = Reader(model, settings, random_ids(3, 101).tolist(), random_ids(4, 102).tolist())
    reader.feed(document(tokens))
    return reader


@pytest.mark.parametrize("method", ["cap", "infinipot", "streaming", "h2o", "keydiff", "truncate", "snapkv"])
def test_the_device_keeps_what_the_cpu_keeps(method: str) -> None:
    settings = PotSettings(capacity=64, distilled=24, block=16, method=method)
    here = read(wrap(module("llama"), tokenizer(), "llama"), settings, 300).finish()
    with on_cuda("llama", torch.float32) as model:
        there: Pot = read(model, settings, 300).finish()
    ours, theirs = contents(here), contents(there)
    for name in ours:
        if name.endswith("position"):
            assert torch.equal(ours[name], theirs[name].cpu()), name


@pytest.mark.parametrize("method", ["cap", "infinipot"])
def test_a_cycle_never_makes_the_host_wait(method: str) -> None:
    """By our own account of every operation, and by CUDA's: it raises where anything synchronises."""
    settings = PotSettings(capacity=64, distilled=24, block=64, method=method)
    with on_cuda("llama", torch.bfloat16) as model:
        reader = read(model, settings, 200)
        batch = document(66)
        with Watch(model.device) as watch:
            reader.feed(batch)
        assert not watch.seen.waits
        torch.cuda.set_sync_debug_mode("error")
        try:
            reader.feed(document(66, seed=1))
        finally:
            torch.cuda.set_sync_debug_mode("default")
