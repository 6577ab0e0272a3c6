"""The benchmark harness: what is asked, in which order, what is kept, and how a broken run goes on."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_support import FakeWorkbench, home, invoke  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InfinipotError, SettingsError
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.bench import harness, results
from infinipot_cli.bench.harness import Case, Outcome, Setup, run_all
from infinipot_cli.bench.options import parse_length, parse_lengths, parse_list, parse_shares, show_length
from infinipot_cli.bench.results import read_results
from infinipot_cli.bench.running import readings_of
from infinipot_cli.bench.scoring import all_parts, contains, exact, first_number, interval, token_f1
from infinipot_cli.bench.table import Table, as_markdown, as_text, cell
from infinipot_cli.errors import UsageError
from infinipot_cli.options import ModelOptions
from infinipot_cli.prompts import load_task

TASK = load_task("question", {})
GENERAL = "Summarize it."
SETUPS = (Setup("a", PotSettings(capacity=256)), Setup("b", PotSettings(capacity=256, method="recent")))
WORDS = ["alpha", "beta", "gamma", "delta"]


def make_cases(count: int, text: str | None = None) -> list[Case]:
    def document(number: int) -> Callable[[], list[str]]:
        word = WORDS[number % len(WORDS)]
        return lambda: [f"The word is {word}. ", "That is all."]

    return [
        Case(f"c{i}", document(i), f"Which word is number {i}?", (WORDS[i % len(WORDS)],), {"n": i}, text)
        for i in range(count)
    ]


def echo(pot: Any) -> tuple[str, ...]:
    """Answers with the word of the document, and makes one mistake in three."""
    return (next(word for word in WORDS if word in pot.text) if len(pot.text) % 3 else "omega",)


def go(
    cases: list[Case],
    setups: Any = SETUPS,
    out: Path | None = None,
    workbench: FakeWorkbench | None = None,
    **more: Any,
) -> list[Outcome]:
    workbench = workbench or FakeWorkbench(answer=echo)
    session = workbench.load(ModelOptions(model=more.pop("model", "fake")), print)
    options = {"bench": "test", "task": TASK, "generation": GenerationSettings(max_new_tokens=9)} | more
    return run_all(session, cases, setups, out, scorer=lambda answer, case: all_parts(answer, case.accepted), **options)


def plain(outcomes: list[Outcome]) -> list[Any]:
    """Outcomes without what may differ from run to run."""
    return [json.loads(json.dumps(replace(outcome, seconds={}, run="").to_dict())) for outcome in outcomes]


def lines(path: Path, record: str = "outcome") -> list[dict[str, Any]]:
    return [found for found in read_results(path) if found["record"] == record]


def test_it_asks_distils_and_frames_as_ask_does(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("The word is alpha. That is all.")
    asked, measured = FakeWorkbench(), FakeWorkbench()
    assert invoke("ask", file, "Which word is number 0?", "--capacity", "256", bench=asked).code == 0
    go(make_cases(1), SETUPS[:1], workbench=measured)
    assert measured.asked == asked.asked
    assert measured.catalysts == asked.catalysts
    assert measured.pots == asked.pots


def test_a_literal_catalyst_replaces_the_question_in_distilling_only() -> None:
    bench = FakeWorkbench()
    go(make_cases(1), [Setup("g", PotSettings(capacity=256), GENERAL)], workbench=bench)
    assert bench.catalysts == [f"{GENERAL} <answer>"]
    assert "Which word is number 0?" in bench.asked[0]


def test_every_setup_has_its_turn_before_the_next_case() -> None:
    outcomes = go(make_cases(3))
    assert [(one.case, one.setup) for one in outcomes] == [(f"c{i}", name) for i in range(3) for name in "ab"]
    assert {one.score for one in outcomes} == {0.0, 1.0}
    assert all(one.tokens == 7 and one.labels == {"n": int(one.case[1:])} for one in outcomes)


@pytest.mark.parametrize(("catalyst", "readings"), [(None, 4), (GENERAL, 1)])
def test_a_shared_document_is_read_once_where_the_question_does_not_distil_it(
    catalyst: str | None, readings: int
) -> None:
    bench = FakeWorkbench(answer=echo)
    cases = [replace(case, document=lambda: ["The word is alpha."]) for case in make_cases(4, text="one")]
    outcomes = go(cases, [Setup("s", PotSettings(capacity=256), catalyst)], workbench=bench)
    assert len(bench.readings) == readings
    assert len(outcomes) == len(bench.asked) == 4
    assert len(set(bench.asked)) == 4


def test_a_shared_pot_is_for_one_document_and_one_setup_only() -> None:
    bench = FakeWorkbench(answer=echo)
    cases = [*make_cases(2, "one"), *(replace(case, id=f"x{case.id}") for case in make_cases(2, "two"))]
    setups = [replace(setup, catalyst=GENERAL) for setup in SETUPS]
    go(cases, setups, workbench=bench)
    assert len(bench.readings) == 4


def test_setups_that_differ_in_focus_alone_share_a_pot() -> None:
    bench = FakeWorkbench(answer=echo)
    small = PotSettings(capacity=256)
    setups = [Setup(str(focus), small, focus=focus) for focus in (0, 64, 32)] + [Setup("other", PotSettings())]
    cases = make_cases(2)
    outcomes = go(cases, setups, workbench=bench)
    assert len(bench.readings) == len(readings_of(cases, setups)) == 4
    assert [made.focus for made in bench.generations] == [None, 64, 32, None] * 2
    assert {one.tokens for one in outcomes} == {7}


def test_each_outcome_is_on_disk_before_the_next_begins(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    seen: list[int] = []
    bench = FakeWorkbench(answer=lambda pot: (seen.append(len(lines(out)) if out.exists() else 0), ("x",))[1])
    go(make_cases(3), out=out, workbench=bench)
    assert seen == [0, 1, 2, 3, 4, 5]


def test_the_header_says_what_the_run_was(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    go(make_cases(2), out=out, seed=7, about={"data": "x"})
    (header,) = lines(out, "run")
    assert header["bench"] == "test"
    assert header["seed"] == 7
    assert header["model"]["identity"]["weights"] == "weights of fake"
    assert [setup["settings"]["method"] for setup in header["setups"]] == ["cap", "recent"]
    assert header["version"]
    assert header["machine"]["processors"] >= 1
    assert all(line["run"] == header["run"] for line in lines(out))


@given(st.data())
def test_a_run_cut_off_anywhere_goes_on_to_the_same_results(tmp_path_factory: Any, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("cut")
    cases, setups = make_cases(3, data.draw(st.sampled_from([None, "one"]))), list(SETUPS)
    whole, cut = folder / "whole.jsonl", folder / "cut.jsonl"
    expected = go(cases, setups, whole)
    content = whole.read_bytes()
    cut.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    bench = FakeWorkbench(answer=echo)
    before = len(lines(cut))
    assert plain(go(cases, setups, cut, bench)) == plain(expected)
    assert len(bench.asked) == len(expected) - before
    assert [line["key"] for line in lines(cut)] == [line["key"] for line in lines(whole)]
    assert len(lines(cut, "run")) == 1


def test_ctrl_c_leaves_whole_lines_and_the_next_run_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    answers = 0

    def break_off(piece: str) -> None:
        nonlocal answers
        answers += 1
        if answers == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(make_cases(3), out=out, workbench=FakeWorkbench(answer=echo, on_token=break_off))
    assert out.read_bytes().endswith(b"\n")
    assert len(lines(out)) == 3
    again = FakeWorkbench(answer=echo)
    assert plain(go(make_cases(3), out=out, workbench=again)) == plain(go(make_cases(3)))
    assert len(again.asked) == 3


class Told(harness.Unwatched):
    def __init__(self) -> None:
        self.started: tuple[int, int, int] | None = None

    def start(self, total: int, known: int, others: int) -> None:
        self.started = (total, known, others)


WORDED = replace(TASK, after=("\n", "?"))
CHANGES: dict[str, dict[str, Any]] = {
    "settings": {"setups": [replace(setup, settings=replace(setup.settings, pooling=1)) for setup in SETUPS]},
    "catalyst": {"setups": [replace(setup, catalyst=GENERAL) for setup in SETUPS]},
    "focus": {"setups": [replace(setup, focus=9) for setup in SETUPS]},
    "model": {"model": "another"},
    "wording": {"task": WORDED},
    "length of the answer": {"generation": GenerationSettings(max_new_tokens=8)},
    "seed": {"seed": 1},
    "benchmark": {"bench": "other"},
    "data": {"about": {"data": "other"}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_results_of_anything_else_are_left_alone_and_counted(tmp_path: Path, change: dict[str, Any]) -> None:
    out, told, bench = tmp_path / "out.jsonl", Told(), FakeWorkbench(answer=echo)
    go(make_cases(2), out=out)
    first = out.read_bytes()
    outcomes = go(make_cases(2), out=out, workbench=bench, watch=told, **change)
    assert told.started == (4, 0, 4)
    assert len(bench.asked) == 4
    assert len(outcomes) == 4
    assert out.read_bytes().startswith(first)
    assert len(lines(out, "run")) == 2


def test_the_setup_decides_on_the_focus_before_the_run_and_the_run_before_the_task() -> None:
    setups = [Setup("task", PotSettings(capacity=256)), Setup("all", PotSettings(capacity=256), focus=0)]
    for generation, wanted in ((GenerationSettings(8), [5, None]), (GenerationSettings(8, focus=7), [7, None])):
        bench = FakeWorkbench(answer=echo)
        go(make_cases(1), setups, workbench=bench, task=replace(TASK, focus=5), generation=generation)
        assert [written.focus for written in bench.generations] == wanted


def test_results_of_another_version_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, told = tmp_path / "out.jsonl", Told()
    go(make_cases(2), out=out)
    monkeypatch.setattr(results, "version", lambda: "another")
    go(make_cases(2), out=out, watch=told)
    assert told.started == (4, 0, 4)


def test_more_cases_take_what_is_there_and_add_the_rest(tmp_path: Path) -> None:
    out, told, bench = tmp_path / "out.jsonl", Told(), FakeWorkbench(answer=echo)
    go(make_cases(2), out=out)
    go(make_cases(5), out=out, workbench=bench, watch=told)
    assert told.started == (10, 4, 0)
    assert len(bench.asked) == 6


@given(st.binary(min_size=1, max_size=200).filter(lambda content: content[:1] != b"{"))
def test_a_file_of_something_else_is_not_touched(tmp_path_factory: Any, content: bytes) -> None:
    out = tmp_path_factory.mktemp("other") / "notes.txt"
    out.write_bytes(content)
    with pytest.raises(UsageError, match="no line of benchmark results"):
        go(make_cases(1), out=out)
    assert out.read_bytes() == content


def test_damage_before_the_last_line_is_refused_and_left(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    go(make_cases(2), out=out)
    damaged = out.read_bytes().replace(b'"score": ', b'"score" ', 1)
    out.write_bytes(damaged)
    with pytest.raises(UsageError, match=r"out\.jsonl:2 "):
        go(make_cases(2), out=out)
    assert out.read_bytes() == damaged


def test_running_out_of_memory_is_an_outcome_and_other_errors_are_errors(tmp_path: Path) -> None:
    def fail(pot: Any) -> tuple[str, ...]:
        if "beta" in pot.text:
            raise MemoryError
        return ("alpha",)

    out = tmp_path / "out.jsonl"
    outcomes = go(make_cases(2), SETUPS[:1], out, FakeWorkbench(answer=fail))
    assert [outcome.error for outcome in outcomes] == [None, "out of memory"]
    assert lines(out)[1]["error"] == "out of memory"
    assert cell(outcomes) == "OOM"
    again = FakeWorkbench(answer=echo)
    assert [outcome.error for outcome in go(make_cases(2), SETUPS[:1], out, again)] == [None, None]
    assert len(again.asked) == 1  # what was too much then is tried again, and nothing else
    with pytest.raises(ZeroDivisionError):
        go(make_cases(1), workbench=FakeWorkbench(answer=lambda pot: (str(1 // 0),)))


def test_a_document_that_memory_does_not_hold_is_read_once() -> None:
    tried: list[str] = []

    def document() -> list[str]:
        tried.append("read")
        raise MemoryError

    (outcome,) = go([replace(make_cases(1)[0], document=document)], SETUPS[:1])
    assert (outcome.error, tried) == ("out of memory", ["read"])


def test_an_answer_that_cannot_fit_is_refused_before_anything_is_read() -> None:
    bench = FakeWorkbench()
    with pytest.raises(SettingsError, match="question and answer need"):
        go(make_cases(1), workbench=bench, generation=GenerationSettings(max_new_tokens=300))
    assert bench.readings == []
    unbounded = [Setup("full", PotSettings(capacity=256, method="full"))]
    assert go(make_cases(1), unbounded, generation=GenerationSettings(max_new_tokens=300))


def test_names_that_would_be_mixed_up_are_refused() -> None:
    with pytest.raises(UsageError, match="two cases"):
        go(make_cases(1) * 2)
    with pytest.raises(UsageError, match="two setups"):
        go(make_cases(1), [SETUPS[0], replace(SETUPS[1], name="a")])


def test_a_full_disk_is_said_to_be_one(tmp_path: Path) -> None:
    class Full:
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    with results.Results(tmp_path / "out.jsonl", {"bench": "x", "seed": 0, "about": {}}) as kept:
        file, kept._file = kept._file, Full()  # type: ignore[assignment]
        with pytest.raises(InfinipotError, match="No space left"):
            kept.add({})
        kept._file = file


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(0, 5))
def test_an_interval_holds_its_mean_and_repeats(scores: list[float], seed: int) -> None:
    found = interval(scores, rounds=200, seed=seed)
    assert found == interval(scores, rounds=200, seed=seed)
    assert found.mean == pytest.approx(statistics.fmean(scores))
    assert min(scores) - 1e-9 <= found.low <= found.high <= max(scores) + 1e-9
    assert found.count == len(scores)


def test_an_interval_is_about_as_wide_as_the_normal_one() -> None:
    chance = random.Random(1)
    scores = [chance.gauss(50, 10) for _ in range(400)]
    found = interval(scores)
    half = 1.96 * statistics.stdev(scores) / len(scores) ** 0.5
    assert found.high - found.low == pytest.approx(2 * half, rel=0.15)
    with pytest.raises(ValueError, match="no scores"):
        interval([])


def test_answers_are_judged_by_the_rules() -> None:
    assert all_parts("It is 12 and ABC.", ("12", "abc", "7")) == pytest.approx(2 / 3)
    assert first_number("The key is 123, not 45.", ("123",)) == 1.0
    assert first_number("12345", ("123",)) == first_number("none", ("1",)) == 0.0
    assert contains("The cat sat.", ["a cat"])
    assert not contains("concatenate", ["cat"])
    assert not contains("", ["A", "?"])
    assert exact("The Cat!", ["cat"])
    assert token_f1("the red cat", ["cat red big"]) == pytest.approx(2 * 2 / 5)


@given(st.integers(1, 10**9))
def test_lengths_are_read_as_they_are_shown(tokens: int) -> None:
    assert parse_length(show_length(tokens)) == parse_length(str(tokens)) == tokens


@pytest.mark.parametrize("text", ["", "0", "-4k", "4x", "k", "1.5", "4k8", "0.0001k", "1e3", "4 k", "∞", "4k,"])
def test_lengths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--lengths"):
        parse_lengths(text)


def test_lists_are_read_strictly() -> None:
    assert parse_lengths("4k, 1.5k,1M") == [4000, 1500, 1_000_000]
    assert parse_shares("0,0.5 ,1", "--depths") == [0.0, 0.5, 1.0]
    assert parse_list("a,b", "--method", ("a", "b")) == ["a", "b"]
    for broken in ("a,,b", "a,a", "c", ""):
        with pytest.raises(UsageError):
            parse_list(broken, "--method", ("a", "b"))
    for broken in ("1.1", "-0.1", "nan", "x", "0.5,0.50", ""):
        with pytest.raises(UsageError):
            parse_shares(broken, "--depths")
    with pytest.raises(UsageError, match="twice"):
        parse_lengths("4k,4000")


def test_tables_are_aligned_text_and_markdown() -> None:
    table = Table("T", ["name", "4K"])
    table.add("a|b", "100.0")
    table.add("long name", "5.0")
    table.notes.append("note")
    assert as_text(table).splitlines() == ["T", "name          4K", "a|b        100.0", "long name    5.0", "note"]
    assert "| a\\|b | 100.0 |\n" in as_markdown(table)
    with pytest.raises(ValueError, match="1 cells"):
        table.add("x")
