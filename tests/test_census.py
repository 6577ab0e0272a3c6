"""What a pot holds, counted: against sets and loops, in memory and from a file, and where a file is damaged."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.census import Census, census_of_file, census_of_pot, take_census
from engine.errors import PotDamaged, SettingsError
from engine.places import pack_place
from engine.pot import Batch, Pot
from engine.potfile import PotMeta, save_pot
from engine.reader import Reader
from engine.settings import PotSettings
from engine.text import Encoder

Entry = tuple[int, int, int, int]  # source, position, unit, token


def layer_of(heads: list[list[Entry]]) -> dict[str, np.ndarray]:
    def column(value: Any) -> np.ndarray:
        return np.array([[value(entry) for entry in head] for head in heads], dtype=np.int64).reshape(len(heads), -1)

    return {
        "token": column(lambda e: e[3]),
        "position": column(lambda e: e[1]),
        "place": column(lambda e: pack_place(e[0], e[2]) if e[1] >= 0 else -1),
    }


@st.composite
def layers(draw: st.DrawFn) -> list[list[list[Entry]]]:
    """Layers of heads of entries; a place says nothing that the position does not."""
    entries = draw(st.integers(0, 9))
    entry = st.builds(
        lambda source, position, token: (source, position, 1 + position // 3, token),
        st.integers(0, 2),
        st.integers(-1, 8),
        st.integers(0, 2),
    )
    heads = draw(st.integers(1, 3))
    return draw(
        st.lists(
            st.lists(st.lists(entry, min_size=entries, max_size=entries), min_size=heads, max_size=heads),
            min_size=1,
            max_size=4,
        )
    )


def naive(made: list[list[list[Entry]]], head: int | None = None) -> dict[tuple[int, int, int], list[int]]:
    """By how many heads of each layer every token is held."""
    counts: dict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0] * len(made))
    for column, heads in enumerate(made):
        for number, entries in enumerate(heads):
            for source, position, token in {(e[0], e[1], e[3]) for e in entries if e[1] >= 0}:
                if head in (None, number):
                    counts[source, position, token][column] += 1
    return counts


def as_dict(census: Census) -> dict[tuple[int, int, int], list[int]]:
    return {(t.source, t.position, t.token): list(t.held) for t in census}


@given(layers())
def test_it_counts_what_loops_over_sets_count(made: list[list[list[Entry]]]) -> None:
    census = take_census(enumerate(map(layer_of, made)), None, None)
    assert as_dict(census) == naive(made)
    assert len(census) == len(naive(made))
    assert census.slots == sum(len(heads) for heads in made)
    assert [(t.source, t.position) for t in census] == sorted((t.source, t.position) for t in census)
    assert all(t.unit == 1 + t.position // 3 for t in census)
    assert census.nowhere == sum(e[1] < 0 for heads in made for entries in heads for e in entries)


@given(layers(), st.data())
def test_one_layer_and_one_head(made: list[list[list[Entry]]], data: st.DataObject) -> None:
    layer = data.draw(st.integers(0, len(made) - 1))
    head = data.draw(st.integers(0, len(made[0]) - 1))
    chosen = take_census(enumerate(map(layer_of, made)), layer, head)
    assert as_dict(chosen) == naive([made[layer]], head)
    assert (chosen.layers, chosen.heads) == ((layer,), (1,))
    of_all = take_census(enumerate(map(layer_of, made)), None, head)
    assert as_dict(of_all) == {key: counts for key, counts in naive(made, head).items() if any(counts)}


@given(layers(), st.integers(0, 2), st.integers(0, 9), st.integers(0, 9), st.integers(1, 4), st.integers(0, 3))
def test_a_part_is_a_filter(made: Any, source: int, first: int, size: int, unit: int, more: int) -> None:
    census = take_census(enumerate(map(layer_of, made)), None, None)
    part = census.part(source, (first, first + size), (unit, unit + more))
    assert [
        t for t in census if t.source == source and first <= t.position < first + size and unit <= t.unit <= unit + more
    ] == list(part)
    assert list(census.part(source, (0, None), None)) == [t for t in census if t.source == source]


def test_pieces_of_one_character_come_in_the_order_of_reading() -> None:
    whole = [(0, 4, 1, 9), (0, 5, 1, 7), (0, 5, 1, 3), (0, 5, 1, 5)]
    partial = [(0, 1, 1, 1), (0, 2, 1, 1), (0, 5, 1, 3), (0, 5, 1, 5)]
    made = [layer_of([partial, partial]), layer_of([partial, whole])]
    census = take_census(enumerate(made), None, None)
    assert [t.token for t in census if t.position == 5] == [7, 3, 5]


def test_layers_with_a_window_count_only_when_asked_for() -> None:
    full, window = [[(0, p, 1, 1) for p in range(6)]], [[(0, p, 1, 1) for p in range(4, 6)]]
    made = [layer_of(full), layer_of(window)]
    census = take_census(enumerate(made), None, None)
    assert (census.layers, census.windowed, census.slots) == ((0,), (1,), 1)
    assert as_dict(take_census(enumerate(made), 1, None)) == naive([window])


def made_pot(name: str = "llama") -> Pot:
    model = tiny.model(name)
    reader = Reader(model, PotSettings(capacity=64, distilled=24, block=16), [1, 2], [5, 6, 7])
    text = "the cat sat on the mat: 😀 and ₂, naïve\n" * 12
    reader.feed(Encoder(model.tokenizer).batch(text, 0, pack_place(0, 1), lines=True))
    return reader.finish()


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_file_holds_what_the_pot_held(name: str, tmp_path: Path) -> None:
    pot = made_pot(name)
    save_pot(pot, tmp_path / "x.pot", model=tiny.model(name), meta=PotMeta())
    info, census = census_of_file(tmp_path / "x.pot")
    assert info.tokens_read == pot.tokens_read
    assert list(census) == list(census_of_pot(pot))
    expected: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    for index, store in pot.stores.items():
        if store.spec.window is None:
            for head in range(store.spec.kv_heads):
                for slot in range(pot.protected, store.length):
                    key = (int(store.position[head, slot]), int(store.token[head, slot]))
                    expected[key].add((index, head))
    assert {(t.position, t.token): sum(t.held) for t in census} == {key: len(slots) for key, slots in expected.items()}
    assert census.nowhere == pot.protected * census.slots


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    pot = made_pot()
    with pytest.raises(SettingsError, match="layer 9") as error:
        census_of_pot(pot, layer=9)
    assert error.value.hint == "its layers are 0 to 1"
    with pytest.raises(SettingsError, match="KV head 2"):
        census_of_pot(pot, head=2)


@pytest.mark.parametrize("part", ["token", "position", "place"])
def test_a_flipped_bit_is_noticed(part: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pot"
    pot = made_pot()
    save_pot(pot, path, model=tiny.model(), meta=PotMeta())
    data = bytearray(path.read_bytes())
    store = pot.stores[1]
    needle = getattr(store, part)[:, : store.length].contiguous().numpy().tobytes()
    data[data.rfind(needle) + 8] ^= 4  # layers may hold the same tokens: the last one is meant
    path.write_bytes(data)
    with pytest.raises(PotDamaged, match=f"layers.1.{part}"):
        census_of_file(path)


def test_a_pot_of_nothing_but_its_template() -> None:
    model = tiny.model()
    reader = Reader(model, PotSettings(capacity=64, distilled=24, block=16), [1, 2], [5, 6, 7])
    reader.feed(Batch.of(torch.tensor([7, 8, 9]).tolist()))
    census = census_of_pot(reader.finish())
    assert (len(census), list(census), census.sources) == (0, [], [])
    assert census.nowhere == 5 * census.slots
