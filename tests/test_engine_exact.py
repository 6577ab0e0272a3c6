"""The pot computes what the stock model computes while everything fits, and what the paper says when it does not."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine import ccd, estimate
from engine.errors import SettingsError
from engine.forward import forward
from engine.generation import extend, generate
from engine.methods import REGISTRY
from engine.model import Model
from engine.novelty import block_novelty
from engine.pot import Batch, Pot, PotLayer
from engine.pour import rotated_keys
from engine.reader import Reader
from engine.settings import CONSTRAINED, METHODS, POOLINGS, POOLS, REDUCTIONS, SCOPES, GenerationSettings, PotSettings
from tests import reference, tiny

# The methods that the naive transcription in tests/reference.py knows; the others have tests of their own.
PAPER = ("infinipot", "infinipot", "cap", "nuc", "recent")
DISTILLABLE = [name for name in tiny.ARCHITECTURES if name not in tiny.ALL_WINDOWED]
# Their attention is computed in single precision whatever the weights are, or their experts know no float64.
SINGLE_PRECISION = ("gemma2", "gpt-oss")
CASES = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype)[6:]}")
    for name in tiny.ARCHITECTURES
    for dtype in (torch.float32, torch.float64)
    if dtype == torch.float32 or name not in SINGLE_PRECISION
]


def stock_greedy(model: Model, ids: Tensor, count: int) -> list[int]:
    whole = ids[None]
    made = model.module.generate(whole, attention_mask=torch.ones_like(whole), max_new_tokens=count, do_sample=False)
    return made[0, len(ids) :].tolist()


def largest_difference(ours: Tensor, stock: Tensor) -> float:
    return float((ours - stock).abs().max() / stock.std())


# -------------------------------------------------------------------------------------- a document that fits


@pytest.mark.parametrize(("name", "dtype"), CASES)
@torch.inference_mode()
def test_logits_of_a_document_that_fits_are_the_stock_models(name: str, dtype: torch.dtype) -> None:
    model, ids = tiny.model(name, dtype), tiny.random_ids(90)
    stock = model.module(input_ids=ids[None]).logits[0]
    pot = tiny.empty_pot(model, 100)
    hidden = torch.cat([forward(model, pot, part)[0] for part in ids.split([1, 40, 2, 17, 30])])
    tolerance = 1e-9 if dtype == torch.float64 else 2e-4
    assert largest_difference(model.logits(hidden), stock) < tolerance
    ours = block_novelty(model, None, hidden, ids)
    assert ours[0] == torch.inf
    expected = -stock[:-1].float().log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    torch.testing.assert_close(ours[1:], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
@pytest.mark.parametrize("length", [5, 16, 17, 61])
def test_answers_from_a_document_that_fits_are_the_stock_models(name: str, length: int) -> None:
    model, ids, question = tiny.model(name), tiny.random_ids(length), tiny.random_ids(7, 9)
    pot = tiny.empty_pot(model, 120)
    for part in ids.split(19):
        forward(model, pot, part)
    answer = generate(model, pot, question.tolist(), GenerationSettings(max_new_tokens=24))
    assert answer.token_ids == stock_greedy(model, torch.cat([ids, question]), 24)


@pytest.mark.parametrize("name", DISTILLABLE)
def test_a_reader_whose_document_fits_distils_nothing(name: str) -> None:
    model, batch = tiny.model(name), tiny.document(70)
    pot = tiny.read(model, PotSettings(capacity=120, block=11), batch)
    whole = torch.cat([tiny.random_ids(3, 101), batch.ids])
    assert (pot.cycles, pot.entries, pot.tokens_read) == (0, 73, 70)
    stock = model.module(input_ids=whole[None]).logits[0, -1:]
    assert pot.last_hidden is not None
    assert largest_difference(model.logits(pot.last_hidden), stock) < 2e-4


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "qwen2-mixed", "cohere2", "gpt-oss"])
def test_a_window_wider_than_the_pot_is_read_as_no_window(name: str) -> None:
    model = tiny.model(name)
    pot = tiny.read(model, PotSettings(capacity=tiny.WINDOW, distilled=8), tiny.document(200), catalyst=2)
    assert {store.length for store in pot.stores.values()} == {pot.entries}
    assert all(store.spec.window is None for store in pot.stores.values())


# ---------------------------------------------------------------------------- the paper, transcribed naively


@st.composite
def readings(
    draw: st.DrawFn, smallest: int = 16, most_cycles: int = 12, methods: Sequence[str] = PAPER
) -> dict[str, Any]:
    """Random legal settings and sizes of prefix, catalyst and document."""
    capacity = draw(st.integers(smallest, smallest + 24))
    catalyst = draw(st.integers(1, 5))
    prefix = draw(st.integers(0, 5))
    distilled = draw(st.integers(1, capacity - catalyst - prefix - 1))
    first = capacity - catalyst - prefix
    step = first - distilled
    settings = PotSettings(
        capacity=capacity,
        distilled=distilled,
        alpha=draw(st.sampled_from([0.0, 0.1, 0.5, 0.75, 1.0])),
        method=draw(st.sampled_from(methods)),
        reduce=draw(st.sampled_from(REDUCTIONS)),
        scope=draw(st.sampled_from(SCOPES)),
        norm=draw(st.sampled_from([1.0, 2.0, 4.0, 7.5])),
        pooling=draw(st.sampled_from(POOLINGS)),
        pool=draw(st.sampled_from(POOLS)),
        decay=draw(st.sampled_from([1.0, 0.7])),
        recent=draw(st.integers(0, min(distilled, 4))),
        block=draw(st.integers(1, 40)),
    )
    length = draw(st.integers(0, first + min(most_cycles * step, 100)))
    return {"settings": settings, "prefix": prefix, "catalyst": catalyst, "length": length}


def naive(model: Model, reading: dict[str, Any], batch: Batch) -> reference.NaiveReader:
    settings = reading["settings"]
    names = {field.name for field in dataclasses.fields(reference.Options)}
    options = reference.Options(**{key: value for key, value in settings.to_dict().items() if key in names})
    prefix, catalyst = tiny.random_ids(reading["prefix"], 101), tiny.random_ids(reading["catalyst"], 102)
    reader = reference.NaiveReader(model.module, options, prefix.tolist(), catalyst.tolist())
    reader.read(batch.ids.tolist())
    return reader


def assert_same_entries(store: PotLayer, heads: list[list[reference.Entry]], slots: int) -> None:
    """The last ``slots`` slots of every head, engine against transcription."""
    for head, entries in enumerate(heads):
        part, wanted = slice(store.length - slots, store.length), entries[len(entries) - slots :]
        assert store.position[head, part].tolist() == [entry.position for entry in wanted]
        assert store.token[head, part].tolist() == [entry.token for entry in wanted]
        for name in ("key", "value"):
            expected = torch.stack([getattr(entry, name) for entry in wanted]) if wanted else store.key.new_empty(0)
            if wanted:
                torch.testing.assert_close(getattr(store, name)[head, part], expected, rtol=1e-6, atol=1e-8)
        novelty = torch.tensor([entry.novelty for entry in wanted], dtype=torch.float32)
        torch.testing.assert_close(store.novelty[head, part], novelty, rtol=1e-5, atol=1e-5)


@given(reading=readings())
def test_every_cycle_keeps_what_the_paper_keeps(reading: dict[str, Any]) -> None:
    model, batch = tiny.model("llama", torch.float64), tiny.document(reading["length"])
    ours = tiny.read(model, reading["settings"], batch, reading["prefix"], reading["catalyst"])
    theirs = naive(model, reading, batch)
    assume(theirs.margin > 1e-5)  # a tie up to rounding may fall either way
    assert (ours.cycles, ours.entries) == (theirs.cycles, theirs.entries)
    for index, store in ours.stores.items():
        assert_same_entries(store, theirs.pot[index], ours.entries)


@given(reading=readings(methods=("infinipot", "cap")))
def test_heads_that_decide_together_hold_the_same_tokens(reading: dict[str, Any]) -> None:
    pot = tiny.read(
        tiny.model("llama"),
        reading["settings"],
        tiny.document(reading["length"]),
        reading["prefix"],
        reading["catalyst"],
    )
    layers = [store.position[:, : store.length].tolist() for store in pot.stores.values()]
    if reading["settings"].scope != "head":
        assert all(head == layer[0] for layer in layers for head in layer)
    if reading["settings"].scope == "pot":
        assert all(layer == layers[0] for layer in layers)


@given(reading=readings(smallest=20))
def test_layers_with_a_window_keep_their_window(reading: dict[str, Any]) -> None:
    model, batch = tiny.model("qwen2-mixed", torch.float64), tiny.document(reading["length"])
    ours = tiny.read(model, reading["settings"], batch, reading["prefix"], reading["catalyst"])
    theirs = naive(model, reading, batch)
    assume(theirs.margin > 1e-5)
    assert (ours.cycles, ours.entries) == (theirs.cycles, theirs.entries)
    for index, store in ours.stores.items():
        slots = ours.entries if store.spec.window is None else min(ours.entries, tiny.WINDOW - 1)
        assert store.length >= slots
        assert_same_entries(store, theirs.pot[index], slots)


@given(reading=readings(), need=st.integers(1, 40))
def test_making_room_keeps_what_the_paper_keeps(reading: dict[str, Any], need: int) -> None:
    model, batch = tiny.model("llama", torch.float64), tiny.document(reading["length"])
    ours = tiny.read(model, reading["settings"], batch, reading["prefix"], reading["catalyst"])
    theirs = naive(model, reading, batch)
    keep = ours.capacity - need - ours.protected
    assume(keep >= 1)
    ccd.make_room(model, ours, need, tiny.random_ids(reading["catalyst"], 102))
    if theirs.entries + need > ours.capacity:
        theirs.distil(keep)
    assume(theirs.margin > 1e-5)
    assert ours.entries == theirs.entries
    for index, store in ours.stores.items():
        assert_same_entries(store, theirs.pot[index], ours.entries)


@given(reading=readings(methods=METHODS))
def test_the_estimate_counts_the_cycles_and_entries(reading: dict[str, Any]) -> None:
    pot = tiny.read(
        tiny.model(), reading["settings"], tiny.document(reading["length"]), reading["prefix"], reading["catalyst"]
    )
    sizes = (reading["length"], reading["settings"], reading["prefix"], reading["catalyst"])
    assert (pot.cycles, pot.entries) == (estimate.cycles(*sizes), estimate.entries(*sizes))


@pytest.mark.parametrize("method", CONSTRAINED)
def test_an_empty_catalyst_is_refused_where_one_is_needed(method: str) -> None:
    settings = PotSettings(capacity=32, distilled=8, method=method)
    if REGISTRY[method].attention:
        with pytest.raises(SettingsError, match="catalyst"):
            tiny.read(tiny.model(), settings, tiny.document(100), catalyst=0)
        return
    assert tiny.read(tiny.model(), settings, tiny.document(100), catalyst=0).entries <= 32


def test_a_model_of_windows_only_is_refused_above_its_window() -> None:
    model = tiny.model("mistral-window")
    assert tiny.read(model, PotSettings(capacity=tiny.WINDOW, distilled=6), tiny.document(90)).cycles > 5
    with pytest.raises(SettingsError, match="attends to a window of 16 tokens") as caught:
        tiny.read(model, PotSettings(capacity=tiny.WINDOW + 1, distilled=6), tiny.document(5))
    assert caught.value.hint == "use --capacity 16 or less"


# -------------------------------------------------------------------------------------------- keys and slots


class Captured:
    """Raw keys as they entered, by layer and source position: [H, D] each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: dict[tuple[int, int], Tensor] = {}
        self._latest: dict[int, Tensor] = {}
        append, note = PotLayer.append, Pot.note

        def spy_append(store: PotLayer, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self._latest[store.spec.index] = key[0].clone()
            return append(store, key, value)

        def spy_note(pot: Pot, batch: Batch, novelty: Tensor | float = 0.0) -> None:
            for index in pot.stores:
                for i, position in enumerate(batch.position.tolist()):
                    self.keys[index, position] = self._latest[index][:, i]
            note(pot, batch, novelty)

        monkeypatch.setattr(PotLayer, "append", spy_append)
        monkeypatch.setattr(Pot, "note", spy_note)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@given(st.data())
def test_all_layers_keep_at_once_what_each_would_keep_alone(name: str, data: st.DataObject) -> None:
    model = tiny.model(name)
    pot = tiny.read(model, PotSettings(capacity=40, distilled=20, block=13), tiny.document(100))
    alone, untouched = pot.copy(), pot.copy()
    held = pot.entries_distilled
    slots = torch.tensor(sorted(data.draw(st.sets(st.integers(0, held - 1), min_size=1))))
    pot.keep(slots)
    for store in alone.distilled_stores:
        store.keep(slots.expand(store.spec.kv_heads, -1))
    for index, store in pot.stores.items():
        same = (alone if store in pot.distilled_stores else untouched).stores[index]
        assert store.length == same.length
        for part in store.tensors:
            assert torch.equal(getattr(store, part)[:, : store.length], getattr(same, part)[:, : store.length])
        assert untouched.stores[index].length == (held if store in pot.distilled_stores else store.length)


def rotated_by_the_model(model: Model, index: int, keys: Tensor) -> Tensor:
    """Keys [H, n, D] rotated to positions 0..n-1 by the model's own rotary module and rotation."""
    attn = model.base.layers[index].self_attn
    rotate = sys.modules[type(attn).__module__].apply_rotary_pos_emb
    layer_types = getattr(model.config, "layer_types", None)
    arguments = [layer_types[index]] if isinstance(model.config.rope_parameters.get("full_attention"), dict) else []
    cos, sin = model.base.rotary_emb(keys[None], torch.arange(keys.shape[1])[None], *arguments)
    if list(inspect.signature(rotate).parameters)[1] == "cos":  # it rotates one tensor
        return rotate(keys[None], cos, sin)[0]
    return rotate(keys[None], keys[None], cos, sin)[1][0]


@pytest.mark.parametrize("cycles", [1, 10, 300])
def test_a_kept_key_is_rotated_once_from_raw(cycles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = Captured(monkeypatch)
    model, settings = tiny.model("llama"), PotSettings(capacity=40, distilled=24, block=7)
    first, step = 40 - 4, 40 - 4 - 24
    pot = tiny.read(model, settings, tiny.document(first + cycles * step), prefix=0)
    assert pot.cycles == cycles
    rotated = rotated_keys(model, pot)
    for index, store in pot.stores.items():
        for head in range(store.spec.kv_heads):
            for slot, position in enumerate(store.position[head, : store.length].tolist()):
                raw = captured.keys[index, position][head]
                assert torch.equal(store.key[head, slot], raw)
                expected = reference.rope(raw.double(), slot, model.config).float()
                torch.testing.assert_close(rotated[index][head, slot], expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", [name for name in DISTILLABLE if name != "llama-dynamic"])
def test_kept_keys_are_raw_and_poured_at_their_slots(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = Captured(monkeypatch)
    model = tiny.model(name)
    pot = tiny.read(model, PotSettings(capacity=48, distilled=28, block=13), tiny.document(250), prefix=0)
    assert pot.cycles > 10
    for index, store in pot.stores.items():
        positions = store.position[:, : store.length]
        raw = torch.stack(
            [torch.stack([captured.keys[index, p][h] for p in row.tolist()]) for h, row in enumerate(positions)]
        )
        assert torch.equal(store.key[:, : store.length], raw)
        # Layers with fewer entries end where the others end.
        shift = raw.new_zeros(raw.shape[0], pot.entries - store.length, raw.shape[2])
        expected = torch.cat([shift, raw], dim=1)
        if store.spec.rotary is not None:
            expected = rotated_by_the_model(model, index, expected)
        torch.testing.assert_close(
            rotated_keys(model, pot)[index], expected[:, pot.entries - store.length :], rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("name", DISTILLABLE)
def test_after_cycles_the_poured_cache_continues_like_the_pot(name: str) -> None:
    model, question = tiny.model(name), tiny.random_ids(6, 9)
    pot = tiny.read(model, PotSettings(capacity=64, distilled=30, block=13), tiny.document(300))
    answer = generate(model, pot, question.tolist(), GenerationSettings(max_new_tokens=10))
    with torch.inference_mode():
        ours, ids = pot.copy(), question
        if ours.entries + 16 > ours.capacity:
            ccd.make_room(model, ours, 16, question)
        for token in answer.token_ids:
            hidden, _ = forward(model, ours, ids)
            assert int(model.logits(hidden[-1:]).argmax()) == token
            ids = torch.tensor([token])


# ----------------------------------------------------------------------------------- bounded, always, by all


@contextmanager
def fullest() -> Iterator[list[int]]:
    """The entries that every update ends with."""
    seen, append = [0], PotLayer.append

    def spy(store: PotLayer, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = append(store, key, value)
        seen.append(keys.shape[2])
        return keys, values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PotLayer, "append", spy)
        yield seen


@given(
    reading=readings(most_cycles=30, methods=CONSTRAINED),
    name=st.sampled_from(["llama", "gemma3"]),
    ask=st.integers(1, 12),
)
def test_entries_never_exceed_the_capacity(reading: dict[str, Any], name: str, ask: int) -> None:
    model, settings = tiny.model(name), reading["settings"]
    with fullest() as seen:
        pot = tiny.read(model, settings, tiny.document(reading["length"]), reading["prefix"], reading["catalyst"])
        if settings.capacity - pot.protected > ask + 2:
            generate(model, pot, tiny.random_ids(ask).tolist(), GenerationSettings(max_new_tokens=2))
        extend(model, pot, tiny.random_ids(ask).tolist(), tiny.random_ids(reading["catalyst"], 102).tolist())
    assert max(seen) <= settings.capacity
    if pot.cycles and REGISTRY[settings.method].attention:
        assert max(seen) == settings.capacity  # the pot is used to the last entry


class LiveBytes(TorchDispatchMode):
    """Bytes of the tensor storages that are alive, and the most there ever were; counted at every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor):
                self._meet(value.untyped_storage())
        return result

    def _meet(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return
        self._alive.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._part, key, size)

    def _part(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.now -= size


def peak_bytes(fills: int) -> tuple[int, int]:
    """The most bytes alive while so many fills are read, and the tokens read; each fill arrives in one piece."""
    model, settings = tiny.model("llama"), PotSettings(capacity=640, distilled=128)
    first, step = 640 - 3 - 4, 640 - 3 - 4 - 128
    with LiveBytes() as live:
        reader = Reader(model, settings, [4, 5, 6], [7, 8, 9, 10])
        for fill in range(fills):
            reader.feed(tiny.document(step if fill else first, seed=fill))
        pot = reader.finish()
    assert pot.cycles == fills - 1
    return live.peak, pot.tokens_read


def test_peak_memory_does_not_grow_with_the_document() -> None:
    (short, few), (long, many) = peak_bytes(8), peak_bytes(198)
    assert 4_000 < few < 4_200
    assert many > 100_000
    assert short == long


def test_a_pot_of_twice_the_capacity_is_seen_by_the_counter() -> None:
    model = tiny.model("llama")
    peaks = []
    for capacity in (256, 512):
        with LiveBytes() as live:
            tiny.read(model, PotSettings(capacity=capacity, distilled=64, block=64), tiny.document(1000))
        peaks.append(live.peak)
    assert peaks[1] > 1.5 * peaks[0]


# ------------------------------------------------------------------------- no traces of catalyst and feeding


def read_as_recent(model: Model, catalyst: list[int], scored: bool, monkeypatch: pytest.MonkeyPatch) -> Pot:
    """A pot of the method that looks at no scores, with the catalyst forwarded all the same, or not."""
    method = dataclasses.replace(REGISTRY["recent"], attention=scored)
    # Without a catalyst the pot leaves no room for one; so much less of it gives the same fills.
    capacity = 64 if scored else 64 - len(catalyst)
    settings = PotSettings(capacity=capacity, distilled=24, method="recent", block=17)
    passes = 0

    def counted(*args: Any) -> Any:
        nonlocal passes
        passes += len(args) == 4 and args[3] is not None
        return forward(*args)

    with monkeypatch.context() as patch:
        patch.setitem(REGISTRY, "recent", method)
        patch.setattr(ccd, "forward", counted)
        reader = Reader(model, settings, [4, 5, 6], catalyst)
        reader.feed(tiny.document(400))
        pot = reader.finish()
    assert passes == (pot.cycles + (pot.entries + len(catalyst) == pot.capacity) if scored else 0)
    return pot


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3", "phi3"])
@pytest.mark.parametrize("length", [1, 4, 13])
def test_the_catalyst_leaves_no_trace(name: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model(name)
    one, other = (tiny.random_ids(length, seed).tolist() for seed in (1, 2))
    without = tiny.contents(read_as_recent(model, one, False, monkeypatch))
    with_one = tiny.contents(read_as_recent(model, one, True, monkeypatch))
    with_other = tiny.contents(read_as_recent(model, other, True, monkeypatch))
    assert tiny.same(with_one, with_other)
    assert with_one.keys() == without.keys()
    for key, value in with_one.items():
        # More rows in a matrix product may round the others differently: no trace but that.
        torch.testing.assert_close(value, without[key], rtol=1e-4, atol=1e-4)


@given(
    reading=readings(methods=METHODS),
    cuts=st.lists(st.integers(0, 130), max_size=12),
    name=st.sampled_from(["llama", "gemma3"]),
)
def test_how_tokens_arrive_does_not_matter(reading: dict[str, Any], cuts: list[int], name: str) -> None:
    model, batch = tiny.model(name), tiny.document(reading["length"])
    sizes = (reading["prefix"], reading["catalyst"])
    at_once = tiny.contents(tiny.read(model, reading["settings"], batch, *sizes))
    for borders in (cuts, range(reading["length"])):
        inner = sorted(cut for cut in borders if 0 <= cut <= reading["length"])
        prefix, catalyst = (tiny.random_ids(size, seed).tolist() for size, seed in zip(sizes, (101, 102), strict=True))
        reader = Reader(model, reading["settings"], prefix, catalyst)
        for begin, end in pairwise([0, *inner, reading["length"]]):
            reader.feed(batch[begin:end])
        assert tiny.same(tiny.contents(reader.finish()), at_once)
