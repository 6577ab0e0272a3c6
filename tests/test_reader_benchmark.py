"""The reader's evaluation: what is drawn and hidden, what BM25 finds, how answers are counted, and going on."""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_reader
from cli_support import FakePot, FakeSession, FakeWorkbench, Stream
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import reader, reader_parts, reader_report
from benchmarks.choices import pot_settings, settings_of
from benchmarks.explained import explained
from benchmarks.reader_cases import (
    ANSWERABLE,
    BETWEEN,
    UNANSWERABLE,
    Document,
    Hay,
    Item,
    cut,
    draw,
    gold_cases,
    hidden_cases,
    load,
    retrieve,
    retrieved_cases,
    says_nothing,
    without_paragraph,
)
from benchmarks.reader_logs import log_cases, named, right
from benchmarks.reader_parts import Choice, Job, jobs, prose, score
from engine.settings import PotSettings
from infinipot_cli import models, pinned
from infinipot_cli.bench.harness import Case, Outcome, Setup
from infinipot_cli.bench.longbench.rouge import rouge_l
from infinipot_cli.catalog import DEFAULT, PLAIN
from infinipot_cli.errors import UsageError
from infinipot_cli.terminal import Terminal
from training.negatives import NOT_SAID

COUNT = 60
seeds = st.integers(0, 2**20)


def count(text: str) -> int:
    return len(text.split())


def ask(question: str, answer: str, kind: str = "extractive") -> dict[str, Any]:
    return {"question": question, "answer": answer, "accepted": [answer], "kind": kind}


def row(number: int, task: str = "question") -> dict[str, Any]:
    """A prepared document of twenty words or so, in an article with four others."""
    name, city = f"Aldo{number}", f"Port{number}"
    text = f"In {1000 + number} the painter {name} moved to {city}.{BETWEEN}There the rain fell on {city} for days."
    asks = [
        ask(f"Where did {name} move?", city),
        ask(f"When did {name} move?", str(1000 + number)),
        ask(f"Where did Bert{number} move?", NOT_SAID, "near"),
        ask("Who sank the ship?", NOT_SAID, "swapped"),
    ]
    if task == "summary":
        asks = [ask("short-paragraph", f"{name} moved to {city}.", "summary")]
    source = f"set {number % 2}" if task == "question" else "novels"
    return {"source": source, "group": f"g{number // 5}", "task": task, "document": text, "asks": asks}


ROWS = [*map(row, range(COUNT)), *(row(900 + n, "summary") for n in range(3)), row(950, "prose"), row(951, "prose")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in ROWS))
    return path


def documents() -> list[Document]:
    return [
        Document(n, r["source"], r["group"], r["task"], r["document"], tuple(r["asks"])) for n, r in enumerate(ROWS)
    ]


EVERY = documents()


