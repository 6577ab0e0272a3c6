"""A loaded model, with what the engine knows of it."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from engine.attention import LayerSpec, kernel_name
from engine.identity import Identity, identify
from engine.rope import RotaryCall, RotaryKey


@dataclass
class Model:
    """A loaded model with what the engine knows of it.

    ``base`` is the transformer without its output layer; ``layers`` are its attention layers in order;
    ``rotary`` are the ways in which it asks for cos and sin; ``fingerprints`` are those of tokenizers known before.
    """

    name: str
    revision: str | None
    module: Any
    tokenizer: Any
    layers: list[LayerSpec]
    rotary: dict[RotaryKey, RotaryCall]
    fingerprints: MutableMapping[str, str] = field(default_factory=dict)

    @property
    def base(self) -> nn.Module:
        return base_of(self.module)

    @property
    def config(self) -> Any:
        return self.module.config.get_text_config()

    @property
    def device(self) -> torch.device:
        return self.module.get_input_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which keys and values are computed."""
        return self.module.dtype

    @property
    def architecture(self) -> str:
        return type(self.module).__name__

    @property
    def vocabulary(self) -> int:
        return int(self.config.vocab_size)

    @property
    def context_length(self) -> int | None:
        """Positions the model was trained on, None if its config does not say."""
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry over all layers and KV heads, key and value."""
        size = self.dtype.itemsize
        return sum(spec.kv_heads * (spec.key_dim + spec.value_dim) * size for spec in self.layers)

    @cached_property
    def identity(self) -> Identity:
        return identify(self.name, self.revision, self.module, self.tokenizer, self.fingerprints)

    @property
    def capped(self) -> bool:
        """Whether it caps its attention logits."""
        return getattr(self.config, "attn_logit_softcapping", None) is not None

    @cached_property
    def sinking(self) -> bool:
        """Whether its attention layers have sinks."""
        return any(hasattr(module, "sinks") for module in self.base.modules())

    @property
    def kernel(self) -> str:
        """Which attention kernel reads, and why."""
        return kernel_name(self.device, self.dtype, self.capped, self.sinking)

    def logits(self, hidden: Tensor) -> Tensor:
        """The output layer on hidden states [t, hidden], with the model's own scale and cap: [t, vocabulary]."""
        logits = self.module.get_output_embeddings()(hidden)
        scale = getattr(self.config, "logit_scale", None)
        divisor = getattr(self.config, "logits_scaling", None)
        cap = getattr(self.config, "final_logit_softcapping", None)
        if scale is not None:
            logits = logits * scale
        if divisor is not None:
            logits = logits / divisor
        return logits if cap is None else torch.tanh(logits / cap) * cap


def base_of(module: Any) -> nn.Module:
    """The transformer of a causal model, without its output layer."""
    return module.get_decoder() if hasattr(module, "get_decoder") else module.base_model
