"""bench analyse: sets compared with sets, readings with readings step by step, global scoring with the stock model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from cli_support import home, invoke  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from engine.analysis import Document, score_globally, trace
from engine.errors import SettingsError
from engine.overlap import (
    Kept,
    frequency,
    highest,
    highest_of,
    highest_total,
    hit_rate,
    mass,
    overlap,
    total,
)
from engine.pot import Batch
from engine.reader import Reader
from engine.settings import PotSettings
from engine.study import Way, study
from infinipot_cli.bench.analyse import beside
from infinipot_cli.bench.results import read_results
from infinipot_cli.local import LocalWorkbench

TEXT = "the cat sat on the mat and the dog on the log; 12345 is the number\n" * 8
QUESTION = "who sat there?"


# --- sets ------------------------------------------------------------------------------------------------------------


@st.composite
def documents(draw: st.DrawFn) -> tuple[int, Kept, Kept, list[np.ndarray]]:
    """(tokens, what is kept, what another keeps, scores), all random."""
    tokens = draw(st.integers(1, 12))
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    score = st.integers(0, 4)  # few values, so that there are ties

    def kept() -> Kept:
        sets = [
            [np.array(sorted(draw(st.sets(st.integers(0, tokens - 1))))).astype(np.int64) for _ in range(heads)]
            for heads in shape
        ]
        return Kept(tuple(range(len(shape))), sets, tokens)

    scores = [
        np.array([[draw(score) for _ in range(tokens)] for _ in range(heads)], dtype=np.float32) for heads in shape
    ]
    return tokens, kept(), kept(), scores


def slots(kept: Kept) -> list[tuple[int, int, set[int]]]:
    return [(row, head, set(found.tolist())) for row, heads in enumerate(kept.sets) for head, found in enumerate(heads)]


def best(values: list[float], count: int) -> set[int]:
    """The numbers of the highest, of equals the earlier, by sorting."""
    return set(sorted(range(len(values)), key=lambda number: (-values[number], number))[:count])


@given(documents())
def test_shares_are_what_sets_say(made: Any) -> None:
    _, kept, other, scores = made
    shared, hits, masses = overlap(kept, other), hit_rate(kept, scores), mass(kept, scores)
    theirs = {(row, head): found for row, head, found in slots(other)}
    for row, head, found in slots(kept):
        values = scores[row][head].tolist()
        size = len(found) or 1
        assert shared[row, head] == pytest.approx(len(found & theirs[row, head]) / size)
        assert hits[row, head] == pytest.approx(len(found & best(values, len(found))) / size)
        assert masses[row, head] == pytest.approx(sum(values[n] for n in found) / (sum(values) or 1))
    assert np.isnan(shared).sum() == shared.size - len(slots(kept))


@given(documents(), st.integers(1, 5))
def test_counts_are_what_loops_say(made: Any, bins: int) -> None:
    tokens, kept, _, scores = made
    counts = frequency(kept, tokens, bins)
    values = scores[0][0]
    sums = total(kept, values)
    for row, head, found in slots(kept):
        assert counts[row, head].tolist() == [sum(n * bins // tokens == part for n in found) for part in range(bins)]
        assert sums[row, head] == pytest.approx(sum(values[n] for n in found))
    assert kept.size == pytest.approx(sum(len(found) for _, _, found in slots(kept)) / len(slots(kept)))


@given(documents(), st.integers(0, 12), st.integers(0, 12))
def test_the_highest_are_the_highest(made: Any, read: int, count: int) -> None:
    _, kept, _, scores = made
    values = scores[0][0]
    assert set(highest(values, count).tolist()) == best(values.tolist(), count)
    wanted = best(values[:read].tolist(), count)
    assert highest_total(values, read, count) == pytest.approx(sum(values[n] for n in wanted))
    chosen = highest_of(scores, kept)
    for (row, head, found), (_, _, all_of_it) in zip(slots(chosen), slots(kept), strict=True):
        assert found == best(scores[row][head].tolist(), len(all_of_it))
    assert (hit_rate(chosen, scores)[~np.isnan(hit_rate(chosen, scores))] <= 1).all()


def test_hits_count_only_what_was_read() -> None:
    kept = Kept((0,), [[np.array([0, 1])]], read=3)
    scores = [np.array([[3.0, 1.0, 2.0, 9.0]])]
    assert hit_rate(kept, scores)[0, 0] == 0.5
    assert hit_rate(Kept((0,), kept.sets, 4), scores)[0, 0] == 0.5
    assert hit_rate(Kept((0,), kept.sets, 2), scores)[0, 0] == 1.0


# --- readings --------------------------------------------------------------------------------------------------------


def document(name: str = "llama", prefix: tuple[int, ...] = (1, 2)) -> Document:
    return Document(tiny.model(name), prefix, [TEXT[:200], TEXT[200:]])


@pytest.mark.parametrize("method", ["infinipot", "cap", "recent"])
@pytest.mark.parametrize("block", [7, 16, 64])
def test_a_trace_is_what_reading_token_by_token_shows(method: str, block: int) -> None:
    made = document()
    settings = PotSettings(capacity=64, distilled=24, block=block, method=method)
    found = trace(made, settings, [5, 6, 7])
    reader = Reader(made.model, settings, made.prefix_ids, [5, 6, 7])
    held: list[list[set[int]]] = []
    for number in range(len(made)):
        reader.feed(Batch(made.ids[number : number + 1], torch.tensor([number]), torch.tensor([0])))
        if reader.pot.cycles > len(held):
            store = reader.pot.stores[1]
            held.append([set(row[2 : 2 + 24].tolist()) for row in store.position])
    pot = reader.finish()
    if pot.cycles > len(held):
        held.append([set(row[2 : 2 + 24].tolist()) for row in pot.stores[1].position])
    assert len(found.cycles) == pot.cycles == len(held) > 3
    for kept, sets in zip(found.cycles, held, strict=True):
        assert [set(tokens.tolist()) for tokens in kept.sets[1]] == sets
        assert all(len(tokens) == 24 for tokens in kept.sets[0])
        assert max(max(tokens) for tokens in sets) < kept.read
    assert [kept.read for kept in found.cycles] == sorted({kept.read for kept in found.cycles})
    store = pot.stores[0]
    assert [set(tokens.tolist()) for tokens in found.final.sets[0]] == [
        set(row[2 : store.length].tolist()) for row in store.position
    ]
    assert found.final.read == len(made)


def test_recent_keeps_the_last_that_were_read() -> None:
    found = trace(document(), PotSettings(capacity=64, distilled=24, block=16, method="recent"), [5, 6, 7])
    for kept in found.cycles:
        assert kept.sets[0][0].tolist() == list(range(kept.read - 24, kept.read))


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@torch.inference_mode()
def test_global_scoring_is_what_the_stock_model_attends_to(name: str) -> None:
    made = document(name)
    suffix = [9, 17, 33, 5]
    found = score_globally(made, suffix)
    module = made.model.module
    before = module.config._attn_implementation
    module.set_attn_implementation("eager")
    try:
        ids = torch.tensor([[1, 2, *made.ids.tolist(), *suffix]])
        logits = module(input_ids=ids).logits[0]
        first = int(logits[-1].argmax())
        ids = torch.cat([ids, torch.tensor([[first]])], dim=1)
        attentions = module(input_ids=ids, output_attentions=True).attentions
    finally:
        module.set_attn_implementation(before)
    assert found.first == first
    for layer, attention in enumerate(attentions):
        expected = attention[0, :, -1, 2 : 2 + len(made)].reshape(2, 2, -1).mean(1)
        np.testing.assert_allclose(found.attention[layer], expected.numpy(), atol=1e-6)
    surprise = torch.nn.functional.cross_entropy(logits[1 : 1 + len(made)], made.ids, reduction="none")
    np.testing.assert_allclose(found.novelty, surprise.numpy(), atol=1e-4)


def test_an_empty_document_is_refused() -> None:
    with pytest.raises(SettingsError, match="no tokens"):
        Document(tiny.model(), [1], [])


def test_a_study_says_what_its_parts_say() -> None:
    made = document()
    settings = PotSettings(capacity=64, distilled=24, block=16, method="cap")
    other = PotSettings(capacity=64, distilled=24, block=16, method="infinipot")
    said: list[str] = []
    found = study(made, [9, 17], [Way("a", settings, [5, 6]), Way("b", other, [5, 6], "a")], 4, said.append)
    assert said == ["global scoring", "a", "b"]
    everything, ours, theirs = score_globally(made, [9, 17]), trace(made, settings, [5, 6]), trace(made, other, [5, 6])
    one, two = found["ways"]
    assert one["hit"] == pytest.approx(np.mean(hit_rate(ours.final, everything.attention)), abs=1e-4)
    assert two["overlap"]["with"] == "a"
    expected = [np.mean(overlap(a, b)) for a, b in zip(theirs.cycles, ours.cycles, strict=True)]
    assert two["overlap"]["cycles"] == pytest.approx(expected, abs=1e-4)
    assert two["overlap"]["read"] == two["read"] == [kept.read for kept in theirs.cycles]
    assert one["overlap"] is None
    assert np.sum(one["frequency"]) == sum(len(tokens) for heads in ours.final.sets for tokens in heads)
    assert np.sum(found["global"]["frequency"]) == np.sum(one["frequency"])
    for kept, share, most in zip(ours.cycles, one["novelty"], one["highest_novelty"], strict=True):
        assert share == pytest.approx(np.mean(total(kept, everything.novelty)), abs=1e-2)
        assert share <= most + 1e-3
    json.dumps(found, allow_nan=False)


def test_layers_with_a_window_are_left_out() -> None:
    found = study(
        document("gemma3"), [9, 17], [Way("a", PotSettings(capacity=64, block=16), [5, 6])], 4, lambda _: None
    )
    assert found["ways"][0]["layers"] == found["global"]["layers"] == [1, 3]


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT * 2)
    return path


def analyse(folder: Path, *arguments: Any, code: int = 0) -> Any:
    flags = ("--model", folder, "--capacity", "192", "--distilled", "32")
    result = invoke("bench", "analyse", *arguments, *flags, bench=LocalWorkbench())
    assert result.code == code, result.stderr
    return result


def test_a_document_and_a_question(folder: Path, book: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    arguments = (book, "--question", QUESTION, "--out", out)
    content = analyse(folder, *arguments, "--json").json
    (record,) = content["studies"]
    names = [way["name"] for way in record["ways"]]
    assert names == ["cap cap-q", "cap cap-g", "recent", "infinipot cap-q", "infinipot cap-g"]
    assert [way["overlap"] and way["overlap"]["with"] for way in record["ways"]] == [
        None,
        None,
        "cap cap-q",
        "cap cap-q",
        "cap cap-g",
    ]
    for way in record["ways"]:
        assert 0 <= way["hit"] <= 1
        assert len(way["read"]) == len(way["hit_cycles"]) > 1
        assert np.array(way["hits"]).shape == (2, 2)
    header, line = read_results(out)
    assert (header["record"], line["tokens"]) == ("run", record["tokens"])
    before = out.read_bytes()
    shown = analyse(folder, *arguments).stdout
    assert out.read_bytes() == before  # not done again
    assert all(name in shown for name in (*names, "global scoring", "by chance"))
    analyse(folder, book, "--question", "another?", "--out", out)
    assert len(read_results(out)) == 3


def test_generated_documents(folder: Path) -> None:
    arguments = (
        "--length",
        "600",
        "--trials",
        "2",
        "--haystack",
        "repeated",
        "--task",
        "passkey",
        "--method",
        "recent,cap",
    )
    content = analyse(folder, *arguments, "--catalyst", "cap-g", "--json").json
    first, second = content["studies"]
    assert [way["name"] for way in first["ways"]] == ["cap cap-g", "recent"]
    assert first["labels"]["trial"] == 0
    assert abs(first["tokens"] - 600) < 30
    assert "pass key" in first["question"]
    assert first["accepted"] != second["accepted"]


def test_a_picture(folder: Path, book: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "x.png"
    analyse(folder, book, "--question", QUESTION, "--plot", target)
    assert target.read_bytes().startswith(b"\x89PNG")


def test_what_it_would_take(folder: Path, book: Path) -> None:
    content = analyse(folder, book, "--question", QUESTION, "--dry-run", "--json").json
    assert content["readings"] == 6
    assert content["tokens"] == 6 * len(tiny.tokenizer().encode(TEXT * 2, add_special_tokens=False))


def test_a_file_of_several_names_is_read_once(folder: Path, book: Path) -> None:
    alone, again = (
        analyse(folder, *names, "--question", QUESTION, "--dry-run", "--json").json["tokens"]
        for names in ((book,), (book.parent, book))
    )
    assert again == alone


def test_settings_of_other_commands_mean_nothing_here(folder: Path, home: Path) -> None:  # noqa: F811
    config = home / "config" / "infinipot" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("length: long\ntask: logs\n")
    content = analyse(folder, "--haystack", "repeated", "--dry-run", "--json").json
    assert content["tokens"] == 6 * 8000


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("book.txt",), 2, "needs a question"),
        (("--question", "who?"), 2, "needs a document"),
        (("nowhere.txt", "--question", "who?"), 3, "no such file"),
        (("--task", "nonsense"), 2, "--task knows no 'nonsense'"),
        (("--method", "full"), 2, "--method knows no 'full'"),
        (("--catalyst", "nonsense"), 2, "no prompt 'nonsense'"),
        (("--length", "x"), 2, "--length"),
    ],
)
def test_what_cannot_be_analysed(
    arguments: tuple[str, ...], code: int, complaint: str, folder: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(book.parent)
    result = analyse(folder, *arguments, code=code)
    assert complaint in result.stderr
    assert result.stdout == ""


def test_no_room_is_found_out_before_anything_is_read(folder: Path, book: Path) -> None:
    arguments = ("--model", folder, "--capacity", "64", "--question", QUESTION)
    result = invoke("bench", "analyse", book, *arguments, bench=LocalWorkbench())
    assert result.code == 2
    assert "capacity 64 is too small" in result.stderr


def test_everything_is_compared_with_cap_of_its_catalyst() -> None:
    names = ["cap cap-q", "cap cap-g", "recent", "infinipot cap-q", "infinipot cap-g"]
    found = [beside(name, names) for name in names]
    assert found == [None, None, "cap cap-q", "cap cap-q", "cap cap-g"]
    assert beside("infinipot cap-q", ["infinipot cap-q", "recent"]) is None
