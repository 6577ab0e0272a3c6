"""infinipot: the document read into a pot of the budget's size, with the question as catalyst (CaP-Q)."""

from __future__ import annotations

import time

import torch
import transformers

from benchmarks.peers.common import Answer, Case, Job, until_stop
from benchmarks.peers.stock import stop_tokens
from engine.generation import decode, generate
from engine.models import load_model
from engine.reader import Reader
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.memory import Proofs


class InfiniPot:
    """The engine as the command line uses it; the admission proof is remembered as there."""

    def __init__(self, job: Job) -> None:
        torch.set_num_threads(job.threads)
        self.settings = PotSettings.from_dict(job.settings)
        self.generation = GenerationSettings(max_new_tokens=job.new_tokens)
        self.model = load_model(job.model, device="cpu", dtype="float32", offline=True, admitted=Proofs())
        self.stops = stop_tokens(self.model.module, self.model.tokenizer)
        # An id that is never written: the engine would fall back on the tokenizer's stop token.
        self.model.module.generation_config.eos_token_id = self.model.vocabulary

    def versions(self) -> dict[str, str]:
        return {"transformers": transformers.__version__, "torch": torch.__version__}

    def answer(self, case: Case) -> Answer:
        began = time.perf_counter()
        before, after = self._encode(case.before), self._encode(case.after)
        reader = Reader(self.model, self.settings, before, after)
        reader.read(case.text())
        pot = reader.finish()
        read = time.perf_counter() - began
        done = generate(self.model, pot, after, self.generation)
        text = decode(self.model.tokenizer, until_stop(done.token_ids, self.stops)).strip()
        stats = reader.stats
        parts = {"distilling": stats.seconds_distilling, "prompt": done.seconds_prompt, "cycles": stats.cycles}
        count = len(before) + stats.tokens + len(after)
        return Answer(text, count, read + done.seconds_prompt, done.seconds_writing, len(done.token_ids), parts)

    def _encode(self, text: str) -> list[int]:
        return list(self.model.tokenizer(text, add_special_tokens=False)["input_ids"])