@given(st.integers(1, COUNT), st.sampled_from([ANSWERABLE, UNANSWERABLE, ("near",)]), seeds)
def test_one_question_is_drawn_of_a_document_and_fewer_are_the_first_of_more(wanted, kinds, seed):
    items = draw(EVERY, kinds, wanted, seed)
    assert len({item.document for item in items}) == len(items) == wanted
    assert {item.kind for item in items} <= set(kinds)
    assert items[: wanted // 2] == draw(EVERY, kinds, wanted // 2, seed)


@given(seeds)
def test_a_question_is_drawn_once_though_its_passage_stands_in_several_rows(seed):
    twice = [replace(document, number=n) for n, document in enumerate([*EVERY, *EVERY])]
    items = draw(twice, ANSWERABLE, len(twice), seed)
    assert len({item.id for item in items}) == len(items)
    assert {item.document.text for item in items} == {
        item.document.text for item in draw(EVERY, ANSWERABLE, len(EVERY), 0)
    }


@given(st.integers(60, 500), seeds, st.sampled_from(["extractive", "near", "absent"]))
def test_a_paragraph_is_hidden_once_among_strangers(tokens, seed, kind):
    kinds = ("near",) if kind == "near" else ANSWERABLE
    item = draw(EVERY, kinds, 1, seed)[0]
    item = without_paragraph([item])[0] if kind == "absent" else item
    hay = Hay(EVERY, count, seed)
    parts = hay.around(item, tokens)
    assert parts == Hay(EVERY, count, seed).around(item, tokens)
    assert parts.count(item.document.text) == (kind != "absent")
    assert len(set(parts)) == len(parts)
    size = sum(map(count, parts))
    assert tokens - 20 <= size <= tokens
    strangers = [doc for doc in EVERY if doc.text in parts and doc is not item.document]
    assert len(strangers) == len(parts) - (kind != "absent")
    assert item.document.group not in {doc.group for doc in strangers}
    if kind != "near":
        assert not any(item.accepted[0] in doc.text for doc in strangers)


def test_paragraphs_stand_at_every_depth():
    hay = Hay(EVERY, count, 0)
    depths = []
    for item in draw(EVERY, ANSWERABLE, 40, 0):
        parts = hay.around(item, 400)
        depths.append(parts.index(item.document.text) / (len(parts) - 1))
    assert min(depths) < 0.15
    assert max(depths) > 0.85
    assert 0.35 < statistics.fmean(depths) < 0.65


def test_too_few_paragraphs_are_said():
    item = draw(EVERY, ANSWERABLE, 1, 0)[0]
    with pytest.raises(UsageError, match="too few paragraphs for 50,000 tokens"):
        Hay(EVERY, count, 0).around(item, 50_000)


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_cut_text_is_the_longest_beginning_that_fits(length, budget):
    text = " ".join(str(number) for number in range(length))
    fitting = [" ".join(text.split(" ")[:size]) for size in range(length + 1)]
    assert cut(text, budget, count) == max((part for part in fitting if count(part) <= budget), key=len)


def lucene(paragraphs: Sequence[str], question: str) -> list[float]:
    """BM25 as Lucene computes it, with k1 = 1.5, b = 0.75."""
    texts = [text.lower().replace(".", "").replace("?", "").split() for text in paragraphs]
    mean = statistics.fmean(map(len, texts))
    having = {word: sum(word in text for text in texts) for text in texts for word in text}
    weight = {word: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for word, n in having.items()}

    def one(text: list[str]) -> float:
        found = 0.0
        for word in question.lower().replace("?", "").split():
            often = text.count(word)
            found += weight.get(word, 0.0) * often / (often + 1.5 * (0.25 + 0.75 * len(text) / mean))
        return found

    return [one(text) for text in texts]


WORDS = ["apple", "bear", "cedar", "dune", "eel", "fig", "gull"]
paragraph = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)


@given(st.lists(paragraph, min_size=1, max_size=8), paragraph, st.integers(0, 40))
def test_bm25_fills_the_budget_with_the_best_in_document_order(paragraphs, question, budget):
    scores = lucene(paragraphs, question)
    left, wanted = budget, {}
    for index in sorted(range(len(paragraphs)), key=lambda i: (-round(scores[i], 6), i)):
        words = paragraphs[index].split()
        if left > 0:
            wanted[index] = " ".join(words[:left])
        left -= len(words)
    found = retrieve(paragraphs, question, budget, count)
    close = any(abs(a - b) < 1e-5 for i, a in enumerate(scores) for b in scores[:i])
    assert sum(map(count, found)) == min(budget, sum(map(count, paragraphs)))
    assert close or found == [wanted[index] for index in sorted(wanted)]


def test_what_is_retrieved_comes_from_the_same_document_and_keeps_the_budget():
    items, hay = draw(EVERY, ANSWERABLE, 6, 0), Hay(EVERY, count, 0)
    long, short = hidden_cases(items, hay, [300]), retrieved_cases(items, hay, [300], 60, "bm25 60")
    for item, whole, part in zip(items, long, short, strict=True):
        text = "".join(whole.document())
        assert all(piece.strip() in text for piece in part.document())
        assert sum(map(count, part.document())) <= 60 - count(item.question)
        # Its first words are nowhere else.
        assert item.document.text.split(BETWEEN)[0] in "".join(part.document())


