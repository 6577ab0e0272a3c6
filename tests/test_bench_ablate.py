"""bench ablate: sweeps that differ in one thing, question files, hidden documents, paired intervals, the command."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from cli_support import FakePot, FakeWorkbench, home, invoke  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from engine.settings import PotSettings
from infinipot_cli.bench.ablate import Wanted
from infinipot_cli.bench.ablate_report import clustered, diagram, lines, make_table, paired
from infinipot_cli.bench.curves import Bars, Lines
from infinipot_cli.bench.harness import OUT_OF_MEMORY, Outcome
from infinipot_cli.bench.questions import SAYS_NOT, Ask, Document, hidden, load_questions, make_cases, pick
from infinipot_cli.bench.results import read_results
from infinipot_cli.bench.sweeps import SWEEPS, Base, Row, Sweep, make_sweep, setup_of, setups_of
from infinipot_cli.errors import UsageError
from infinipot_cli.ingest import IngestOptions
from infinipot_cli.local import LocalWorkbench
from infinipot_cli.prompts import load_catalyst

QUESTION = load_catalyst("cap-q", {})
BASE = Base(PotSettings(capacity=2048, method="cap"), QUESTION, {})


def differences(one: PotSettings, other: PotSettings) -> set[str]:
    values = other.to_dict()
    return {name for name, value in one.to_dict().items() if value != values[name]}


# --- sweeps ---


@pytest.mark.parametrize("name", ["distilled", "reduce", "scope", "norm", "pooling", "pool", "decay", "recent"])
def test_a_sweep_of_a_choice_changes_that_choice_alone(name: str) -> None:
    sweep = make_sweep(name, BASE)
    first, *others = [row.setup for row in sweep.rows]
    assert getattr(first.settings, name) == getattr(BASE.settings, name)
    assert all(differences(first.settings, setup.settings) == {name} for setup in others)
    assert len({getattr(row.setup.settings, name) for row in sweep.rows}) == len(sweep.rows) > 1
    assert [row.against for row in sweep.rows] == [None] + [sweep.rows[0].label] * len(others)


def test_decay_needs_a_method_that_carries_novelty() -> None:
    assert {row.setup.settings.method for row in make_sweep("decay", BASE).rows} == {"infinipot"}
    nuc = replace(BASE, settings=replace(BASE.settings, method="nuc"))
    assert {row.setup.settings.method for row in make_sweep("decay", nuc).rows} == {"nuc"}


def test_alpha_is_the_papers_table_3() -> None:
    rows = [(row.setup.settings.method, row.setup.settings.alpha) for row in make_sweep("alpha", BASE).rows]
    assert rows == [("recent", 0.5), *(("infinipot", alpha) for alpha in (0, 0.25, 0.5, 0.75, 1))]


def test_parts_take_away_one_thing_or_all() -> None:
    whole, *others = make_sweep("parts", BASE).rows
    assert whole.setup.settings == replace(BASE.settings, method="infinipot")
    taken = [differences(whole.setup.settings, row.setup.settings) for row in others]
    assert taken == [{"method"}, {"method"}, {"method"}, {"reset"}, {"method", "reset"}]


def test_capacities_keep_the_share_and_meet_truncation() -> None:
    base = replace(BASE, settings=PotSettings(capacity=1024, distilled=256, method="infinipot"))
    sweep = make_sweep("capacity", base)
    assert {row.setup.settings.kept / row.setup.settings.capacity for row in sweep.rows} == {0.25}
    setups = {row.label: row.setup for row in sweep.rows}
    for row in sweep.rows:
        if row.against is not None:
            assert differences(row.setup.settings, setups[row.against].settings) == {"method"}
            assert setups[row.against].settings.method == "truncate"
    assert sum(row.against is None for row in sweep.rows) == len(sweep.rows) / 2


def test_catalysts_are_the_prompts_that_ship() -> None:
    sweep = make_sweep("catalysts", BASE)
    texts = {row.label: row.setup.catalyst for row in sweep.rows}
    assert texts["CaP-G"] == "\n\nSummarize the previous context highlighting the most important parts."
    assert texts["CaP-Q"] is None
    assert set(texts) == {"CaP-G", "CaP-Q", "CaP-P", "CaP-U", "CaP-G1", "CaP-G2"}
    assert len(set(texts.values())) == 6
    assert {row.setup.settings for row in sweep.rows} == {BASE.settings}
    assert "ours" in sweep.note
    with pytest.raises(UsageError, match="no catalyst"):
        make_sweep("catalysts", replace(BASE, settings=replace(BASE.settings, method="recent")))


def test_what_sweeps_share_runs_once() -> None:
    sweeps = [make_sweep(name, BASE) for name in SWEEPS]
    setups = setups_of(sweeps)
    every = [row.setup for sweep in sweeps for row in sweep.rows]
    assert len({setup.name for setup in setups}) == len(setups) < len(every)
    # One name, one thing.
    things = {(setup.settings, setup.catalyst, setup.focus) for setup in setups}
    assert {(setup.settings, setup.catalyst, setup.focus) for setup in every} == things
    assert len(things) == len(setups)


def test_the_focus_changes_the_answer_and_not_the_reading() -> None:
    rows = make_sweep("focus", replace(BASE, settings=PotSettings(capacity=512))).rows
    assert [(row.label, row.setup.focus) for row in rows] == [
        ("all of the pot", 0),
        ("384", 384),
        ("256", 256),
        ("128", 128),
    ]
    assert {row.setup.settings for row in rows} == {PotSettings(capacity=512)}


@given(st.sampled_from(sorted(SWEEPS)), st.integers(16, 4096), st.sampled_from(["infinipot", "cap"]))
def test_any_base_makes_valid_sweeps(name: str, capacity: int, method: str) -> None:
    sweep = make_sweep(name, replace(BASE, settings=PotSettings(capacity=capacity, method=method)))
    labels = [row.label for row in sweep.rows]
    assert len(set(labels)) == len(labels) >= 1
    assert all(row.against is None or row.against in labels for row in sweep.rows)


# --- question files ---


def load(path: Path, text: str, document: Path | None = None) -> Any:
    path.write_text(text, encoding="utf-8")
    return load_questions(path, document, IngestOptions())


def test_json_lines_of_every_form(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("Ann met Bob.\n", encoding="utf-8")
    rows: list[dict[str, Any]] = [
        {"document": "Red.", "question": "Which?", "accepted": "red", "kind": "colour", "page": 3},
        {"context": "Blue.", "title": "colours", "question": "And?", "answers": ["blue", "azure"]},
        {
            "document": "Two.",
            "asks": [{"question": "a?", "accepted": ["1"], "kind": "x"}, {"question": "b?", "accepted": [2]}],
        },
        {"file": "book.txt", "question": "Who?", "accepted": ["Bob"]},
        {"document": "Red.", "question": "Where?", "answers": [], "answerable": False},
        {"document": "Red.", "question": "When?", "accepted": 1820},
        {"document": "Prose to hide in.", "task": "prose", "asks": []},
        {"context": "More of it.", "task": "prose"},
        {"document": "", "task": "chat", "asks": [{"question": "hello?", "accepted": ["hi"]}]},
    ]
    found = load(tmp_path / "q.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    assert [(ask.question, ask.accepted, ask.kind) for ask in found.asks] == [
        ("Which?", ("red",), "colour"),
        ("And?", ("blue", "azure"), ""),
        ("a?", ("1",), "x"),
        ("b?", ("2",), ""),
        ("Who?", ("Bob",), ""),
        ("Where?", SAYS_NOT, ""),
        ("When?", ("1820",), ""),
    ]
    assert [ask.answerable for ask in found.asks] == [True] * 5 + [False, True]
    texts = ["".join(document.pieces) for document in found.documents]
    assert texts == ["Red.", "Blue.", "Two.", "Ann met Bob.\n", "Prose to hide in.", "More of it."]
    assert found.asks[0].document is found.asks[5].document
    assert found.asks[1].document.group == "colours"


def test_the_demo_books_questions() -> None:
    examples = Path(__file__).parent.parent / "examples"
    book = examples / "the-weight-of-albert-noon.pdf"
    found = load_questions(examples / "questions.yaml", book, IngestOptions())
    assert len(found.asks) == 40
    assert len(found.documents) == 1
    assert found.asks[0].accepted[1] == "£140"
    assert found.asks[-1].accepted == SAYS_NOT
    assert "Garside" in "".join(found.documents[0].pieces)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("q.jsonl", "", "no questions"),
        ("q.jsonl", "{}", ":1 has no document"),
        ("q.jsonl", '{"document": "a", "question": "b", "accepted": "c"}\n{"document"', ":2 is no JSON"),
        ("q.jsonl", "[1]", ":1 is no mapping"),
        ("q.jsonl", '{"document": "a"}', ":1 has no question"),
        ("q.jsonl", '{"document": "a", "question": "b"}', "no accepted answers"),
        ("q.jsonl", '{"document": "a", "question": "b", "accepted": [" "]}', "no accepted answers"),
        ("q.jsonl", '{"document": "a", "asks": 3}', "list of questions"),
        ("q.yaml", "a: 1", "no list"),
        ("q.yaml", "- [", "no YAML"),
        ("q.yaml", "- {question: a, answers: [b]}", "question 1 has no document"),
    ],
)
def test_what_is_no_question_file(name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        load(tmp_path / name, text)


def make_asks(counts: Sequence[int]) -> list[Ask]:
    documents = [Document(f"d{i}", f"d{i}", ("text",)) for i in range(len(counts))]
    return [Ask(d, f"{d.name} {n}", ("x",), "odd" if n % 2 else "even") for d, c in zip(documents, counts, strict=True)
            for n in range(c)]  # fmt: skip


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 30), st.integers(0, 9))
def test_picked_questions_spread_over_the_documents(counts: list[int], wanted: int, seed: int) -> None:
    asks = make_asks(counts)
    picked = pick(asks, wanted, [], seed)
    assert len(picked) == min(wanted, len(asks))
    assert len({ask.question for ask in picked}) == len(picked)
    assert picked == pick(asks, wanted, [], seed)
    names = [ask.document.name for ask in picked]
    taken = {name: names.count(name) for name in names}
    # As evenly as the documents' own questions allow: one has more only if the others have no more to give.
    most = max(taken.values())
    for number, count in enumerate(counts):
        assert taken.get(f"d{number}", 0) >= min(count, most - 1)
    runs = 1 + sum(one != other for one, other in itertools.pairwise(names))
    assert runs == len(taken)  # those of a document stand together


def test_kinds_pick_and_complain() -> None:
    asks = make_asks([3, 1])
    assert [ask.question for ask in pick(asks, None, ["odd"], 0)] == ["d0 1"]
    with pytest.raises(UsageError, match="kind") as caught:
        pick(asks, None, ["strange"], 0)
    assert caught.value.hint == "kinds in the file: even, odd"


def test_a_case_is_known_by_the_documents_that_it_is_hidden_among() -> None:
    documents = [Document(f"d{number}", f"d{number}", ("text",)) for number in range(3)]

    def name(among: Sequence[Document], fill: int | None) -> str:
        return make_cases([Ask(documents[0], "Who?", ("x",), "")], among, fill, words, 8, 0)[0].id

    assert name(documents[:2], 100) != name(documents, 100) == name(documents[::-1], 100)
    assert name(documents[:2], None) == name(documents, None)


@pytest.mark.parametrize("score", ["contained", "f1", "exact"])
def test_where_the_document_does_not_say_only_saying_so_counts(score: str) -> None:
    wanted = Wanted((), None, None, (), None, None, score, None)
    document = Document("d", "d", ("text",))
    asks = [Ask(document, "Who?", SAYS_NOT, "", answerable=False), Ask(document, "When?", ("in May",), "")]
    missing, there = make_cases(asks, [document], None, words, 8, 0)
    assert wanted.scorer("The document does not say.", missing) == 1
    assert wanted.scorer("He did not.", missing) == 0
    assert wanted.scorer("In May", there) == 1


def test_parts_capacities_and_shares_are_told_apart_by_what_pots_keep_alone() -> None:
    for name in ("parts", "capacity", "alpha"):
        assert {row.setup.focus for row in make_sweep(name, BASE).rows} == {0}
    assert {row.setup.focus for row in make_sweep("pooling", BASE).rows} == {None}


def words(text: str) -> int:
    return len(text.split())


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 25), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 400),
    st.integers(0, 5),
)
def test_a_hidden_document_is_whole_among_others(
    own: list[int], others: list[tuple[int, bool]], tokens: int, seed: int
) -> None:
    paragraphs = [f"own{number} " + "w " * size for number, size in enumerate(own)]
    document = Document("d", "group", ("\n\n".join(paragraphs),))
    strangers = [
        Document(f"o{n}", "group" if same else f"g{n}", (f"{'same' if same else 'other'}{n} " + "w " * size,))
        for n, (size, same) in enumerate(others)
    ]
    documents = [document, *strangers]
    if all(same for _, same in others):
        with pytest.raises(UsageError, match="--fill"):
            list(hidden(document, documents, tokens, words, seed))
        return
    pieces = list(hidden(document, documents, tokens, words, seed))
    assert pieces == list(hidden(document, documents, tokens, words, seed))
    assert [piece.strip() for piece in pieces if piece.startswith("own")] == [part.strip() for part in paragraphs]
    assert not any(piece.startswith("same") for piece in pieces)
    size = sum(words(piece) + 1 for piece in pieces)
    alone = sum(words(part) + 1 for part in paragraphs)
    assert size == alone if size > tokens else size >= alone
    # No gap is left that the smallest paragraph would have filled, unless too many larger ones were tried.
    smallest = min(count for count, same in others if not same) + 2
    assert len(others) > 1 or tokens - size < smallest or size == alone


def test_paragraphs_come_twice_only_when_all_came_once() -> None:
    document = Document("d", "d", ("own",))
    others = [Document(f"o{n}", f"o{n}", (f"other{n} and words",)) for n in range(5)]
    pieces = [p.strip() for p in hidden(document, [document, *others], 1 + 1 + 4 * 12, words, 0) if "own" not in p]
    assert len(pieces) == 12
    assert {pieces.count(piece) for piece in pieces} == {2, 3}


def test_places_are_drawn_anew_for_every_seed() -> None:
    document = Document("d", "d", ("own",))
    others = [Document(f"o{n}", f"o{n}", (f"other{n} and words",)) for n in range(40)]
    places = {
        [piece.strip() for piece in hidden(document, [document, *others], 120, words, seed)].index("own")
        for seed in range(30)
    }
    assert len(places) > 10
    assert max(places) > 20 > 10 > min(places)


# --- intervals ---


def outcome(case: str, score: float, setup: str = "a", **labels: Any) -> Outcome:
    return Outcome(case, setup, "", score, labels={"task": "questions"} | labels)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12), st.integers(0, 3))
def test_a_paired_interval_is_the_naive_bootstraps(scores: list[tuple[float, float]], seed: int) -> None:
    one = [outcome(f"c{n}", a) for n, (a, _) in enumerate(scores)]
    other = [outcome(f"c{n}", b, "b") for n, (_, b) in enumerate(scores)]
    found = paired(one, [*other[::-1], outcome("elsewhere", 1.0)], seed)
    chance = random.Random(seed)
    means = []
    for _ in range(1000):
        drawn = chance.choices(scores, k=len(scores))
        means.append(sum(a - b for a, b in drawn) / len(drawn))
    means.sort()
    assert found.mean == pytest.approx(statistics.fmean(a - b for a, b in scores), abs=1e-12)
    assert (found.low, found.high) == (pytest.approx(means[25], abs=1e-12), pytest.approx(means[975], abs=1e-12))
    assert found.count == len(scores)


def test_questions_about_one_document_are_drawn_together() -> None:
    alone = clustered([(f"d{n}", float(n % 2)) for n in range(40)])
    together = clustered([(f"d{n // 10}", float(n // 10 % 2)) for n in range(40)])
    assert alone.mean == together.mean == 0.5
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_a_pair_shares_its_luck() -> None:
    """Hard and easy cases widen each score's interval, not that of a difference which is the same for all."""
    hard = [outcome(f"c{n}", n % 2 * 0.5) for n in range(40)]
    better = [outcome(f"c{n}", n % 2 * 0.5 + 0.25, "b") for n in range(40)]
    difference, score = paired(better, hard), clustered([(o.case, o.score) for o in better])
    assert (difference.low, difference.high) == (0.25, 0.25)
    assert score.high - score.low > 0.1


