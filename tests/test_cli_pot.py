"""pot save, load, info and verify; pots wherever documents go."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from cli_support import FakeSession, FakeWorkbench, home, invoke  # noqa: F401

TEXT = "one two three"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def pot(tmp_path: Path, book: Path) -> Path:
    path = tmp_path / "book.pot"
    assert invoke("pot", "save", book, "-o", path, "--model", "smollm2-135m-reader").code == 0
    return path


def test_save_gives_a_receipt_and_nothing_on_stdout(tmp_path: Path, book: Path) -> None:
    target = tmp_path / "x.pot"
    bench = FakeWorkbench()
    result = invoke("pot", "save", book, "-o", target, bench=bench)
    assert (result.code, result.stdout, bench.asked) == (0, "", [])
    assert str(target) in result.stderr
    assert "3 tokens" in result.stderr
    assert bench.catalysts[0].startswith("Summarize the previous context")


def test_save_as_json(tmp_path: Path, book: Path) -> None:
    target = tmp_path / "x.pot"
    content = invoke("pot", "save", book, "-o", target, "--json").json
    assert content["pot"]["file"] == str(target)
    assert content["pot"]["file_bytes"] == target.stat().st_size
    assert "answer" not in content


def test_save_remembers_where_it_came_from(pot: Path, book: Path) -> None:
    meta = invoke("pot", "info", pot, "--json").json["meta"]
    assert meta["sources"][0]["name"] == str(book)
    assert meta["sources"][0]["tokens"] == 3
    assert meta["catalyst"]["name"] == "cap-g"
    assert meta["created_by"].startswith("infinipot ")


def test_save_into_a_pipe_and_ask_from_it(book: Path) -> None:
    saved = invoke("pot", "save", book)
    assert saved.code == 0
    bench = FakeWorkbench()
    result = invoke("ask", "-", "Who?", stdin=saved.raw, bench=bench)
    assert (result.code, result.stdout, bench.pots) == (0, "The answer.\n", [TEXT])
    assert bench.readings == []


def test_save_from_stdin() -> None:
    saved = invoke("pot", "save", stdin=b"alpha beta")
    bench = FakeWorkbench()
    assert invoke("ask", "Who?", stdin=saved.raw, bench=bench).code == 0
    assert bench.pots == ["alpha beta"]


def test_save_refuses_before_it_loads_anything(tmp_path: Path, book: Path, pot: Path) -> None:
    for arguments, tty, complaint in (
        ([book], "out", "terminal"),
        ([book, "-o", pot], "", "exists"),
        ([book, "-o", tmp_path], "", "folder"),
        ([book, "-o", tmp_path / "no" / "x.pot"], "", "no folder"),
        ([book, "--json"], "", "stdout"),
        ([pot, "-o", tmp_path / "y.pot"], "", "pot already"),
        ([book, "-o", tmp_path / "y.pot", "--catalyst", "cap-q"], "", "needs a question"),
    ):
        bench = FakeWorkbench()
        result = invoke("pot", "save", *arguments, bench=bench, tty=tty)
        assert result.code == 2, arguments
        assert complaint in result.stderr
        assert not bench.loaded


def test_force_replaces(pot: Path, book: Path) -> None:
    book.write_text("other words")
    assert invoke("pot", "save", book, "-o", pot, "--force").code == 0
    bench = FakeWorkbench()
    invoke("ask", pot, "Who?", bench=bench)
    assert bench.pots == ["other words"]


def test_save_dry_run_writes_nothing(tmp_path: Path, book: Path) -> None:
    target = tmp_path / "x.pot"
    result = invoke("pot", "save", book, "-o", target, "--dry-run")
    assert result.code == 0
    assert "3 tokens" in result.stdout
    assert not target.exists()
    assert invoke("pot", "save", book, "--dry-run", tty="out").code == 0
    assert invoke("pot", "save", book, "--dry-run", "-o", tmp_path / "no" / "x.pot").code == 2
    assert invoke("pot", "save", book, "--dry-run", "--dtype", "bogus").code == 2


def test_load_answers(pot: Path) -> None:
    result = invoke("pot", "load", pot, "Who?")
    assert (result.code, result.stdout) == (0, "The answer.\n")
    assert "3 tokens" in result.stderr


def test_load_passes_the_bytes_on(pot: Path) -> None:
    bench = FakeWorkbench()
    result = invoke("pot", "load", pot, bench=bench)
    assert (result.code, result.raw) == (0, pot.read_bytes())
    assert not bench.loaded


def test_load_from_stdin_passes_the_bytes_on(pot: Path) -> None:
    assert invoke("pot", "load", "-", stdin=pot.read_bytes()).raw == pot.read_bytes()


def test_load_passes_no_damaged_byte_on(pot: Path) -> None:
    data = bytearray(pot.read_bytes())
    data[-1] ^= 1
    pot.write_bytes(data)
    result = invoke("pot", "load", pot)
    assert (result.code, result.raw) == (5, b"")


def test_load_on_a_terminal_says_what_to_do(pot: Path) -> None:
    result = invoke("pot", "load", pot, tty="out")
    assert result.code == 2
    assert "QUESTION" in result.stderr


def test_what_is_no_pot(book: Path) -> None:
    for command in (["load", book, "Who?"], ["load", book], ["info", book], ["verify", book]):
        result = invoke("pot", *command)
        assert result.code == 5
        assert "is not a pot" in result.stderr


def test_a_missing_pot_is_missing_input() -> None:
    assert invoke("pot", "info", "nowhere.pot").code == 3
    assert invoke("pot", "load", "nowhere.pot", "Who?").code == 3


def test_ask_and_summarize_take_pots(pot: Path) -> None:
    for command in (["ask", pot, "Who?"], ["summarize", pot]):
        bench = FakeWorkbench()
        result = invoke(*command, bench=bench)
        assert (result.code, bench.pots, bench.readings) == (0, [TEXT], [])
        assert "book.txt" in result.stderr


def test_a_pot_is_read_alone(pot: Path, book: Path) -> None:
    assert invoke("ask", pot, book, "Who?").code == 2
    assert invoke("ask", "--each", pot, "Who?").code == 2
    assert invoke("ask", pot, "Who?", "--dry-run").code == 2


def test_a_flag_without_effect_is_pointed_out(pot: Path) -> None:
    assert "--capacity has no effect" in invoke("ask", pot, "Who?", "--capacity", "99").stderr
    said = invoke("ask", pot, "Who?", "--norm", "2", "--no-reset").stderr
    assert "--norm has no effect" in said
    assert "--no-reset has no effect" in said
    assert "no effect" not in invoke("ask", pot, "Who?").stderr


def test_a_pot_brings_its_model_if_it_is_here(tmp_path: Path, book: Path) -> None:
    path = tmp_path / "x.pot"
    invoke("pot", "save", book, "-o", path, "--model", "larger")
    bench = FakeWorkbench(here=("larger",))
    assert invoke("ask", path, "Who?", bench=bench).code == 0
    assert bench.loaded[0].model == "larger"
    missing = invoke("ask", path, "Who?")
    assert missing.code == 4
    assert "larger" in missing.stderr
    assert invoke("ask", path, "Who?", "--model", "smollm2-135m", bench=bench).code == 6


def test_info_for_people(pot: Path, book: Path) -> None:
    result = invoke("pot", "info", pot)
    assert result.code == 0
    for part in ("smollm2-135m", str(book), "3 tokens", "cap-g"):
        assert part in result.stdout


def test_verify_several(pot: Path, tmp_path: Path) -> None:
    assert invoke("pot", "verify", pot).stdout == f"{pot}: sound\n"
    assert json.loads(invoke("pot", "verify", pot, "--json").stdout)["sound"] is True
    bad = tmp_path / "bad.pot"
    bad.write_bytes(pot.read_bytes()[:-1] + b"\x00")
    assert invoke("pot", "verify", pot, bad).code == 5


def test_a_task_that_the_pot_was_not_read_with_is_pointed_out(pot: Path, tmp_path: Path) -> None:
    task = tmp_path / "mine.yaml"
    task.write_text(
        "kind: task\nname: mine\ndescription: mine\ncatalyst: cap-g\nsystem: Be brief.\n"
        'prompt: "{document} {question}"\n'
    )
    assert "ahead of the document" in invoke("ask", pot, "Who?", "--task", task).stderr


def test_a_full_disk(tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(FakeSession, "save", full)
    result = invoke("pot", "save", book, "-o", tmp_path / "x.pot")
    assert result.code == 1
    assert f"error: {tmp_path / 'x.pot'} could not be written: No space left on device\nhint: free" in result.stderr


def test_a_summary_of_a_pot_is_its_own_models(pot: Path) -> None:
    bench = FakeWorkbench()
    assert invoke("summarize", pot, bench=bench).code == 0
    assert [options.model for options in bench.loaded] == ["smollm2-135m-reader"]


def test_pipes_and_devices_are_written_to_and_never_replaced(tmp_path: Path, book: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    assert invoke("pot", "save", book, "-o", pipe).code == 0
    reader.join(10)
    assert got
    assert got[0]
    assert pipe.is_fifo()
    assert invoke("pot", "save", book, "-o", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()


def test_what_a_link_points_to_is_replaced(tmp_path: Path, book: Path) -> None:
    real, link = tmp_path / "real.pot", tmp_path / "link.pot"
    real.write_text("old")
    link.symlink_to(real)
    assert "exists already" in invoke("pot", "save", book, "-o", link).stderr
    assert invoke("pot", "save", book, "-o", link, "--force").code == 0
    assert link.is_symlink()
    assert real.read_bytes() != b"old"


def test_a_pot_that_is_passed_on_is_no_json(pot: Path) -> None:
    result = invoke("pot", "load", pot, "--json")
    assert (result.code, result.stdout) == (2, "")