@pytest.mark.parametrize("said", [NOT_SAID, "It doesn't say.", "The text does not mention it", "This is not stated."])
def test_ways_of_saying_nothing(said):
    assert says_nothing(said)


@pytest.mark.parametrize("said", ["", "Port 7", "They say not a word", "Nothing", "He said no"])
def test_answers_that_are_answers(said):
    assert not says_nothing(said)


def outcome(case: str, answer: str, accepted: Sequence[str] = ("Port7",), **labels: Any) -> Outcome:
    given_labels = {"part": "gold", "source": "set", "kind": "extractive", "answerable": 1, **labels}
    return Outcome(case, "alone", answer, 0.0, labels=given_labels, accepted=tuple(accepted))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_precision_and_recall_are_the_counts(kinds):
    some = [outcome(str(i), NOT_SAID if said else "x", answerable=int(known)) for i, (known, said) in enumerate(kinds)]
    right = sum(said and not known for known, said in kinds)
    said, missing = sum(said for _, said in kinds), sum(not known for known, _ in kinds)
    found = reader_report.precision(some), reader_report.recall(some)
    for value, below in zip(found, (said, missing), strict=True):
        assert math.isnan(value) if below == 0 else value == pytest.approx(right / below)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=40))
def test_an_interval_holds_its_value_and_is_the_same_again(values):
    found = reader_report.bootstrap(values, statistics.fmean)
    assert found[1] <= found[0] <= found[2]
    assert found == reader_report.bootstrap(values, statistics.fmean)
    assert found[0] == statistics.fmean(values)


def test_differences_are_of_the_same_questions():
    before = [outcome(str(n), "Port7" if n < 10 else "x") for n in range(40)]
    after = [outcome(str(n), "Port7" if n < 20 else "x") for n in reversed(range(40))]
    measure = reader_report.mean_of(reader_report.contained)
    value, low, high = reader_report.difference(before, after, measure)
    assert value == pytest.approx(0.25)
    # No question was lost, so no resample is below zero: that is what pairing tells.
    assert 0 < low < 0.25 < high
    assert reader_report.difference(before, before, measure) == (0.0, 0.0, 0.0)


def test_perplexity_is_per_token_over_all_passages():
    two = [Outcome("a", "prose", "", 4.0, 2), Outcome("b", "prose", "", 12.0, 6)]
    assert reader_report.perplexity(two) == pytest.approx(math.exp(2.0))


def test_what_is_left_of_gold_is_of_the_same_questions():
    items = draw(EVERY, ANSWERABLE, 4, 0)
    alone, far = gold_cases(items, count), hidden_cases(items[:3], Hay(EVERY, count, 0), [100])
    right, wrong = alone[0].accepted[0], "nothing"
    gold = [outcome(c.id, a, c.accepted) for c, a in zip(alone, (right, alone[1].accepted[0], wrong, "x"), strict=True)]
    hidden = [outcome(c.id, a, c.accepted) for c, a in zip(far, (right, wrong, wrong), strict=True)]
    assert reader_report.share_of_gold(hidden, gold)[0] == pytest.approx(1 / 2)


def case(part: str, accepted: tuple[str, ...], **labels: Any) -> Case:
    return Case("id", list, "?", accepted, {"part": part, "answerable": 1, **labels})


def test_each_part_has_its_own_rule():
    assert score("It is Port7.", case("gold", ("Port7",))) == 1.0
    assert score("Port7", case("gold", (NOT_SAID,), answerable=0)) == 0.0
    assert score("12, not 71", case("needles", ("12",), task="passkey")) == 1.0
    assert score("71, not 12", case("needles", ("12",), task="passkey")) == 0.0
    assert score("That is not mentioned.", case("book", (), answerable=0)) == 1.0
    assert score("a b c", case("summaries", ("a b d",))) == rouge_l("a b c", "a b d") > 0.5


