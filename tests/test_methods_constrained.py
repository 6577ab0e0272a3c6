"""Every bounded method keeps what its own paper's rule keeps, transcribed naively, with CR-RoPE on and off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine import settings as options
from engine.attention import received_scores
from engine.errors import SettingsError
from engine.forward import forward
from engine.generation import extend, generate
from engine.methods import REGISTRY
from engine.model import Model
from engine.models import wrap
from engine.pot import Batch, Pot
from engine.potfile import PotMeta, load_pot, read_info, save_pot
from engine.reader import Reader
from engine.settings import CONSTRAINED, METHODS, GenerationSettings, PotSettings
from tests import naive_methods, reference, tiny
from tests.test_engine_exact import DISTILLABLE, PAPER, assert_same_entries, naive, readings

OWN = ("streaming", "h2o", "tova", "sirllm", "keydiff", "swa")
QUESTION = tiny.random_ids(5, 9).tolist()
SHORT = GenerationSettings(max_new_tokens=5)
FEW = settings(max_examples=6)


def test_the_registry_knows_every_method_and_settings_say_what_it_asks_for() -> None:
    assert tuple(REGISTRY) == METHODS
    assert {name for name, method in REGISTRY.items() if method.attention} == set(options.CATALYSED)
    assert set(options.HOLDS_ALL) <= set(options.UNCONSTRAINED)
    for name in METHODS:
        pot = Pot(tiny.model().layers, PotSettings(capacity=32, method=name), torch.device("cpu"), torch.float32)
        asks = REGISTRY[name].received is not None
        assert all((store.received is not None) == asks for store in pot.stores.values())


def theirs_of(model: Model, reading: dict[str, Any], batch: Batch) -> naive_methods.NaiveMethods:
    made = reading["settings"]
    choice = reference.Options(
        capacity=made.capacity,
        distilled=made.distilled,
        method=made.method,
        decay=made.decay,
        recent=made.recent,
        reset=made.reset,
    )
    prefix, catalyst = tiny.random_ids(reading["prefix"], 101), tiny.random_ids(reading["catalyst"], 102)
    reader = naive_methods.NaiveMethods(model.module, choice, prefix.tolist(), catalyst.tolist())
    reader.read(batch.ids.tolist())
    return reader


def without_reset(reading: dict[str, Any], reset: bool) -> dict[str, Any]:
    made = PotSettings.from_dict(reading["settings"].to_dict() | {"reset": reset})
    return reading | {"settings": made}


@pytest.mark.parametrize("method", OWN)
@FEW
@given(data=st.data(), reset=st.booleans())
def test_every_cycle_keeps_what_the_rule_keeps(method: str, data: st.DataObject, reset: bool) -> None:
    reading = without_reset(data.draw(readings(methods=[method])), reset)
    model, batch = tiny.model("llama", torch.float64), tiny.document(reading["length"])
    ours = tiny.read(model, reading["settings"], batch, reading["prefix"], reading["catalyst"])
    theirs = theirs_of(model, reading, batch)
    assume(theirs.margin > 1e-5)  # a tie up to rounding may fall either way
    assert (ours.cycles, ours.entries) == (theirs.cycles, theirs.entries)
    for index, store in ours.stores.items():
        assert_same_entries(store, theirs.pot[index], ours.entries)
        if store.index is not None:
            numbers = [[entry.index for entry in head] for head in theirs.pot[index]]
            assert store.index[:, : store.length].tolist() == numbers
    if ours.fits(len(QUESTION) + SHORT.max_new_tokens):
        said = generate(model, ours, QUESTION, SHORT).token_ids
        assert said == theirs.answer(QUESTION, SHORT.max_new_tokens)[: len(said)]


@FEW
@given(reading=readings(methods=PAPER))
def test_without_reset_the_papers_methods_stay_at_their_source_positions(reading: dict[str, Any]) -> None:
    reading = without_reset(reading, False)
    model, batch = tiny.model("llama", torch.float64), tiny.document(reading["length"])
    ours = tiny.read(model, reading["settings"], batch, reading["prefix"], reading["catalyst"])
    theirs = naive(model, reading, batch)
    assume(theirs.margin > 1e-5)
    assert ours.taken == theirs.taken == reading["prefix"] + reading["length"]
    for index, store in ours.stores.items():
        assert_same_entries(store, theirs.pot[index], ours.entries)
        assert store.index is not None
        assert store.index[:, : store.length].tolist() == [[e.index for e in head] for head in theirs.pot[index]]


@pytest.mark.parametrize("name", DISTILLABLE)
def test_without_reset_answers_continue_after_the_last_position(name: str) -> None:
    model = tiny.model(name)
    pot = tiny.read(model, PotSettings(capacity=64, distilled=30, block=40, reset=False), tiny.document(200))
    assert pot.entries < pot.taken == 203
    answer = generate(model, pot, QUESTION, GenerationSettings(max_new_tokens=6))
    with torch.inference_mode():
        ids, room = torch.tensor(QUESTION), pot.copy()
        assert room.fits(11)
        for token in answer.token_ids:
            hidden, _ = forward(model, room, ids)
            assert int(model.logits(hidden[-1:]).argmax()) == token
            ids = torch.tensor([token])


@pytest.mark.parametrize("length", [40, 70, 180])
def test_without_reset_angles_that_grow_with_the_text_are_those_of_one_length(length: int) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    made = tiny.build("Llama", {"rope_parameters": rope, "max_position_embeddings": 64}, torch.float64)
    model = wrap(made, tiny.tokenizer(), "dynamic")
    pot = tiny.read(model, PotSettings(capacity=64, distilled=20, reset=False), tiny.document(length))
    said = generate(model, pot, QUESTION, GenerationSettings(max_new_tokens=8)).token_ids
    with torch.inference_mode():
        ids = torch.tensor(QUESTION)
        for token in said:
            hidden, _ = forward(model, pot, ids)
            assert int(model.logits(hidden[-1:]).argmax()) == token
            ids = torch.tensor([token])


def test_reset_changes_what_is_read_after_a_cycle_and_nothing_before() -> None:
    model, batch = tiny.model(), tiny.document(120)
    pots = [tiny.read(model, PotSettings(capacity=64, distilled=20, reset=reset), batch) for reset in (True, False)]
    assert pots[0].cycles == pots[1].cycles > 1
    assert not torch.allclose(pots[0].last_hidden, pots[1].last_hidden, atol=1e-2)
    pots = [tiny.read(model, PotSettings(capacity=150, reset=reset), batch) for reset in (True, False)]
    torch.testing.assert_close(pots[0].last_hidden, pots[1].last_hidden, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------- method by method


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5, -1.0, 2.0, 0.0])])
@given(past=st.integers(0, 9), queries=st.integers(1, 300))
@settings(max_examples=5)
def test_attention_received_is_the_column_sum(
    softcap: float | None, sinks: Tensor | None, past: int, queries: int
) -> None:
    generator = torch.Generator().manual_seed(past + queries)
    query = torch.randn(1, 4, queries, 8, generator=generator, dtype=torch.float64)
    key = torch.randn(1, 2, past + queries, 8, generator=generator, dtype=torch.float64)
    weights = torch.zeros(4, queries, past + queries, dtype=torch.float64)
    for head in range(4):
        for i in range(queries):
            logits = key[0, head // 2, : past + i + 1] @ query[0, head, i] * 0.3
            logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
            sunk = logits.new_zeros(0) if sinks is None else sinks[head : head + 1].double()
            weights[head, i, : past + i + 1] = torch.cat([logits, sunk]).softmax(0)[: past + i + 1]
    summed = received_scores(query, key, "sum", 0.3, softcap, sinks)
    expected = weights.reshape(2, 2 * queries, -1).sum(1).float()
    torch.testing.assert_close(summed, expected, rtol=1e-4, atol=1e-4)
    last = received_scores(query, key, "last", 0.3, softcap, sinks)
    torch.testing.assert_close(last, weights[:, -1].mean(0).float().expand(2, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prefix", [0, 2, 6])
def test_streaming_rolls_token_by_token_if_told_to(prefix: int) -> None:
    capacity = 24
    made = PotSettings(capacity=capacity, distilled=capacity - prefix - 1, method="streaming")
    pot = tiny.read(tiny.model(), made, tiny.document(100), prefix)
    sinks = max(4 - prefix, 0)
    last = capacity - prefix - sinks
    kept = [-1] * prefix + list(range(sinks)) + list(range(100 - last, 100))
    for store in pot.stores.values():
        assert store.position[:, : store.length].tolist() == [kept] * 2


def mistral(window: int | None) -> Model:
    return wrap(tiny.build("Mistral", {"sliding_window": window}), tiny.tokenizer(), f"mistral-{window}")


@pytest.mark.parametrize("capacity", [24, 61])
def test_swa_is_the_stock_models_sliding_window(capacity: int) -> None:
    plain, stock, document = mistral(None), mistral(16), tiny.random_ids(150)
    made = PotSettings(capacity=capacity, distilled=16, method="swa", block=7)
    pot = tiny.read(plain, made, tiny.document(150), prefix=0)
    assert pot.cycles > 1
    expected = stock.module(input_ids=document[None]).logits[0, -1:]
    torch.testing.assert_close(plain.logits(pot.last_hidden), expected, rtol=1e-3, atol=1e-3)
    text = torch.cat([document, torch.tensor(QUESTION)])[None]
    said = stock.module.generate(text, attention_mask=torch.ones_like(text), max_new_tokens=5, do_sample=False)
    if pot.fits(10):
        assert generate(plain, pot, QUESTION, SHORT).token_ids == said[0, text.shape[1] :].tolist()


@given(length=st.integers(0, 90), capacity=st.integers(20, 50), prefix=st.integers(0, 5), reset=st.booleans())
def test_truncation_reads_the_halves_and_nothing_between(length: int, capacity: int, prefix: int, reset: bool) -> None:
    model, batch = tiny.model("llama", torch.float64), tiny.document(length)
    pot = tiny.read(model, PotSettings(capacity=capacity, method="truncate", reset=reset), batch, prefix)
    cut, numbers = middle_cut(length, capacity - prefix)
    assert (pot.cycles, pot.tokens_read, pot.taken) == (0, length, prefix + length)
    for store in pot.stores.values():
        assert store.position[:, prefix : store.length].tolist() == [numbers] * 2
    assert_reads_like(model, pot, cut, prefix, reset)
    need = len(QUESTION) + SHORT.max_new_tokens
    if capacity - prefix - need < 1:
        with pytest.raises(SettingsError, match="more than the capacity"):
            generate(model, pot, QUESTION, GenerationSettings(max_new_tokens=capacity))
        return
    answer = generate(model, pot, QUESTION, SHORT)
    fitting, _ = middle_cut(length, capacity - prefix - need)
    if reset:
        roomy = tiny.read(model, PotSettings(capacity=200, method="recent"), fitting, prefix)
        assert answer.token_ids == generate(model, roomy, QUESTION, SHORT).token_ids


def middle_cut(length: int, room: int) -> tuple[Batch, list[int]]:
    """LongBench: ``half = int(max_length / 2)``; the first half and the last half of a text that is too long."""
    whole, numbers = tiny.document(length), list(range(length))
    if length <= room:
        return whole, numbers
    half = int(room / 2)
    kept = numbers[:half] + (numbers[-half:] if half else [])
    index = torch.tensor(kept, dtype=torch.int64)
    return Batch(whole.ids[index], whole.position[index], whole.place[index]), kept


def assert_reads_like(model: Model, pot: Pot, text: Batch, prefix: int, reset: bool) -> None:
    """The pot is that of ``text`` read in one go, if positions restart; else at least its tokens are."""
    roomy = tiny.read(model, PotSettings(capacity=200, method="recent"), text, prefix)
    assert pot.entries == roomy.entries
    for store, other in zip(pot.stores.values(), roomy.stores.values(), strict=True):
        assert torch.equal(store.token[:, : store.length], other.token[:, : other.length])
        if reset:
            torch.testing.assert_close(store.key[:, : store.length], other.key[:, : other.length], rtol=1e-9, atol=1e-9)


def test_truncation_holds_a_bounded_part_of_a_long_stream() -> None:
    reader = Reader(tiny.model(), PotSettings(capacity=40, method="truncate"), [4, 5], [])
    for start in range(0, 20_000, 100):
        positions = torch.arange(start, start + 100)
        reader.feed(Batch(tiny.random_ids(100, start), positions, positions))
        filler: Any = reader._filler
        assert sum(len(batch) for batch in filler._tail) <= 19 + 100
        assert reader.stats.tokens + reader.stats.waiting == start + 102 - 2
    pot = reader.finish()
    assert pot.stores[0].position[0, 2:40].tolist() == [*range(19), *range(19_981, 20_000)]


@pytest.mark.parametrize("method", METHODS)
def test_a_conversation_goes_on_with_every_method(method: str) -> None:
    model = tiny.model()
    pot = tiny.read(model, PotSettings(capacity=60, distilled=20, method=method), tiny.document(100))
    catalyst = tiny.random_ids(4, 102).tolist()
    for turn in range(4):
        said = generate(model, pot, QUESTION, SHORT).token_ids
        longer = extend(model, pot, [*QUESTION, *said], catalyst)
        assert longer.taken == pot.taken + len(QUESTION) + len(said), turn
        assert longer.tokens_read == 100
        if method in CONSTRAINED:
            assert longer.entries <= 60
        pot = longer
    assert pot.stores[0].token[0, pot.entries - 1] == said[-1] or method not in ("truncate", "full", "recent")


# ----------------------------------------------------------------------------------------------- in a pot file

SAVED = [PotSettings(capacity=64, distilled=24, block=16, method=method) for method in METHODS]
SAVED += [PotSettings(capacity=64, distilled=24, block=16, method=method, reset=False) for method in ("cap", "h2o")]


@pytest.mark.parametrize("made", SAVED, ids=lambda made: f"{made.method}-{made.reset}")
def test_a_pot_of_every_method_survives_its_file(made: PotSettings, tmp_path: Path) -> None:
    model, path = tiny.model(), tmp_path / "x.pot"
    pot = tiny.read(model, made, tiny.document(150))
    save_pot(pot, path, model=model, meta=PotMeta())
    loaded, _ = load_pot(path, model)
    assert read_info(path).taken == pot.taken == loaded.taken == 153
    assert loaded.settings == made
    assert tiny.same(tiny.contents(loaded), tiny.contents(pot))
    assert generate(model, loaded, QUESTION, SHORT).token_ids == generate(model, pot, QUESTION, SHORT).token_ids
    more, catalyst = tiny.random_ids(60, 3).tolist(), tiny.random_ids(4, 102).tolist()
    longer = [tiny.contents(extend(model, one, more, catalyst)) for one in (pot, loaded)]
    assert tiny.same(*longer)
