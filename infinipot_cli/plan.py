"""What the words of a command line mean: which are sources, which is the question, is the source a pot."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from engine.errors import PotDamaged
from engine.wellformed import well_formed
from infinipot_cli.errors import InputError, UsageError, reason
from infinipot_cli.ingest import PeekableStream, is_pot
from infinipot_cli.terminal import Terminal

PATIENCE = 10.0
_LAST = "put the question last, in quotes"
STDIN = "-"
_POT_HEAD = 64


@dataclass(frozen=True)
class Plan:
    """``names`` are the sources; ``stdin`` is given if one of them is "-"; ``pot`` if the only one is a pot."""

    names: tuple[str, ...]
    question: str | None = None
    stdin: BinaryIO | None = None
    pot: bool = False

    @property
    def several(self) -> bool:
        """Whether more than one document may come of it."""
        return len(self.names) > 1 or (self.names[0] != STDIN and Path(self.names[0]).is_dir())

    @contextmanager
    def pot_file(self) -> Iterator[Path]:
        """The pot as a file; one from stdin is kept in a temporary file as long as it is needed."""
        if self.stdin is None:
            yield Path(self.names[0])
            return
        with tempfile.TemporaryDirectory(prefix="infinipot-") as folder:
            path = Path(folder) / "stdin.pot"
            with path.open("wb") as target:
                shutil.copyfileobj(self.stdin, target, 1 << 20)
            yield path


def plan_question(terminal: Terminal, words: Sequence[str]) -> Plan:
    """``[SOURCE…] QUESTION``. Raises UsageError where the one or the other is missing."""
    if not words:
        raise UsageError("the question is missing", hint='infinipot ask book.pdf "Who is the narrator?"')
    *names, question = words
    if not question.strip():
        raise UsageError("the question is empty")
    if question == STDIN:
        raise UsageError(f"the question is missing: {STDIN} stands for stdin", hint=_LAST)
    if _exists(question) and (names or not terminal.piped):
        raise UsageError(f"the question is missing: {question} is a file", hint=_LAST)
    if not names and not terminal.piped:
        raise UsageError("there is nothing to read", hint=f'name a file: infinipot ask FILE "{question}"')
    return plan_sources(terminal, names, well_formed(question), empty_hint=f"`{question}` was taken for the question")


def plan_sources(
    terminal: Terminal, names: Sequence[str], question: str | None = None, empty_hint: str | None = None
) -> Plan:
    """Sources, or stdin where none is named. Looks at the beginning of stdin, which waits for it."""
    if not names and not terminal.piped:
        raise UsageError("there is nothing to read", hint="name a file or a folder, or pipe something in")
    names = tuple(names) or (STDIN,)
    files = [_file(name) for name in names]
    if twice := [name for name, file in zip(names, files, strict=True) if files.count(file) > 1]:
        raise UsageError(f"{twice[-1]} is named twice")
    stdin = _open_stdin(terminal, empty_hint) if STDIN in names else None
    lost = _LAST if question is not None and len(names) > 1 else None
    pots = [name for name in names if _is_pot(name, stdin, lost)]
    if pots and len(names) > 1:
        raise UsageError(f"{pots[0]} is a pot, and a pot is read alone", hint="ask each pot by itself")
    return Plan(names, question, cast("BinaryIO | None", stdin), bool(pots))


def _file(name: str) -> str:
    """The same for two names of one file."""
    return name if name == STDIN or not _exists(name) else str(Path(name).resolve())


def _is_pot(name: str, stdin: PeekableStream | None, lost: str | None) -> bool:
    """Raises InputError for a name that is no file, with the hint ``lost``, and PotDamaged for a pot by name only."""
    if name == STDIN:
        return stdin is not None and is_pot(stdin.peek(_POT_HEAD))
    if not _exists(name):
        raise InputError(f"{name}: there is no such file or folder", hint=lost)
    found = is_pot(name)
    if not found and name.endswith(".pot") and Path(name).is_file():
        raise not_a_pot(name)
    return found


def not_a_pot(name: str) -> PotDamaged:
    """The error for what should be a pot."""
    return PotDamaged(f"{name} is not a pot", hint="infinipot pot save makes one from documents")


def _open_stdin(terminal: Terminal, empty_hint: str | None) -> PeekableStream:
    if terminal.stdin is None:
        raise InputError("stdin is closed", hint="name a file, or pipe something in")
    if terminal.stdin_tty:
        terminal.say("reading from the terminal; Ctrl-D ends the input")
    stream = PeekableStream(terminal.stdin)
    try:
        with _patience(terminal):
            first = stream.peek(1)
    except OSError as error:
        raise InputError(f"stdin cannot be read: {reason(error)}") from error
    if not first:
        raise InputError("there is nothing on stdin", hint=empty_hint)
    return stream


@contextmanager
def _patience(terminal: Terminal) -> Iterator[None]:
    """Say after a while that stdin is waited for."""
    timer = threading.Timer(PATIENCE, terminal.warn, ["no data from stdin yet; still waiting (Ctrl-C stops)"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # a long question is no file name
        return False
