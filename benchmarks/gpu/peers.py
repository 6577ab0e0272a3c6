"""Ways to answer behind a long text: the same weights, the same device, lengths that double until each fails."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig

from benchmarks.arrivals import Arrivals
from benchmarks.gpu import memory, rates
from benchmarks.gpu.clock import Deadline, wait
from benchmarks.gpu.models import give_back, noise, some_ids
from benchmarks.gpu.reading import PREFIX, QUESTION
from benchmarks.gpu.shapes import Shape
from engine.generation import generate
from engine.measure import Gauge
from engine.model import Model
from engine.reader import Reader
from engine.settings import GenerationSettings, PotSettings

MEMORY, TIME = "out of memory", "out of time"
PIECE = 1 << 16


@dataclass(frozen=True)
class Wanted:
    """``peer`` reads ``length`` tokens and writes ``write`` behind them; ``capacity`` is the pot's, or the budget."""

    shape: str
    peer: str
    length: int
    write: int = 64
    capacity: int = 4096
    distilled: int = 2048
    block: int = 2048
    seed: int = 0

    def settings(self, method: str) -> PotSettings:
        return PotSettings(capacity=self.capacity, distilled=self.distilled, block=self.block, method=method)

    def about(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Parts:
    """Seconds of one run, as in ``infinipot bench speed``."""

    reading: float
    distilling: float
    prompt: float
    writing: float
    written: int
    entries: int = 0
    cycles: int = 0
    operations: int = 0


def by_engine(method: str) -> Callable[[Model, Shape, Wanted], Parts]:
    """A method of this engine: read block by block, then answer."""

    def run(model: Model, shape: Shape, wanted: Wanted) -> Parts:
        settings = wanted.settings(method)
        question = some_ids(shape, QUESTION, 102)
        reader = Reader(model, settings, some_ids(shape, PREFIX, 101), question)
        began = time.perf_counter()
        for start in range(0, wanted.length, PIECE):
            reader.feed(noise(shape, start, min(PIECE, wanted.length - start), wanted.seed))
        pot = reader.finish()
        wait(model.device)
        seconds = time.perf_counter() - began
        done = generate(
            model, pot, question, GenerationSettings(max_new_tokens=wanted.write, min_new_tokens=wanted.write)
        )
        stats = reader.stats
        return Parts(
            reading=seconds - stats.seconds_distilling,
            distilling=stats.seconds_distilling,
            prompt=done.seconds_prompt,
            writing=done.seconds_writing,
            written=len(done.token_ids),
            entries=stats.entries,
            cycles=stats.cycles,
            operations=Gauge(model).operations(settings, wanted.length, PREFIX, QUESTION),
        )

    return run


def by_transformers(press: Callable[[Model, Wanted], AbstractContextManager[Any]]) -> Callable[..., Parts]:
    """transformers' own ``generate`` with SDPA on the whole prompt at once, within ``press``."""

    @torch.inference_mode()
    def run(model: Model, shape: Shape, wanted: Wanted) -> Parts:
        prompt = [*some_ids(shape, PREFIX, 101), *_text(shape, wanted), *some_ids(shape, QUESTION, 102)]
        ids = torch.tensor([prompt], device=model.device)
        wait(model.device)
        clock = Arrivals()
        cache = DynamicCache(config=model.module.config)
        with press(model, wanted):
            model.module.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                past_key_values=cache,
                generation_config=GenerationConfig(
                    max_new_tokens=wanted.write, min_new_tokens=wanted.write, do_sample=False, pad_token_id=0
                ),
                streamer=clock,
            )
        first, last = clock.times[0] - clock.began, clock.times[-1] - clock.times[0]
        return Parts(
            reading=first,
            distilling=0.0,
            prompt=0.0,
            writing=last,
            written=len(clock.times),
            entries=cache.get_seq_length(),
            operations=Gauge(model).operations(wanted.settings("full"), wanted.length, PREFIX, QUESTION),
        )

    return run


