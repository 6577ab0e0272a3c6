"""When a model that transformers' ``generate`` runs writes what."""

from __future__ import annotations

import time
from typing import Any


class Arrivals:
    """transformers' streamer protocol: when it was made, and when each new token came."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.times: list[float] = []
        self._prompt = True

    def put(self, _: Any) -> None:
        if not self._prompt:
            self.times.append(time.perf_counter())
        self._prompt = False

    def end(self) -> None:
        """Nothing is left to do."""
