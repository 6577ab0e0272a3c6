"""llama.cpp through llama-cpp-python: the same weights as they are shipped (GGUF), the whole document in context."""

from __future__ import annotations

import time

import llama_cpp  # type: ignore[import-not-found]

from benchmarks.peers.common import Answer, Case, Job, until_stop


class LlamaCpp:
    """A context of ``length`` entries, allocated when loading; keys and values in float16, which is its default."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = llama_cpp.Llama(
            job.gguf, n_ctx=job.length, n_threads=job.threads, n_threads_batch=job.threads, verbose=False
        )

    def versions(self) -> dict[str, str]:
        return {"llama-cpp-python": llama_cpp.__version__}

    def answer(self, case: Case) -> Answer:
        began = time.perf_counter()
        text = (case.before + case.text() + case.after).encode()
        prompt = self.model.tokenize(text, add_bos=False, special=True)
        self.model.reset()
        self.model.eval(prompt)
        new = [self.model.sample(temp=0.0)]
        first = time.perf_counter()
        while len(new) < self.job.new_tokens:
            self.model.eval(new[-1:])
            new.append(self.model.sample(temp=0.0))
        seconds = time.perf_counter() - first
        kept = until_stop(new, [self.model.token_eos()])
        answer = self.model.detokenize(kept).decode(errors="replace").strip()
        return Answer(answer, len(prompt), first - began, seconds, len(new))
