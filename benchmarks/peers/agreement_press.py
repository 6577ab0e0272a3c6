"""The kvpress side of ``agreement.py``, in kvpress's own interpreter: the scores of each press on given tokens.

python -m benchmarks.peers.agreement_press MODEL_FOLDER INPUT.npz OUTPUT.npz
"""

from __future__ import annotations

import sys
from typing import Any

import kvpress  # type: ignore[import-not-found]
import numpy
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging


def presses(catalyst: int, ratio: float) -> dict[str, tuple[Any, bool]]:
    """By name: a press, and whether it reads the ``catalyst`` tokens after the document, which are then its window."""
    return {
        "StreamingLLM": (kvpress.StreamingLLMPress(ratio), False),
        "TOVA": (kvpress.TOVAPress(ratio), False),
        "ObservedAttention": (kvpress.ObservedAttentionPress(ratio), False),
        "KeyDiff": (kvpress.KeyDiffPress(ratio), False),
        "SnapKV, kernel 7": (kvpress.SnapKVPress(ratio, window_size=catalyst, kernel_size=7), True),
        "SnapKV, kernel 1": (kvpress.SnapKVPress(ratio, window_size=catalyst, kernel_size=1), True),
    }


@torch.inference_mode()
def scores(model: Any, press: Any, ids: torch.Tensor) -> numpy.ndarray:
    """What the press thinks of every token, layer by layer: [layers, KV heads, tokens]."""
    found = []
    score = press.score

    def noted(*arguments: Any, **named: Any) -> torch.Tensor:
        found.append(score(*arguments, **named))
        return found[-1]

    press.score = noted
    with press(model):
        model(ids[None], past_key_values=DynamicCache(config=model.config))
    return torch.cat(found).numpy()


def main() -> None:
    folder, source, target = sys.argv[1:]
    logging.disable_progress_bar()
    # Eager: only then does a press see the attention that it wants to observe.
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    given = numpy.load(source)
    document, catalyst = torch.from_numpy(given["document"]), torch.from_numpy(given["catalyst"])
    found: dict[str, Any] = {}
    for name, (press, asks) in presses(len(catalyst), float(given["ratio"])).items():
        ids = torch.cat([document, catalyst]) if asks else document
        found[name] = scores(model, press, ids)[..., : len(document)]
    numpy.savez(target, **found)


if __name__ == "__main__":
    main()
