"""chat: question after question on one pot."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from cli_support import FakeWorkbench, home, invoke  # noqa: F401


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("one two three")
    return path


def test_questions_from_lines(book: Path) -> None:
    bench = FakeWorkbench()
    result = invoke("chat", book, stdin=b"Who?\n\n  \nWhen?\r\nWhy?", bench=bench)
    assert (result.code, result.stdout) == (0, "The answer.\n" * 3)
    assert len(bench.loaded) == len(bench.readings) == 1
    assert "3 tokens" in result.stderr


def test_what_was_said_stays(book: Path) -> None:
    bench = FakeWorkbench()
    invoke("chat", book, stdin=b"Who?\nWhen?\n", bench=bench)
    assert bench.asked[1] == "<next> When? <answer>"
    assert "Question: Who?" in bench.pots[1]
    assert bench.pots[1].endswith("<answer> The answer.")


def test_fresh_forgets(book: Path) -> None:
    bench = FakeWorkbench()
    invoke("chat", book, "--fresh", stdin=b"Who?\nWhen?\n", bench=bench)
    assert bench.pots == ["one two three"] * 2
    assert "Question: When?" in bench.asked[1]


def test_json_is_a_line_per_answer(book: Path) -> None:
    result = invoke("chat", book, "--json", stdin=b"Who?\nWhen?\n")
    assert [line["question"] for line in result.json_lines] == ["Who?", "When?"]


def test_a_pot(book: Path, tmp_path: Path) -> None:
    pot = tmp_path / "x.pot"
    invoke("pot", "save", book, "-o", pot)
    assert invoke("chat", pot, stdin=b"Who?\n").stdout == "The answer.\n"


def test_a_prompt_where_somebody_types(book: Path) -> None:
    result = invoke("chat", book, stdin=__import__("io").BytesIO(b"Who?\n"), tty="in")
    assert result.stdout == "The answer.\n"
    assert "> " in result.stderr
    assert "Ctrl-D" in result.stderr


def test_stdin_cannot_be_both(book: Path) -> None:
    assert invoke("chat", "-", stdin=b"text").code == 2


def test_a_question_as_catalyst_makes_no_sense(book: Path) -> None:
    assert invoke("chat", book, "--catalyst", "cap-q", stdin=b"Who?\n").code == 2


def test_ctrl_c_in_an_answer_goes_on_where_somebody_types(book: Path) -> None:
    import io

    presses = iter([True, False, False, False])

    def press(_: str) -> None:
        if next(presses, False):
            signal.raise_signal(signal.SIGINT)

    bench = FakeWorkbench(on_token=press)
    result = invoke("chat", book, stdin=io.BytesIO(b"Who?\nWhen?\n"), tty="in", bench=bench)
    assert (result.code, result.stdout) == (0, "The\nThe answer.\n")
    assert bench.pots == ["one two three"] * 2


def test_ctrl_c_in_an_answer_ends_a_script(book: Path) -> None:
    bench = FakeWorkbench(on_token=lambda piece: signal.raise_signal(signal.SIGINT))
    result = invoke("chat", book, stdin=b"Who?\nWhen?\n", bench=bench)
    assert (result.code, result.stdout) == (130, "The\n")
