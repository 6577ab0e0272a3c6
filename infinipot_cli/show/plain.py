"""Pieces as text: coloured on a terminal, with marks elsewhere, wrapped where there is a width."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.cells import cell_len

from infinipot_cli.show.pieces import Gap, Held, Piece
from infinipot_cli.show.shades import Palette, shade
from infinipot_cli.terminal import printable

_PARTS = re.compile(r"\n|[^\S\n]+|\S+")


class Wrapper:
    """Breaks styled text between words, as it comes; holds one word. Without a ``width`` it only passes on."""

    def __init__(self, write: Callable[[str], object], palette: Palette, width: int | None) -> None:
        self._write = write
        self._palette = palette
        self._width = width
        self._style = ""
        self._word: list[tuple[str, str]] = []
        self._word_cells = 0
        self._column = 0

    def feed(self, text: str, style: str = "") -> None:
        """Text in a style; styles of the palette change where text begins, never before white space."""
        for part in _PARTS.findall(printable(text)):
            if part == "\n":
                self.newline()
            elif part.isspace():
                self._space(part, style)
            else:
                self._add(part, style)

    def newline(self) -> None:
        self._flush()
        self._break()

    def start_line(self) -> None:
        """A newline, unless a line has just begun."""
        self._flush()
        if self._column:
            self._break()

    def end(self) -> None:
        self.start_line()
        self._restyle("")

    def _add(self, part: str, style: str) -> None:
        cells = cell_len(part) + self._mark(style)
        if self._width is not None and self._word_cells + cells > self._width:
            self._flush()  # no word, or one in a script without spaces
        self._word.append((part, style))
        self._word_cells += cells

    def _mark(self, style: str) -> int:
        """Columns that a change to ``style`` takes here."""
        before = self._word[-1][1] if self._word else self._style
        return 0 if self._palette.colored or style == before else cell_len(style)

    def _space(self, part: str, style: str) -> None:
        self._flush()
        cells = cell_len(part)
        if self._width is not None and self._column + cells > self._width:
            self._break()
            return
        # In marks, white space belongs to what was before.
        self._put(part, style if self._palette.colored else self._style)
        self._column += cells

    def _flush(self) -> None:
        if self._width is not None and self._column and self._column + self._word_cells > self._width:
            self._break()
        for part, style in self._word:
            self._put(part, style)
        self._column += self._word_cells
        self._word, self._word_cells = [], 0

    def _put(self, text: str, style: str) -> None:
        self._restyle(style)
        self._write(text)

    def _restyle(self, style: str) -> None:
        if style == self._style:
            return
        if self._style:
            self._write(self._palette.end)
        if style:
            self._write(style)
        self._style = style

    def _break(self) -> None:
        if self._palette.colored:
            self._restyle("")  # a background would run to the edge
        self._write("\n")
        self._column = 0


class TextPage:
    """Writes the pieces of one source after another. ``unit`` "line" gets no headings: lines show themselves."""

    def __init__(self, write: Callable[[str], object], palette: Palette, slots: int, width: int | None = None) -> None:
        self._palette = palette
        self._slots = slots
        self._wrapper = Wrapper(write, palette, width)
        self._unit: int | None = None
        self._heading = ""

    def source(self, name: str | None, unit: str) -> None:
        """Begin a source; ``name`` is None where it is the only one."""
        self._unit, self._heading = None, unit if unit != "line" else ""
        if name is not None:
            self._title(f"=== {name} ===")

    def piece(self, piece: Piece) -> None:
        if self._heading and piece.unit != self._unit:
            self._unit = piece.unit
            self._title(f"-- {self._heading} {piece.unit} --")
        if isinstance(piece, Held):
            self._wrapper.feed(piece.text, self._palette.shades[shade(sum(piece.counts) / self._slots)])
        else:
            self._gap(piece)

    def end(self) -> None:
        self._wrapper.end()

    def _gap(self, gap: Gap) -> None:
        if gap.text is None:
            self._wrapper.feed(self._palette.missing(gap.size), self._palette.evicted if self._palette.colored else "")
        else:
            self._wrapper.feed(gap.text, self._palette.evicted)

    def _title(self, text: str) -> None:
        self._wrapper.start_line()
        self._wrapper.feed(text, self._palette.heading)
        self._wrapper.newline()
