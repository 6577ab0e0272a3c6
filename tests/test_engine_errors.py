"""What an error leaves behind: tokens wait again and nothing is lost, or the pot says that it is torn."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import ccd, snapshot
from engine.bank import Bank
from engine.pot import Batch, PotLayer
from engine.reader import Reader
from engine.settings import METHODS, PotSettings

PREFIX, CATALYST, CAPACITY = [1, 5, 6], [7, 8, 9, 10], 64
LONGEST = 150


def reader(method: str) -> Reader:
    settings = PotSettings(capacity=CAPACITY, method=method, block=16, group=2, window=8)
    return Reader(tiny.model(), settings, PREFIX, CATALYST)


class Broken:
    """A function that raises at its ``turn``-th call and works at all others."""

    def __init__(self, function: Any, turn: int) -> None:
        self.function, self.left = function, turn

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise torch.OutOfMemoryError("no more")
        return self.function(*arguments, **named)


@pytest.mark.parametrize("method", METHODS)
@given(turn=st.integers(1, 14), pieces=st.lists(st.integers(1, 60), min_size=1, max_size=4), again=st.booleans())
def test_after_an_error_while_reading_everything_is_read_all_the_same(
    method: str, turn: int, pieces: list[int], again: bool
) -> None:
    batch = tiny.document(sum(pieces))
    whole = reader(method)
    whole.feed(batch)
    wanted = whole.finish()
    own, begin, failed = reader(method), 0, 0
    with pytest.MonkeyPatch.context() as patch:
        broken = Broken(ccd.forward, turn)
        patch.setattr(ccd, "forward", broken)
        patch.setattr(snapshot, "forward", broken)
        for piece in pieces:
            try:
                own.feed(batch[begin : begin + piece])
            except torch.OutOfMemoryError:
                failed += 1
            begin += piece
        assert own.stats.tokens + own.stats.waiting == len(batch)
        try:
            got = own.finish()
        except torch.OutOfMemoryError:
            failed += 1
            got = own.finish()
    assert failed <= 1
    assert (got.tokens_read, own.stats.waiting) == (len(batch), 0)
    assert tiny.same(tiny.contents(got), tiny.contents(wanted))


@pytest.mark.parametrize("scope", ["pot", "head"])
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_pot_that_an_error_tore_is_not_read_on(scope: str, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Reader(tiny.model(), PotSettings(capacity=CAPACITY, scope=scope, block=16), PREFIX, CATALYST)
    kind = Bank if scope == "pot" else PotLayer
    broken = Broken(kind.keep, turn)
    monkeypatch.setattr(kind, "keep", lambda *arguments: broken(*arguments))
    with pytest.raises(torch.OutOfMemoryError):
        own.feed(tiny.document(LONGEST))
    for use in (lambda: own.feed(Batch.of([5] * 80)), own.finish):
        with pytest.raises(RuntimeError, match="read the text anew"):
            use()
