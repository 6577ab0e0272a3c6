"""The pot: a cache of fixed size that stores keys before RoPE, and where each entry came from."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from engine.attention import LayerSpec
from engine.errors import ModelError
from engine.settings import PotSettings

# Source position of tokens that stand in no source: the chat template, a question, an earlier answer.
NOWHERE = -1


@dataclass
class Batch:
    """Tokens on their way into the pot: ids, character positions and places (source, page or line), int64 [n]."""

    ids: Tensor
    position: Tensor
    place: Tensor

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def __getitem__(self, part: slice) -> Batch:
        return Batch(self.ids[part], self.position[part], self.place[part])

    @staticmethod
    def of(ids: Sequence[int]) -> Batch:
        """Tokens that stand in no source."""
        tensor = torch.tensor(list(ids), dtype=torch.int64)
        return Batch(tensor, torch.full_like(tensor, NOWHERE), torch.full_like(tensor, NOWHERE))

    @staticmethod
    def join(parts: Sequence[Batch]) -> Batch:
        return Batch(*(torch.cat([getattr(p, name) for p in parts]) for name in ("ids", "position", "place")))


class PotLayer:
    """The entries of one layer: raw keys and values, and their provenance, in buffers made once.

    key [H, capacity, D], value [H, capacity, Dv]; token, position, place int64 and novelty float32 [H, capacity];
    slots 0..length-1 are in use.
    """

    PROVENANCE = ("token", "position", "place", "novelty")
    TENSORS = ("key", "value", *PROVENANCE)

    def __init__(self, spec: LayerSpec, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        self.spec = spec
        self.capacity = capacity
        self.length = 0
        self.key = torch.empty(spec.kv_heads, capacity, spec.key_dim, device=device, dtype=dtype)
        self.value = torch.empty(spec.kv_heads, capacity, spec.value_dim, device=device, dtype=dtype)
        self.token, self.position, self.place = (
            torch.full((spec.kv_heads, capacity), NOWHERE, device=device, dtype=torch.int64) for _ in range(3)
        )
        self.novelty = torch.zeros(spec.kv_heads, capacity, device=device, dtype=torch.float32)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store raw key and value [1, H, t, D]; returns all entries, [1, H, length, D] views.

        Raises RuntimeError if the pot would overflow: that is a fault of the engine, never of the input.
        """
        end = self.length + key.shape[2]
        if end > self.capacity:
            raise RuntimeError(f"pot overflow in layer {self.spec.index}: {end} entries of {self.capacity}")
        self.key[:, self.length : end] = key[0]
        self.value[:, self.length : end] = value[0]
        self.length = end
        return self.key[None, :, :end], self.value[None, :, :end]

    def note(self, start: int, batch: Batch) -> None:
        """Write where the tokens stored from slot ``start`` on came from."""
        part = slice(start, start + len(batch))
        for name, values in (("token", batch.ids), ("position", batch.position), ("place", batch.place)):
            getattr(self, name)[:, part] = values.to(self.token.device)

    def keep(self, slots: Tensor) -> None:
        """Keep only ``slots`` [H, m], ascending per head; they become slots 0..m-1 (the reset of section 3.5)."""
        count = slots.shape[1]
        for name in self.TENSORS:
            buffer = getattr(self, name)
            index = slots if buffer.ndim == 2 else slots[..., None].expand(-1, -1, buffer.shape[2])
            buffer[:, :count] = buffer.gather(1, index)
        self.length = count

    def keep_last(self, count: int) -> None:
        """Keep the last ``count`` entries of every head."""
        slots = torch.arange(max(self.length - count, 0), self.length, device=self.key.device)
        self.keep(slots.expand(self.key.shape[0], -1))


class Pot(Cache):
    """A transformers cache that never holds more than ``capacity`` entries per layer and KV head.

    ``protected`` entries at the front are never evicted. ``tokens_read`` counts document tokens, ``cycles``
    the distillations so far. ``last_hidden`` [1, hidden] predicts the next token, for its novelty.
    """

    def __init__(
        self, specs: Sequence[LayerSpec], settings: PotSettings, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(layers=[])
        require_memory(specs, settings.capacity, device, dtype)
        self.settings = settings
        self.stores = {
            spec.index: PotLayer(spec, settings.capacity, device, dtype) for spec in bounded(specs, settings.capacity)
        }
        self.protected = 0
        self.tokens_read = 0
        self.cycles = 0
        self.last_hidden: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        return self.stores[layer_idx].append(key_states, value_states)

    def __len__(self) -> int:
        """Layers with a store; never 0, so that a pot is true."""
        return len(self.stores)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.entries

    @property
    def capacity(self) -> int:
        return self.settings.capacity

    @property
    def entries(self) -> int:
        """Entries per KV head in the fullest layer."""
        return max(store.length for store in self.stores.values())

    @property
    def distilled_stores(self) -> list[PotLayer]:
        """Layers that attend to everything: those that cycles distil."""
        return [store for store in self.stores.values() if store.spec.window is None]

    @property
    def entries_distilled(self) -> int:
        """Entries per KV head in the layers that cycles distil."""
        return max(store.length for store in self.distilled_stores)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values in use."""
        return sum(
            (store.key.element_size() * (store.spec.key_dim + store.spec.value_dim))
            * store.spec.kv_heads
            * store.length
            for store in self.stores.values()
        )

    def drop_last(self, count: int) -> None:
        """Forget the last ``count`` entries of every layer: how the catalyst leaves."""
        for store in self.stores.values():
            store.length -= count

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Entries added inside are kept only if all goes well: an error leaves no half-read block behind."""
        before = {index: store.length for index, store in self.stores.items()}
        try:
            yield
        except BaseException:
            for index, store in self.stores.items():
                store.length = before[index]
            raise

    def copy(self) -> Pot:
        """An independent copy, so that a question can make room without touching the original."""
        return copy.deepcopy(self)


def bounded(specs: Sequence[LayerSpec], capacity: int) -> list[LayerSpec]:
    """A window at least as wide as the pot never binds, since slots restart at 0: the layer attends to everything."""
    return [
        LayerSpec(**{**vars(spec), "window": None}) if spec.window is not None and spec.window >= capacity else spec
        for spec in specs
    ]


def require_memory(specs: Sequence[LayerSpec], capacity: int, device: torch.device, dtype: torch.dtype) -> None:
    """Raise ModelError if a pot of ``capacity`` entries cannot fit into the device's memory."""
    provenance = 3 * torch.int64.itemsize + torch.float32.itemsize
    need = sum(
        capacity * spec.kv_heads * ((spec.key_dim + spec.value_dim) * dtype.itemsize + provenance) for spec in specs
    )
    have = _memory(device)
    if have is not None and need > have:
        raise ModelError(
            f"a pot of {capacity:,} entries needs {need / 2**30:.1f} GiB; {device} has {have / 2**30:.1f} GiB",
            hint="lower --capacity",
        )


def _memory(device: torch.device) -> int | None:
    """Bytes of memory the device has in all; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
