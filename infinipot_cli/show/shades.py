"""How much is held of a token, in four shades: for a terminal with colours, and for plain text."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

#: Up to this share of the (layer, head) slots for the first three shades; more than the last is the fourth.
LIMITS = (0.1, 1 / 3, 2 / 3)
NAMES = ("up to 10 %", "33 %", "67 %", "more")


def shade(share: float) -> int:
    """0 to 3."""
    return bisect_left(LIMITS, share)


@dataclass(frozen=True)
class Palette:
    """What goes before and after a stretch of text: by shade if held, and if not."""

    shades: tuple[str, str, str, str]
    evicted: str
    heading: str
    end: str = ""
    gap: str = "⋯"

    @property
    def colored(self) -> bool:
        return bool(self.end)

    def missing(self, size: int | None) -> str:
        """What stands for text that is not there."""
        return self.gap if size is None else f"{self.gap}{size:,}{self.gap}"

    def legend(self, slots: int, originals: bool) -> str:
        """The shades, named."""
        named = list(zip(self.shades, NAMES, strict=True)) if slots > 1 else [(self.shades[-1], "held")]
        samples = " ".join(f"{style}{self._word(name)}{self.end}" for style, name in named)
        unheld = f"{self.evicted}{self._word('evicted')}{self.end}" if originals else ""
        missing = f"{self.gap}N{self.gap} characters not held"
        return f"{samples}{f' of the {slots:,} heads hold it' if slots > 1 else ''}; {unheld or missing}"

    def _word(self, name: str) -> str:
        return f" {name} " if self.colored else name


def _color(background: int, text: int) -> str:
    return f"\x1b[38;5;{text};48;5;{background}m"


#: Cool to hot, each of middle brightness with its own letters: readable on dark and light terminals alike.
COLORS = Palette(
    (_color(60, 231), _color(23, 231), _color(172, 16), _color(160, 231)), "\x1b[2m", "\x1b[1m", end="\x1b[0m"
)
#: Each mark holds until the next one.
MARKS = Palette(("░", "▒", "▓", "█"), "·", "")
ASCII = Palette(("{1}", "{2}", "{3}", "{4}"), "{0}", "", gap="...")


def palette_for(colored: bool, encoding: str) -> Palette:
    """Colours, or marks that the encoding has."""
    if colored:
        return COLORS
    try:
        "".join((*MARKS.shades, MARKS.evicted, MARKS.gap)).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return MARKS
