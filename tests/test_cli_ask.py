"""ask and summarize: what the words mean, what reaches the engine, what comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import FakeWorkbench, home, invoke  # noqa: F401

from engine.errors import ModelError
from engine.settings import PotSettings
from infinipot_cli.catalog import DEFAULT, REFUSAL
from infinipot_cli.receipt import Receipt


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("one two three\nfour five\n")
    return path


def test_the_answer_alone_goes_to_stdout(book: Path) -> None:
    bench = FakeWorkbench()
    result = invoke("ask", book, "Who?", bench=bench)
    assert (result.code, result.stdout) == (0, "The answer.\n")
    assert "book.txt" in result.stderr
    assert "5 tokens" in result.stderr
    assert "Question: Who?" in bench.asked[0]
    assert bench.pots == ["one two three\nfour five\n"]


def test_passages_carry_their_place(book: Path) -> None:
    bench = FakeWorkbench()
    invoke("ask", book, "Who?", bench=bench)
    (reading,) = bench.readings
    assert reading.passages[0][1:] == (0, 1, 0, True)


def test_the_question_is_its_own_catalyst(book: Path) -> None:
    bench = FakeWorkbench()
    invoke("ask", book, "Who?", bench=bench)
    assert bench.catalysts == bench.asked


def test_another_catalyst_by_name(book: Path) -> None:
    bench = FakeWorkbench()
    invoke("ask", book, "Who?", "--catalyst", "cap-g", bench=bench)
    assert bench.catalysts == ["Summarize the previous context highlighting the most important parts. <answer>"]


def test_stdin_is_the_document_where_no_file_is_named() -> None:
    bench = FakeWorkbench()
    result = invoke("ask", "Who?", stdin=b"alpha beta", bench=bench)
    assert result.code == 0
    assert bench.pots == ["alpha beta"]


def test_stdin_is_left_alone_where_a_file_is_named(book: Path) -> None:
    class Untouchable:
        def read(self, size: int = -1) -> bytes:
            raise AssertionError("stdin was read")

        read1 = read

    assert invoke("ask", book, "Who?", stdin=Untouchable()).code == 0


def test_a_dash_is_stdin(book: Path) -> None:
    bench = FakeWorkbench()
    result = invoke("ask", book, "-", "Who?", stdin=b"alpha", bench=bench)
    assert result.code == 0
    assert "alpha" in bench.pots[0]
    assert "one two" in bench.pots[0]


def test_several_files_are_told_apart_and_counted_apart(tmp_path: Path, book: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("six seven")
    bench = FakeWorkbench()
    result = invoke("ask", book, other, "Who?", "--json", bench=bench)
    assert [(source["name"], source["tokens"]) for source in result.json["sources"]] == [
        (str(book), 5),
        (str(other), 2),
    ]
    (reading,) = bench.readings
    assert reading.asides == [f"=== {book} ===\n", f"\n\n=== {other} ===\n"]
    assert [passage[3] for passage in reading.passages] == [0, 1]


def test_names_in_no_encoding_reach_the_model_as_whole_characters(tmp_path: Path, book: Path) -> None:
    odd = tmp_path / "caf\udce9.txt"
    odd.write_text("six seven")
    bench = FakeWorkbench()
    assert invoke("ask", "-q", book, odd, "Who?", bench=bench).code == 0
    assert bench.readings[0].asides[1] == f"\n\n=== {tmp_path}/caf\ufffd.txt ===\n"


def test_a_folder_is_read_and_what_was_skipped_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.bin").write_bytes(bytes(range(256)) * 8)
    result = invoke("summarize", tmp_path)
    assert result.code == 0
    assert "a.txt" in result.stderr
    assert "b.bin" in result.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "question is missing"),
        (("Who?",), "nothing to read"),
        (("BOOK",), "question is missing"),
        (("BOOK", "BOOK"), "question is missing"),
        (("BOOK", "  "), "question is empty"),
        (("BOOK", "-", "-", "Who?"), "named twice"),
    ],
)
def test_what_is_missing_is_said(book: Path, words: tuple[str, ...], complaint: str) -> None:
    bench = FakeWorkbench()
    result = invoke("ask", *(str(book) if word == "BOOK" else word for word in words), bench=bench)
    assert result.code == 2
    assert complaint in result.stderr
    assert not bench.loaded


def test_empty_stdin_and_a_file_taken_for_the_question(book: Path) -> None:
    result = invoke("ask", book, stdin=b"")
    assert result.code == 3
    assert "nothing on stdin" in result.stderr
    assert "taken for the question" in result.stderr


def test_a_missing_file_is_found_out_before_the_model_is_loaded() -> None:
    bench = FakeWorkbench()
    result = invoke("ask", "nowhere.txt", "Who?", bench=bench)
    assert (result.code, bench.loaded) == (3, [])
    assert "nowhere.txt" in result.stderr


def test_a_very_long_question_is_no_file_name() -> None:
    assert invoke("ask", "wh" + "y" * 5000 + "?", stdin=b"text").code == 0


def test_json_is_one_object_with_everything(book: Path) -> None:
    result = invoke("ask", book, "Who?", "--json")
    content = result.json
    assert content["answer"] == "The answer."
    assert content["question"] == "Who?"
    assert content["tokens"]["read"] == 5
    assert content["pot"]["capacity"] == PotSettings.capacity
    assert content["settings"]["task"] == "question"
    assert content["warnings"] == []
    assert content["interrupted"] is False
    assert result.stderr == ""


def test_options_reach_the_engine(book: Path) -> None:
    bench = FakeWorkbench()
    flags = "--capacity 64 --distilled 20 --alpha 0.25 --method cap --reduce sum --scope layer --norm 2"
    flags += " --pooling 3 --pool max --decay 0.9 --recent 4 --no-reset --group 2 --window 99"
    more = "--max-tokens 9 --focus 7 --no-repeat 4 --temperature 0.5 --top-p 0.8 --seed 3"
    more += " --model tiny --device cpu --dtype float16 --offline"
    result = invoke("ask", book, "Who?", *flags.split(), *more.split(), bench=bench)
    assert result.code == 0, result.stderr
    assert vars(bench.readings[0].pot.settings) == {
        "capacity": 64, "distilled": 20, "alpha": 0.25, "method": "cap", "reduce": "sum", "scope": "layer",
        "norm": 2.0, "pooling": 3, "pool": "max", "decay": 0.9, "recent": 4, "block": 512, "reset": False,
        "group": 2, "window": 99,
    }  # fmt: skip
    assert vars(bench.generations[0]) == {
        "max_new_tokens": 9, "temperature": 0.5, "top_p": 0.8, "seed": 3, "one_line": False, "min_new_tokens": 0,
        "focus": 7, "no_repeat": 4, "avoid": (), "refusal": None, "whole_sentences": False, "lines_once": False,
    }  # fmt: skip
    (model,) = bench.loaded
    assert (model.model, model.device, model.dtype, model.offline) == ("tiny", "cpu", "float16", True)


@pytest.mark.parametrize(
    ("model", "flags", "focus"),
    [("smollm2-135m-reader", [], 256), ("tiny", [], None), ("smollm2-135m-reader", ["--focus", "0"], None)],
)
def test_a_question_is_answered_from_as_many_entries_as_suit_the_model(
    book: Path, model: str, flags: list[str], focus: int | None
) -> None:
    bench = FakeWorkbench()
    assert invoke("ask", book, "Who?", "--model", model, *flags, bench=bench).code == 0
    assert invoke("summarize", book, "--model", model, bench=bench).code == 0
    assert [written.focus for written in bench.generations] == [focus, None]


def test_pot_size_becomes_entries_of_this_model(book: Path) -> None:
    bench = FakeWorkbench()
    assert invoke("ask", book, "Who?", "--pot-size", "1M", bench=bench).code == 0
    assert bench.readings[0].pot.settings.capacity == 1024


@pytest.mark.parametrize(
    "flags",
    [
        "--capacity 9 --pot-size 1M",
        "--pot-size lots",
        "--pot-size 0",
        "--alpha 2",
        "--capacity many",
        "--method magic",
        "--temperature -1",
        "--max-tokens 0",
        "--on-interrupt panic",
        "--task nothing",
        f"--task {'x' * 300}",
        f"--task {'x' * 300}.yaml",
        "--catalyst summary",
        "--task logs",
        "--color blue",
        "-q -v",
        "--no-such-flag",
        "--input-type poem",
    ],
)
def test_wrong_options_are_usage_errors_before_any_loading(book: Path, flags: str) -> None:
    bench = FakeWorkbench()
    result = invoke("ask", book, "Who?", *flags.split(), bench=bench)
    assert result.code == 2, result.stderr
    assert result.stderr.startswith("error: ")
    assert not bench.loaded or flags.startswith("--input-type")


def test_an_answer_that_cannot_fit_is_refused_before_reading(book: Path) -> None:
    bench = FakeWorkbench()
    result = invoke("ask", book, "Who?", "--capacity", "64", "--max-tokens", "64", bench=bench)
    assert result.code == 2
    assert "--max-tokens" in result.stderr
    assert not bench.readings


def test_a_small_pot_shortens_the_answer_by_itself(book: Path) -> None:
    bench = FakeWorkbench()
    assert invoke("ask", book, "Who?", "--capacity", "128", bench=bench).code == 0
    assert bench.generations[0].max_new_tokens == 32


def test_each_file_gets_a_line_of_json(tmp_path: Path, book: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("six seven")
    bench = FakeWorkbench()
    result = invoke("ask", "--each", book, other, "Who?", bench=bench)
    assert result.code == 0
    assert [(line["source"], line["answer"], line["tokens"]["read"]) for line in result.json_lines] == [
        (str(book), "The answer.", 5),
        (str(other), "The answer.", 2),
    ]
    assert len(bench.loaded) == 1
    assert bench.pots == ["one two three\nfour five\n", "six seven"]


def test_each_goes_on_after_an_unreadable_file(tmp_path: Path, book: Path) -> None:
    bad = tmp_path / "bad.bin"
    bad.write_bytes(b"\x00\x01\x02" * 100)
    result = invoke("ask", "--each", bad, book, "Who?")
    failed, answered = result.json_lines
    assert failed["exit_code"] == 3
    assert failed["source"] == str(bad)
    assert answered["answer"] == "The answer."
    assert result.code == 3


def test_each_says_which_files_of_a_folder_were_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.bin").write_bytes(bytes(range(256)) * 8)
    result = invoke("ask", "--each", tmp_path, "Who?")
    assert (result.code, len(result.json_lines)) == (0, 1)
    assert f"warning: skipped {tmp_path / 'b.bin'}: is binary data" in result.stderr


def test_a_file_of_several_names_is_read_once(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_text("beta")
    words = (tmp_path, tmp_path / "b.txt", inner)
    result = invoke("ask", *words, "Who?", "--json")
    assert [source["name"] for source in result.json["sources"]] == [f"{tmp_path}/b.txt", f"{inner}/a.txt"]
    again = [f"{name}: a file that is read under another name" for name in (f"{tmp_path}/b.txt", f"{inner}/a.txt")]
    assert result.json["skipped"] == again
    each = invoke("ask", "--each", *words, "Who?")
    assert [line["source"] for line in each.json_lines] == [f"{tmp_path}/b.txt", f"{inner}/a.txt"]
    assert all(f"skipped {line}" in each.stderr for line in again)


def test_a_file_without_text_is_an_error_where_it_is_named_beside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "blank.txt").write_text(" \n")
    assert invoke("ask", tmp_path, "Who?").code == 0
    assert invoke("ask", tmp_path, tmp_path / "blank.txt", "Who?").code == 3


def test_dry_run_loads_no_model(book: Path) -> None:
    bench = FakeWorkbench()
    result = invoke("ask", book, "Who?", "--dry-run", bench=bench)
    assert (result.code, bench.loaded) == (0, [])
    assert "5 tokens" in result.stdout
    assert "0 cycles" in result.stdout
    content = invoke("ask", book, "Who?", "--dry-run", "--json").json
    assert content["tokens"] == 5
    assert content["cycles"] == 0
    assert content["pot_bytes"] == content["entries"] * 1024
    assert content["seconds"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "flags",
    [
        "--dtype bogus",
        "--device bogus",
        "--quantize 7bit",
        "--on-interrupt nope",
        "--temperature -3",
        "--max-tokens -5",
        "--top-p 9",
        "--doubt 7",
        "--doubt 0.5 --model other",
        "--capacity 64 --max-tokens 64",
    ],
)
def test_dry_run_refuses_what_the_run_would(book: Path, flags: str) -> None:
    for command in (("ask", book, "Who?"), ("chat", book)):
        said = [invoke(*command, *flags.split(), *more) for more in ((), ("--dry-run",))]
        assert [(result.code, result.stdout) for result in said] == [(2, ""), (2, "")]


def test_dry_run_of_each_is_an_estimate_per_file(tmp_path: Path, book: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("six seven")
    lines = invoke("ask", "--each", book, other, "Who?", "--dry-run", "--json").json_lines
    assert [(line["source"], line["tokens"]) for line in lines] == [(str(book), 5), (str(other), 2)]
    assert invoke("ask", "--each", book, other, "Who?", "--dry-run").stdout.count("pot: ") == 2


def test_dry_run_counts_cycles(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("word " * 1000)
    content = invoke("summarize", path, "-n", "--capacity", "200", "--json").json
    assert content["cycles"] > 5
    assert content["entries"] <= 200


def test_the_model_error_is_told_with_its_hint(book: Path) -> None:
    def fail() -> None:
        raise ModelError("no such model", hint="take another")

    result = invoke("ask", book, "Who?", bench=FakeWorkbench(on_load=fail))
    assert result.code == 4
    assert result.stderr == "error: no such model\nhint: take another\n"


def test_braces_in_a_question_are_only_text(book: Path) -> None:
    bench = FakeWorkbench()
    invoke("ask", book, "What is {document} {0} {{x}}?", bench=bench)
    assert "What is {document} {0} {{x}}?" in bench.asked[0]


@pytest.mark.parametrize("length", ["short", "medium", "long"])
@pytest.mark.parametrize("style", ["paragraph", "bullets"])
def test_summaries_of_every_form(book: Path, length: str, style: str) -> None:
    bench = FakeWorkbench()
    result = invoke("summarize", book, "--length", length, "--style", style, bench=bench)
    assert (result.code, result.stdout) == (0, "The answer.\n")
    assert ("List" in bench.asked[0]) == (style == "bullets")


def test_longer_summaries_may_be_longer(book: Path) -> None:
    bench = FakeWorkbench()
    for length in ("short", "medium", "long"):
        invoke("summarize", book, "--length", length, bench=bench)
    lengths = [generation.max_new_tokens for generation in bench.generations]
    assert lengths == sorted(set(lengths))


@pytest.mark.parametrize("task", ["logs", "paper", "contract", "meeting"])
def test_summaries_by_task(book: Path, task: str) -> None:
    assert invoke("summarize", book, "--task", task).code == 0


@pytest.mark.parametrize("flags", ["--length huge", "--style verse", "--task question", "--task logs --length short"])
def test_summaries_that_make_no_sense(book: Path, flags: str) -> None:
    assert invoke("summarize", book, *flags.split()).code == 2


def test_summarize_reads_stdin_by_itself() -> None:
    bench = FakeWorkbench()
    assert invoke("summarize", stdin=b"log line\n", bench=bench).code == 0
    assert bench.pots == ["log line\n"]


def test_an_empty_answer_is_pointed_out(book: Path) -> None:
    result = invoke("ask", book, "Who?", bench=FakeWorkbench(answer=lambda pot: ()))
    assert result.stdout == "\n"
    assert "answered nothing" in result.stderr


def test_a_user_prompt_by_path(tmp_path: Path, book: Path) -> None:
    prompt = tmp_path / "mine.yaml"
    text = {"kind": "task", "name": "mine", "description": "x", "catalyst": "cap-p"}
    prompt.write_text(json.dumps(text | {"prompt": "Read: {document} Then say {question}!", "system": "Be brief."}))
    bench = FakeWorkbench()
    assert invoke("ask", book, "Who?", "--prompt", prompt, bench=bench).code == 0
    assert bench.asked == ["Then say Who?! <answer>"]
    assert bench.catalysts == ["Please continue. <answer>"]


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["a.txt", "-"], "the question is missing: - stands for stdin", "in quotes"),
        (["a.txt", "Who", "is", "it?"], "Who: there is no such file", "put the question last, in quotes"),
        (["a.txt", "./a.txt", "Who?"], "a.txt is named twice", ""),
        (["x.pot", "Who?"], "x.pot is not a pot", "pot save makes one"),
        (["a.txt", "Who?", "--device", "foo"], "--device must be auto, cpu, cuda or cuda:N, not 'foo'", ""),
        (["a.txt", "Who?", "--dtype", "int3"], "--dtype must be auto, float32", ""),
        (["a.txt", "Who?", "--quantize", "9bit"], "--quantize must be 8bit or 4bit", ""),
        (["a.txt", "Who?", "--max-tokens", "0"], "--max-tokens must be at least 1", ""),
        (["a.txt", "Who?", "--top-p", "2"], "--top-p must", ""),
        (["a.txt", "Who?", "--pot-size", "10"], "--pot-size 10 is too small", "16 entries take"),
        (["a.txt", "Who?", "--focus", "-1"], "--focus", "greater than or equal to 0"),
    ],
)
def test_wrong_words_are_named_as_they_were_given(
    words: list[str], said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("Anna has a red boat.")
    (tmp_path / "x.pot").write_text("garbage")
    bench = FakeWorkbench()
    result = invoke("ask", *words, bench=bench)
    assert result.stdout == ""
    assert result.code in (2, 3, 5)
    assert said in result.stderr
    assert hint in result.stderr


def test_a_wrong_setting_is_named_by_whoever_gave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("Anna has a red boat.")
    monkeypatch.setenv("INFINIPOT_METHOD", "foo")
    assert "error: INFINIPOT_METHOD must be one of" in invoke("ask", tmp_path / "a.txt", "Who?").stderr
    monkeypatch.delenv("INFINIPOT_METHOD")
    config = tmp_path / "config.yaml"
    config.write_text("alpha: 3\n")
    monkeypatch.setenv("INFINIPOT_CONFIG", str(config))
    assert f"error: {config}:1: alpha must lie in 0..1" in invoke("ask", tmp_path / "a.txt", "Who?").stderr


def test_a_model_that_can_doubt_does_and_others_are_not_asked_to(book: Path) -> None:
    written = {
        name: invoke("ask", book, "Who?", "--json", *more).json["settings"]["generation"] for name, more in DOUBTS
    }
    assert written["reader"]["refusal"][0] == REFUSAL
    assert written["reader"]["refusal"][1] == DEFAULT.doubt
    assert written["more"]["refusal"][1] == 0.3
    assert written["none"]["refusal"] is None
    assert written["plain"]["refusal"] is None
    refused = invoke("ask", book, "Who?", "--model", "smollm2-135m", "--doubt", "0.2")
    assert refused.code == 2
    assert "--doubt is for questions to a model" in refused.stderr
    assert invoke("summarize", book, "--json").json["settings"]["generation"]["refusal"] is None


DOUBTS = (
    ("reader", []),
    ("more", ["--doubt", "0.3"]),
    ("none", ["--doubt", "0"]),
    ("plain", ["--model", "smollm2-135m"]),
)


@pytest.mark.parametrize(("reason", "said"), [("length", "(96 tokens, cut off there)"), ("stop", "(96 tokens)")])
def test_the_receipt_says_whether_an_answer_was_cut_off(reason: str, said: str) -> None:
    receipt = Receipt("summarize", stop_reason=reason, tokens={"answer": 96}, timings={"answering": 2.0})
    assert said in "\n".join(receipt.lines())
