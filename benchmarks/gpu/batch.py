"""Several equally long documents, each into a pot of its own: one after another as the engine reads today, and together
(``benchmarks.gpu.documents``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu import memory, plan, rates
from benchmarks.gpu.arithmetic import Reading, pot_bytes
from benchmarks.gpu.clock import Deadline, wait
from benchmarks.gpu.documents import Documents, together
from benchmarks.gpu.models import give_back, noise, some_ids
from benchmarks.gpu.reading import PREFIX, QUESTION
from benchmarks.gpu.shapes import Shape
from engine.ccd import as_ids
from engine.measure import Gauge
from engine.model import Model
from engine.reader import Reader
from engine.settings import PotSettings

HOWS = ("one after another", "together")


@dataclass(frozen=True)
class Wanted:
    """``documents`` of ``tokens`` each. A forward pass takes ``block`` tokens, of all documents together where they are
    read so: the matrices and the memory are those of one document's block."""

    shape: str
    how: str
    documents: int
    tokens: int
    capacity: int = 4096
    distilled: int = 2048
    block: int = 2048
    method: str = "cap"
    seed: int = 0

    @property
    def settings(self) -> PotSettings:
        block = self.block if self.how == HOWS[0] else max(self.block // self.documents, 1)
        return PotSettings(capacity=self.capacity, distilled=self.distilled, block=block, method=self.method)

    def about(self) -> dict[str, Any]:
        return asdict(self)


def wanted(options: Any, shape: Shape, how: str) -> Wanted:
    """What the driver's options ask for."""
    o = options
    return Wanted(shape.name, how, o.documents, o.tokens_each, o.capacity, o.distilled, o.block, o.methods[0], o.seed)


def measure(model: Model, shape: Shape, wanted: Wanted, deadline: Deadline) -> dict[str, Any]:
    """Read all documents; ``read`` is how far each came on average, ``stopped`` why not to its end."""
    read = READERS[wanted.how]
    warm = wanted.capacity + wanted.settings.block
    for _ in read(model, shape, wanted, min(warm, wanted.tokens)):
        pass
    rate = rates.matrix_rate(model, wanted.block)
    give_back(model.device)
    memory.begin_peak(model.device)
    done, stopped = 0, None
    began = time.perf_counter()
    for count in read(model, shape, wanted, wanted.tokens):
        done += count
        if deadline.over and done < wanted.documents * wanted.tokens:
            stopped = "time"
            break
    wait(model.device)
    seconds = time.perf_counter() - began
    operations = done / wanted.tokens * _operations(model, wanted)
    return {
        "stopped": stopped,
        "read": done // wanted.documents,
        "seconds": seconds,
        "tokens_per_second": done / seconds,
        "operations": operations,
        "matrix_rate": rate,
        "floor": operations / rate,
        "share": operations / rate / seconds,
        "peak": memory.peak(model.device),
    }


def _operations(model: Model, wanted: Wanted) -> int:
    """Operations of reading one document to its end."""
    return Gauge(model).operations(wanted.settings, wanted.tokens, PREFIX, QUESTION)


def one_by_one(model: Model, shape: Shape, wanted: Wanted, tokens: int) -> Iterator[int]:
    """Each document by itself; yields tokens as they are taken in."""
    for document in range(wanted.documents):
        reader = Reader(model, wanted.settings, some_ids(shape, PREFIX, 101), some_ids(shape, QUESTION, 102))
        for start in range(0, tokens, wanted.block):
            count = min(wanted.block, tokens - start)
            reader.feed(noise(shape, start, count, wanted.seed + document))
            yield count
        reader.finish()


def at_once(model: Model, shape: Shape, wanted: Wanted, tokens: int) -> Iterator[int]:
    """All documents in step; yields tokens as they are taken in."""
    prefix, question = (as_ids(some_ids(shape, count, seed)) for count, seed in ((PREFIX, 101), (QUESTION, 102)))
    reader = Documents(model, wanted.settings, wanted.documents, prefix, question)
    step = wanted.settings.block
    for start in range(0, tokens, step):
        count = min(step, tokens - start)
        parts = [noise(shape, start, count, wanted.seed + document) for document in range(wanted.documents)]
        reader.feed(together(parts))
        yield count * wanted.documents
    reader.flush()


READERS: dict[str, Callable[[Model, Shape, Wanted, int], Iterator[int]]] = {HOWS[0]: one_by_one, HOWS[1]: at_once}


def estimate(shape: Shape, wanted: Wanted, assumed: plan.Rates) -> plan.Estimate:
    """What it will take, by arithmetic."""
    parts = Reading(wanted.tokens, wanted.capacity, wanted.distilled, PREFIX, QUESTION)
    one = plan.reading(shape, "", parts, wanted.block, assumed)
    seconds = plan.RATE + wanted.documents * (one.seconds - 2 * plan.RATE)
    beside = (wanted.documents - 1) * pot_bytes(shape, wanted.capacity) if wanted.how == HOWS[1] else 0
    what = f"{wanted.documents} of {wanted.tokens:,}, {wanted.how}"
    return plan.Estimate("batch", shape.name, what, wanted.documents * one.floor, seconds, one.peak + beside)
