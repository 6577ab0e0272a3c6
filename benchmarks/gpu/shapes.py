"""Models whose speed is theirs and whose words are noise: real shapes, random weights, nothing downloaded.

The numbers are those of each model's public config.json on the Hugging Face hub: meta-llama/Llama-3.1-8B,
meta-llama/Llama-3.2-1B, meta-llama/Llama-3.2-3B and Qwen/Qwen3-4B. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


def _llama3(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


@dataclass(frozen=True)
class Shape:
    """One decoder: ``family`` is the part of the transformers class names before "Config".

    ``inner`` is the width of the feed-forward network; ``tied``: embeddings and output layer are one table;
    ``head_norms``: queries and keys are normalised by head. ``published`` is the parameter count on the model's page.
    """

    name: str
    family: str
    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    rope: dict[str, Any]
    positions: int
    published: int
    head_norms: bool = False

    def config(self) -> dict[str, Any]:
        """The options of the family's config class. No token stops an answer."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.positions,
            "rope_parameters": dict(self.rope),
            "rms_norm_eps": 1e-6 if self.head_norms else 1e-5,
            "tie_word_embeddings": self.tied,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": 0,
        }


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "llama-3.1-8b", "Llama", 128_256, 4096, 14_336, 32, 32, 8, 128, False, _llama3(8.0), 131_072, 8_030_261_248
        ),
        Shape(
            "llama-3.2-1b", "Llama", 128_256, 2048, 8192, 16, 32, 8, 64, True, _llama3(32.0), 131_072, 1_235_814_400
        ),
        Shape(
            "llama-3.2-3b", "Llama", 128_256, 3072, 8192, 28, 24, 8, 128, True, _llama3(32.0), 131_072, 3_212_749_824
        ),
        Shape(
            "qwen3-4b", "Qwen3", 151_936, 2560, 9728, 36, 32, 8, 128, True,
            {"rope_type": "default", "rope_theta": 1e6}, 40_960, 4_022_468_096, head_norms=True,
        ),
        # Nobody's: small enough for a test on one core of a CPU.
        Shape("tiny", "Llama", 512, 64, 128, 2, 4, 2, 16, False, _llama3(8.0), 131_072, 139_584),
    )
}  # fmt: skip
