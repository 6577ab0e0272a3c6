"""Makes a GGUF file of a tiny llama with a byte-level vocabulary: real enough to convert, load and run."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, KV_HEADS, INNER = 32, 2, 4, 2, 48
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# "Ċ" and "Ġ" are newline and space in byte-level alphabets: the merge decides how blanks before a digit are cut.
MERGES = ["Ġ Ġ", "Ċ Ġ", "h e", "t he", "Ġ the"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_alphabet() -> list[str]:
    """One printable character per byte, as GPT-2's vocabulary has them."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def vocabulary() -> list[str]:
    return [*SPECIAL, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]


def write(
    path: Path, *, seed: int = 0, pre: str = "smollm", template: str = TEMPLATE, poison: float | None = None
) -> Path:
    """Write the file; ``poison`` replaces one weight, ``pre`` names the pre-tokenizer."""
    tokens = vocabulary()
    writer = gguf.GGUFWriter(str(path), "llama")
    _metadata(writer, tokens, pre, template)
    random = np.random.default_rng(seed)
    for name, shape in _shapes(len(tokens)).items():
        weight = random.normal(0, 0.3, shape).astype(np.float32)
        if poison is not None and name == "blk.0.ffn_up.weight":
            weight[0, 0] = poison
        writer.add_tensor(name, np.ones(shape, np.float32) if "norm" in name else weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(writer: gguf.GGUFWriter, tokens: list[str], pre: str, template: str) -> None:
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)


def _shapes(tokens: int) -> dict[str, tuple[int, ...]]:
    kv = WIDTH // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (tokens, WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.{name}.weight": shape
            for name, shape in {
                "attn_norm": (WIDTH,),
                "attn_q": (WIDTH, WIDTH),
                "attn_k": (kv, WIDTH),
                "attn_v": (kv, WIDTH),
                "attn_output": (WIDTH, WIDTH),
                "ffn_norm": (WIDTH,),
                "ffn_gate": (INNER, WIDTH),
                "ffn_up": (INNER, WIDTH),
                "ffn_down": (WIDTH, INNER),
            }.items()
        }
    return shapes
