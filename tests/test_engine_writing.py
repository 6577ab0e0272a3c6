"""Quick steps on the CPU: the same tokens, nothing copied per token, and nothing left behind."""

from __future__ import annotations

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.backends import mkldnn
from transformers import DynamicCache

from engine import writing
from engine.generation import generate
from engine.pour import pour
from engine.settings import GenerationSettings, PotSettings

QUESTION = tiny.random_ids(7, 9).tolist()
PLAIN = ("llama", "llama-yarn", "qwen3", "phi3", "smollm3", "olmo2", "granite", "glm4")
OTHER = ("gemma2", "gemma3", "gpt-oss", "mistral-window")


def answer(name: str, dtype: torch.dtype = torch.float32, count: int = 20) -> list[int]:
    model = tiny.model(name, dtype)
    pot = tiny.read(model, PotSettings(capacity=96, distilled=30), tiny.document(150))
    assert pot.cycles
    return generate(model, pot, QUESTION, GenerationSettings(max_new_tokens=count, min_new_tokens=count)).token_ids


@pytest.mark.parametrize("name", PLAIN)
def test_quick_steps_write_the_tokens_of_the_stock_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, where nothing but a fault can tell them apart."""
    stock = answer(name)
    called = []
    attend = writing.attend_in_tiles
    monkeypatch.setattr(writing, "suits", lambda model: True)
    monkeypatch.setattr(writing, "attend_in_tiles", lambda *args: called.append(1) or attend(*args))
    assert answer(name) == stock
    assert len(called) == 20 * tiny.model(name).config.num_hidden_layers


@pytest.mark.parametrize("name", PLAIN)
def test_plain_attention_in_bfloat16_suits(name: str) -> None:
    assert writing.suits(tiny.model(name, torch.bfloat16))
    assert not writing.suits(tiny.model(name))


@pytest.mark.parametrize("name", OTHER)
def test_windows_softcaps_and_sinks_are_left_to_transformers(name: str) -> None:
    assert not writing.suits(tiny.model(name, torch.bfloat16))


def test_single_rows_use_torchs_own_products_and_the_prompt_does_not() -> None:
    model, seen = tiny.model("llama", torch.bfloat16), []
    hook = model.base.layers[0].register_forward_hook(
        lambda _, given, __: seen.append((given[0].shape[1], mkldnn.enabled))
    )
    try:
        answer("llama", torch.bfloat16, 5)
    finally:
        hook.remove()
    written = seen[seen.index((len(QUESTION), True)) :]
    assert written == [(len(QUESTION), True)] + [(1, False)] * 4


def test_the_process_is_as_it_was_afterwards() -> None:
    model, before = tiny.model("llama", torch.bfloat16), mkldnn.enabled

    def broken_off() -> None:
        with writing.quick_steps(model):
            model.module(input_ids=torch.tensor([[5]]))
            assert mkldnn.enabled is False
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert mkldnn.enabled is before
    assert model.config._attn_implementation != writing.NAME
    assert not model.module._forward_pre_hooks


@torch.inference_mode()
@given(room=st.integers(0, 12), steps=st.lists(st.integers(1, 5), min_size=1, max_size=5), seed=st.integers(0, 9))
def test_a_cache_with_room_holds_what_a_stock_one_holds(room: int, steps: list[int], seed: int) -> None:
    model = tiny.model()
    pot = tiny.read(model, PotSettings(capacity=64, distilled=20), tiny.document(40, seed))
    ours, stock = pour(model, pot, room), pour(model, pot)
    assert isinstance(stock, DynamicCache)
    make = torch.Generator().manual_seed(seed)
    for count in steps:
        for index, spec in enumerate(model.layers):
            new = [torch.randn(1, spec.kv_heads, count, spec.key_dim, generator=make) for _ in range(2)]
            for one, other in zip(ours.update(*new, index), stock.update(*new, index), strict=True):
                assert torch.equal(one, other)
        assert ours.get_seq_length() == stock.get_seq_length()


@torch.inference_mode()
def test_a_token_that_has_room_copies_nothing() -> None:
    model = tiny.model()
    pot = tiny.read(model, PotSettings(capacity=64, distilled=20), tiny.document(40))
    cache = pour(model, pot, 2)
    places = [cache.layers[0].keys.data_ptr()]
    for _ in range(3):
        cache.update(*(torch.zeros(1, model.layers[0].kv_heads, 1, model.layers[0].key_dim) for _ in range(2)), 0)
        places.append(cache.layers[0].keys.data_ptr())
    assert places[0] == places[1] == places[2] != places[3]
