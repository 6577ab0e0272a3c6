"""The command line on the real engine, with a tiny random model: nothing it says makes sense, all else must."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import tiny
from cli_support import home, invoke  # noqa: F401

from infinipot_cli.local import LocalSession, LocalWorkbench


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"the cat {number} sat on the mat and the dog on the log\n" for number in range(200)))
    return path


FLAGS = ("--capacity", "256", "--max-tokens", "12", "--device", "cpu")


def infinipot(folder: Path, *arguments: Any, **more: Any) -> Any:
    result = invoke(*arguments, "--model", folder, *FLAGS, bench=LocalWorkbench(), **more)
    assert result.code == 0, result.stderr
    return result


def test_ask_distils_and_accounts_for_it(folder: Path, book: Path) -> None:
    content = infinipot(folder, "ask", book, "who sat there?", "--json").json
    assert content["tokens"]["read"] == content["sources"][0]["tokens"] > 1000
    assert content["pot"]["cycles"] > 5
    assert content["pot"]["entries"] <= 256
    assert 0 < content["tokens"]["answer"] <= 12
    assert content["model"]["architecture"] == "LlamaForCausalLM"


def test_dry_run_foretells_it(folder: Path, book: Path) -> None:
    arguments = ("ask", book, "who sat there?", "--json", "--pot-size", "256K")
    happened = invoke(*arguments, "--model", folder, "--max-tokens", "9", bench=LocalWorkbench()).json
    foretold = invoke(*arguments, "--model", folder, "--dry-run", bench=LocalWorkbench()).json
    assert foretold["capacity"] == happened["pot"]["capacity"] == 1024
    assert happened["pot"]["cycles"] > 3
    assert foretold["exact"]
    assert foretold["tokens"] == happened["tokens"]["read"]
    assert foretold["cycles"] == pytest.approx(happened["pot"]["cycles"], abs=1)


def test_the_answer_is_the_same_streamed_or_not_and_from_a_pot(folder: Path, book: Path, tmp_path: Path) -> None:
    flags = ("--catalyst", "cap-g")
    told = infinipot(folder, "ask", book, "who sat there?", "--json", *flags).json["answer"]
    assert infinipot(folder, "ask", book, "who sat there?", *flags).stdout.strip() == told.strip()
    pot = tmp_path / "x.pot"
    infinipot_save = invoke(
        "pot", "save", book, "-o", pot, "--model", folder, "--capacity", "256", bench=LocalWorkbench()
    )
    assert infinipot_save.code == 0, infinipot_save.stderr
    loaded = invoke(
        "pot", "load", pot, "who sat there?", "--json", "--max-tokens", "12", bench=LocalWorkbench()
    )  # the pot brings its model
    assert loaded.code == 0, loaded.stderr
    assert loaded.json["answer"] == told
    assert invoke("pot", "verify", pot, bench=LocalWorkbench()).code == 0
    assert "book.txt" in invoke("pot", "info", pot, bench=LocalWorkbench()).stdout


def test_a_damaged_pot_is_exit_5(folder: Path, book: Path, tmp_path: Path) -> None:
    pot = tmp_path / "x.pot"
    invoke("pot", "save", book, "-o", pot, "--model", folder, "--capacity", "256", bench=LocalWorkbench())
    data = bytearray(pot.read_bytes())
    data[-100] ^= 1
    pot.write_bytes(data)
    assert invoke("pot", "verify", pot, bench=LocalWorkbench()).code == 5
    assert invoke("pot", "load", pot, bench=LocalWorkbench()).raw == b""
    assert invoke("pot", "load", pot, "who?", "--model", folder, bench=LocalWorkbench()).code == 5


def test_several_files(folder: Path, book: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("the dog")
    content = infinipot(folder, "ask", book, other, "who?", "--json").json
    assert [source["name"] for source in content["sources"]] == [str(book), str(other)]
    assert sum(source["tokens"] for source in content["sources"]) == content["tokens"]["read"]


def test_each(folder: Path, book: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("the dog")
    lines = infinipot(folder, "summarize", book, other, "--each").json_lines
    assert [line["source"] for line in lines] == [str(book), str(other)]


def test_chat_remembers_and_forgets(folder: Path, book: Path) -> None:
    questions = b"who sat there?\nand where?\n"
    kept = infinipot(folder, "chat", book, "--json", stdin=questions).json_lines
    fresh = infinipot(folder, "chat", book, "--json", "--fresh", stdin=questions).json_lines
    assert kept[0]["answer"] == fresh[0]["answer"]
    assert kept[1]["tokens"]["question"] != fresh[1]["tokens"]["question"]


def test_ctrl_c_while_reading(folder: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = LocalSession.reading

    def reading(self: LocalSession, *arguments: Any) -> Any:
        made = make(self, *arguments)
        read = made.read

        def press(*words: Any, **more: Any) -> None:
            read(*words, **more)
            signal.raise_signal(signal.SIGINT)

        made.read = press  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(LocalSession, "reading", reading)
    content = infinipot(folder, "ask", book, "who?", "--json", "--on-interrupt", "answer").json
    assert content["interrupted"]
    assert content["answer"] is not None
    assert content["sources"][0]["chars"] < book.stat().st_size


def test_no_such_model() -> None:
    result = invoke("ask", "who?", "--model", "./nowhere", stdin=b"text", bench=LocalWorkbench())
    assert result.code == 4
    assert "nowhere" in result.stderr
