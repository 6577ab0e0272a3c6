"""Ctrl-C: the first one asks to stop at the next good moment, the second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """Counts Ctrl-C while inside ``polite``; outside it, Ctrl-C raises KeyboardInterrupt as ever.

    Inside, the first Ctrl-C only sets ``pressed``, for the work to look at; yet where the work waits for input
    (``waiting``) it raises at once, since nothing would look.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._waiting = False
        self._heard: Callable[[], None] | None = None

    @contextmanager
    def polite(self, heard: Callable[[], None] | None = None) -> Iterator[None]:
        """Take over Ctrl-C; ``heard`` is called at the first one, to say that it was noticed.

        Does nothing outside the main thread, where signals cannot be handled.
        """
        self.pressed = False
        self._heard = heard
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Work inside may block: let the first Ctrl-C break it off by KeyboardInterrupt."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def is_pressed(self) -> bool:
        """For the engine to ask between tokens."""
        return self.pressed

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        if self.pressed or self._waiting:
            self.pressed = True
            raise KeyboardInterrupt
        self.pressed = True
        if self._heard is not None:
            self._heard()
