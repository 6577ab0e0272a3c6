"""The buffers of layers of one shape, in one piece: what all of them note or keep is one operation, not one each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.attention import LayerSpec

#: Bytes of kept entries that are gathered at a time, beside the buffers that they come from and go to.
_GATHERED = 1 << 28
# Source position of tokens that stand in no source: the chat template, a question, an earlier answer.
NOWHERE = -1


class Bank:
    """Raw keys and values and where they came from, for ``layers`` layers that are like ``spec``.

    ``tensors`` by name: key [L, H, capacity, D], value [L, H, capacity, Dv]; token, position, place int64 and novelty
    float32 [L, H, capacity]; of the ``extras``, index int64 and received float32 likewise.
    """

    def __init__(
        self,
        spec: LayerSpec,
        layers: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
        extras: Sequence[str] = (),
    ) -> None:
        self.capacity = capacity
        shape = (layers, spec.kv_heads, capacity)
        self.tensors = {
            "key": torch.empty(*shape, spec.key_dim, device=device, dtype=dtype),
            "value": torch.empty(*shape, spec.value_dim, device=device, dtype=dtype),
        }
        for name in ("token", "position", "place"):
            self.tensors[name] = torch.full(shape, NOWHERE, device=device, dtype=torch.int64)
        for name in ("novelty", *extras):
            kind = torch.int64 if name == "index" else torch.float32
            self.tensors[name] = torch.zeros(shape, device=device, dtype=kind)

    @torch.inference_mode(False)
    def grow(self, least: int) -> None:
        """Room for at least ``least`` entries, and twice as many as before."""
        before, self.capacity = self.capacity, max(2 * self.capacity, least)
        for name, old in self.tensors.items():
            new = old.new_empty((*old.shape[:2], self.capacity, *old.shape[3:]))
            new[:, :, :before] = old
            self.tensors[name] = new

    def note(self, part: slice, columns: dict[str, Tensor | float]) -> None:
        """Write the same columns [n] into the slots ``part`` of every head of every layer."""
        for name, values in columns.items():
            self.tensors[name][:, :, part] = values

    def keep(self, slots: Tensor) -> None:
        """Keep only ``slots`` [m], ascending, in every head of every layer; they become slots 0..m-1."""
        for buffer in self.tensors.values():
            bytes_of_layer = buffer[0, :, : len(slots)].numel() * buffer.element_size()
            for layers in buffer.split(max(_GATHERED // max(bytes_of_layer, 1), 1)):
                layers[:, :, : len(slots)] = layers.index_select(2, slots)
