"""The pot: a cache of fixed size that stores keys before RoPE, and where each entry came from."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from engine.attention import LayerSpec
from engine.bank import NOWHERE, Bank
from engine.errors import ModelError
from engine.methods import REGISTRY
from engine.settings import PotSettings


@dataclass
class Batch:
    """Tokens on their way into the pot: ids, character positions and places (source, page or line), int64 [n]."""

    ids: Tensor
    position: Tensor
    place: Tensor

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    @property
    def counted(self) -> int:
        """How many of the tokens stand in a source."""
        return int((self.position >= 0).sum())

    def __getitem__(self, part: slice) -> Batch:
        return Batch(self.ids[part], self.position[part], self.place[part])

    def to(self, device: torch.device) -> Batch:
        """The same on ``device``, by one transfer that the host does not wait for."""
        if self.ids.device == device:
            return self
        packed = torch.stack([self.ids, self.position, self.place])
        if device.type == "cuda":
            packed = packed.pin_memory()
        return Batch(*packed.to(device, non_blocking=True))

    @staticmethod
    def of(ids: Sequence[int]) -> Batch:
        """Tokens that stand in no source."""
        tensor = torch.tensor(list(ids), dtype=torch.int64)
        return Batch(tensor, torch.full_like(tensor, NOWHERE), torch.full_like(tensor, NOWHERE))

    @staticmethod
    def join(parts: Sequence[Batch]) -> Batch:
        return Batch(*(torch.cat([getattr(p, name) for p in parts]) for name in ("ids", "position", "place")))


class _Buffer:
    """A layer's rows of one of its bank's tensors, by the attribute's name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, layer: PotLayer, owner: type) -> Tensor:
        return layer.bank.tensors[self._name][layer.row]


class _Extra(_Buffer):
    """The same for a tensor that only some methods ask for; None for the others."""

    def __get__(self, layer: PotLayer, owner: type) -> Tensor | None:  # type: ignore[override]
        return super().__get__(layer, owner) if self._name in layer.bank.tensors else None


class PotLayer:
    """The entries of one layer: row ``row`` of a bank of buffers that are made once; slots 0..length-1 are in use.

    key [H, capacity, D], value [H, capacity, Dv]; token, position, place int64 and novelty float32 [H, capacity].
    Only where they are asked for: index int64, the entry's number in the stream of all tokens read; received float32,
    attention that queries gave it. ``next`` is the number of the next token. With ``grows``, the buffers double when
    they are full, and ``capacity`` is what they hold now.
    """

    key, value = _Buffer(), _Buffer()
    token, position, place, novelty = _Buffer(), _Buffer(), _Buffer(), _Buffer()
    index, received = _Extra(), _Extra()

    def __init__(self, spec: LayerSpec, bank: Bank, row: int, grows: bool = False) -> None:
        self.spec = spec
        self.bank = bank
        self.row = row
        self.grows = grows
        self.length = self.next = 0

    @property
    def capacity(self) -> int:
        return self.bank.capacity

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all that the layer holds."""
        return tuple(self.bank.tensors)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store raw key and value [1, H, t, D]; returns all entries, [1, H, length, D] views.

        Raises RuntimeError if the pot would overflow: that is a fault of the engine, never of the input.
        """
        end = self.length + key.shape[2]
        if not self.holds(end):
            raise RuntimeError(f"pot overflow in layer {self.spec.index}: {end} entries of {self.capacity}")
        part = slice(self.length, end)
        keys, values = self.key, self.value
        keys[:, part] = key[0]
        values[:, part] = value[0]
        if self.index is not None:
            self.index[:, part] = torch.arange(self.next, self.next + key.shape[2], device=keys.device)
        if self.received is not None:
            self.received[:, part] = 0
        self.next += key.shape[2]
        self.length = end
        return keys[None, :, :end], values[None, :, :end]

    def holds(self, count: int) -> bool:
        """Whether the buffers can hold ``count`` entries; those that grow then do."""
        if count > self.capacity and self.grows:
            self.bank.grow(count)
        return count <= self.capacity

    def drop_last(self, count: int) -> None:
        """Forget the last ``count`` entries, and that they were ever numbered."""
        self.length -= count
        self.next -= count

    def receive(self, attention: Tensor, add: bool) -> None:
        """Note the attention [H, n] that queries gave to the first n entries, on top of what they had, or instead."""
        assert self.received is not None
        part = self.received[:, : attention.shape[1]]
        part.copy_(part + attention if add else attention)

    def keep(self, slots: Tensor) -> None:
        """Keep only ``slots`` [H, m], ascending per head; they become slots 0..m-1 (the reset of section 3.5)."""
        count = slots.shape[1]
        for tensor in self.bank.tensors.values():
            buffer = tensor[self.row]
            index = slots if buffer.ndim == 2 else slots[..., None].expand(-1, -1, buffer.shape[2])
            buffer[:, :count] = buffer.gather(1, index)
        self.length = count

    def keep_last(self, count: int) -> None:
        """Keep the last ``count`` entries of every head."""
        if count >= self.length:
            return
        slots = torch.arange(self.length - count, self.length, device=self.key.device)
        self.keep(slots.expand(self.spec.kv_heads, -1))


