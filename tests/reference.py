"""The method once more, as the paper writes it: lists of entries, loops, plain softmax. Slow, and nothing shared
with the engine. It reads models of the llama build (llama, mistral, qwen2), with sliding-window layers.

Kim et al. 2024, equations 2-4, section 3.3.3, section 3.5 and Code 1, with the decisions of the design: scores per
KV head, novelty carried by the entries, ties to the earlier slot, a protected prefix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Attention = list[list[list[float]]]  # per query head, per catalyst token, per slot


@dataclass
class Entry:
    """What one KV head of one layer keeps of one token: its key before RoPE, its value, where it came from."""

    key: Tensor
    value: Tensor
    token: int
    position: int
    index: int = 0  # its number among all tokens taken in
    novelty: float = 0.0
    received: float = 0.0  # attention that the text's queries gave it


@dataclass(frozen=True)
class Options:
    """The paper's numbers: |M|, |C|, alpha, and what it leaves open."""

    capacity: int
    distilled: int
    alpha: float = 0.5
    method: str = "infinipot"
    reduce: str = "max"
    scope: str = "head"
    norm: float = 1.0
    pooling: int = 1
    pool: str = "max"
    decay: float = 1.0
    recent: int = 0
    reset: bool = True


class NaiveReader:
    """Reads ``prefix`` and document, token ids, into ``pot``: entries by layer, KV head and slot."""

    def __init__(self, module: Any, options: Options, prefix: Sequence[int], catalyst: Sequence[int]) -> None:
        self.module = module
        self.options = options
        self.prefix = list(prefix)
        self.catalyst = list(catalyst) if options.method in ("infinipot", "cap") else []
        config = module.config
        self.groups = config.num_attention_heads // config.num_key_value_heads
        self.pot: list[list[list[Entry]]] = [
            [[] for _ in range(config.num_key_value_heads)] for _ in range(config.num_hidden_layers)
        ]
        self.cycles = self.taken = 0
        self.margin = math.inf  # the closest call of any selection: a relative difference of scores
        self._last_logits: Tensor | None = None

    @torch.inference_mode()
    def read(self, document: Sequence[int]) -> None:
        """Fill the pot; distil it whenever the next token finds it full."""
        ids = self.prefix + list(document)
        positions = [-1] * len(self.prefix) + list(range(len(document)))
        while ids:
            free = self.options.capacity - len(self.catalyst) - self.entries
            if free == 0:
                self.distil(self.options.distilled)
                continue
            self._fill(ids[:free], positions[:free])
            ids, positions = ids[free:], positions[free:]

    @property
    def entries(self) -> int:
        """Slots in use in the layers that attend to everything."""
        return len(self.pot[self._global_layers()[0]][0])

    def _global_layers(self) -> list[int]:
        return [i for i in range(len(self.pot)) if self.window(i) is None]

    def window(self, layer: int) -> int | None:
        """How far back a layer sees, None for everything; slots restart, so the pot's size bounds it too."""
        window = getattr(self.module.model.layers[layer].self_attn, "sliding_window", None)
        return window if window is not None and window < self.options.capacity else None

    def _fill(self, ids: list[int], positions: list[int]) -> None:
        logits, _ = self._forward(ids, positions)
        previous = logits[:-1] if self._last_logits is None else torch.cat([self._last_logits, logits[:-1]])
        predicted = ids[len(ids) - len(previous) :]
        novelties = [-float(row.log_softmax(-1)[token]) for row, token in zip(previous, predicted, strict=True)]
        if self._last_logits is None:
            novelties = [math.inf, *novelties]
        self._last_logits = logits[-1:]
        if self.options.method not in ("infinipot", "nuc", "sirllm"):
            novelties = [0.0] * len(ids)
        for heads in self.pot:
            for head in heads:
                for entry, novelty in zip(head[-len(ids) :], novelties, strict=True):
                    entry.novelty = novelty
        self.taken += len(ids)

    def distil(self, count: int) -> None:
        """One cycle: the catalyst is read, looked at and forgotten; every KV head keeps ``count``."""
        lengths = [len(heads[0]) for heads in self.pot]
        attentions: list[Attention] = [[[] for _ in heads for _ in range(self.groups)] for heads in self.pot]
        if self.catalyst:
            _, attentions = self._forward(self.catalyst, [-1] * len(self.catalyst))
        for heads, length in zip(self.pot, lengths, strict=True):
            for head in heads:
                del head[length:]
        kept = len(self.prefix) + count
        scores = self._agreed({layer: self._scores(layer, attentions[layer]) for layer in self._global_layers()})
        for layer, heads in enumerate(self.pot):
            for index, head in enumerate(heads):
                window = self.window(layer)
                if window is not None:
                    del head[: len(head) - min(window - 1, kept)]  # the next token itself is the window's last
                    continue
                head[:] = self._keep(head, scores[layer][index], count)
        self.cycles += 1

    def _scores(self, layer: int, attention: Attention) -> list[list[float]]:
        """What the catalyst thinks of every slot behind the prefix, by KV head."""
        return [
            [
                self._reduced([row[slot] for query in attention[first : first + self.groups] for row in query] or [0.0])
                for slot in range(len(self.prefix), len(self.pot[layer][0]))
            ]
            for first in range(0, len(attention), self.groups)
        ]

    def _agreed(self, scores: dict[int, list[list[float]]]) -> dict[int, list[list[float]]]:
        """Every head's scores, or the norm over those that decide together of what each gives to a neighbourhood."""
        if self.options.scope == "head" or self.options.method not in ("infinipot", "cap"):
            return scores
        whole = [head for heads in scores.values() for head in heads]
        agreed = {}
        for layer, heads in scores.items():
            together = heads if self.options.scope == "layer" else whole
            if self.options.norm != 1:
                together = [pools(head, self.options) for head in together]
            agreed[layer] = [self._norm(column) for column in zip(*together, strict=True)]
        return {layer: [agreed[layer]] * len(heads) for layer, heads in scores.items()}

    def _norm(self, values: Sequence[float]) -> float:
        return math.fsum(value**self.options.norm for value in values) ** (1 / self.options.norm)

    def _keep(self, head: list[Entry], scores: list[float], count: int) -> list[Entry]:
        front = len(self.prefix)
        slots, margin = select([entry.novelty for entry in head[front:]], scores, count, self.options)
        self.margin = min(self.margin, margin)
        kept = head[:front] + [head[front + slot] for slot in slots]
        for entry in kept:
            entry.novelty *= self.options.decay
        return kept

    def _reduced(self, values: list[float]) -> float:
        if self.options.reduce == "max":
            return max(values)
        return math.fsum(values) / (len(values) if self.options.reduce == "mean" else 1)

    def _forward(self, ids: list[int], positions: list[int]) -> tuple[Tensor, list[Attention]]:
        """Append the tokens to every layer; logits [t, vocabulary] and what each layer's queries attended to."""
        base = self.module.model
        hidden = base.embed_tokens(torch.tensor(ids))
        seen: list[Attention] = []
        for index, layer in enumerate(base.layers):
            mixed, attention = self._attend(index, layer.self_attn, layer.input_layernorm(hidden), ids, positions)
            hidden = hidden + mixed
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            seen.append(attention)
        return self.module.lm_head(base.norm(hidden)), seen

    def _attend(
        self, index: int, attn: Any, x: Tensor, ids: list[int], positions: list[int]
    ) -> tuple[Tensor, Attention]:
        projections = (attn.q_proj, attn.k_proj, attn.v_proj)
        queries, keys, values = (proj(x).view(len(ids), -1, attn.head_dim) for proj in projections)
        heads = self.pot[index]
        first = len(heads[0])
        for t, (token, position) in enumerate(zip(ids, positions, strict=True)):
            for h, head in enumerate(heads):
                head.append(Entry(keys[t, h].clone(), values[t, h].clone(), token, position, self.taken + t))
        outputs, attention = [], []
        for h in range(queries.shape[1]):
            head = heads[h // self.groups]
            rows = []
            for t, logits in enumerate(self.logits(queries[:, h], head)):
                slot = first + t
                logits = logits / math.sqrt(attn.head_dim)
                logits[slot + 1 :] = -math.inf
                window = self.window(index)
                if window is not None:
                    logits[: max(slot - window + 1, 0)] = -math.inf
                self.hide(logits, slot)
                rows.append(logits.softmax(0))
            outputs.append(torch.stack(rows) @ torch.stack([entry.value for entry in head]))
            attention.append([row.tolist() for row in rows])
        return attn.o_proj(torch.cat(outputs, dim=1)), attention

    def logits(self, queries: Tensor, head: list[Entry]) -> Tensor:
        """Query times key, each at its position: queries [t, D] are the last t entries of ``head`` -> [t, slots]."""
        places = [slot if self.options.reset else entry.index for slot, entry in enumerate(head)]
        rotated = [rope(entry.key, place, self.module.config) for entry, place in zip(head, places, strict=True)]
        asking = [rope(q, p, self.module.config) for q, p in zip(queries, places[-len(queries) :], strict=True)]
        return torch.stack(asking) @ torch.stack(rotated).T

    def hide(self, logits: Tensor, slot: int) -> None:
        """What the query at ``slot`` must not see besides."""


def rope(x: Tensor, slot: int, config: Any) -> Tensor:
    """RoPE of one vector [D] at ``slot``; angles in single precision, as transformers has them."""
    half = x.shape[0] // 2
    powers = torch.arange(0, x.shape[0], 2, dtype=torch.float32) / x.shape[0]
    angles = slot * (1.0 / config.rope_parameters["rope_theta"] ** powers)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[:half], x[half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin])


