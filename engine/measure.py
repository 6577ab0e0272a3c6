"""What reading must cost at least, and what the machine can do: operations, the matrix-product rate, peak CUDA memory.

The floor of a reading is its operations over the rate at which this machine multiplies matrices of the model's own
shapes, in its own dtype. Nothing can read faster without computing something else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from engine.attention import LayerSpec
from engine.estimate import entries
from engine.methods import REGISTRY
from engine.pot import bounded
from engine.settings import PotSettings

if TYPE_CHECKING:
    from engine.model import Model

# A rate is the best of at least so many passes over all matrices, which together take at least so many seconds.
PASSES, SECONDS = 3, 0.3


@dataclass(frozen=True)
class Operations:
    """Additions and multiplications of a reading: through the weights, in attention, through the output layer."""

    weights: int
    attention: int
    output: int

    @property
    def total(self) -> int:
        return self.weights + self.attention + self.output


@dataclass(frozen=True)
class Fill:
    """``count`` tokens that come in on top of ``held`` entries, each one seeing all before it and itself."""

    held: int
    count: int

    def seen(self, window: int | None = None) -> int:
        """Entries that these tokens see, summed over the tokens; no more than ``window`` each."""
        free = self.count if window is None else min(self.count, max(window - self.held, 0))
        growing = free * self.held + free * (free + 1) // 2
        return growing if window is None else growing + (self.count - free) * window


@dataclass(frozen=True)
class Product:
    """One weight matrix at work: ``run(rows)`` multiplies it with rows [t, width], at ``operations`` per token."""

    run: Callable[[Tensor], object]
    width: int
    operations: int


class Gauge:
    """Measures one model on its device."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def operations(self, settings: PotSettings, tokens: int, protected: int, catalyst: int) -> int:
        """Operations of reading ``tokens`` document tokens behind ``protected`` ones, distilled by ``catalyst`` ones.

        The catalyst's own forward is left out: it is what distilling adds to the model's own work.
        """
        method = REGISTRY[settings.method]
        read = list(fills(settings, tokens, protected, catalyst))
        sees = protected + settings.kept if method.sees == "window" else None
        return count(self._model, read, settings.capacity if settings.bounded else None, method.novelty, sees).total

    def matrix_rate(self, rows: int) -> float:
        """Operations per second of the model's own matrices on ``rows`` tokens."""
        return matrix_rate(self._model, rows)

    def wait(self) -> None:
        """Return when the device has done all that it was asked to."""
        wait(self._model)

    def reset_peak(self) -> None:
        """Begin a new peak of CUDA memory; nothing on a CPU."""
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._model.device)

    def peak_bytes(self) -> int | None:
        """Most bytes of CUDA memory that tensors took at once since ``reset_peak``; None on a CPU."""
        on_cuda = self._model.device.type == "cuda"
        return torch.cuda.max_memory_allocated(self._model.device) if on_cuda else None


def fills(settings: PotSettings, tokens: int, protected: int, catalyst: int) -> Iterator[Fill]:
    """How the tokens come in: as they are where nothing limits the cache, else a pot's first fill and those after it.

    A fill ends |P| entries before the capacity (equation 2), and the next one begins on the prefix and |C| entries.
    What truncation cuts out is never read.
    """
    left, held = protected + tokens, 0
    room = settings.capacity - settings.catalyst_room(catalyst)
    if settings.method == "truncate":
        left = entries(tokens, settings, protected, catalyst)
    if not settings.bounded:
        room = left
    while left > 0:
        count = min(left, room - held)
        yield Fill(held, count)
        left, held = left - count, protected + settings.kept


def count(
    model: Model, read: Sequence[Fill], capacity: int | None, output: bool, sees: int | None = None
) -> Operations:
    """The operations of reading ``read``.

    Per token: two for each weight of a matrix that it passes (the lookup of its embedding is free, of a mixture's
    experts the active ones count), 2 (Dk + Dv) per query head and entry seen, and 2 hidden x vocabulary where the
    ``output`` layer is asked for novelty. Norms, activations, rotation and the choice of entries are left out: they
    are not the model's matrix products. ``capacity`` None stands for a cache without a limit; a token sees at most
    ``sees`` entries, if that is a number.
    """
    tokens = sum(fill.count for fill in read)
    weights = sum(product.operations for product in products(model))
    layers = model.layers if capacity is None else bounded(model.layers, capacity)
    return Operations(
        weights=tokens * weights,
        attention=sum(_attention(spec, read, sees) for spec in layers),
        output=tokens * output_operations(model) if output else 0,
    )


def _attention(spec: LayerSpec, read: Sequence[Fill], sees: int | None) -> int:
    windows = [window for window in (spec.window, sees) if window is not None]
    seen = sum(fill.seen(min(windows, default=None)) for fill in read)
    return 2 * spec.query_heads * (spec.key_dim + spec.value_dim) * seen


def output_operations(model: Model) -> int:
    """Operations of the output layer per token."""
    weight = model.module.get_output_embeddings()
    return 2 * weight.in_features * weight.out_features


def products(model: Model) -> list[Product]:
    """Every weight matrix between embeddings and output layer."""
    found: list[Product] = []
    for module in model.base.modules():
        if isinstance(module, nn.Linear):
            found.append(Product(module, module.in_features, 2 * module.in_features * module.out_features))
        elif not isinstance(module, nn.Embedding):
            found += _bare(module, model)
    return found


def _bare(module: nn.Module, model: Model) -> Iterator[Product]:
    """Matrices that a module multiplies by itself: routers [E, hidden], and experts [E, …, …] by the share active."""
    for name, weight in module.named_parameters(recurse=False):
        if name.endswith("bias"):  # an expert's own, added and not multiplied
            continue
        if weight.ndim == 2:
            yield Product(partial(_multiply, weight), weight.shape[1], 2 * weight.numel())
        elif weight.ndim == 3:
            experts = len(weight)
            active = min(getattr(model.config, "num_experts_per_tok", None) or experts, experts)
            run = partial(_experts, weight, active)
            yield Product(run, weight.shape[2], 2 * weight.numel() * active // experts)


def _multiply(weight: Tensor, rows: Tensor) -> Tensor:
    return rows @ weight.T


def _experts(weight: Tensor, active: int, rows: Tensor) -> None:
    """Every expert at work on its share of the rows, as a router that is fair deals them out."""
    share = max(len(rows) * active // len(weight), 1)
    for expert in weight:
        _multiply(expert, rows[:share])


@torch.inference_mode()
def matrix_rate(model: Model, rows: int, clock: Callable[[], float] | None = None) -> float:
    """Operations per second of the model's own matrices, one after the other, on ``rows`` tokens: the best pass.

    ``clock`` counts seconds, of the wall if not of another kind.
    """
    clock = clock or time.perf_counter
    work = products(model)
    operations = rows * sum(product.operations for product in work)
    # Rows of noise, as hidden states are: a GPU multiplies ones faster.
    widest, own = max(product.width for product in work), torch.Generator(model.device)
    noise = torch.randn(rows, widest, device=model.device, dtype=model.dtype, generator=own)
    given = {product.width: noise[:, : product.width].contiguous() for product in work}
    best, spent, passes = float("inf"), 0.0, 0
    while passes <= PASSES or spent < SECONDS:
        wait(model)
        began = clock()
        for product in work:
            product.run(given[product.width])
        wait(model)
        seconds = clock() - began
        if passes:  # the first pass warms up
            best, spent = min(best, seconds), spent + seconds
        passes += 1
    return operations / best


def wait(model: Model) -> None:
    """Return when the device has done all that it was asked to."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
