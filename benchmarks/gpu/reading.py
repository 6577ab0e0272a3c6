"""Reading a long text into a pot: how fast, how near to what the device can multiply, in how much memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu import memory, rates
from benchmarks.gpu.clock import Deadline, wait
from benchmarks.gpu.models import give_back, noise, some_ids
from benchmarks.gpu.shapes import Shape
from engine import estimate
from engine.generation import generate
from engine.measure import Gauge
from engine.model import Model
from engine.pot import Pot
from engine.reader import Reader
from engine.settings import GenerationSettings, PotSettings

#: Tokens of the prefix, and of the question, which is the catalyst too: what a chat template and a question take.
PREFIX, QUESTION = 16, 32
MARKS = 10


@dataclass(frozen=True)
class Wanted:
    """A reading: ``tokens`` of noise, into a pot of ``capacity`` entries of which a cycle keeps ``distilled``."""

    shape: str
    tokens: int
    capacity: int = 4096
    distilled: int = 2048
    block: int = 2048
    method: str = "cap"
    seed: int = 0

    @property
    def settings(self) -> PotSettings:
        return PotSettings(capacity=self.capacity, distilled=self.distilled, block=self.block, method=self.method)

    def about(self) -> dict[str, Any]:
        return asdict(self)


def measure(model: Model, shape: Shape, wanted: Wanted, deadline: Deadline) -> dict[str, Any]:
    """Read, then write one token. ``stopped`` says why it ended early, if it did; ``read`` how far it came.

    The floor is the reading's operations (``engine.measure``) at the matrix rate measured before and after it.
    """
    warm_up(model, shape, wanted)
    before = rates.matrix_rate(model, wanted.block)
    run = _Run(model, shape, wanted)
    run.read(deadline)
    first = run.first_token()
    rate = (before + rates.matrix_rate(model, wanted.block)) / 2
    return run.found(rate, first)


def new_cycles(wanted: Wanted) -> int:
    """Cycles that the reading takes."""
    return estimate.cycles(wanted.tokens, wanted.settings, PREFIX, QUESTION)


def warm_up(model: Model, shape: Shape, wanted: Wanted) -> None:
    """Past the first cycle and to the first token, so that everything a run needs was loaded and tried once."""
    reader = new_reader(model, shape, wanted)
    reader.feed(noise(shape, 0, wanted.capacity + wanted.block, wanted.seed))
    answer_one(model, shape, reader.finish())


def answer_one(model: Model, shape: Shape, pot: Pot) -> float:
    """Seconds until the first token of an answer is there."""
    question = some_ids(shape, QUESTION, 102)
    return generate(model, pot, question, GenerationSettings(max_new_tokens=1)).seconds_prompt


def new_reader(model: Model, shape: Shape, wanted: Wanted) -> Reader:
    """A reader with a prefix and a question as its catalyst."""
    return Reader(model, wanted.settings, some_ids(shape, PREFIX, 101), some_ids(shape, QUESTION, 102))


@dataclass(frozen=True)
class Mark:
    """Where a reading stood after each tenth: tokens, seconds so far, most bytes allocated within that tenth."""

    tokens: int
    seconds: float
    peak: int | None


class _Run:
    """One reading with the clock on it."""

    def __init__(self, model: Model, shape: Shape, wanted: Wanted) -> None:
        self._model, self._shape, self._wanted = model, shape, wanted
        give_back(model.device)
        self.held = memory.allocated(model.device)
        self.reader = new_reader(model, shape, wanted)
        self.marks: list[Mark] = []
        self.done = 0
        self.seconds = 0.0
        self.stopped: str | None = None
        self.answering: int | None = None

    def read(self, deadline: Deadline) -> None:
        """Feed the text piece by piece; making noise is not on the clock."""
        wanted = self._wanted
        memory.begin_peak(self._model.device)
        while self.done < wanted.tokens and self.stopped is None:
            count = min(wanted.block, wanted.tokens - self.done)
            batch = noise(self._shape, self.done, count, wanted.seed)
            self._clocked(lambda batch=batch: self.reader.feed(batch))  # type: ignore[misc]
            self.done += count
            if self.done * MARKS >= wanted.tokens * (len(self.marks) + 1):
                self._mark()
            if deadline.over and self.done < wanted.tokens:
                self.stopped = "time"
        self._clocked(self.reader.finish)
        self._clocked(lambda: wait(self._model.device))

    def first_token(self) -> float:
        """Seconds from the end of the text to the first token of the answer."""
        seconds = answer_one(self._model, self._shape, self.reader.pot)
        self.answering = memory.peak(self._model.device)
        return seconds

    def found(self, rate: float, first: float) -> dict[str, Any]:
        """What there is to say, in seconds, bytes, tokens and operations a second."""
        operations = Gauge(self._model).operations(self._wanted.settings, self.done, PREFIX, QUESTION)
        distilling = self.reader.stats.seconds_distilling
        floor = operations / rate
        peaks = [mark.peak for mark in self.marks if mark.peak is not None]
        return {
            "stopped": self.stopped,
            "read": self.done,
            "seconds": self.seconds,
            "first_token": self.seconds + first,
            "prompt": first,
            "tokens_per_second": self.done / self.seconds,
            "cycles": self.reader.stats.cycles,
            "distilling": distilling,
            "distilling_share": distilling / self.seconds,
            "operations": operations,
            "matrix_rate": rate,
            "floor": floor,
            "share": floor / self.seconds,
            "kernel": self._model.kernel,
            "weights": self.held,
            "pot": pot_bytes(self.reader.pot),
            "peak": max([*peaks, self.answering or 0]) if peaks else None,
            "flat": max(peaks[1:]) / min(peaks[1:]) - 1 if len(peaks) > 2 else None,
            "marks": [asdict(mark) for mark in self.marks],
        }

    def _clocked(self, run: Callable[[], object]) -> None:
        began = time.perf_counter()
        run()
        self.seconds += time.perf_counter() - began

    def _mark(self) -> None:
        self._clocked(lambda: wait(self._model.device))
        peak = memory.peak(self._model.device)
        self.marks.append(Mark(self.done, self.seconds, peak))
        memory.begin_peak(self._model.device)


def pot_bytes(pot: Pot) -> int:
    """Bytes of all buffers of a pot, whatever they are filled with."""
    return sum(getattr(store, name).nbytes for store in pot.stores.values() for name in store.tensors)
