"""What a run will take, before it is begun: seconds and memory of every part from its floor. Imports no torch.

Rates are assumed (options of the driver); each part's seconds are its floor over a share of it that is hoped for, and
what is paid once: building a model, measuring rates, compiling. An estimate, and said to be one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.gpu.arithmetic import (
    SIZE,
    Reading,
    entry_bytes,
    matrix_weights,
    parameters,
    pot_bytes,
    read_operations,
    written_bytes,
)
from benchmarks.gpu.shapes import Shape

#: Seconds that are paid whatever is measured: weights drawn and the proof; measuring a rate; compiling one step.
BUILD, RATE, COMPILE = 15.0, 3.0, 90.0
#: Shares of their floors that reading and writing are planned with: the first is its target, the second well below.
READ_SHARE, WRITE_SHARE = 0.6, 0.5
#: Columns of width ``inner`` that a layer of transformers holds at once for every token of a forward pass.
INNER_COPIES = 3
#: Operations that the engine asks for per layer and block, and seconds that asking takes: what small models wait for.
LAUNCHES, LAUNCH = 90, 8e-6


@dataclass(frozen=True)
class Rates:
    """What the device is assumed to do: operations and bytes a second, and bytes of memory that it has."""

    operations: float
    bandwidth: float
    memory: float


@dataclass(frozen=True)
class Estimate:
    """One measurement: ``floor`` in seconds, ``seconds`` expected with all that belongs to it, ``peak`` in bytes."""

    part: str
    shape: str
    what: str
    floor: float
    seconds: float
    peak: float


def weights(shape: Shape) -> int:
    return parameters(shape) * SIZE


def activations(shape: Shape, block: int) -> int:
    """Bytes of a forward pass of ``block`` tokens beside weights and cache, roughly."""
    return block * (INNER_COPIES * shape.inner + 6 * shape.hidden) * SIZE


def reading(shape: Shape, what: str, parts: Reading, block: int, rates: Rates) -> Estimate:
    """Reading with one warm-up and two measurements of the matrix rate; never faster than it can be asked for."""
    floor = read_operations(shape, parts) / rates.operations
    asking = -(-parts.tokens // block) * shape.layers * LAUNCHES * LAUNCH
    cache = pot_bytes(shape, parts.capacity) if parts.capacity else 2 * parts.tokens * entry_bytes(shape)
    peak = weights(shape) + cache + activations(shape, block)
    return Estimate("reading", shape.name, what, floor, max(floor / READ_SHARE, asking) + 2 * RATE, peak)


def decode(shape: Shape, way: str, tokens: int, capacity: int, rates: Rates) -> Estimate:
    """Writing ``tokens`` behind a full pot, twice; compiled ways compile first."""
    floor = tokens * written_bytes(shape, capacity) / rates.bandwidth
    fill = capacity * 2 * matrix_weights(shape) / rates.operations / READ_SHARE
    once = RATE + fill + (0.0 if way == "engine" else COMPILE)
    peak = weights(shape) + 2 * pot_bytes(shape, capacity) + activations(shape, capacity)
    return Estimate("decode", shape.name, way, floor, once + 2 * floor / WRITE_SHARE, peak)


#: How much a peer holds of a text of so many tokens, beside the weights: all at once as transformers does; block by
#: block in a cache that doubles when it is full, and is copied then; or a pot.
HOLDS: dict[str, Callable[[Shape, int, int, int], int]] = {
    "transformers": lambda shape, length, block, capacity: length * entry_bytes(shape) + activations(shape, length),
    "full": lambda shape, length, block, capacity: 3 * length * entry_bytes(shape) + activations(shape, block),
    "pot": lambda shape, length, block, capacity: pot_bytes(shape, capacity) + activations(shape, block),
}
KINDS = {"transformers": "transformers", "kvpress": "transformers", "full": "full", "snapkv": "full"}


@dataclass(frozen=True)
class Race:
    """One peer's way through ``lengths``, to the first that does not fit or takes more than ``limit`` seconds."""

    lengths: Sequence[int]
    block: int
    capacity: int
    kept: int
    limit: float


def peer(shape: Shape, name: str, race: Race, rates: Rates) -> Estimate:
    """All lengths that it gets to, with one run that warms up."""
    holds = HOLDS[KINDS.get(name, "pot")]
    floor = peak = 0.0
    furthest = 0
    for length in race.lengths:
        whole = Reading(length, None if name in KINDS else race.capacity, race.kept, novelty=name == "infinipot")
        seconds = read_operations(shape, whole) / rates.operations
        need = weights(shape) + holds(shape, length, race.block, race.capacity)
        if need > rates.memory:
            break
        floor, peak, furthest = floor + seconds, need, length
        if seconds / READ_SHARE > race.limit:
            break
    return Estimate("peers", shape.name, f"{name} up to {furthest:,}", floor, floor / READ_SHARE + RATE, peak)
