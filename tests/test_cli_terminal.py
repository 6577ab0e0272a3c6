"""The command line in a real terminal: progress, resize, Ctrl-C, a chat."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_support import home  # noqa: F401

pexpect = pytest.importorskip("pexpect")
if not hasattr(pexpect, "spawn"):
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

PROGRAM = """
import sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from cli_support import FakeWorkbench
from infinipot_cli import local, main

def slowly(_):
    time.sleep(0.03)

def answer(pot):
    for number in range(40):
        yield f" word{{number}}"

local.LocalWorkbench = lambda: FakeWorkbench(on_read=slowly, on_token=slowly, answer=answer)
main.main()
"""
Spawn = Callable[..., "pexpect.spawn"]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"line {number} of very many\n" for number in range(40_000)))
    return path


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    program = tmp_path / "program.py"
    tests = Path(__file__).parent
    program.write_text(PROGRAM.format(root=str(tests.parent), tests=str(tests)))
    children = []

    def start(*arguments: object) -> pexpect.spawn:
        words = [str(program), *(str(argument) for argument in arguments)]
        children.append(pexpect.spawn(sys.executable, words, timeout=20, dimensions=(24, 100), encoding="utf-8"))
        return children[-1]

    yield start
    for child in children:
        child.close(force=True)


def finish(child: pexpect.spawn) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus)


def test_progress_survives_a_resize_and_ctrl_c_uses_what_was_read(spawn: Spawn, book: Path) -> None:
    child = spawn("ask", book, "Who?")
    child.expect("book.txt.*tokens.*cycle.*pot")
    child.setwinsize(10, 30)
    child.expect("book.txt")
    child.setwinsize(24, 120)
    child.expect("tokens")
    child.sendintr()
    child.expect("reading was interrupted; going on with the [0-9,]+ tokens")
    child.expect("word0 word1")
    child.expect("not read to the end")
    assert finish(child) == 0


def test_ctrl_c_in_the_answer(spawn: Spawn, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("one two")
    child = spawn("ask", short, "Who?")
    child.expect("word0 word1")
    child.sendintr()
    child.expect("read  ")
    assert finish(child) == 130


def test_ctrl_c_twice_while_reading(spawn: Spawn, book: Path) -> None:
    child = spawn("pot", "save", book, "-o", book.with_suffix(".pot"))
    child.expect("tokens")
    child.sendintr()
    child.sendintr()
    assert finish(child) == 130
    assert not book.with_suffix(".pot").exists()


def test_a_pot_is_not_for_a_terminal(spawn: Spawn, book: Path) -> None:
    child = spawn("pot", "save", book)
    child.expect("error.*not for a terminal")
    assert finish(child) == 2


def test_chat_at_a_prompt(spawn: Spawn, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("one two")
    child = spawn("chat", short)
    child.expect("Ctrl-D")
    child.expect("> ")
    child.sendline("Who?")
    child.expect("word1")
    child.sendintr()
    child.expect("> ")
    child.sendintr()
    child.expect("Ctrl-D")
    child.expect("> ")
    child.sendline("When?")
    child.expect("word39")
    child.expect("> ")
    child.sendeof()
    assert finish(child) == 0


def test_a_stray_byte_typed_does_not_end_the_chat(spawn: Spawn, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("one two")
    child = spawn("chat", short)
    child.expect("> ")
    os.write(child.fileno(), b"Caf\xe9?\r")
    child.expect("word39")
    child.expect("> ")
    child.sendeof()
    assert finish(child) == 0
