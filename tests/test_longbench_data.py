"""LongBench's examples: folder, archive or hub; what is damaged or missing is said before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from longbench_folder import as_jsonl, line, lines, write_folder, write_zip

from infinipot_cli.bench.longbench.cases import make_part
from infinipot_cli.bench.longbench.data import ARCHIVE, HUB_ID, Data, Example, open_data
from infinipot_cli.bench.longbench.tasks import all_tasks
from infinipot_cli.errors import InputError

KNOWN = list(all_tasks())
LAYOUTS: dict[str, Callable[[Path, Any], Path]] = {
    "folder": write_folder,
    "folder with data in it": lambda path, found: write_folder(path / "data", found).parent,
    "folder with the archive": lambda path, found: write_zip(write_folder(path, {}) / ARCHIVE, found).parent,
    "archive": lambda path, found: write_zip(path.with_suffix(".zip"), found),
}


def opened(path: Path) -> Data:
    return open_data(path, KNOWN, offline=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_examples(tmp_path: Path, layout: str) -> None:
    written = lines(["trec", "lcc"])
    written["lcc"][1] |= {"context": "if x:\n    naïve — 日本\n", "input": ""}
    found = opened(LAYOUTS[layout](tmp_path / "bench", written))
    assert set(found.members) == {"trec", "lcc"}
    code, trec = list(found.examples("lcc")), list(found.examples("trec"))
    assert [example.number for example in code] == [1, 2, 3]
    assert code[1].context == "if x:\n    naïve — 日本\n"
    assert code[0].classes == ()
    assert trec[2].classes == ("answer", "other")
    assert trec[2].answers == ("answer",)
    assert trec[2].question == "question 2 of trec?"
    assert trec[2].words == 12
    assert list(found.examples("trec", only=2)) == [trec[1]]


def test_blank_lines_are_no_examples_and_keep_the_count(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {"lcc": [line("lcc", 0)]})
    text = as_jsonl([line("lcc", 0)])
    (folder / "lcc.jsonl").write_text(f"\n{text}\n\n{as_jsonl([line('lcc', 1)])}", encoding="utf-8")
    assert [example.number for example in opened(folder).examples("lcc")] == [2, 5]


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        ('{"context": "cut o', "line 2 is no JSON"),
        ("[1, 2]", "line 2 is no JSON object"),
        (json.dumps(line("lcc", 1, context=None)), "line 2: 'context' is missing, or no text"),
        (json.dumps(line("lcc", 1, answers="one")), "line 2: 'answers' is missing, or no list of texts"),
        (json.dumps(line("lcc", 1, answers=[1])), "line 2: 'answers' is missing, or no list of texts"),
        (json.dumps(line("lcc", 1, all_classes=["a", 2])), "line 2: 'all_classes' is missing, or no list of texts"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, damaged: str, problem: str) -> None:
    folder = write_folder(tmp_path, lines(["lcc"]))
    first, _, last = as_jsonl(lines(["lcc"])["lcc"]).splitlines()
    (folder / "lcc.jsonl").write_text("\n".join([first, damaged, last]), encoding="utf-8")
    with pytest.raises(InputError, match=problem) as caught:
        make_part(opened(folder), all_tasks()["lcc"], None, 0)
    assert "lcc.jsonl" in str(caught.value)


def test_a_byte_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    (write_folder(tmp_path, {}) / "lcc.jsonl").write_bytes(b'{"context": "\xff\xfe"}\n')
    with pytest.raises(InputError, match="line 1 is no JSON"):
        list(opened(tmp_path).examples("lcc"))


def test_a_missing_task_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    found = opened(write_folder(tmp_path, lines(["lcc", "trec"])))
    found.require(["trec"])
    with pytest.raises(InputError, match=r"holds no qasper\.jsonl") as caught:
        found.require(["trec", "qasper"])
    assert caught.value.hint == "it holds lcc, trec; choose with --tasks"


def test_what_holds_no_longbench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder or archive"):
        opened(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no file of LongBench"):
        opened(tmp_path)
    with pytest.raises(InputError, match="holds no file of LongBench"):
        opened(write_zip(tmp_path / "other.zip", {"something": [line("lcc", 1)]}))
    text = tmp_path / "text.zip"
    text.write_text("this is no archive")
    with pytest.raises(InputError, match="is damaged or cut off"):
        opened(text)


def test_an_empty_task_is_refused(tmp_path: Path) -> None:
    found = opened(write_folder(tmp_path, {"lcc": []}))
    with pytest.raises(InputError, match="holds no example of lcc"):
        make_part(found, all_tasks()["lcc"], None, 0)


def test_a_damaged_archive_is_found_while_it_is_read(tmp_path: Path) -> None:
    path = write_zip(tmp_path / ARCHIVE, lines(["lcc"], 50))
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"lcc\.jsonl"):
        list(opened(path).examples("lcc"))


def test_the_hub_is_asked_only_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = write_zip(tmp_path / ARCHIVE, lines(["lcc"]))
    asked: list[Any] = []

    def download(*arguments: Any, **options: Any) -> str:
        asked.append((arguments, options))
        return str(archive)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert len(list(opened(tmp_path).examples("lcc"))) == 3
    assert asked == []
    assert len(list(open_data(None, KNOWN, offline=False).examples("lcc"))) == 3
    assert asked == [((HUB_ID, ARCHIVE), {"repo_type": "dataset", "local_files_only": False})]


@pytest.mark.parametrize(
    ("offline", "problem"), [(True, "is not on this machine"), (False, "could not be fetched: no")]
)
def test_without_the_hub_the_error_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, offline: bool, problem: str
) -> None:
    def download(*arguments: Any, **options: Any) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(InputError, match=problem) as caught:
        open_data(None, KNOWN, offline)
    assert "--data" in str(caught.value.hint)


# ------------------------------------------------------------------------------------------------------ cases


def test_a_case_reads_its_own_document_anew(tmp_path: Path) -> None:
    found = opened(write_zip(tmp_path / ARCHIVE, lines(["hotpotqa"])))
    part = make_part(found, all_tasks()["hotpotqa"], None, 0)
    examples: list[Example] = list(found.examples("hotpotqa"))
    for case, example in zip(part.cases, examples, strict=True):
        assert list(case.document()) == list(case.document()) == [example.context]
        assert case.question == example.question
        assert case.accepted == example.answers
        assert case.labels["line"] == example.number
    assert part.cases[0].id.startswith("hotpotqa/hotpotqa0000#")


def test_a_document_that_changed_since_is_not_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, lines(["lcc"]))
    first, second, third = make_part(opened(folder), all_tasks()["lcc"], None, 0).cases
    write_folder(folder, {"lcc": [line("lcc", 0), line("lcc", 1, context="another text")]})
    assert list(first.document()) == [line("lcc", 0)["context"]]
    for case in (second, third):
        with pytest.raises(InputError, match="changed during the run"):
            list(case.document())


def test_a_larger_limit_draws_the_same_and_more(tmp_path: Path) -> None:
    found = opened(write_folder(tmp_path, lines(["lcc"], 20)))
    drawn = {
        limit: [case.id for case in make_part(found, all_tasks()["lcc"], limit, seed=3).cases]
        for limit in (4, 9, 20, None)
    }
    assert set(drawn[4]) < set(drawn[9]) < set(drawn[20])
    assert drawn[20] == drawn[None] == sorted(drawn[None])
    assert [len(drawn[limit]) for limit in (4, 9)] == [4, 9]
    other = [case.id for case in make_part(found, all_tasks()["lcc"], 4, seed=4).cases]
    assert other != drawn[4]


def test_a_line_whose_text_changed_is_another_case(tmp_path: Path) -> None:
    ids = []
    for context in ("one text", "one text.", "one text"):
        folder = write_folder(tmp_path, {"lcc": [line("lcc", 0, context=context)]})
        ids.append(make_part(opened(folder), all_tasks()["lcc"], None, 0).cases[0].id)
    assert ids[0] == ids[2] != ids[1]