def _text(shape: Shape, wanted: Wanted) -> list[int]:
    """The text that the engine's methods read piece by piece."""
    starts = range(0, wanted.length, PIECE)
    pieces = (noise(shape, start, min(PIECE, wanted.length - start), wanted.seed) for start in starts)
    return [i for piece in pieces for i in piece.ids.tolist()]


def _everything(model: Model, wanted: Wanted) -> AbstractContextManager[Any]:
    return nullcontext()


def _kvpress(model: Model, wanted: Wanted) -> AbstractContextManager[Any]:
    """SnapKV by its defaults, down to the budget."""
    from kvpress import SnapKVPress  # type: ignore[import-not-found]

    prompt = wanted.length + PREFIX + QUESTION
    keep = wanted.capacity - wanted.write
    return SnapKVPress(compression_ratio=1 - keep / prompt)(model.module) if prompt > keep else nullcontext()


#: Everybody who can be asked, by name. transformers: all of the text at once, as ``generate`` does it by itself; full:
#: all of it, block by block; kvpress: SnapKV where that package is installed; the others are methods of this engine.
PEERS: dict[str, Callable[[Model, Shape, Wanted], Parts]] = {
    "transformers": by_transformers(_everything),
    "kvpress": by_transformers(_kvpress),
    **{method: by_engine(method) for method in ("full", "snapkv", "streaming", "infinipot", "cap")},
}


def absent(peer: str) -> str | None:
    """What a peer lacks here, or None."""
    if peer == "kvpress" and importlib.util.find_spec("kvpress") is None:
        return "kvpress is not installed; snapkv is the same rule in this engine"
    return None


def doubled(first: int, last: int) -> Iterator[int]:
    """first, twice that, … up to ``last``."""
    while first <= last:
        yield first
        first *= 2


def measure(model: Model, shape: Shape, wanted: Wanted) -> dict[str, Any]:
    """One run. Running out of memory is an ``error``."""
    rate = rates.matrix_rate(model, wanted.block)
    give_back(model.device)
    memory.begin_peak(model.device)
    before = memory.peak(model.device)
    try:
        parts = PEERS[wanted.peer](model, shape, wanted)
    except (torch.cuda.OutOfMemoryError, MemoryError):
        return {"error": MEMORY, "peak": None}
    finally:
        give_back(model.device)
    seconds = {name: getattr(parts, name) for name in ("reading", "distilling", "prompt", "writing")}
    first = sum(seconds.values()) - parts.writing
    return {
        **asdict(parts),
        "first_token": first,
        "total": first + parts.writing,
        "tokens_per_second": (parts.written - 1) / parts.writing if parts.writing else None,
        "matrix_rate": rate,
        "before": before,
        "peak": memory.peak(model.device),
        "error": None,
    }


@dataclass(frozen=True)
class Race:
    """``peers`` at ``lengths``, ascending; ``ask`` gives one result, measured now or known; more than ``limit`` seconds
    to the first token end a peer's way to longer texts."""

    peers: Sequence[str]
    lengths: Sequence[int]
    ask: Callable[[str, int], dict[str, Any]]
    limit: float | None = None


def run_all(race: Race, deadline: Deadline) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Every length for every peer, in turn. Who runs out of memory, or of time, is left out from then on; so is who
    would outlast the deadline, going by what it took at half the length."""
    taken: dict[str, float] = {}
    out = {peer for peer in race.peers if absent(peer)}
    for length in race.lengths:
        for peer in race.peers:
            if peer in out:
                continue
            if 2 * taken.get(peer, 0.0) > deadline.left or deadline.over:
                out.add(peer)
                yield peer, length, {"error": TIME}
                continue
            found = race.ask(peer, length)
            yield peer, length, found
            taken[peer] = found.get("total", 0.0)
            if found["error"] or (race.limit is not None and found["first_token"] > race.limit):
                out.add(peer)
