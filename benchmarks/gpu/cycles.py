"""A few cycles under the profiler: where the host waits for the device, and how long the device waits for the host."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.autograd import DeviceType

from benchmarks.gpu.clock import wait
from benchmarks.gpu.models import build, noise
from benchmarks.gpu.reading import PREFIX, QUESTION, Wanted, new_reader
from benchmarks.gpu.shapes import SHAPES, Shape
from benchmarks.gpu.watch import Seen, Watch, pretend
from engine.model import Model
from engine.reader import Reader

#: Calls of the CUDA runtime that return only when the device has come there, and what moves between host and device.
SYNCHRONISING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
TRANSFERS = ("Memcpy DtoH", "Memcpy HtoD")
TOP = 15


def pretended(shape: Shape, wanted: Wanted, cycles: int) -> dict[str, Any]:
    """What a GPU would be asked to do, found without one: the layers are as many as the shape's, but narrow.

    How often the host would wait, and how many operations it asks for, depends on the layers and not on their width.
    """
    narrow = replace(SHAPES["tiny"], layers=shape.layers, family=shape.family, head_norms=shape.head_norms)
    model = build(narrow, torch.device("cpu"), torch.bfloat16)
    pretend(model)
    small = replace(wanted, capacity=256, distilled=128, block=256)
    return {"cycles": cycles, "layers": shape.layers, **_counted(watched(model, narrow, small, cycles), cycles)}


def measure(model: Model, shape: Shape, wanted: Wanted, cycles: int) -> dict[str, Any]:
    """The same on this model's own device; on CUDA with the profiler's own account of it."""
    found = {"cycles": cycles, "layers": shape.layers}
    found |= _counted(watched(model, shape, wanted, cycles), cycles)
    return found | (traced(model, shape, wanted, cycles) if model.device.type == "cuda" else {})


def full_reader(model: Model, shape: Shape, wanted: Wanted) -> tuple[Reader, int]:
    """A reader whose pot is full, so that the next token brings a cycle; and how many tokens it has read."""
    reader = new_reader(model, shape, wanted)
    count = wanted.capacity - PREFIX - wanted.settings.catalyst_room(QUESTION)
    reader.feed(noise(shape, 0, count, wanted.seed))
    return reader, count


def per_cycle(wanted: Wanted) -> int:
    """Tokens from one full pot to the next."""
    return wanted.capacity - PREFIX - wanted.settings.catalyst_room(QUESTION) - wanted.distilled


def watched(model: Model, shape: Shape, wanted: Wanted, cycles: int) -> Seen:
    """Every operation of so many cycles, and of the fills after them."""
    reader, count = full_reader(model, shape, wanted)
    batch = noise(shape, count, cycles * per_cycle(wanted), wanted.seed)
    before = reader.stats.cycles
    with Watch(model.device) as watch:
        reader.feed(batch)
    assert reader.stats.cycles - before == cycles
    return watch.seen


def _counted(seen: Seen, cycles: int) -> dict[str, Any]:
    """Per cycle: operations by phase, and every place that waits."""
    return {
        "launches": {phase: count / cycles for phase, count in seen.launches.most_common()},
        "waits": [{**asdict(where), "per_cycle": count / cycles} for where, count in seen.waits.most_common()],
    }


@dataclass(frozen=True)
class Span:
    """Work of the device, in seconds."""

    name: str
    start: float
    end: float


def traced(model: Model, shape: Shape, wanted: Wanted, cycles: int) -> dict[str, Any]:
    """torch.profiler over so many cycles: runtime calls that wait, transfers, gaps, the longest kernels."""
    from torch.profiler import ProfilerActivity, profile

    reader, count = full_reader(model, shape, wanted)
    step = per_cycle(wanted)
    reader.feed(noise(shape, count, step, wanted.seed))
    wait(model.device)
    batch = noise(shape, count + step, cycles * step, wanted.seed)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        reader.feed(batch)
        wait(model.device)
    events = list(profiler.events() or ())
    on_device = [event for event in events if event.device_type == DeviceType.CUDA]
    spans = [Span(event.name, event.time_range.start / 1e6, event.time_range.end / 1e6) for event in on_device]
    calls = Counter(event.name for event in events if event.device_type == DeviceType.CPU)
    calls["cudaDeviceSynchronize"] -= 1  # our own, at the end
    return {
        "synchronising": {name: calls[name] / cycles for name in SYNCHRONISING if calls[name] > 0},
        "kernel_launches": sum(calls[name] for name in calls if "LaunchKernel" in name) / cycles,
        **account(spans, cycles),
    }


def account(spans: Sequence[Span], cycles: int) -> dict[str, Any]:
    """What the device did: seconds from its first work to its last, idle in between, transfers, longest kernels."""
    if not spans:
        return {"span": 0.0, "idle": 0.0, "idle_share": 0.0, "transfers": {}, "kernels": []}
    span = max(one.end for one in spans) - min(one.start for one in spans)
    idle = span - busy(spans)
    seconds: dict[str, float] = defaultdict(float)
    for one in spans:
        seconds[one.name] += one.end - one.start
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    transfers = Counter(kind for one in spans for kind in TRANSFERS if one.name.startswith(kind))
    return {
        "span": span,
        "idle": idle,
        "idle_share": idle / span,
        "transfers": {kind: count / cycles for kind, count in transfers.items()},
        "kernels": [[name[:120], took / span] for name, took in longest[:TOP]],
    }


def busy(spans: Iterable[Span]) -> float:
    """Seconds in which the device did anything: spans may overlap."""
    total, until = 0.0, float("-inf")
    for one in sorted(spans, key=lambda span: span.start):
        total += max(one.end - max(one.start, until), 0.0)
        until = max(until, one.end)
    return total