class Pot(Cache):
    """A transformers cache that never holds more than ``capacity`` entries per layer and KV head, if its method is one
    of the bounded; the others keep what they read.

    ``protected`` entries at the front are never evicted. ``tokens_read`` counts document tokens, ``cycles``
    the distillations so far. ``last_hidden`` [1, hidden] predicts the next token, for its novelty.
    """

    def __init__(
        self, specs: Sequence[LayerSpec], settings: PotSettings, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(layers=[])
        require_memory(specs, settings.capacity, device, dtype)
        self.settings = settings
        self.method = REGISTRY[settings.method]
        extras = [
            *(["index"] if self.stays else []),
            *(["received"] if self.method.received else []),
        ]
        if settings.bounded:
            specs = bounded(specs, settings.capacity)
        self.stores: dict[int, PotLayer] = {}
        for alike in _alike(specs) if settings.bounded else [[spec] for spec in specs]:
            bank = Bank(alike[0], len(alike), settings.capacity, device, dtype, extras)
            stores = (PotLayer(spec, bank, row, not settings.bounded) for row, spec in enumerate(alike))
            self.stores |= {store.spec.index: store for store in stores}
        self.stores = dict(sorted(self.stores.items()))
        self.protected = 0
        self.tokens_read = 0
        self.cycles = 0
        self.last_hidden: Tensor | None = None
        self.torn = False  # whether an error broke into the moving of entries

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
    def stays(self) -> bool:
        """Whether entries keep their source positions when others go: CR-RoPE is off, or the method's paper has it so.

        Where nothing ever goes, the slot is the source position.
        """
        return self.method.stays or (self.settings.bounded and not self.settings.reset)

    @property
    def taken(self) -> int:
        """Tokens taken in so far, of the text and around it; where entries stay, the position of the next one."""
        return next(iter(self.stores.values())).next

    def fits(self, count: int) -> bool:
        """Whether so many more entries may be held."""
        return not self.settings.bounded or self.entries + count <= self.capacity

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

    def note(self, batch: Batch, novelty: Tensor | float = 0.0) -> None:
        """Write where the tokens that were stored last came from, and how novel they are (float or [n])."""
        batch = batch.to(next(iter(self.stores.values())).key.device)
        columns = {"token": batch.ids, "position": batch.position, "place": batch.place, "novelty": novelty}
        for store in _one_of_each_bank(self.stores.values()):
            store.bank.note(slice(store.length - len(batch), store.length), columns)

    def keep(self, slots: Tensor) -> None:
        """Keep only ``slots`` [m], ascending, in every head of every layer that cycles distil (``PotLayer.keep``)."""
        for store in _one_of_each_bank(self.distilled_stores):
            store.bank.keep(slots)
        for store in self.distilled_stores:
            store.length = len(slots)

    def drop_last(self, count: int) -> None:
        """Forget the last ``count`` entries of every layer: how the catalyst leaves."""
        for store in self.stores.values():
            store.drop_last(count)

    @contextmanager
    def rearranging(self) -> Iterator[None]:
        """Entries are moved inside. An error there leaves a pot that nothing can be read into or from any more."""
        self.require_whole()
        self.torn = True
        yield
        self.torn = False

    def require_whole(self) -> None:
        """Raise RuntimeError for a pot that an error has torn."""
        if self.torn:
            raise RuntimeError("an error broke into the distilling of this pot: read the text anew")

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Entries added inside are kept only if all goes well: an error leaves no half-read block behind."""
        before = self._marks()
        try:
            yield
        except BaseException:
            self._return_to(before)
            raise

    @contextmanager
    def for_now(self) -> Iterator[None]:
        """Entries added inside are gone afterwards, whatever happens."""
        before = self._marks()
        try:
            yield
        finally:
            self._return_to(before)

    def _marks(self) -> dict[int, tuple[int, int]]:
        return {index: (store.length, store.next) for index, store in self.stores.items()}

    def _return_to(self, marks: dict[int, tuple[int, int]]) -> None:
        for index, store in self.stores.items():
            store.length, store.next = marks[index]

    def copy(self) -> Pot:
        """An independent copy, so that a question can make room without touching the original."""
        return copy.deepcopy(self)


def _one_of_each_bank(stores: Iterable[PotLayer]) -> list[PotLayer]:
    """A layer of every bank: those of a bank fill in step."""
    return list({id(store.bank): store for store in stores}.values())


def _alike(specs: Sequence[LayerSpec]) -> list[list[LayerSpec]]:
    """The layers in groups whose buffers have one shape and which always hold as many entries as each other."""
    groups: dict[tuple[int | None, ...], list[LayerSpec]] = {}
    for spec in specs:
        groups.setdefault((spec.kv_heads, spec.key_dim, spec.value_dim, spec.window), []).append(spec)
    return list(groups.values())


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
