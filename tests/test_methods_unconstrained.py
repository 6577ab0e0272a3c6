"""The methods that hold everything while they read: the stock model's numbers, and their papers' rules."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engine.bank import Bank
from engine.errors import SettingsError
from engine.generation import generate
from engine.model import Model
from engine.pot import PotLayer
from engine.settings import GenerationSettings, PotSettings
from tests import naive_methods, reference, tiny
from tests.test_engine_exact import assert_same_entries, largest_difference, stock_greedy

QUESTION = tiny.random_ids(6, 9).tolist()
SHORT = GenerationSettings(max_new_tokens=6)
PREFIX = tiny.random_ids(3, 101)
CATALYST = tiny.random_ids(4, 102)


@pytest.mark.parametrize("name", ["llama", "llama-yarn", "mistral-window", "gemma2", "gemma3", "gpt-oss", "phi3"])
def test_full_is_the_stock_model_far_beyond_the_capacity(name: str) -> None:
    model, ids = tiny.model(name), torch.cat([PREFIX, tiny.random_ids(190)])
    pot = tiny.read(model, PotSettings(capacity=24, block=31, method="full"), tiny.document(190))
    assert (pot.entries, pot.cycles, pot.tokens_read) == (193, 0, 190)
    stock = model.module(input_ids=ids[None]).logits[0, -1:]
    assert largest_difference(model.logits(pot.last_hidden), stock) < 2e-4
    before = tiny.contents(pot)
    answer = generate(model, pot, QUESTION, SHORT)
    assert answer.token_ids == stock_greedy(model, torch.cat([ids, torch.tensor(QUESTION)]), 6)[: len(answer.token_ids)]
    assert tiny.same(tiny.contents(pot), before)


def test_storage_grows_by_doubling_and_a_bounded_pot_never_does() -> None:
    model = tiny.model()
    pot = tiny.read(model, PotSettings(capacity=20, block=9, method="full"), tiny.document(200))
    assert {store.capacity for store in pot.stores.values()} == {320}
    store = PotLayer(model.layers[0], Bank(model.layers[0], 1, 4, torch.device("cpu"), torch.float32), 0)
    with pytest.raises(RuntimeError, match="pot overflow in layer 0: 5 entries of 4"):
        store.append(torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 5, 8))


def options(method: str, capacity: int) -> reference.Options:
    return reference.Options(capacity=capacity, distilled=1, method=method, reset=method == "self-extend")


# ------------------------------------------------------------------------------------------------ self-extend


def naive_self_extend(model: Model, length: int, group: int, window: int) -> naive_methods.NaiveSelfExtend:
    reader = naive_methods.NaiveSelfExtend(model.module, options("self-extend", 10_000), PREFIX.tolist(), [])
    reader.group, reader.near = group, window
    reader.read(tiny.random_ids(length).tolist())
    return reader


@settings(max_examples=6)
@given(length=st.integers(1, 45), group=st.integers(1, 9), window=st.integers(1, 60), block=st.integers(1, 60))
def test_self_extend_reads_and_answers_by_its_papers_rule(length: int, group: int, window: int, block: int) -> None:
    model = tiny.model("llama", torch.float64)
    made = PotSettings(capacity=16, method="self-extend", group=group, window=window, block=block)
    pot = tiny.read(model, made, tiny.document(length))
    theirs = naive_self_extend(model, length, group, window)
    assert theirs._last_logits is not None
    torch.testing.assert_close(model.logits(pot.last_hidden), theirs._last_logits, rtol=1e-5, atol=1e-5)
    before = tiny.contents(pot)
    said = generate(model, pot, QUESTION, SHORT).token_ids
    assert said == theirs.answer(QUESTION, SHORT.max_new_tokens)[: len(said)]
    assert tiny.same(tiny.contents(pot), before)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "gpt-oss", "smollm3", "phi3", "glm4"])
@pytest.mark.parametrize(("group", "window"), [(1, 5), (7, 400)])
def test_self_extend_without_grouping_is_the_stock_model(name: str, group: int, window: int) -> None:
    model, ids = tiny.model(name), torch.cat([PREFIX, tiny.random_ids(120)])
    made = PotSettings(capacity=24, block=50, method="self-extend", group=group, window=window)
    pot = tiny.read(model, made, tiny.document(120))
    stock = model.module(input_ids=ids[None]).logits[0, -1:]
    assert largest_difference(model.logits(pot.last_hidden), stock) < 2e-4
    said = generate(model, pot, QUESTION, SHORT).token_ids
    assert said == stock_greedy(model, torch.cat([ids, torch.tensor(QUESTION)]), 6)[: len(said)]


def test_sampling_from_self_extend_is_seeded() -> None:
    model = tiny.model()
    pot = tiny.read(model, PotSettings(capacity=16, method="self-extend", group=3, window=8), tiny.document(60))
    said = [
        generate(model, pot, QUESTION, GenerationSettings(max_new_tokens=9, temperature=1.5, seed=seed)).token_ids
        for seed in (1, 1, 2)
    ]
    assert said[0] == said[1] != said[2]


# ----------------------------------------------------------------------------------------------------- snapkv


@settings(max_examples=6)
@example(length=97, capacity=64, catalyst=40, block=20)  # nothing waits at the end, and nothing of the text observes
@given(length=st.integers(1, 110), capacity=st.integers(60, 90), catalyst=st.integers(1, 40), block=st.integers(1, 60))
def test_snapkv_compresses_once_by_its_papers_rule(length: int, capacity: int, catalyst: int, block: int) -> None:
    model, asked = tiny.model("llama", torch.float64), tiny.random_ids(catalyst, 102).tolist()
    made = PotSettings(capacity=capacity, method="snapkv", block=block)
    pot = tiny.read(model, made, tiny.document(length), catalyst=catalyst)
    theirs = naive_methods.NaiveSnapKV(model.module, options("snapkv", 10_000), PREFIX.tolist(), [])
    theirs.read(tiny.random_ids(length).tolist())
    if 3 + length + catalyst > capacity:
        theirs.compress(asked, capacity)
        assert pot.entries == capacity - catalyst
    assume(theirs.margin > 1e-5)
    assert (pot.cycles, pot.entries, pot.taken) == (theirs.cycles, theirs.entries, 3 + length)
    for index, store in pot.stores.items():
        assert_same_entries(store, theirs.pot[index], pot.entries)
    said = generate(model, pot, asked, SHORT).token_ids
    assert said == theirs.answer(asked, SHORT.max_new_tokens)[: len(said)]


@pytest.mark.parametrize("reset", [True, False])
def test_snapkv_keeps_source_positions_whatever_reset_says(reset: bool) -> None:
    pot = tiny.read(tiny.model(), PotSettings(capacity=60, method="snapkv", reset=reset), tiny.document(150))
    for store in pot.stores.values():
        assert store.index is not None
        text = store.position[:, 3 : store.length]
        assert torch.equal(store.index[:, 3 : store.length], text + 3)
        assert text[:, -28:].tolist() == [list(range(122, 150))] * 2  # 32 observers less the catalyst's 4


@pytest.mark.parametrize("name", ["gemma3", "qwen2-mixed", "phi3-longrope", "llama-dynamic"])
def test_snapkv_reads_other_models_and_answers(name: str) -> None:
    pot = tiny.read(tiny.model(name), PotSettings(capacity=60, method="snapkv"), tiny.document(200))
    assert (pot.entries, pot.cycles) == (56, 1)
    assert generate(tiny.model(name), pot, CATALYST.tolist(), SHORT).token_ids


def test_snapkv_refuses_what_it_cannot_compress() -> None:
    with pytest.raises(SettingsError, match="needs a catalyst"):
        tiny.read(tiny.model(), PotSettings(capacity=60, method="snapkv"), tiny.document(100), catalyst=0)
    with pytest.raises(SettingsError, match="too small"):
        tiny.read(tiny.model(), PotSettings(capacity=20, method="snapkv"), tiny.document(100), catalyst=17)
    with pytest.raises(SettingsError, match="snapkv has nothing to choose from") as caught:
        tiny.read(tiny.model("mistral-window"), PotSettings(capacity=60, method="snapkv"), tiny.document(100))
    assert caught.value.hint is None
