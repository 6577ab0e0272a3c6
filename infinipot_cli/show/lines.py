"""Pieces as JSON, one object per line: first the facts, then every held token and every gap, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infinipot_cli.show.holding import Holding
from infinipot_cli.show.pieces import Gap, Held


def objects(holding: Holding) -> Iterator[dict[str, Any]]:
    """The objects to write. Of the pieces of one character, each is a token with the same text and offset."""
    yield holding.facts()
    slots = holding.census.slots
    for number in range(len(holding.sources)):
        for piece in holding.pieces(number):
            if isinstance(piece, Gap):
                yield _gap(number, piece)
            else:
                yield from _tokens(number, piece, slots)


def _gap(number: int, gap: Gap) -> dict[str, Any]:
    known = {"source": number, "offset": gap.offset, "missing": gap.size}
    return known if gap.text is None else known | {"text": gap.text}


def _tokens(number: int, held: Held, slots: int) -> Iterator[dict[str, Any]]:
    for token in held.tokens:
        count = sum(token.held)
        yield {
            "source": number,
            "offset": held.offset,
            "place": token.unit,
            "token": token.token,
            "text": held.text,
            "held": count,
            "share": round(count / slots, 4),
            "layers": list(token.held),
        }
