"""How long a device works on something, without making anything wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Stopwatch:
    """Adds up spans of a device's work.

    CUDA is asked to do things and does them later, so there a span lies between two events of the stream itself; on a
    CPU it lies between two looks at the clock. A span that raises counts too.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds = 0.0
        self._open: list[tuple[Any, Any]] = []

    @contextmanager
    def span(self) -> Iterator[None]:
        """Count what is done, or asked for, inside."""
        if self._device.type == "cuda":
            with self._events():
                yield
            return
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - began

    @property
    def seconds(self) -> float:
        """Seconds of the spans that are over; on CUDA, of those that the device has come to the end of."""
        waiting = []
        for start, end in self._open:
            if end.query():
                self._seconds += start.elapsed_time(end) / 1000
            else:
                waiting.append((start, end))
        self._open = waiting
        return self._seconds

    @contextmanager
    def _events(self) -> Iterator[None]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(self._device):
            start.record()
            try:
                yield
            finally:
                end.record()
                self._open.append((start, end))
