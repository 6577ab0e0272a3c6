"""Writing behind a full pot: tokens per second, against the rate at which memory gives the weights out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import CompileConfig, GenerationConfig, StaticCache

from benchmarks.arrivals import Arrivals
from benchmarks.gpu import rates, static
from benchmarks.gpu.arithmetic import written_bytes
from benchmarks.gpu.models import noise, some_ids
from benchmarks.gpu.reading import PREFIX, QUESTION
from benchmarks.gpu.shapes import Shape
from engine.forward import attention_by
from engine.generation import generate
from engine.model import Model
from engine.pot import Pot
from engine.reader import Reader
from engine.settings import GenerationSettings, PotSettings

#: How an answer is written. engine: as ``infinipot ask`` does. The others through transformers' ``generate`` with a
#: static cache, whose step it compiles: static with transformers' own SDPA attention, grouped with ours
#: (``benchmarks.gpu.static``), graphed with ours and CUDA graphs of the kernels as they are, without inductor.
WAYS = ("engine", "static", "grouped", "graphed")


@dataclass(frozen=True)
class Wanted:
    """``tokens`` written behind a pot of ``capacity`` that is filled as far as they leave room."""

    shape: str
    way: str
    tokens: int = 256
    capacity: int = 4096
    method: str = "cap"
    seed: int = 0
    backend: str | None = None  # of the compiler, where it is not the device's own

    def about(self) -> dict[str, Any]:
        return asdict(self)


def full_pot(model: Model, shape: Shape, wanted: Wanted) -> Pot:
    """A pot as full as a question and an answer leave it."""
    settings = PotSettings(capacity=wanted.capacity, method=wanted.method)
    reader = Reader(model, settings, some_ids(shape, PREFIX, 101), some_ids(shape, QUESTION, 102))
    reader.feed(noise(shape, 0, wanted.capacity - wanted.tokens - PREFIX - QUESTION, wanted.seed))
    return reader.finish()


def measure(model: Model, shape: Shape, wanted: Wanted, compile_config: CompileConfig | None = None) -> dict[str, Any]:
    """Write twice, the first time to warm up and compile. The floor is the bytes of a token over the bandwidth
    measured now: once of the weights alone, as the target says, once with the entries that attention reads."""
    pot = full_pot(model, shape, wanted)
    bandwidth = rates.bandwidth(model.device)
    began = time.perf_counter()
    written = write(model, shape, pot, wanted, compile_config)
    warm_up = time.perf_counter() - began
    ids, seconds = write(model, shape, pot, wanted, compile_config)
    weights = written_bytes(shape)
    with_pot = written_bytes(shape, pot.entries)
    rate = (len(ids) - 1) / seconds
    return {
        "written": len(ids),
        "same": ids == written[0],
        "seconds": seconds,
        "warm_up": warm_up,
        "tokens_per_second": rate,
        "bandwidth": bandwidth,
        "bytes": weights,
        "bytes_with_pot": with_pot,
        "ceiling": bandwidth / weights,
        "share": rate * weights / bandwidth,
        "share_with_pot": rate * with_pot / bandwidth,
    }


def write(
    model: Model, shape: Shape, pot: Pot, wanted: Wanted, compile_config: CompileConfig | None
) -> tuple[list[int], float]:
    """(ids, seconds from the first of them to the last)."""
    question = some_ids(shape, QUESTION, 102)
    if wanted.way == "engine":
        settings = GenerationSettings(max_new_tokens=wanted.tokens, min_new_tokens=wanted.tokens)
        done = generate(model, pot, question, settings)
        return done.token_ids, done.seconds_writing
    config = compile_config or _config(wanted.way)
    with _cache(model, pot, wanted.way) as cache:
        return _generate(model, pot, question, wanted.tokens, cache, config)


def _config(way: str) -> CompileConfig:
    """Inductor with CUDA graphs, which is transformers' default; or CUDA graphs alone."""
    return CompileConfig(backend="cudagraphs", mode="default") if way == "graphed" else CompileConfig()


@contextmanager
def _cache(model: Model, pot: Pot, way: str) -> Iterator[StaticCache]:
    """The pot in a static cache, with our attention or with transformers' own."""
    with static.poured(model, pot) as cache:
        if way != "static":
            yield cache
            return
        with attention_by(model.module, "sdpa"):
            yield cache


@torch.no_grad()
def _generate(
    model: Model, pot: Pot, question: list[int], tokens: int, cache: StaticCache, config: CompileConfig
) -> tuple[list[int], float]:
    """Greedy through ``generate``, which asks for the whole sequence and skips what the cache holds."""
    ids = torch.tensor([[0] * pot.entries + question], device=model.device)
    clock = Arrivals()
    output = model.module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        past_key_values=cache,
        generation_config=GenerationConfig(
            max_new_tokens=tokens, do_sample=False, pad_token_id=0, use_cache=True, compile_config=config
        ),
        streamer=clock,
    )
    return output[0, ids.shape[1] :].tolist(), clock.times[-1] - clock.times[0]


def on_any_device(backend: str) -> CompileConfig:
    """Compile on a CPU too, where transformers by itself does not."""
    config = CompileConfig(backend=backend, mode="default")
    config._compile_all_devices = True
    return config
