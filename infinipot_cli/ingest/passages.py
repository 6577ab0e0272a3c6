"""Cutting a stream of text into passages, at points that depend on the text alone."""

from __future__ import annotations

from collections.abc import Iterator

from infinipot_cli.ingest.types import MAX_PASSAGE, Passage

_ENOUGH = MAX_PASSAGE // 2


def _cut(text: str, start: int) -> int | None:
    """Where the passage that begins at ``start`` ends; None while more text could still change that.

    It ends after the first newline at or past half of the limit, so that a slow stream is handed on early;
    failing that, at the limit after the last newline before, else before the last space, else there.
    """
    newline = text.find("\n", start + _ENOUGH - 1, start + MAX_PASSAGE)
    if newline >= 0:
        return newline + 1
    if len(text) - start <= MAX_PASSAGE:
        return None
    newline = text.rfind("\n", start, start + _ENOUGH)
    if newline >= 0:
        return newline + 1
    space = text.rfind(" ", start + 1, start + MAX_PASSAGE + 1)
    return space if space > start else start + MAX_PASSAGE


class Cutter:
    """Turns pieces of text, of any size, into passages. Holds at most one passage and one piece."""

    def __init__(self) -> None:
        self._held = ""
        self._place: int | None = None
        self._line = 1
        self._offset = 0
        self.has_text = False
        """Whether anything but white space has been handed on."""

    def feed(self, text: str, place: int | None = None) -> Iterator[Passage]:
        """Add text of the page or chapter ``place``, or of counted lines when it is None.

        Yields the passages that are now complete. A passage never spans two places.
        """
        if place != self._place:
            yield from self.flush()
            self._place = place
        text = self._held + text
        start = 0
        while (end := _cut(text, start)) is not None:
            yield self._passage(text[start:end])
            start = end
        self._held = text[start:]

    def flush(self) -> Iterator[Passage]:
        """Yield what is left, as the last passage or the last of its place."""
        if self._held:
            text, self._held = self._held, ""
            yield self._passage(text)

    def _passage(self, text: str) -> Passage:
        passage = Passage(text, self._line if self._place is None else self._place, self._offset)
        self._offset += len(text)
        self._line += text.count("\n")
        self.has_text = self.has_text or not text.isspace()
        return passage
