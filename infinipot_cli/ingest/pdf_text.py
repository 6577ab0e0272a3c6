"""Cleaning the text of PDF pages: line ends, ligatures, hyphens at line ends, control characters."""

from __future__ import annotations

import re

_HYPHEN = "\ufffe"
"""What PDFium puts for a hyphen at a line end, having joined the two lines already."""
# Both begin at a word's beginning only: from every letter on, a page that is one long word would take hours.
_MARKED = re.compile(rf"(?<![\w-])([\w-]*){_HYPHEN}([\w-]*)")
_COMPOUND = re.compile(r"\b\w+(?:-\w+)+")
_MAX_COMPOUNDS = 20_000
_CONTROLS = dict.fromkeys([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), 0xAD, 0xFEFF])
# Only these: normalising all of the text would change formulas and superscripts.
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
_TABLE: dict[int, str | None] = {**_CONTROLS, **_LIGATURES}
_LINE_END_SPACES = re.compile(r"[ \t]+(?=\n)")
_SOFT_HYPHEN_AT_END = re.compile("\u00ad[ \t]*\r?\n")


class PageCleaner:
    """Cleans page after page, and learns the compounds of the book on the way."""

    def __init__(self) -> None:
        self._compounds: set[str] = set()

    def learn(self, raw: str) -> None:
        """Note the compounds written with a hyphen, so that one broken at its hyphen keeps it."""
        if len(self._compounds) < _MAX_COMPOUNDS:
            self._compounds.update(word.lower() for word in _COMPOUND.findall(raw))

    def clean(self, raw: str) -> str:
        """The text of one page as PDFium gives it, with LF line ends and one newline at its end, or empty."""
        text = _SOFT_HYPHEN_AT_END.sub("", raw).replace("\r\n", "\n").replace("\r", "\n")
        text = _MARKED.sub(self._join, text).replace(_HYPHEN, "")
        text = _LINE_END_SPACES.sub("", text.translate(_TABLE)).strip("\n ")
        return text + "\n" if text else ""

    def _join(self, match: re.Match[str]) -> str:
        """A word broken at a line end: without the hyphen, unless it belongs to the word."""
        left, right = match.groups()
        belongs = not right[:1].islower() or "-" in left + right or f"{left}-{right}".lower() in self._compounds
        return f"{left}-{right}" if belongs and left else left + right
