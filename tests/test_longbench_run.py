"""`infinipot bench longbench` on a LongBench of a few lines and an engine that answers what the test tells it to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_support import FakePot, FakeWorkbench, Result, home, invoke  # noqa: F401
from longbench_folder import line, lines, write_folder

from infinipot_cli.bench.longbench.tasks import all_tasks

GENERAL = "Summarize the previous context"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "data", lines())


def answering(text: str) -> FakeWorkbench:
    return FakeWorkbench(answer=lambda pot: [text])


def longbench(folder: Path, *arguments: Any, bench: FakeWorkbench | None = None, **more: Any) -> Result:
    return invoke(
        "bench", "longbench", "--data", folder, *arguments, bench=bench or answering("the answer is 7"), **more
    )


def rows(result: Result) -> dict[str, list[str]]:
    """The table's cells by the first word of the line's name."""
    table = [text.rsplit(maxsplit=1) for text in result.stdout.splitlines()[2:] if text[-1:].isdigit()]
    return {name.strip(): [cell] for name, cell in table}


# --------------------------------------------------------------------------------------------------- scores


def test_all_tasks_by_group_in_the_order_of_the_paper(folder: Path) -> None:
    result = longbench(folder)
    assert result.code == 0, result.stderr
    names = list(rows(result))
    assert [name for name in names if name in all_tasks()] == list(all_tasks())
    assert names[0] == "single-document QA"
    assert names[-1] == "average"
    assert names.index("code") == names.index("lcc") - 1


def test_groups_and_average_are_plain_means_of_the_tasks(folder: Path) -> None:
    found = longbench(folder, "--json").json
    scores = {cell["task"]: cell["score"] for cell in found["cells"]}
    # "the answer is 7": F1 2 * (1/3) / (4/3), the number alone, one class of two, ROUGE-L 2 * (1/4) / (5/4).
    expected = {"hotpotqa": 50.0, "passage_count": 100.0, "trec": 100.0, "gov_report": 40.0}
    assert {task: scores[task] for task in expected} == expected
    (means,) = found["means"].values()
    assert means["synthetic"] == 100.0
    assert means["multi-document QA"] == 50.0
    assert means["average"] == pytest.approx(sum(scores.values()) / 16, abs=0.005)
    assert means["few-shot"] == pytest.approx((scores["trec"] + scores["triviaqa"] + scores["samsum"]) / 3, abs=0.005)
    assert found["notes"] == []
    assert len(found["outcomes"]) == 48


def test_a_task_is_the_mean_over_its_examples_to_two_decimals(tmp_path: Path) -> None:
    examples = [line("hotpotqa", 0), line("hotpotqa", 1, answers=["no", "it is 7"]), line("hotpotqa", 2, answers=["x"])]
    folder = write_folder(tmp_path / "data", {"hotpotqa": examples})
    (cell,) = longbench(folder, "--tasks", "hotpotqa", "--json").json["cells"]
    # F1 with "answer is 7": 1/2; with "it is 7" 2/3; 0.
    assert cell["score"] == round(100 * (0.5 + 2 / 3) / 3, 2)
    assert 0 <= cell["low"] <= cell["score"] <= cell["high"] <= 100
    assert cell["count"] == 3


@pytest.mark.parametrize(
    ("task", "said", "score"),
    [
        ("triviaqa", "\nanswer\nwrong words", 100.0),  # the first line alone
        ("hotpotqa", "answer\nwrong words", 50.0),  # all lines
        ("lcc", "    answer", 75.0),  # indented: 2 * 6 / 16
        ("lcc", "# no\nanswer", 100.0),
    ],
)
def test_an_answer_is_scored_as_it_was_written(folder: Path, task: str, said: str, score: float) -> None:
    found = longbench(folder, "--tasks", task, "--json", bench=answering(said)).json
    assert found["cells"][0]["score"] == score
    assert found["outcomes"][0]["answer"] == said


# --------------------------------------------------------------------------------------------------- wording


def test_the_document_goes_through_the_pot_between_the_words_of_the_prompt(folder: Path) -> None:
    bench = answering("x")
    longbench(folder, "--tasks", "hotpotqa", "--limit", "1", bench=bench)
    assert bench.pots[0].startswith("Document ")
    assert len(bench.readings[0].passages) == 1
    assert bench.asked[0].startswith("Answer the question based on the given passages.")
    assert bench.asked[0].endswith("of hotpotqa? Answer: <answer>")
    assert bench.catalysts == bench.asked


def test_which_catalyst_distils(folder: Path) -> None:
    bench = answering("x")
    longbench(folder, "--tasks", "qasper,gov_report", "--limit", "1", bench=bench)
    assert bench.catalysts[0] == bench.asked[0]
    assert bench.catalysts[1].startswith(GENERAL)
    named = answering("x")
    longbench(folder, "--tasks", "qasper,gov_report", "--limit", "1", "--catalyst", "cap-g", bench=named)
    assert all(text.startswith(GENERAL) for text in named.catalysts)


def test_code_and_few_shot_tasks_stand_without_a_template(folder: Path) -> None:
    bench = answering("x")
    longbench(folder, "--tasks", "lcc,triviaqa", "--limit", "1", bench=bench)
    assert bench.asked[0].endswith("of triviaqa?")
    assert bench.asked[1] == "Next line of code:"


def test_how_long_an_answer_may_be(folder: Path) -> None:
    bench = answering("x")
    longbench(folder, "--limit", "1", bench=bench)
    asked = [(made.max_new_tokens, made.temperature, made.one_line) for made in bench.generations]
    assert asked == [(task.max_new_tokens, 0.0, task.one_line) for task in all_tasks().values()]


def test_official_prompts_get_neither_the_focus_nor_the_doubt_that_go_with_another(folder: Path) -> None:
    bench = answering("x")
    longbench(folder, "--limit", "1", "--model", "smollm2-135m-reader", bench=bench)
    assert {(made.focus, made.refusal) for made in bench.generations} == {(None, None)}


# ------------------------------------------------------------------------------------------------- the run


def test_methods_take_turns_on_every_example(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = longbench(folder, "--tasks", "lcc", "--method", "infinipot,recent", "--out", out)
    assert result.code == 0, result.stderr
    assert result.stdout.splitlines()[1].split() == ["infinipot", "recent"]
    made = [json.loads(text) for text in out.read_text(encoding="utf-8").splitlines()]
    outcomes = [record for record in made if record["record"] == "outcome"]
    assert [record["setup"] for record in outcomes] == ["infinipot", "recent"] * 3
    assert {record["bench"] for record in outcomes} == {"longbench"}


def test_a_run_that_was_broken_off_goes_on_where_it_ended(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    bench = answering("the answer is 7")
    left = [4]

    def break_off(piece: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    bench.on_token = break_off
    tasks = ("--tasks", "qasper,trec", "--out", out)
    broken = longbench(folder, *tasks, bench=bench)
    assert broken.code == 130
    assert "stopped after 4 of 6 outcomes" in broken.stderr
    again = answering("the answer is 7")
    resumed = longbench(folder, *tasks, bench=again)
    assert len(again.readings) == 2
    assert "qasper: 3 of 3 outcomes" in resumed.stderr
    assert "trec: 1 of 3 outcomes" in resumed.stderr
    assert resumed.stdout == longbench(folder, "--tasks", "qasper,trec").stdout
    third = answering("never asked")
    assert longbench(folder, *tasks, bench=third).stdout == resumed.stdout
    assert third.readings == []


def test_a_larger_limit_adds_to_a_smaller_one(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    small, large = answering("x"), answering("x")
    result = longbench(folder, "--tasks", "lcc", "--limit", "1", "--out", out, bench=small)
    assert "examples per task: 1 of 3" in result.stdout
    assert "over 1 of 16 tasks" in result.stdout
    longbench(folder, "--tasks", "lcc", "--limit", "3", "--out", out, bench=large)
    assert (len(small.readings), len(large.readings)) == (1, 2)


def test_a_damaged_line_is_found_before_a_model_is_loaded(folder: Path) -> None:
    with (folder / "repobench-p.jsonl").open("a", encoding="utf-8") as lines_:
        lines_.write('{"context": ')
    bench = answering("x")
    result = longbench(folder, bench=bench)
    assert result.code == 3
    assert "repobench-p.jsonl, line 4 is no JSON" in result.stderr
    assert bench.loaded == []


def test_a_pot_too_small_for_the_longest_task_is_found_before_reading(folder: Path) -> None:
    bench = answering("x")
    result = longbench(folder, "--tasks", "lcc,gov_report", "--capacity", "300", bench=bench)
    assert result.code == 2
    assert "entries" in result.stderr
    assert bench.readings == []


def test_memory_that_runs_out_is_an_outcome_that_spoils_no_other_task(folder: Path) -> None:
    def answer(pot: FakePot) -> Sequence[str]:
        if "of qasper" in pot.text:
            raise MemoryError
        return ["answer"]

    bench = FakeWorkbench(answer=answer)
    result = longbench(folder, "--tasks", "narrativeqa,qasper,lcc", bench=bench)
    assert result.code == 0, result.stderr
    shown = {text.strip().rsplit(maxsplit=1)[0]: text.split()[-1] for text in result.stdout.splitlines()[2:]}
    assert shown["qasper"] == shown["single-document QA"] == shown["average"] == "OOM"
    assert shown["narrativeqa"] == shown["code"] == "100.00"


def test_dry_run_loads_nothing(folder: Path) -> None:
    bench = answering("x")
    found = longbench(folder, "--dry-run", "--json", "--method", "cap,recent", bench=bench).json
    assert found["outcomes"] == 2 * 48
    assert found["tokens"] > 0
    assert bench.loaded == []


def test_markdown(folder: Path) -> None:
    text = longbench(folder, "--tasks", "lcc,trec", "--markdown").stdout
    assert "| average |" in text
    assert text.count("|") == 3 * 7


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("--tasks", "hotpot"), 2, "--tasks knows no 'hotpot'"),
        (("--tasks", "lcc,lcc"), 2, "--tasks names lcc twice"),
        (("--limit", "0"), 2, "--limit"),
        (("--method", "magic"), 2, "--method knows no 'magic'"),
        (("--plot", "x.txt"), 2, "--plot writes"),
    ],
)
def test_wrong_usage(folder: Path, arguments: tuple[str, ...], code: int, problem: str) -> None:
    result = longbench(folder, *arguments)
    assert result.code == code
    assert problem in result.stderr
    assert result.stdout == ""


def test_tasks_that_are_not_there(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", lines(["lcc"]))
    result = longbench(folder)
    assert result.code == 3
    assert "holds no narrativeqa.jsonl" in result.stderr
    assert longbench(folder, "--tasks", "lcc").code == 0


def test_the_picture(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "longbench.png"
    result = longbench(folder, "--tasks", "lcc,trec", "--method", "cap,recent", "--plot", path)
    assert result.code == 0, result.stderr
    assert path.read_bytes().startswith(b"\x89PNG")
