"""Pieces as one HTML file that needs no other file and no network; without scripts all but the choice works."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html import escape
from importlib import resources
from string import Template

from infinipot_cli.show.holding import Holding
from infinipot_cli.show.pieces import Gap, Held
from infinipot_cli.terminal import printable

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_CONTENT = "$CONTENT"


def html(holding: Holding) -> Iterator[str]:
    """The page, part by part."""
    template = resources.files("infinipot_cli.show").joinpath("page.html").read_text(encoding="utf-8")
    before, after = template.split(_CONTENT)
    values = _values(holding)
    yield Template(before).substitute(values)
    for number in range(len(holding.sources)):
        yield from _source(holding, number)
    yield Template(after).substitute(values)


def _values(holding: Holding) -> dict[str, str]:
    census = holding.census
    columns = enumerate(census.layers)
    options = (f'<option value="{column}">layer {layer}</option>' for column, layer in columns)
    lines = [holding.summary(), *(note[0].upper() + note[1:] + "." for note in holding.notes())]
    return {
        "title": _safe(holding.name),
        "facts": "\n".join(f"<p>{_safe(line)}</p>" for line in lines),
        "rest": "Grey text was read and is not held." if holding.has_text else "⋯N⋯: so many characters are not held.",
        "whole": f"layer {census.layers[0]}" if len(census.layers) == 1 else f"all {len(census.layers)} layers",
        "layers": "".join(options) if len(census.layers) > 1 else "",
        "heads": json.dumps(census.heads),
        "numbers": json.dumps(census.layers),
        "digits": str(_width(holding)),
    }


def _source(holding: Holding, number: int) -> Iterator[str]:
    """One source: a section per page or chapter."""
    if len(holding.sources) > 1:
        yield f"<h2>{_safe(holding.source_name(number))}</h2>\n"
    headed, unit = holding.unit(number) != "line", None
    mark = _marker(holding)
    yield "<section>"
    for piece in holding.pieces(number):
        if headed and piece.unit != unit:
            unit = piece.unit
            yield f"</section>\n<h3>{_safe(holding.unit(number))} {unit}</h3>\n<section>"
        yield _gap(piece) if isinstance(piece, Gap) else mark(piece)
    yield "</section>\n"


def _gap(gap: Gap) -> str:
    if gap.text is not None:
        return _safe(gap.text)
    return "<i>⋯</i>" if gap.size is None else f"<i>⋯{gap.size:,}⋯</i>"


def _marker(holding: Holding) -> Callable[[Held], str]:
    slots, width = holding.census.slots, _width(holding)

    def mark(held: Held) -> str:
        counts = held.counts
        code = "".join(_digits(count, width) for count in counts)
        share = (sum(counts) / slots) ** 0.5
        return f'<mark data-o="{held.offset}" data-h="{code}" style="--s:{share:.2f}">{_safe(held.text)}</mark>'

    return mark


def _width(holding: Holding) -> int:
    """Digits to base 36 that a count of heads needs."""
    most, width = max(holding.census.heads), 1
    while most >= 36**width:
        width += 1
    return width


def _digits(count: int, width: int) -> str:
    text = ""
    for _ in range(width):
        count, digit = divmod(count, 36)
        text = _DIGITS[digit] + text
    return text


def _safe(text: str) -> str:
    """Text for HTML; what cannot stand in a file (half a surrogate pair) is replaced."""
    return escape(printable(text)).encode("utf-8", "replace").decode("utf-8")
