"""Tiny random models and tokenizers, made on the spot: real architectures, a few thousand weights.

Weights are large enough that attention is far from uniform, so a wrong position, mask or scale shows in the logits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from engine.model import Model
from engine.models import wrap
from engine.pot import Batch, Pot
from engine.reader import Reader
from engine.settings import PotSettings

VOCABULARY = 320
WINDOW = 16
STOP = 3  # <|im_end|>
SPECIAL = ("<|pad|>", "<|bos|>", "<|im_start|>", "<|im_end|>")

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": STOP,
    "tie_word_embeddings": False,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 64}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.5, 2.0, 3.0, 4.0],
    "original_max_position_embeddings": 256,
}
_MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
_FOUR: dict[str, Any] = {"num_hidden_layers": 4}
_WINDOWED: dict[str, Any] = {**_FOUR, "sliding_window": WINDOW, "layer_types": _MIXED}

# Name -> (the part of the transformers class names before "Config", options beside _SIZES).
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-llama3": ("Llama", {"rope_parameters": _LLAMA3}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama-yarn": ("Llama", {"rope_parameters": _YARN}),
    "llama-dynamic": ("Llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": WINDOW}),
    "qwen2": ("Qwen2", {}),
    "qwen2-mixed": ("Qwen2", {**_WINDOWED, "use_sliding_window": True}),
    "qwen3": ("Qwen3", {}),
    "gemma2": (
        "Gemma2",
        {
            **_WINDOWED,
            "query_pre_attn_scalar": 6,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": ("Gemma3Text", {**_WINDOWED, "query_pre_attn_scalar": 6}),
    "phi3": ("Phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    "phi3-longrope": ("Phi3", {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 256}),
    "smollm3": ("SmolLM3", {**_FOUR, "no_rope_layers": [1, 0, 1, 0]}),
    "olmo2": ("Olmo2", {}),
    "granite": (
        "Granite",
        {
            "logits_scaling": 4.0,
            "residual_multiplier": 0.7,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.4,
        },
    ),
    "glm4": ("Glm4", {"partial_rotary_factor": 0.5, "attention_bias": True}),
    "gpt-oss": ("GptOss", {**_WINDOWED, "num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": _YARN}),
    "cohere2": ("Cohere2", {**_WINDOWED, "logit_scale": 0.25}),
}
_PER_LAYER: dict[str, Any] = {**_WINDOWED, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8}
_ALTUP = {
    "intermediate_size": [48] * 4,
    "activation_sparsity_pattern": [0.0] * 4,
    "laurel_rank": 4,
    "altup_num_inputs": 2,
}
# Not in every release of transformers that is supported.
_NEWER: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3n": ("Gemma3nText", {**_PER_LAYER, **_ALTUP, "num_kv_shared_layers": 0}),
    "gemma4": ("Gemma4Text", {**_PER_LAYER, "global_head_dim": 16, "num_kv_shared_layers": 0}),
}
ARCHITECTURES |= {name: made for name, made in _NEWER.items() if hasattr(transformers, f"{made[0]}Config")}
# Every layer of these slides a window: nothing is left that a cycle could distil.
ALL_WINDOWED = ("mistral-window",)


@cache
def module(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A causal model of transformers with random weights, the same at every call."""
    prefix, options = ARCHITECTURES[name]
    with torch.inference_mode(False):
        return build(prefix, options, dtype)


