"""Ctrl-C: while loading, waiting, reading and answering; once and twice."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pytest
from cli_support import FakeWorkbench, home, invoke  # noqa: F401


def press(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"line {number} of many\n" for number in range(5000)))
    return path


def at_the_second(action: object) -> object:
    calls = iter(range(1000))

    def act(*_: object) -> None:
        if next(calls) == 1:
            action()  # type: ignore[operator]

    return act


def test_what_was_read_so_far_is_used_on_a_terminal(book: Path) -> None:
    bench = FakeWorkbench(on_read=at_the_second(press))  # type: ignore[arg-type]
    result = invoke("ask", book, "Who?", bench=bench, tty="err", environ={"TERM": "dumb"})
    assert (result.code, result.stdout) == (0, "The answer.\n")
    assert len(bench.readings[0].passages) == 2
    assert "interrupted" in result.stderr
    assert "not read to the end" in result.stderr


def test_json_tells_of_the_interruption(book: Path) -> None:
    bench = FakeWorkbench(on_read=at_the_second(press))  # type: ignore[arg-type]
    content = invoke("ask", book, "Who?", "--json", "--on-interrupt", "answer", bench=bench).json
    assert content["interrupted"] is True
    assert content["sources"][0]["complete"] is False


def test_without_a_terminal_reading_just_stops(book: Path) -> None:
    bench = FakeWorkbench(on_read=at_the_second(press))  # type: ignore[arg-type]
    result = invoke("ask", book, "Who?", bench=bench)
    assert (result.code, result.stdout, bench.asked) == (130, "", [])


def test_discard_by_wish(book: Path) -> None:
    bench = FakeWorkbench(on_read=at_the_second(press))  # type: ignore[arg-type]
    assert invoke("ask", book, "Who?", "--on-interrupt", "discard", bench=bench, tty="err").code == 130


def test_the_second_ctrl_c_stops_at_once(book: Path) -> None:
    def twice() -> None:
        press()
        press()

    bench = FakeWorkbench(on_read=at_the_second(twice))  # type: ignore[arg-type]
    result = invoke("ask", book, "Who?", "--on-interrupt", "answer", bench=bench)
    assert (result.code, bench.asked) == (130, [])


def test_a_pot_is_not_saved_from_half_a_book(book: Path, tmp_path: Path) -> None:
    bench = FakeWorkbench(on_read=at_the_second(press))  # type: ignore[arg-type]
    target = tmp_path / "x.pot"
    assert invoke("pot", "save", book, "-o", target, bench=bench, tty="err").code == 130
    assert not target.exists()


def test_a_pot_of_half_a_book_by_wish(book: Path, tmp_path: Path) -> None:
    bench = FakeWorkbench(on_read=at_the_second(press))  # type: ignore[arg-type]
    target = tmp_path / "x.pot"
    assert invoke("pot", "save", book, "-o", target, "--on-interrupt", "answer", bench=bench).code == 0
    assert target.exists()


def test_waiting_for_input_is_broken_off() -> None:
    class Endless(io.BytesIO):
        """Gives a page, then waits; somebody presses Ctrl-C."""

        def __init__(self) -> None:
            super().__init__(b"word " * 2000)

        def read1(self, size: int = -1, /) -> bytes:
            data = super().read1(size)
            if not data:
                press()
            return data

    result = invoke("summarize", "--on-interrupt", "answer", stdin=Endless())
    assert (result.code, result.stdout) == (0, "The answer.\n")
    assert "interrupted" in result.stderr


def test_nothing_read_yet_means_no_answer() -> None:
    class Silent(io.BytesIO):
        calls = 0

        def read1(self, size: int = -1, /) -> bytes:
            self.calls += 1
            if self.calls == 1:
                return b"x" * 64
            press()
            return b""

    bench = FakeWorkbench()
    assert invoke("summarize", "--on-interrupt", "answer", stdin=Silent(), bench=bench).code == 130
    assert bench.asked == []


def test_while_loading(book: Path) -> None:
    bench = FakeWorkbench(on_load=press)
    assert invoke("ask", book, "Who?", bench=bench, tty="err", environ={"TERM": "dumb"}).code == 130


def test_in_the_answer_the_line_ends_and_the_exit_code_says_so(book: Path) -> None:
    bench = FakeWorkbench(on_token=at_the_second(press))  # type: ignore[arg-type]
    result = invoke("ask", book, "Who?", bench=bench)
    assert (result.code, result.stdout) == (130, "The answer\n")


def test_twice_in_the_answer(book: Path) -> None:
    def twice(_: str) -> None:
        press()
        press()

    result = invoke("ask", book, "Who?", bench=FakeWorkbench(on_token=twice))
    assert (result.code, result.stdout) == (130, "The")


def test_each_stops_at_the_file_that_was_interrupted(book: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("six seven")
    bench = FakeWorkbench(on_read=at_the_second(press))  # type: ignore[arg-type]
    result = invoke("ask", "--each", book, other, "Who?", "--on-interrupt", "answer", bench=bench)
    assert result.code == 130
    assert len(result.stdout.splitlines()) == 1


def test_ctrl_c_is_given_back_afterwards(book: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    invoke("ask", book, "Who?")
    assert signal.getsignal(signal.SIGINT) is before
