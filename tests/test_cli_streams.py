"""Which stream carries what, on terminals and in pipes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from cli_support import FakeStats, FakeWorkbench, Stream, home, invoke  # noqa: F401

from infinipot_cli import plan, progress
from infinipot_cli.terminal import Terminal

ESCAPE = "\x1b]0;owned\x07"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("one two three")
    return path


def terminal(tty: str = "", **more: object) -> Terminal:
    words = tty.split()
    return Terminal(
        io.BytesIO(), Stream(), Stream(), "in" in words, "out" in words, "err" in words, **{"environ": {}, **more}
    )


def test_quiet_drops_the_receipt_but_not_warnings(book: Path) -> None:
    silent = FakeWorkbench(answer=lambda pot: ())
    assert "warning" in invoke("ask", book, "Who?", "-q", bench=silent).stderr
    assert "read " not in invoke("ask", book, "Who?", "-q").stderr
    assert invoke("ask", book, "Who?", "-qq", bench=silent).stderr == ""


def test_quiet_keeps_errors() -> None:
    assert "error:" in invoke("ask", "nowhere.txt", "Who?", "-qq").stderr


def test_verbose_says_more(book: Path) -> None:
    assert "attention kernel" in invoke("ask", book, "Who?", "-v").stderr
    assert "attention kernel" not in invoke("ask", book, "Who?").stderr


def test_model_text_is_written_raw_into_a_pipe(book: Path) -> None:
    bench = FakeWorkbench(answer=lambda pot: ("[bold]x[/bold] ", ESCAPE, "\u2028 e\u0301"))
    assert invoke("ask", book, "Who?", bench=bench).stdout == f"[bold]x[/bold] {ESCAPE}\u2028 e\u0301\n"


def test_model_text_cannot_drive_a_terminal(book: Path) -> None:
    bench = FakeWorkbench(answer=lambda pot: ("a", ESCAPE, "\tb\n"))
    result = invoke("ask", book, "Who?", bench=bench, tty="out")
    assert "\x1b" not in result.stdout
    assert "\tb\n" in result.stdout


def test_file_names_cannot_drive_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2Jb.txt"
    path.write_text("text")
    assert "\x1b" not in invoke("ask", path, "Who?", tty="err", environ={"TERM": "dumb"}).stderr


def test_file_names_make_no_lines_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a\nerror: b.txt"
    for command in (("tokens",), ("summarize",), ("summarize", "--dry-run")):
        missing = invoke(*command, path)
        assert (missing.code, missing.stderr.count("\n")) == (3, 1)
    path.write_text("text")
    for command in (("tokens",), ("summarize",), ("summarize", "--dry-run")):
        result = invoke(*command, path)
        assert r"a\nerror: b.txt" in result.stdout + result.stderr
        assert "\nerror:" not in result.stdout + result.stderr


def test_every_piece_is_flushed_at_once(book: Path) -> None:
    seen: list[str] = []
    stdout = Stream()
    bench = FakeWorkbench(on_token=lambda piece: seen.append(stdout.bytes.decode()))
    from infinipot_cli.main import run

    run(["ask", str(book), "Who?"], Terminal(None, stdout, Stream(), environ={}), bench)
    assert seen == ["The", "The answer", "The answer."]


def test_a_letter_that_stdout_lacks_does_not_end_the_run(book: Path) -> None:
    bench = FakeWorkbench(answer=lambda pot: ("na\u00efve \u4e2d",))
    result = invoke("ask", book, "Who?", "--json", bench=bench, encoding="ascii")
    assert json.loads(result.raw)["answer"] == "na\u00efve \u4e2d"


@pytest.mark.parametrize(
    ("flags", "tty", "environ", "colored"),
    [
        ("", "err", {}, True),
        ("", "", {}, False),
        ("", "err", {"NO_COLOR": "1"}, False),
        ("", "err", {"NO_COLOR": ""}, True),
        ("", "err", {"TERM": "dumb"}, False),
        ("", "", {"FORCE_COLOR": "1"}, True),
        ("", "", {"CLICOLOR_FORCE": "0"}, False),
        ("", "", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("--color always", "", {"NO_COLOR": "1"}, True),
        ("--color never", "err", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_color(book: Path, flags: str, tty: str, environ: dict[str, str], colored: bool) -> None:
    result = invoke(
        "ask", book, "Who?", "--capacity", "64", "--max-tokens", "64", *flags.split(), tty=tty, environ=environ
    )
    assert ("\x1b[1;31merror:" in result.stderr) == colored


def test_a_plain_line_every_ten_seconds_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    where = terminal()
    shown = progress.make_progress(where)
    source = _Source()
    for done in range(1, 8):
        shown.reading(source, FakeStats(done * 100, done, 50, 100), done * 10, 200)  # type: ignore[arg-type]
    lines = where.stderr.bytes.decode().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 2
    assert "book.pdf" in lines[0]
    assert "page 3/9" in lines[0]
    assert "pot 50 %" in lines[0]


def test_a_moving_line_on_a_terminal_that_goes_away() -> None:
    where = terminal("err")
    shown = progress.make_progress(where)
    shown.stage("Loading")
    shown.reading(_Source(), FakeStats(10, 0, 5, 10), 1, 4)  # type: ignore[arg-type]
    shown.stop()
    drawn = where.stderr.bytes.decode()  # type: ignore[attr-defined]
    assert "page 3/9" in drawn
    assert drawn.rstrip().endswith("\x1b[2K")


def test_no_moving_line_when_quiet_or_dumb() -> None:
    assert isinstance(progress.make_progress(terminal("err", quiet=1)), progress.Silent)
    assert isinstance(progress.make_progress(terminal("err", environ={"TERM": "dumb"})), progress.Plain)
    assert isinstance(progress.make_progress(terminal("err")), progress.Lively)


def test_a_name_is_no_markup() -> None:
    where = terminal("err")
    shown = progress.make_progress(where)
    shown.stage("Loading [/bold] [red]x")
    shown.stop()
    assert "[/bold] [red]x" in where.stderr.bytes.decode()  # type: ignore[attr-defined]


@pytest.mark.parametrize("tty", ["", "err"])
def test_a_name_is_one_line_and_drives_no_terminal(tty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY", 0)
    where = terminal(tty)
    shown = progress.make_progress(where)
    source = _Source()
    source.name = "a\nb\x1b[31mc\x9bd"
    shown.reading(source, FakeStats(10, 0, 5, 10), 1, 4)  # type: ignore[arg-type]
    shown.stop()
    assert "a\\nb\ufffd[31mc\ufffdd" in where.stderr.bytes.decode()  # type: ignore[attr-defined]


def test_waiting_for_stdin_is_said_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    released = threading.Event()

    class Slow(io.BytesIO):
        def read1(self, size: int = -1, /) -> bytes:
            released.wait(5)
            return super().read1(size)

    said: list[str] = []

    def warn(self: Terminal, text: str) -> None:
        said.append(text)
        released.set()

    monkeypatch.setattr(plan, "PATIENCE", 0.01)
    monkeypatch.setattr(Terminal, "warn", warn)
    assert invoke("summarize", stdin=Slow(b"text")).code == 0
    assert "no data from stdin" in said[0]


class _Source:
    name = "book.pdf"
    unit = "page"
    pages = 9
    pages_read = 3
    bytes_read = 12
