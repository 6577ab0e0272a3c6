"""The terminal: the three streams, what they are, and how loudly to speak. The only place that asks.

stdout carries the answer, pot bytes or JSON and nothing else; everything for people goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TextIO

from infinipot_cli.errors import InputError, UsageError, reason

COLORS = ("auto", "always", "never")
_STYLES = {"error": "1;31", "warning": "1;33", "hint": "36", "dim": "2", "bold": "1"}
# Control characters that could drive the terminal; newline and tab are text.
_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}


def printable(text: str) -> str:
    """Text without control characters that could drive a terminal."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """Text with its newlines shown as \\n: a file name may hold some, and must not look like a line of its own."""
    return text.replace("\n", "\\n")


@dataclass
class Terminal:
    """Streams and manners of one run; tests put their own in. ``stdin`` is bytes, or None where it is closed."""

    stdin: BinaryIO | None
    stdout: TextIO
    stderr: TextIO
    stdin_tty: bool = False
    stdout_tty: bool = False
    stderr_tty: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    quiet: int = 0
    verbose: int = 0
    color: str = "auto"
    json: bool = False
    debug: bool = False

    @classmethod
    def system(cls) -> Terminal:
        """The process's own streams. Raises UsageError if there is no stdout to answer on."""
        if sys.stdout is None:
            raise UsageError("stdout is closed, so there is nowhere to put the answer")
        stderr = sys.stderr if sys.stderr is not None else open(os.devnull, "w")  # noqa: SIM115, PTH123
        for stream in (sys.stdin, sys.stdout, stderr):
            if hasattr(stream, "reconfigure"):
                # A letter that the terminal's encoding lacks, or a stray byte typed, must not end the run.
                stream.reconfigure(errors="replace")
        stdin = sys.stdin.buffer if sys.stdin is not None else None
        typed = stdin is not None and sys.stdin.isatty()
        return cls(stdin, sys.stdout, stderr, typed, sys.stdout.isatty(), stderr.isatty())

    @property
    def piped(self) -> bool:
        """Whether something may be read from stdin: it is open, and no terminal."""
        return self.stdin is not None and not self.stdin_tty

    def write(self, text: str) -> None:
        """Model text to stdout, raw and at once; only a terminal is spared its control characters."""
        self.stdout.write(text.translate(_CONTROLS) if self.stdout_tty else text)
        self.stdout.flush()

    def write_json(self, value: Any, indent: int | None = 2) -> None:
        """One JSON value and a newline to stdout; ``indent=None`` makes it one line."""
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        try:
            text.encode(self.stdout.encoding or "utf-8")
        except UnicodeEncodeError:
            text = json.dumps(value, indent=indent)
        self.stdout.write(text + "\n")
        self.stdout.flush()

    def read_line(self, prompt: str) -> str | None:
        """A line from stdin without its end, None at the end of the input; with ``prompt`` if somebody types.

        Raises KeyboardInterrupt at Ctrl-C, InputError where stdin cannot be read.
        """
        if self.stdin is None:
            return None
        if self.stdin_tty and self.stdout_tty and self.stdin is getattr(sys.stdin, "buffer", None):
            with contextlib.suppress(ImportError):  # Windows has its own editing
                import readline  # noqa: F401  (gives input() its editing and history)

            try:
                return input(prompt)
            except EOFError:
                self.say("")
                return None
        if self.stdin_tty:
            self.stderr.write(prompt)
            self.stderr.flush()
        try:
            line = self.stdin.readline()
        except OSError as error:
            raise InputError(f"stdin cannot be read: {reason(error)}") from error
        return line.decode("utf-8", "replace").rstrip("\r\n") if line else None

    @property
    def binary(self) -> BinaryIO:
        """stdout as bytes."""
        self.stdout.flush()
        return self.stdout.buffer

    def say(self, text: str, style: str | None = None) -> None:
        """A line on stderr that --quiet drops."""
        if not self.quiet:
            self._line(text, style)

    def detail(self, text: str) -> None:
        """A line on stderr that only --verbose shows."""
        if self.verbose:
            self._line(text, "dim")

    def warn(self, text: str) -> None:
        """A warning on stderr; -qq drops it."""
        if self.quiet < 2:
            self._line(text, label="warning")

    def error(self, text: str, hint: str | None = None) -> None:
        """An error and its hint on stderr; never dropped."""
        self._line(text, label="error")
        if hint:
            self._line(hint, label="hint")

    def style(self, text: str, style: str | None) -> str:
        """``text`` in a style, where stderr takes colour."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and self.colored else text

    @property
    def colored(self) -> bool:
        """Whether stderr takes colour."""
        return self.takes_color(self.stderr_tty)

    def takes_color(self, tty: bool) -> bool:
        """--color, then NO_COLOR, then FORCE_COLOR or CLICOLOR_FORCE, then whether the stream is a terminal."""
        if self.color != "auto":
            return self.color == "always"
        if self.environ.get("NO_COLOR"):
            return False
        if self.environ.get("FORCE_COLOR") or self.environ.get("CLICOLOR_FORCE", "0") != "0":
            return True
        return tty and self.environ.get("TERM") != "dumb"

    @property
    def lively(self) -> bool:
        """Whether moving progress may be drawn on stderr."""
        return self.stderr_tty and not self.quiet and self.environ.get("TERM") != "dumb"

    def _line(self, text: str, style: str | None = None, label: str | None = None) -> None:
        # File names and messages may be other people's text: their control characters stay out.
        line = self.style(text.translate(_CONTROLS), style)
        self.stderr.write(f"{self.style(label + ':', label)} {one_line(line)}\n" if label else f"{line}\n")
        self.stderr.flush()