SMALL = Choice(
    questions=6,
    unanswerable=4,
    hidden=3,
    hidden_unanswerable=4,
    lengths=(80, 160),
    capacities=(128,),
    needle_lengths=(300,),
    depths=(0.5,),
    book_ways=("page", "bm25", "pot"),
    book_questions=4,
    book_capacity=512,
    summaries=2,
    prose=2,
    most_tokens=8,
)


def test_all_parts_ask_what_they_say():
    every = list(jobs(SMALL, EVERY, count))
    cases = {part: [c for job in every if job.part == part for c in job.cases] for part in reader_parts.PARTS}
    assert len(cases["gold"]) == 10
    kinds = [c.labels["kind"] for c in cases["hidden"] if c.id.startswith("hidden 80 ")]
    assert sorted(kinds) == ["absent"] * 2 + ["extractive"] * 3 + ["near"] * 2
    assert {c.labels["length"] for c in cases["hidden"]} == {80, 160}
    assert [c.labels["task"] for c in cases["needles"]] == ["passkey", "multikey"]
    assert {c.labels["way"]: c.text for c in cases["book"]} == {"page": None, "bm25": None, "pot": "book"}
    assert len(cases["book"]) == 12
    assert [c.accepted for c in cases["summaries"]] == [c.accepted for c in cases["summaries"] if c.accepted]
    asked = {c.question for c in cases["hidden"] if c.labels["kind"] == "extractive"}
    assert asked < {c.question for c in cases["gold"]}
    missing = {c.question for c in cases["hidden"] if c.labels["kind"] == "absent"}
    assert not missing & {c.question for c in cases["gold"]}
    assert [document.task for document in prose(SMALL, EVERY)] == ["prose", "prose"]
    assert next(job.part for job in jobs(Choice(parts=("book", "gold")), EVERY, count)) == "gold"


def test_chosen_settings_reach_every_pot_and_the_others_are_the_defaults():
    assert pot_settings(argparse.Namespace(capacity=300, set=[])) == PotSettings(capacity=300)
    chosen = replace(SMALL, settings=settings_of(["norm=2", "scope=layer"]), focus=90, book_ways=("pot", "ask"))
    setups = [setup for job in jobs(chosen, EVERY, count) for setup in job.setups if "pot" in setup.name]
    assert {setup.name.split()[0] for setup in setups} == {"pot", "one"}
    for setup in setups:
        assert setup.settings == PotSettings(capacity=setup.settings.capacity, norm=2, scope="layer")
        assert setup.focus == 90
    assert settings_of(["reset=false", "alpha=0.25", "pool=max"]) == {"reset": False, "alpha": 0.25, "pool": "max"}
    with pytest.raises(UsageError, match="no pot setting 'nrom'"):
        settings_of(["nrom=2"])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("no such part", hint="name another"), 2, "error: no such part\nhint: name another\n"),
        (FileNotFoundError(2, "No such file", "x.jsonl"), 1, "error: x.jsonl: "),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_benchmark_ends_with_one_line_and_the_error_s_code(error, code, words, capsys):
    with pytest.raises(SystemExit) as ended, explained():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(words)


def test_tokens_are_counted_as_they_are_read():
    shared = [Case(str(n), list, "?", ("x",), text="book", tokens=1000) for n in range(3)]
    setups = [
        Setup("pot 256", PotSettings(capacity=256)),
        Setup("one pot", PotSettings(capacity=256), "catalyst"),
        Setup("truncate 256", PotSettings(capacity=256, method="truncate")),
    ]
    tokens = [Job("book", None, shared, [setup], 8).tokens() for setup in setups]
    assert tokens == [3000, 1000, 768]


