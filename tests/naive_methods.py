"""The other methods once more, as their papers write them, on the naive reader of tests/reference.py."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tests.reference import Attention, Entry, NaiveReader, _ranked, rope


class NaiveMethods(NaiveReader):
    """Reads by one of the memory-constrained methods; ``answer`` continues greedily, evicting nothing."""

    def _forward(self, ids: list[int], positions: list[int]) -> tuple[Tensor, list[Attention]]:
        self.seen = super()._forward(ids, positions)
        return self.seen

    def _fill(self, ids: list[int], positions: list[int]) -> None:
        super()._fill(ids, positions)
        for heads, attention in zip(self.pot, self.seen[1], strict=True):
            for index, head in enumerate(heads):
                self._receive(head, attention, attention[index * self.groups : (index + 1) * self.groups])

    def _receive(self, head: list[Entry], layer: Attention, mine: Attention) -> None:
        """H2O sums what all queries gave; TOVA looks at the last query only, over all heads of the layer."""
        for slot, entry in enumerate(head):
            if self.options.method == "h2o":
                entry.received += math.fsum(row[slot] for query in mine for row in query)
            if self.options.method == "tova":
                entry.received = math.fsum(query[-1][slot] for query in layer) / len(layer)

    def _keep(self, head: list[Entry], attention: Attention, count: int) -> list[Entry]:
        front = len(self.prefix)
        slots = self._choose(head, count)
        for slot in slots:
            head[slot].novelty *= self.options.decay
        for entry in head[:front]:
            entry.novelty *= self.options.decay
        return head[:front] + [head[slot] for slot in slots]

    def _choose(self, head: list[Entry], count: int) -> list[int]:
        """Slots to keep: the guarded recent ones, the start tokens where the paper has them, then the best."""
        method, front, total = self.options.method, len(self.prefix), len(head)
        recent = min(count, self.options.recent)
        if method == "h2o":
            recent = max(count - count // 2, recent)
        kept = list(range(total - recent, total))
        if method in ("streaming", "sirllm"):
            starts = [slot for slot in range(front, 4) if slot not in kept]
            kept += starts[: count - len(kept)]
        rest = [slot for slot in range(front, total) if slot not in kept]
        score = {
            "streaming": lambda slot: float(slot),
            "swa": lambda slot: float(slot),
            "h2o": lambda slot: head[slot].received,
            "tova": lambda slot: head[slot].received,
            "sirllm": lambda slot: head[slot].novelty,
            "keydiff": key_difference(head, self.module.config, self.options.reset),
        }[method]
        best, margin = _ranked(rest, score, count - len(kept))
        self.margin = min(self.margin, margin)
        return sorted(kept + best)

    def hide(self, logits: Tensor, slot: int) -> None:
        if self.options.method == "swa":
            logits[len(self.prefix) : max(slot - self.options.distilled + 1, len(self.prefix))] = -math.inf

    @torch.inference_mode()
    def answer(self, question: list[int], count: int) -> list[int]:
        """``count`` tokens, greedily, however large the cache gets."""
        ids, said = list(question), []
        for _ in range(count):
            logits, _ = self._forward(ids, [-1] * len(ids))
            self.taken += len(ids)
            ids = [int(logits[-1].argmax())]
            said += ids
        return said


def key_difference(head: list[Entry], config: Any, reset: bool) -> Any:
    """KeyDiff: minus the cosine of each key to the mean of the unit keys of its head."""
    keys = [rope(entry.key, slot if reset else entry.index, config) for slot, entry in enumerate(head)]
    mean = sum(key / key.norm() for key in keys) / len(keys)
    return lambda slot: -float(keys[slot] @ mean / (keys[slot].norm() * mean.norm()))


class NaiveSelfExtend(NaiveMethods):
    """Self-Extend, equation 4: key j seen by query i at i - j, or, from ``near`` on, at grouped positions."""

    group = near = 0

    def logits(self, queries: Tensor, head: list[Entry]) -> Tensor:
        rows, config = [], self.module.config
        shift = self.near - self.near // self.group
        near_keys = [rope(entry.key, j, config) for j, entry in enumerate(head)]
        far_keys = [rope(entry.key, j // self.group, config) for j, entry in enumerate(head)]
        for i, query in enumerate(queries, start=len(head) - len(queries)):
            close, far = rope(query, i, config), rope(query, i // self.group + shift, config)
            pairs = enumerate(zip(near_keys, far_keys, strict=True))
            rows.append([float(close @ k if i - j < self.near else far @ other) for j, (k, other) in pairs])
        return torch.tensor(rows, dtype=queries.dtype)


class NaiveSnapKV(NaiveMethods):
    """SnapKV, Listing 1: everything is read; then the prompt's last 32 tokens choose, and stay."""

    def compress(self, catalyst: list[int], capacity: int) -> None:
        """Keep what the window of text and catalyst attends to; the catalyst leaves again."""
        length, text = len(self.pot[0][0]), self.seen[1]
        from_text = max(32 - len(catalyst), 0)
        _, asked = self._forward(catalyst, [-1] * len(catalyst))
        for heads, before, after in zip(self.pot, text, asked, strict=True):
            for index, head in enumerate(heads):
                del head[length:]
                rows = [
                    row
                    for query in range(index * self.groups, (index + 1) * self.groups)
                    for row in [*before[query][len(before[query]) - from_text :], *after[query][-32:]]
                ]
                head[:] = self._snapped(head, rows, length - from_text, capacity - len(catalyst) - from_text)
        self.cycles += 1

    def _snapped(self, head: list[Entry], rows: list[list[float]], end: int, count: int) -> list[Entry]:
        front = len(self.prefix)
        sums = [math.fsum(row[slot] for row in rows) for slot in range(front, end)]
        pooled = [max(sums[max(i - 3, 0) : i + 4]) for i in range(len(sums))]
        slots, margin = _ranked(range(len(sums)), pooled.__getitem__, count - front)
        self.margin = min(self.margin, margin)
        return head[:front] + [head[front + slot] for slot in sorted(slots)] + head[end:]