def saved(folder: Path) -> Path:
    """A tiny llama and its tokenizer written to ``folder``, which is returned: what --model takes."""
    module("llama").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def build(prefix: str, options: dict[str, Any], dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """``{prefix}ForCausalLM`` with tiny sizes and ``options``; every weight random, norms and biases too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, f"{prefix}Config")(**{**_SIZES, **options})
        model_class = getattr(transformers, f"{prefix.removesuffix('Text')}ForCausalLM")
        made = model_class(config)
    randomise(made.parameters(), seed)
    made.generation_config = transformers.GenerationConfig(pad_token_id=0, bos_token_id=1, eos_token_id=STOP)
    return made.to(dtype).eval()


@torch.no_grad()
def randomise(parameters: Iterable[torch.Tensor], seed: int = 0, spread: float = 0.3) -> None:
    """Matrices from N(0, spread); vectors (norms, biases, sinks) moved off their initial value."""
    generator = torch.Generator().manual_seed(seed)
    for weight in parameters:
        noise = torch.randn(weight.shape, generator=generator) * spread
        weight.copy_(noise if weight.ndim > 1 else weight + noise)


@cache
def model(name: str = "llama", dtype: torch.dtype = torch.float32) -> Model:
    """The same, wrapped for the engine, with the ChatML tokenizer; not proven."""
    return wrap(module(name, dtype), tokenizer(), name)


def with_tokenizer(template: str | None, name: str = "llama") -> Model:
    """A tiny model with another chat template."""
    return wrap(module(name), tokenizer(template), name)


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRIPPING = CHATML.replace("m['content']", "m['content'] | trim")
REFUSING = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
REPEATING = CHATML.replace("{{ m['content'] }}", "{{ m['content'] }} {{ m['content'] }}")
DROPPING = CHATML.replace("{{ m['content'] }}", "")
BROKEN = "{% for m in messages %}{{ m['content'] "
DEAF = CHATML.replace("{% for m in messages %}", "{% for m in messages if m['role'] != 'system' %}")
WITH_BOS = "{{ bos_token }}" + CHATML

_CORPUS = [
    "the cat sat on the mat and the dog sat on the log\n\nQuestion: who sat there?\nAnswer: the cat and the dog",
    "a blank line at the end\n\n",
    "two blank lines at the end\n\n",
    "a question has an answer and the answer has a question; the number is 12345\n    indented line\n",
]


def tokenizer(template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """Byte-level BPE with a few merges and ChatML control tokens."""
    return wrapped(_byte_level(), template)


def wrapped(backend: Tokenizer, template: str | None, **special: Any) -> PreTrainedTokenizerFast:
    """A backend as transformers sees it."""
    names = {"pad_token": "<|pad|>", "bos_token": "<|bos|>", "eos_token": "<|im_end|>"} | special
    made = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    made.chat_template = template
    return made


def _control() -> list[AddedToken]:
    return [AddedToken(name, special=True, normalized=False) for name in SPECIAL]


def _byte_level() -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 8,
        special_tokens=_control(),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    return backend


def spiece_tokenizer(template: str | None = CHATML, legacy: bool = False) -> PreTrainedTokenizerFast:
    """A SentencePiece look-alike as Llama 2 has it: "▁" for spaces, byte fallback, a space before the first word.

    With ``legacy`` the space is prepended by the normalizer, else by the pre-tokenizer.
    """
    letters = [*(chr(c) for c in range(33, 127)), "▁", "\n"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    words = ["th", "the", "▁the", "▁▁", "an", "▁an", "▁c"]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys([*SPECIAL, "<unk>", *bytes_, *letters, *words]))}
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁"), ("a", "n"), ("▁", "an"), ("▁", "c")]
    backend = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    if legacy:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(_control())
    return wrapped(backend, template, unk_token="<unk>")


def random_ids(count: int, seed: int = 0) -> torch.Tensor:
    """``count`` token ids, none of them a control token."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(len(SPECIAL), VOCABULARY, (count,), generator=generator)


def document(count: int, seed: int = 0) -> Batch:
    """``count`` tokens with their source positions 0.. and places."""
    positions = torch.arange(count)
    return Batch(random_ids(count, seed), positions, positions // 10 + 1)


def read(model: Model, settings: PotSettings, batch: Batch, prefix: int = 3, catalyst: int = 4) -> Pot:
    """A pot that has read ``batch`` behind a random prefix, with a random catalyst."""
    reader = Reader(model, settings, random_ids(prefix, 101).tolist(), random_ids(catalyst, 102).tolist())
    reader.feed(batch)
    return reader.finish()


def empty_pot(model: Model, capacity: int) -> Pot:
    """A pot in which nothing is ever distilled, for models whose every layer slides a window too."""
    return Pot(model.layers, PotSettings(capacity=capacity, distilled=1), model.device, model.dtype)


def contents(pot: Pot) -> dict[str, torch.Tensor]:
    """Everything that a pot holds, by name, cut to the slots in use; what two equal pots must agree on."""
    found = {
        f"{index}.{name}": getattr(store, name)[:, : store.length].clone()
        for index, store in pot.stores.items()
        for name in store.tensors
    }
    counts = [pot.protected, pot.tokens_read, pot.cycles, pot.entries]
    found["counts"] = torch.tensor(counts)
    if pot.last_hidden is not None:
        found["last_hidden"] = pot.last_hidden.clone()
    return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@cache
def roomy_module() -> Any:
    """A llama whose vocabulary is large enough for every tokenizer here."""
    with torch.inference_mode(False):
        return build("Llama", {"vocab_size": 500})
