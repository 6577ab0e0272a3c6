"""Low-rank adaptation: every linear layer inside the transformer becomes W x + scale * B A x, W frozen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class LoraLinear(nn.Module):
    """A frozen linear layer with a trained detour through ``rank`` dimensions; starts as the layer itself.

    The factors are float32 whatever the layer computes in, so that small steps are not rounded away. Without gradients
    the detour is merged into the weight, as in the model that is shipped: at half the work, until the next step.
    """

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer = layer
        self.scale = alpha / rank
        self.active = True
        self._merged: tuple[tuple[int, int], Tensor] | None = None  # versions of the factors, and their weight
        device = layer.weight.device
        self.lora_a = nn.Parameter(torch.empty(rank, layer.in_features, device=device))
        self.lora_b = nn.Parameter(torch.zeros(layer.out_features, rank, device=device))
        nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return self.layer(x)
        if not torch.is_grad_enabled():
            return nn.functional.linear(x, self._weight(), self.layer.bias)
        out = self.layer(x)
        down = nn.functional.linear(x, self.lora_a.to(x.dtype))
        return out + nn.functional.linear(down, (self.scale * self.lora_b).to(x.dtype))

    def _weight(self) -> Tensor:
        """The layer's weight with the detour in it [out, in], made once for the factors as they are."""
        versions = self.lora_a._version, self.lora_b._version
        if self._merged is None or self._merged[0] != versions:
            weight = self.layer.weight
            detour = self.scale * self.lora_b.detach() @ self.lora_a.detach()
            self._merged = versions, (weight.float() + detour).to(weight.dtype)
        return self._merged[1]


def add_lora(module: nn.Module, rank: int, alpha: float, seed: int = 0) -> dict[str, LoraLinear]:
    """Wrap every linear layer of the decoder layers (not the output layer); by name, in order."""
    torch.manual_seed(seed)
    names = [name for name, part in module.named_modules() if isinstance(part, nn.Linear) and ".layers." in name]
    wrapped = {}
    for name in names:
        parent, _, child = name.rpartition(".")
        owner = module.get_submodule(parent)
        wrapped[name] = LoraLinear(getattr(owner, child), rank, alpha)
        setattr(owner, child, wrapped[name])
    return wrapped


def lora_state(layers: dict[str, LoraLinear]) -> dict[str, Tensor]:
    """The factors by layer name: ``NAME.lora_a`` [rank, in], ``NAME.lora_b`` [out, rank], float32 on the CPU."""
    return {
        f"{name}.{part}": getattr(layer, part).detach().float().cpu().contiguous()
        for name, layer in layers.items()
        for part in ("lora_a", "lora_b")
    }


@torch.no_grad()
def set_lora_state(layers: dict[str, LoraLinear], state: dict[str, Tensor]) -> None:
    """Put factors back. Raises KeyError or RuntimeError where they do not fit."""
    for name, layer in layers.items():
        layer.lora_a.copy_(state[f"{name}.lora_a"])
        layer.lora_b.copy_(state[f"{name}.lora_b"])


@contextmanager
def without_lora(layers: dict[str, LoraLinear]) -> Iterator[None]:
    """The plain model inside."""
    for layer in layers.values():
        layer.active = False
    try:
        yield
    finally:
        for layer in layers.values():
            layer.active = True
