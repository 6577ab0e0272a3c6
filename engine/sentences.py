"""Whole sentences and lines of an answer that is written bit by bit, may be cut off and may repeat itself."""

from __future__ import annotations

import re
from collections.abc import Callable

#: What a full stop behind it does not end: "Mr. Noon", "J. Noon", "i.e. he", "No. 4", and the number of a list's item.
_NO_ENDS = (
    r"\b[A-Z]",
    r"\bMr",
    r"\bMrs",
    r"\bMs",
    r"\bDr",
    r"\bSt",
    r"\bNo",
    r"\bvs",
    r"\be\.g",
    r"\bi\.e",
    r"^\d",
    r"^\d\d",
)
_MARK = rf"(?:{''.join(f'(?<!{before})' for before in _NO_ENDS)}\.|[!?…])[\"'”’»)\]]*"
_END = re.compile(rf"{_MARK}(?=\s)|[。！？][」』）]*|\n", re.MULTILINE)
_LAST = re.compile(rf"{_MARK}\Z", re.MULTILINE)


def whole(text: str) -> str:
    """``text`` to the end of its last whole sentence or line; all of it where none ends."""
    if _LAST.search(text):
        return text
    return text[: _end(text, 0)] or text


class BySentence:
    """Passes text on to ``on_text`` as soon as the sentence or line that it belongs to is whole."""

    def __init__(self, on_text: Callable[[str], None] | None) -> None:
        self._on_text = on_text
        self._text = ""
        self._passed = 0  # characters of it

    def __call__(self, text: str) -> None:
        self._text += text
        self._pass(_end(self._text, self._passed))

    def close(self, cut: bool) -> str:
        """Pass on what still waits, but for a last sentence that was ``cut`` off; all that was passed on."""
        self._pass(len(whole(self._text) if cut else self._text))
        return self._text[: self._passed]

    def _pass(self, end: int) -> None:
        new, self._passed = self._text[self._passed : end], max(end, self._passed)
        if new and self._on_text:
            self._on_text(new)


class ByLine(BySentence):
    """The same line by line, until one comes that has come before: the answer ``repeats``, and ends ahead of it.

    White space around a line does not tell it from another; empty lines may repeat.
    """

    def __init__(self, on_text: Callable[[str], None] | None) -> None:
        super().__init__(on_text)
        self.repeats = False
        self._known: set[str] = set()

    def __call__(self, text: str) -> None:
        self._text += text
        while not self.repeats and (end := self._text.find("\n", self._passed) + 1):
            self._pass(end)

    def _pass(self, end: int) -> None:
        line = self._text[self._passed : end].strip()
        self.repeats = self.repeats or line in self._known
        if not self.repeats:
            self._known |= {line} - {""}
            super()._pass(end)


def _end(text: str, start: int) -> int:
    """Where the last sentence of ``text`` that ends behind ``start`` does; ``start`` where none does."""
    return max((match.end() for match in _END.finditer(text, start)), default=start)
