"""Peers that are transformers' own model and ``generate``: all of the document, SnapKV's part of its cache, BM25's part
of its text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.arrivals import Arrivals
from benchmarks.bm25 import ranked
from benchmarks.peers.common import Answer, Case, Job, until_stop

PASSAGE_WORDS = 100


class Full:
    """Attention to everything: SDPA, float32, a cache that grows with the document."""

    def __init__(self, job: Job) -> None:
        torch.set_num_threads(job.threads)
        self.job = job
        self.tokenizer = AutoTokenizer.from_pretrained(job.model, local_files_only=True)
        self.model = AutoModelForCausalLM.from_pretrained(
            job.model, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        ).eval()
        self.stops = stop_tokens(self.model, self.tokenizer)

    def versions(self) -> dict[str, str]:
        return {"transformers": transformers.__version__, "torch": torch.__version__}

    def answer(self, case: Case) -> Answer:
        began = time.perf_counter()
        ids = self.encode(case.before + case.text() + case.after)
        return self.write(ids, len(ids), began)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def press(self, prompt: int) -> AbstractContextManager[Any]:
        """What is wrapped around generating from ``prompt`` tokens."""
        return nullcontext()

    @torch.inference_mode()
    def write(self, ids: Sequence[int], document: int, began: float, **parts: float) -> Answer:
        """Generate from ``ids``; the clock has run since ``began``."""
        prompt = torch.tensor([list(ids)])
        clock = Arrivals()
        with self.press(len(ids)):
            output = self.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=self.job.new_tokens,
                do_sample=False,
                streamer=clock,
            )
        new = output[0, len(ids) :].tolist()
        text = self.tokenizer.decode(until_stop(new, self.stops), skip_special_tokens=True).strip()
        first, last = clock.times[0], clock.times[-1]
        return Answer(text, document, first - began, last - first, len(new), {"read": len(ids), **parts})


class SnapKV(Full):
    """kvpress's SnapKV as its authors use it: the whole prompt is read, question included, then the cache is cut once.

    What stays, with the answer, is the budget. The question stands in the window of the last 64 tokens that decides.
    """

    def versions(self) -> dict[str, str]:
        return {"kvpress": version("kvpress"), **super().versions()}

    def press(self, prompt: int) -> AbstractContextManager[Any]:
        from kvpress import SnapKVPress  # type: ignore[import-not-found]

        keep = self.job.budget - self.job.new_tokens
        return SnapKVPress(compression_ratio=1 - keep / prompt)(self.model) if prompt > keep else nullcontext()


class Retrieval(Full):
    """BM25 picks the passages that share the question's words, up to the budget; the model reads those alone."""

    def versions(self) -> dict[str, str]:
        return {"bm25s": version("bm25s"), **super().versions()}

    def answer(self, case: Case) -> Answer:
        began = time.perf_counter()
        found = passages(case.text())
        best = ranked(found, case.question)
        searched = time.perf_counter() - began
        room = self.job.budget - self.job.new_tokens - len(self.encode(case.before + case.after))
        chosen = within(best, lambda i: len(self.encode(found[i] + "\n\n")), room)
        ids = self.encode(case.before + "\n\n".join(found[i] for i in chosen) + case.after)
        answer = self.write(ids, 0, began, search=searched)
        # Counted when the clock has stopped: this peer has no need to know how long the document is.
        return Answer(**{**vars(answer), "prompt_tokens": len(self.encode(case.before + case.text() + case.after))})


def stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The model's stop tokens, which from now on stop nothing: every peer writes the same number of tokens."""
    own = model.generation_config.eos_token_id
    own = tokenizer.eos_token_id if own is None else own
    model.generation_config.eos_token_id = None
    return list(own) if isinstance(own, list) else [own]


def passages(text: str, words: int = PASSAGE_WORDS) -> list[str]:
    """Whole sentences, as many as fit into ``words`` words (a longer sentence stands alone), in the text's order."""
    found: list[list[str]] = []
    count = 0
    for sentence in re.split(r"(?<=[.!?])\s+|\n\s*\n", text):
        size = len(sentence.split())
        if size == 0:
            continue
        if not found or count + size > words:
            found.append([])
            count = 0
        found[-1].append(sentence.strip())
        count += size
    return [" ".join(sentences) for sentences in found]


def within(ranked: Iterable[int], size: Callable[[int], int], room: int) -> list[int]:
    """The best passages, up to the first that no longer fits into ``room`` tokens, in the order of the document."""
    chosen = []
    for i in ranked:
        room -= size(i)
        if room < 0:
            break
        chosen.append(i)
    return sorted(chosen)