def select(novelty: list[float], attention: list[float], count: int, options: Options) -> tuple[list[int], float]:
    """The slots that one head keeps, in order, and how close the closest decision was.

    The last ``recent`` always stay. InfiniPot then takes the T = round(alpha * count) most novel of all, and fills up
    by the catalyst's attention; CaP and NuC use one of the two. Of equals the earlier slot stays.
    """
    total = len(novelty)
    guarded = list(range(total))[total - options.recent :] if options.recent else []
    if options.method == "recent":
        return list(range(total - count, total)), math.inf
    pooled = pools(attention, options)
    share = {"infinipot": round(options.alpha * count), "cap": 0, "nuc": count}[options.method]
    by_novelty, near_novelty = _ranked(range(total), novelty.__getitem__, share)
    kept = guarded[-count:] if guarded else []
    kept += [slot for slot in by_novelty if slot not in kept][: count - len(kept)]
    rest = [slot for slot in range(total) if slot not in kept]
    by_attention, near_attention = _ranked(rest, pooled.__getitem__, count - len(kept))
    return sorted(kept + by_attention), min(near_novelty, near_attention)


def pools(scores: Sequence[float], options: Options) -> list[float]:
    """Of its neighbours, every slot takes the largest score or the mean."""
    half = options.pooling // 2
    near = [scores[max(i - half, 0) : i + half + 1] for i in range(len(scores))]
    return [max(pool) if options.pool == "max" else math.fsum(pool) / len(pool) for pool in near]


def _ranked(slots: Sequence[int], score: Callable[[int], float], count: int) -> tuple[list[int], float]:
    """The ``count`` slots of highest score, highest first, and the relative gap to the first one left out."""
    order = sorted(slots, key=lambda slot: (-score(slot), slot))
    if not 0 < count < len(order):
        return order[:count], math.inf
    last, next_ = score(order[count - 1]), score(order[count])
    if last == next_ or math.isinf(last):
        return order[:count], math.inf
    return order[:count], abs(last - next_) / max(abs(last), 1e-30)
