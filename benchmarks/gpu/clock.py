"""Time on a device that does later what it is asked now, and time that is left for asking."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def wait(device: torch.device) -> None:
    """Return when the device has done all that it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(device: torch.device, run: Callable[[], object]) -> float:
    """Seconds that the device works on ``run``: between two events of its stream, or two looks at the clock."""
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.device(device):
        start.record()
        run()
        end.record()
        end.synchronize()
    return start.elapsed_time(end) / 1000


class Deadline:
    """So many seconds from now; None never ends."""

    def __init__(self, seconds: float | None) -> None:
        self._began = time.monotonic()
        self._seconds = seconds

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a limit, never below 0."""
        return float("inf") if self._seconds is None else max(self._seconds - self.spent, 0.0)

    @property
    def over(self) -> bool:
        return self.left == 0.0

    def within(self, seconds: float | None) -> Deadline:
        """A deadline in ``seconds``, but no later than this one."""
        limit = self.left if seconds is None else min(seconds, self.left)
        return Deadline(None if limit == float("inf") else limit)