def sweep_of(*methods: str, name: str = "parts") -> Sweep:
    rows = [Row(method, setup_of(replace(BASE.settings, method=method), QUESTION), None) for method in methods]
    return Sweep(name, "Parts", [rows[0], *(Row(row.label, row.setup, rows[0].label) for row in rows[1:])], "a note")


def test_lines_and_table() -> None:
    sweep = sweep_of("cap", "nuc", "full")
    cap, nuc, full = (row.setup.name for row in sweep.rows)
    outcomes = [outcome("c1", 1.0, cap), outcome("c1", 0.0, nuc), outcome("c1", 1.0, full)]
    outcomes += [outcome("c2", 0.0, cap, task="passkey"), outcome("c2", 0.0, nuc, task="passkey")]
    outcomes += [Outcome("c2", full, "", 0.0, labels={"task": "passkey"}, error=OUT_OF_MEMORY)]
    found = {line.label: line for line in lines(sweep, outcomes)}
    assert found["cap"].difference is None
    assert found["cap"].tasks == {"questions": 1.0, "passkey": 0.0}
    assert found["nuc"].difference is not None
    assert found["nuc"].difference.mean == -0.5
    assert found["full"].score is None
    table = make_table(sweep, outcomes, "a model")
    assert table.columns[1:] == ["questions", "passkey", "score [95 %]", "against cap [95 %]"]
    assert [row[:3] for row in table.rows] == [("cap", "100.0", "0.0"), ("nuc", "0.0", "0.0"), ("full", "–", "–")]
    assert table.rows[1][4].startswith("-50.0 [-100.0, ")
    assert table.rows[2][3] == "OOM"
    assert table.notes[-1] == "a note"