def options(tmp_path: Path, data: Path, **more: Any) -> argparse.Namespace:
    fields = dict(vars(SMALL))
    words = {name: ",".join(map(str, value)) for name, value in fields.items() if isinstance(value, tuple)}
    made = {**fields, **words, "parts": "gold,hidden,needles,book,summaries", "lengths": "80", "book_ways": "pot"}
    made |= {"models": ["plain", "taught"], "data": str(data), "source": [], "device": "auto", "dtype": "auto"}
    made |= {"out": tmp_path / "out.jsonl", "texts": tmp_path / "texts.md", "markdown": False, "dry_run": False}
    made |= {"set": [], "doubt": None}
    return argparse.Namespace(**{**made, **more})


def knows(pot: FakePot) -> list[str]:
    """The answer of a model that knows the first town it reads of."""
    towns = [word.strip(".") for word in pot.text.split() if word.startswith("Port")]
    return [f" {towns[0]}"] if towns else [f" {NOT_SAID}"]


def run(monkeypatch, given_options: argparse.Namespace) -> tuple[str, list[FakeWorkbench]]:
    """(stdout, the models that were opened)."""
    benches: list[FakeWorkbench] = []

    def open_model(terminal: Terminal, name: str, _: argparse.Namespace) -> FakeSession:
        answer = knows if name == "taught" else (lambda pot: [" I", " like", " chatting"])
        benches.append(FakeWorkbench(answer=answer))
        return FakeSession(benches[-1], name)

    monkeypatch.setattr(reader, "open_model", open_model)
    out, err = Stream(), Stream()
    reader.run(Terminal(None, out, err, quiet=1), given_options)
    return out.bytes.decode(), benches


def test_it_measures_both_models_and_goes_on_where_it_was_broken_off(tmp_path, data, monkeypatch):
    chosen = options(tmp_path, data)
    first, benches = run(monkeypatch, chosen)
    for title in ("own document alone", "Hidden among", "does not say", "Needles", "demo book", "Summaries"):
        assert title in first
    assert "plain" in first
    assert "taught" in first
    asked = len(benches[0].asked)
    lines = chosen.out.read_bytes().splitlines(keepends=True)
    assert len([line for line in lines if b'"record": "outcome"' in line]) == 2 * asked
    again, benches = run(monkeypatch, chosen)
    assert again == first
    assert [bench.asked for bench in benches] == [[], []]
    chosen.out.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    again, benches = run(monkeypatch, chosen)
    assert again == first
    assert [len(bench.asked) for bench in benches] == [0, 1]


@pytest.mark.parametrize(("doubt", "wanted"), [(None, DEFAULT.doubt), (0.0, 1.0), (0.3, 0.3)])
def test_doubt_is_as_chosen_else_the_model_s_own(doubt, wanted, tmp_path, data, monkeypatch):
    _, benches = run(monkeypatch, options(tmp_path, data, parts="gold", models=[DEFAULT.alias], doubt=doubt))
    assert {generation.refusal[1] for generation in benches[0].generations} == {wanted}


def test_summaries_are_written_down_to_be_read(tmp_path, data, monkeypatch):
    chosen = options(tmp_path, data, parts="summaries")
    run(monkeypatch, chosen)
    text = chosen.texts.read_text()
    wanted = [c for job in jobs(SMALL, EVERY, count) if job.part == "summaries" for c in job.cases]
    assert len(wanted) == 2
    for each in wanted:
        assert "".join(each.document()) in text
        assert f"**reference**: {each.accepted[0]}" in text
    assert text.count("**plain**: I like chatting") == 2
    assert text.count("**taught**: Port9") == 2


def test_questions_may_be_those_of_one_source(tmp_path, data, monkeypatch):
    _, benches = run(monkeypatch, options(tmp_path, data, parts="gold", source=["set 1"]))
    assert len(benches[0].pots) == 10
    assert all(int(pot.split("Aldo")[1].split()[0]) % 2 for pot in benches[0].pots)
    with pytest.raises(UsageError, match="no source 'set 9'"):
        load(data, ["set 9"])


