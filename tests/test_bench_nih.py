"""``infinipot bench nih`` as a command: solvers that read the whole text find everything, others what they can."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tiny
from cli_support import FakePot, FakeWorkbench, home, invoke  # noqa: F401

from infinipot_cli.bench.needles import TASKS
from infinipot_cli.bench.results import read_results
from infinipot_cli.local import LocalWorkbench
from infinipot_cli.workbench import Facts

SMALL = ("--lengths", "2k", "--depths", "0.5", "--trials", "1", "--capacity", "2048", "-q")


class Solver(FakeWorkbench):
    """A model that answers as somebody would who reads the text and looks things up in it, by the question alone."""

    def __init__(self, sees: int = 10**9, **more: Any) -> None:
        super().__init__(answer=self.solve, **more)
        self.sees = sees

    def solve(self, pot: FakePot) -> tuple[str, ...]:
        text, question = pot.text[: self.sees], self.asked[-1]
        if "pass key" in question:
            return (f"The pass key is {_first(r'pass key is (.+?)[.]', text)}.",)
        if "special magic" in question:
            keys = re.findall(r"[a-z]+-[a-z]+|[0-9a-f-]{36}", question)
            return tuple(f"{value}, " for key in keys for value in re.findall(rf"for {key} is: (\S+)\.", text))
        if "variables" in question:
            return (" ".join(_chain(_first(r"value (\d+)", question), text)),)
        if "10 most common" in question:
            return (" ".join(_most(re.findall(r"\d+\. (\S+)", text), 10)),)
        return (" ".join(_most(re.findall(r"\b[a-z]{6}\b", text.partition("coded words. ")[2]), 3)),)


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


def _chain(value: str, text: str) -> list[str]:
    known = [value]
    for name, right in re.findall(r"VAR (\w+) = (?:VAR )?(\w+)", text):
        known += [name] * (right in known)
    return known[1:]


def _most(words: list[str], count: int) -> list[str]:
    return [word for word, _ in Counter(words).most_common(count)]


def nih(*arguments: Any, bench: FakeWorkbench | None = None, code: int = 0, **more: Any) -> Any:
    result = invoke("bench", "nih", *arguments, bench=bench or Solver(), **more)
    assert result.code == code, result.stderr
    return result


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("stack", ["repeated", "natural", "needles"])
def test_whoever_reads_it_all_finds_it_all_and_who_reads_nothing_nothing(task: str, stack: str) -> None:
    if stack == "needles" and not TASKS[task].keyed:
        nih("--task", task, "--haystack", stack, *SMALL, code=2)
        return
    for sees, score in ((10**9, 1.0), (0, 0.0)):
        content = nih("--task", task, "--haystack", stack, *SMALL, "--json", bench=Solver(sees)).json
        assert [cell["mean"] for cell in content["cells"]] == [score]
        assert [outcome["score"] for outcome in content["outcomes"]] == [score]
        assert abs(content["outcomes"][0]["tokens"] - 2000) <= 8


def test_what_stands_where_a_reader_does_not_look_is_not_found() -> None:
    half = Solver(sees=2500)  # characters: about half of a thousand words
    options = ("--lengths", "1k", "--trials", "4", "--depths", "0,0.25,0.75,1", "-q")
    content = nih(*options, "--json", bench=half).json
    assert [(cell["depth"], cell["mean"]) for cell in content["cells"]] == [(0, 1), (0.25, 1), (0.75, 0), (1, 0)]
    assert all(cell["count"] == 4 for cell in content["cells"])
    rows = nih(*options, bench=half).stdout.splitlines()[2:6]
    assert [row.split()[:2] for row in rows] == [["0", "100.0"], ["0.25", "100.0"], ["0.75", "0.0"], ["1", "0.0"]]


@pytest.mark.parametrize("task", ["multivalue", "multiquery"])
def test_partial_finds_are_partial_scores(task: str) -> None:
    bench = Solver()
    bench.answer = lambda pot: bench.solve(pot)[:1]
    content = nih("--task", task, *SMALL, "--json", bench=bench).json
    assert content["outcomes"][0]["score"] == 0.25


def test_the_table_has_depths_down_and_lengths_across() -> None:
    options = ("--lengths", "1k,2k", "--depths", "0.1,0.9", "--trials", "2", "--capacity", "2048")
    lines = nih(*options).stdout.splitlines()
    assert lines[0] == "passkey in repeated text: smollm2-135m-reader, pot of 2,048 entries, cap"
    assert lines[1].split() == ["depth", "1K", "2K", "all", "[95", "%]"]
    assert [line.split()[:3] for line in lines[2:4]] == [["0.1", "100.0", "100.0"], ["0.9", "100.0", "100.0"]]
    methods = nih(*options, "--method", "cap,recent", "--markdown").stdout
    assert "| method | depth | 1K | 2K | all [95 %] |" in methods
    assert "| recent | 0.9 | 100.0 | 100.0 | 100.0 [100.0, 100.0] |" in methods
    tasks = nih(*options, "--task", "passkey,variables").stdout.splitlines()
    assert [line.split()[0] for line in tasks[1:4]] == ["task", "passkey", "variables"]


def test_it_draws_a_table_on_a_terminal() -> None:
    drawn = nih("--lengths", "1k", "--trials", "1", tty="out", environ={"TERM": "xterm"}).stdout
    assert "depth" in drawn
    assert "┃" in drawn or "│" in drawn


def test_all_methods_get_the_same_documents_and_questions() -> None:
    bench = Solver()
    nih(*SMALL, "--method", "cap,recent,streaming", "--trials", "2", bench=bench)
    assert bench.pots[0:3] == [bench.pots[0]] * 3
    assert bench.pots[3:6] == [bench.pots[3]] * 3
    assert bench.pots[0] != bench.pots[3]
    assert [reading.pot.settings.method for reading in bench.readings] == ["cap", "recent", "streaming"] * 2


def test_methods_beside_each_other_all_answer_from_all_of_the_pot() -> None:
    alone, beside = Solver(), Solver()
    reader = ("--model", "smollm2-135m-reader", "--lengths", "1k", "--trials", "1")
    nih(*reader, "--method", "cap", bench=alone)
    said = nih(*reader, "--method", "cap,recent", bench=beside).stdout
    assert {made.focus for made in alone.generations} == {256}
    assert {made.focus for made in beside.generations} == {None}
    assert "all answers are written from all of the pot" in said


def test_options_of_the_pot_and_the_wording_reach_the_reading() -> None:
    bench = Solver()
    nih(*SMALL, "--alpha", "0.25", "--catalyst", "cap-g", "--seed", "3", bench=bench)
    assert bench.readings[0].pot.settings.alpha == 0.25
    assert bench.catalysts[0].startswith("Summarize the previous context")
    assert "pass key" in bench.asked[0]
    assert "Answer in a few words." in bench.asked[0]
    assert bench.generations[0].max_new_tokens == 32


def test_the_answer_leaves_room_in_a_small_pot() -> None:
    bench = Solver()
    nih(*SMALL, "--task", "multikey", "--capacity", "256", bench=bench)
    assert bench.generations[0].max_new_tokens == 64


def test_a_broken_off_run_says_so_and_goes_on(tmp_path: Path) -> None:
    out, options = tmp_path / "out.jsonl", ("--lengths", "1k", "--trials", "2")
    whole = nih(*options, "--json", "-q").json

    def press(piece: str) -> None:
        if len(bench.asked) == 3:
            raise KeyboardInterrupt

    bench = Solver(on_token=press)
    result = nih(*options, "--out", out, bench=bench, code=130)
    assert "stopped after 2 of 6 outcomes; the same command goes on from" in result.stderr
    again = Solver()
    result = nih(*options, "--out", out, "--json", bench=again)
    assert "2 of 6 outcomes are in" in result.stderr
    assert len(again.asked) == 4
    assert result.json["cells"] == whole["cells"]
    answers = [(outcome["case"], outcome["answer"]) for outcome in result.json["outcomes"]]
    assert answers == [(outcome["case"], outcome["answer"]) for outcome in whole["outcomes"]]
    assert len([line for line in read_results(out) if line["record"] == "outcome"]) == 6


def test_more_lengths_in_the_same_file_only_run_what_is_new(tmp_path: Path) -> None:
    out, bench = tmp_path / "out.jsonl", Solver()
    nih("--lengths", "1k", "--trials", "1", "--out", out)
    result = nih("--lengths", "1k,2k", "--trials", "1", "--out", out, bench=bench)
    assert len(bench.asked) == 3
    assert "3 of 6 outcomes" in result.stderr
    result = nih("--lengths", "1k", "--trials", "1", "--capacity", "999", "--out", out)
    assert "also holds 6 outcomes of other" in result.stderr


def test_dry_run_loads_nothing_and_says_how_much_and_how_long() -> None:
    bench = Solver(facts_of=Facts("m", 1024, 500.0, measured=True))
    options = ("--lengths", "4k,1m", "--trials", "2", "--method", "cap,recent", "--dry-run")
    said = nih(*options, bench=bench).stdout
    assert "outcomes: 24 (24 readings)" in said
    assert "tokens: about 12,048,000" in said
    assert "6 h 41 min" in said
    assert "12048000" in nih(*options, "--json", bench=bench).stdout
    assert bench.loaded == []
    assert bench.readings == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--task", "nothing"), "--task knows no 'nothing'"),
        (("--task", "passkey,all"), "--task all stands alone"),
        (("--lengths", "4q"), "--lengths takes lengths such as"),
        (("--depths", "2"), "--depths takes numbers from 0 to 1"),
        (("--method", "cap,magic"), "--method knows no 'magic'"),
        (("--method", "cap,cap"), "names cap twice"),
        (("--trials", "0"), "--trials"),
        (("--seed", "-1"), "--seed"),
        (("--plot", "x.doc"), "--plot writes"),
        (("--plot", "no/such/x.png"), "there is no folder"),
        (("--out", "."), "is a folder"),
        (("--out", "no/such/x.jsonl"), "there is no folder"),
        (("--prompt", "summary"), "takes no question"),
        (("--haystack", "needles"), "--haystack needles is for multikey"),
        (("--capacity", "3"), "capacity must be at least"),
        (("--lengths", "10"), "10 tokens are too few"),
    ],
)
def test_bad_wishes_are_refused_before_anything_is_read(arguments: tuple[str, ...], said: str) -> None:
    bench = Solver()
    result = nih(*arguments, bench=bench, code=2)
    assert said in result.stderr
    assert result.stdout == ""
    assert bench.readings == []
    assert "Traceback" not in result.stderr


def test_a_haystack_of_ones_own(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("".join(f"Sentence number {number} of the book.\n" for number in range(100)))
    bench = Solver()
    result = nih("--lengths", "2k", "--trials", "1", "--haystack", book, bench=bench)
    assert "Sentence number 42 of the book." in bench.pots[0]
    assert f"the {book} text has 600 tokens; in documents of 2,000 it stands 3.3 times" in result.stderr
    missing = nih("--haystack", tmp_path / "none.txt", code=3)
    assert "there is no such file or folder" in missing.stderr


def test_plot_without_matplotlib_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    bench = Solver()
    result = nih("--plot", tmp_path / "x.png", bench=bench, code=2)
    assert "pip install matplotlib" in result.stderr
    assert bench.loaded == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model") / "tiny")


def test_a_real_model_reads_what_was_promised_and_a_picture_comes_of_it(folder: Path, tmp_path: Path) -> None:
    out, plot = tmp_path / "out.jsonl", tmp_path / "plot.png"
    options = ("--model", folder, "--device", "cpu", "--capacity", "512", "--lengths", "2k,3k", "--depths", "0.1,0.9")
    options += ("--trials", "1", "--method", "cap,recent", "--haystack", "natural")
    result = nih(*options, "--out", out, "--plot", plot, "--json", bench=LocalWorkbench())
    for outcome in result.json["outcomes"]:
        assert 0 <= outcome["labels"]["length"] - outcome["tokens"] <= 8
        assert outcome["cycles"] > 5
        assert outcome["entries"] <= 512
        assert outcome["seconds"]["reading"] > 0
    header = read_results(out)[0]
    assert set(header["model"]["identity"]) >= {"weights", "tokenizer", "config"}
    assert plot.read_bytes().startswith(b"\x89PNG")
    again = nih(*options, "--out", out, "--json", bench=LocalWorkbench())
    assert "8 of 8 outcomes are in" in again.stderr
    assert again.json["outcomes"] == result.json["outcomes"]


def test_the_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom infinipot_cli.main import run\nfrom infinipot_cli.terminal import Terminal\n"
        "run(['bench', 'nih', '--help'], Terminal.system())\n"
        "print(sorted({'torch', 'transformers', 'numpy', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stderr.strip() == "[]"
    assert "--haystack" in result.stdout


def test_every_line_of_the_file_is_json_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    nih("--lengths", "1k", "--trials", "1", "--out", out)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["record"] for record in records] == ["run", "outcome", "outcome", "outcome"]
