"""What the device can do, measured beside everything that is compared with it: matrix products and moving memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from benchmarks.gpu.clock import timed, wait
from engine.measure import products
from engine.model import Model

#: A rate is the median of at least so many passes after one that warms up, which take at least so many seconds.
PASSES, SECONDS = 5, 0.5
#: Bytes of a copy: far more than any cache of the device holds. On a CPU, where there is nothing to find out, less.
COPY = {"cuda": 4 << 30, "cpu": 64 << 20}


@torch.inference_mode()
def matrix_rate(model: Model, rows: int) -> float:
    """Operations per second of the model's own matrices, one after the other, in its own dtype, on ``rows`` tokens.

    Between events of the stream, on noise: a GPU multiplies ones faster. This is the rate that reading is held to.
    """
    work = products(model)
    operations = rows * sum(product.operations for product in work)
    own = torch.Generator(model.device).manual_seed(0)
    given = {
        width: torch.randn(rows, width, device=model.device, dtype=model.dtype, generator=own)
        for width in {product.width for product in work}
    }

    def once() -> None:
        for product in work:
            product.run(given[product.width])

    return operations / _median(model.device, once)


@torch.inference_mode()
def bandwidth(device: torch.device) -> float:
    """Bytes per second of a copy within the device's memory, those read and those written counted."""
    size = COPY.get(device.type, COPY["cpu"])
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _median(device, lambda: target.copy_(source))


def _median(device: torch.device, once: Callable[[], object]) -> float:
    """The median time of ``once`` in seconds."""
    once()
    wait(device)
    times: list[float] = []
    while len(times) < PASSES or sum(times) < SECONDS:
        times.append(timed(device, once))
    return statistics.median(times)