def test_a_dry_run_opens_no_model(tmp_path, data, monkeypatch):
    out, benches = run(monkeypatch, options(tmp_path, data, dry_run=True, models=["smollm2-135m"]))
    assert benches == []
    assert "smollm2-135m  gold (alone): 10 answers," in out
    assert "in all about" in out
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("content", ["", "{}", "nonsense", '{"source": 1}'])
def test_a_file_that_is_no_prepared_set_is_refused(tmp_path, content):
    (tmp_path / "other.jsonl").write_text(content)
    if content:
        with pytest.raises(UsageError, match="is not a prepared set"):
            load(tmp_path / "other.jsonl")
    with pytest.raises(UsageError, match="there is no"):
        load(tmp_path / "none.jsonl")


def test_the_same_question_is_the_same_case_whatever_else_is_asked():
    chance = random.Random(0)
    few, many = (draw(chance.sample(EVERY, len(EVERY)), ANSWERABLE, COUNT, 0) for _ in range(2))
    ids = {item.id for item in few}
    assert len(ids) == COUNT
    same = Item(EVERY[0], "Where did Aldo0 move?", ("Port0",), "extractive")
    assert same.id == Item(EVERY[0], same.question, ("other",), "extractive").id
    assert same.id != without_paragraph([same])[0].id
    assert len(many) == COUNT


def test_an_adapter_that_is_not_shipped_is_measured_as_what_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("INFINIPOT_CACHE", str(tmp_path / "cache"))
    gguf = tiny_reader.install(tmp_path / "pinned", monkeypatch)
    other = tiny_reader.write(tmp_path / "other.safetensors", gguf, seed=1)
    chosen = argparse.Namespace(device="cpu", dtype="auto")
    terminal = Terminal(None, Stream(), Stream(), quiet=1)
    shipped = pinned.ADAPTERS / "reader.safetensors"
    # An adapter is measured on the plain model that is here.
    models.resolve(PLAIN.alias)
    names = [PLAIN.alias, DEFAULT.alias, str(shipped), str(other)]
    models.resolve(DEFAULT.alias)
    sessions = [reader.open_model(terminal, name, chosen) for name in names]
    plain, merged, by_file, another = (session.identity()["weights"] for session in sessions)
    assert by_file == merged
    assert len({plain, merged, another}) == 3
    assert sessions[3].name == sessions[3].identity()["name"] == f"{PLAIN.alias} + {other}"


FAULTS = ("disk 3 failed", "out of memory")


@pytest.mark.parametrize(
    ("answer", "faults", "lines"),
    [
        ("- 13:06:56 nas: disk 3 failed (many times)\n- 13:07:00 db1: out of memory", 1.0, 1.0),
        ("- 09:00:00 nas: Disk 3 failed.", 0.5, 1.0),
        ("- nas: disk 3 failed\n- nas: disk 4 failed\n\n- nas: all is well", 0.5, 1 / 3),
        ("The text is a log.", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_a_fault_is_listed_where_its_message_stands_in_a_line(answer, faults, lines):
    assert (named(answer, FAULTS), right(answer, FAULTS)) == (faults, lines)


def test_where_all_is_well_that_is_what_has_to_be_said():
    assert named("No errors or warnings.", ("No errors or warnings.",)) == 1
    assert named("- disk 3 failed", ("No errors or warnings.",)) == 0


@given(seeds)
def test_logs_are_made_for_the_benchmark_and_their_own_lists_are_right(seed):
    cases = list(log_cases((5, 40), 3, seed, count))
    assert len({case.id for case in cases}) == 6
    assert [case.id for case in log_cases((40,), 2, seed, count)] == [case.id for case in cases[3:5]]
    for case in cases:
        told = "\n".join(case.accepted)
        assert named(told, case.accepted) == right(told, case.accepted) == 1
        whole = "".join(case.document())
        if case.labels["answerable"]:
            assert named(whole, case.accepted) == 1 > right(whole, case.accepted)