def test_capacity_is_drawn_as_lines_and_all_else_as_bars() -> None:
    sweep = make_sweep("capacity", BASE)
    outcomes = [outcome("c", 0.5, row.setup.name) for row in sweep.rows]
    drawn = diagram(sweep, outcomes)
    assert isinstance(drawn, Lines)
    assert {name: [point.x for point in points] for name, points in drawn.lines.items()} == {
        method: [512, 1024, 2048, 4096, 8192] for method in ("truncate", "cap")
    }
    bars = diagram(sweep_of("cap", "nuc"), [outcome("c", 0.5, row.setup.name) for row in sweep_of("cap", "nuc").rows])
    assert isinstance(bars, Bars)
    assert [(name, point.y) for name, point in bars.rows] == [("cap", 50.0), ("nuc", 50.0)]


# --- the command ---


def knows(pot: FakePot) -> Sequence[str]:
    """Answers what the document says, but for one method that never does."""
    return ("nothing",) if pot.settings.method == "recent" else ("The colour is red.",)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    colours = ["red", "blue", "red", "green", "red", "red"]
    rows = [
        {"document": f"Number {n} is {colour}.\n\nSo it is.", "question": f"Which colour is {n}?", "accepted": [colour]}
        for n, colour in enumerate(colours)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def ablate(*flags: Any, workbench: FakeWorkbench | None = None) -> Any:
    return invoke("bench", "ablate", "--capacity", "512", *flags, bench=workbench or FakeWorkbench(answer=knows))


def test_every_setup_answers_every_question(questions: Path, tmp_path: Path) -> None:
    workbench, out = FakeWorkbench(answer=knows), tmp_path / "out.jsonl"
    flags = ("--sweep", "alpha,parts", "--questions", questions, "--out", out)
    result = ablate(*flags, "--json", workbench=workbench)
    assert result.code == 0, result.stderr
    alpha, parts = result.json["sweeps"]
    first = alpha["rows"][0]
    assert first["label"] == "without CaP, NuC"
    assert (first["score"]["mean"], first["difference"]) == (0.0, None)
    assert {row["score"]["mean"] for row in alpha["rows"][1:]} == {round(4 / 6, 4)}
    assert {row["difference"]["mean"] for row in alpha["rows"][1:]} == {round(4 / 6, 4)}
    assert parts["rows"][3]["difference"]["mean"] == round(-4 / 6, 4)
    # Six rows and six, of which two are the same: (infinipot, alpha 50 %) and recent.
    assert len(workbench.readings) == 10 * 6
    methods = [reading.pot.settings.method for reading in workbench.readings]
    assert methods[:10] == methods[10:20]
    again = FakeWorkbench(answer=knows)
    assert ablate(*flags, workbench=again).code == 0
    assert not again.readings
    assert len(read_results(out)) == 1 + 60


def test_hidden_documents_hold_the_document(questions: Path) -> None:
    workbench = FakeWorkbench(answer=knows)
    result = ablate("--sweep", "parts", "--questions", questions, "--limit", 3, "--fill", 60, workbench=workbench)
    assert result.code == 0, result.stderr
    texts = {reading.pot.text for reading in workbench.readings}
    assert len(texts) == 3  # one text for each question, whatever the setup
    for text in texts:
        assert 40 <= len(text.split()) <= 60
    asked = {text.split("Which colour is ")[1][0] for text in workbench.asked}
    held = [{n for n in "012345" if f"Number {n} is" in text} for text in texts]
    assert all(any(number in numbers for numbers in held) for number in asked)


def test_needles_and_questions_together(questions: Path) -> None:
    flags = ("--sweep", "parts", "--questions", questions, "--task", "passkey", "--lengths", 300, "--trials", 2)
    result = ablate(*flags, "--depths", "0.5", "--markdown")
    assert result.code == 0, result.stderr
    assert "questions | passkey" in result.stdout
    assert "8 cases under every setup" in result.stdout


def test_rows_that_have_no_room_are_left_out_and_said(questions: Path) -> None:
    workbench = FakeWorkbench(answer=knows)
    flags = ("--sweep", "distilled", "--questions", questions, "--limit", 1)
    result = invoke("bench", "ablate", "--capacity", "64", *flags, bench=workbench)
    assert result.code == 0, result.stderr
    assert "left out" in result.stderr
    assert "56 (87.5 % of |M|)" in result.stderr
    assert "48 (75.0 % of |M|)" in result.stdout or "40 (62.5 % of |M|)" in result.stdout


def test_a_picture(questions: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "a.png"
    flags = ("--sweep", "capacity,reduce", "--questions", questions, "--limit", 1, "--plot", plot)
    assert ablate(*flags).code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ((), 2, "nothing to ask"),
        (("--task", "passkey", "--sweep", "magic"), 2, "magic"),
        (("--task", "passkey", "--sweep", "all,alpha"), 2, "stands alone"),
        (("--task", "magic"), 2, "magic"),
        (("--questions", "nowhere.jsonl"), 3, "nowhere.jsonl"),
        (("--task", "passkey", "--score", "bleu"), 2, "--score"),
        (("--task", "passkey", "--method", "cap,nuc"), 2, "method"),
        (("--task", "passkey", "--sweep", "catalysts", "--method", "tova"), 2, "no catalyst"),
    ],
)
def test_wrong_wishes(flags: tuple[str, ...], code: int, said: str) -> None:
    workbench = FakeWorkbench()
    result = ablate(*flags, workbench=workbench)
    assert (result.code, result.stdout) == (code, "")
    assert said in result.stderr
    assert not workbench.loaded


def test_dry_run_counts_and_loads_nothing(questions: Path) -> None:
    workbench = FakeWorkbench()
    flags = ("--sweep", "parts", "--questions", questions, "--fill", "1k", "--limit", 2, "--dry-run", "--json")
    content = ablate(*flags, workbench=workbench).json
    assert (content["outcomes"], content["tokens"]) == (12, 12_000)
    assert not workbench.loaded


def test_a_real_model(questions: Path, tmp_path: Path) -> None:
    folder = tiny.saved(tmp_path / "tiny")
    flags = ("--model", folder, "--device", "cpu", "--capacity", 200, "--sweep", "parts", "--json")
    flags += ("--questions", questions, "--limit", 2, "--fill", 500)
    result = invoke("bench", "ablate", *flags, bench=LocalWorkbench())  # type: ignore[arg-type]
    assert result.code == 0, result.stderr
    outcomes = result.json["outcomes"]
    assert len(outcomes) == 12
    assert all(450 <= outcome["tokens"] <= 510 for outcome in outcomes)
    assert all(outcome["cycles"] > 2 for outcome in outcomes)
    assert len({outcome["case"] for outcome in outcomes}) == 2
