"""A session that frames and answers as LongBench does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from engine.settings import GenerationSettings
from infinipot_cli.workbench import Frame, Framing, Generation, Session


def literal(session: Session, frame: Frame) -> Session:
    """``session``, but prompts stand in ``frame``, and answers keep their white space: indented code stays so."""
    return cast(Session, _Literal(session, frame))


class _Literal:
    def __init__(self, session: Session, frame: Frame) -> None:
        self._session = session
        self._frame = frame

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def framing(self, before: str, system: str | None) -> Framing:
        return self._session.framing(before, system, self._frame)

    def generate(
        self, pot: Any, suffix_ids: Sequence[int], generation: GenerationSettings, on_text: Any, should_stop: Any
    ) -> Generation:
        result: Any = self._session.generate(pot, suffix_ids, generation, on_text, should_stop)
        return cast(Generation, replace(result, text=result.raw))
