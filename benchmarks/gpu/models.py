"""A shape as a model that the engine reads with: random weights drawn on the device, ids instead of words."""

from __future__ import annotations

import gc
import platform
from collections.abc import Sequence
from typing import Any

import torch
import transformers

from benchmarks.gpu.shapes import Shape
from engine.admission import prove
from engine.model import Model
from engine.models import wrap
from engine.pot import Batch


class Numbers:
    """Where a tokenizer is asked for: a text is its token ids in decimal. No token is special and none stops."""

    is_fast = False
    eos_token_id = None
    chat_template = None

    def encode(self, text: str, **_: Any) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return " ".join(str(i) for i in ids)


def build(shape: Shape, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Model:
    """The shape with weights from N(0, 0.02), norms of one; admitted by proof like any other model.

    Raises ModelError if the pot does not give this device's stock numbers, torch.cuda.OutOfMemoryError.
    """
    config = getattr(transformers, f"{shape.family}Config")(**shape.config())
    model_class = getattr(transformers, f"{shape.family}ForCausalLM")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        torch.manual_seed(seed)
        module = model_class._from_config(config, dtype=dtype, attn_implementation="sdpa")
    module.generation_config = transformers.GenerationConfig(pad_token_id=0)
    model = wrap(module, Numbers(), shape.name)
    prove(model)
    return model


def noise(shape: Shape, start: int, count: int, seed: int = 0) -> Batch:
    """``count`` random tokens at positions ``start``.. of a text; in main memory, where a reader's tokens lie too.

    The same piece of the same text is the same at every call.
    """
    own = torch.Generator().manual_seed(seed * 1_000_003 + start)
    ids = torch.randint(0, shape.vocabulary, (count,), generator=own)
    positions = torch.arange(start, start + count)
    return Batch(ids, positions, torch.ones_like(ids))


def some_ids(shape: Shape, count: int, seed: int) -> list[int]:
    """Ids for a prefix, a question or a catalyst."""
    return noise(shape, 0, count, seed).ids.tolist()


def give_back(device: torch.device) -> None:
    """Return what nobody holds any more to the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def circumstances(device: torch.device) -> dict[str, Any]:
    """What figures depend on besides the options: the device and the libraries."""
    found = {
        "device": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"device": properties.name, "memory": properties.total_memory}
    return found
