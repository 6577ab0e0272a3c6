"""Whole sentences of an answer that is written bit by bit and may be cut off."""

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


def _end(text: str, start: int) -> int:
    """Where the last sentence of ``text`` that ends behind ``start`` does; ``start`` where none does."""
    return max((match.end() for match in _END.finditer(text, start)), default=start)
