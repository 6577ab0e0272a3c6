"""From a prepared document to token ids, exactly as `ask` lays them out, and to packs that waste no padding.

A document's questions share its tokens: the document is a trunk, each question with its answer is a branch that sees
the trunk and itself, at the positions it would have alone. Several documents stand beside each other in one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.framing import Framing
from engine.model import Model
from engine.text import Encoder
from infinipot_cli.prompts import Task, load_task

PASSAGE = 4096  # characters that reading hands to the tokenizer at once


@dataclass
class Branch:
    """What follows a document: ``prompt`` is given, ``answer`` is learnt, the end token included."""

    prompt: list[int]
    answer: list[int]


@dataclass
class Tree:
    """One document with its branches."""

    trunk: list[int]
    branches: list[Branch] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.trunk) + sum(len(branch.prompt) + len(branch.answer) for branch in self.branches)


class Layout:
    """Lays prepared documents out in the wording of the built-in tasks."""

    def __init__(self, model: Model) -> None:
        self._tokenizer = model.tokenizer
        self._encoder = Encoder(model.tokenizer)
        self._tasks: dict[str, Task] = {name: load_task(name, {}) for name in ("question", "summary", "logs")}
        self._framing = {name: Framing(model, task.before, task.system) for name, task in self._tasks.items()}
        self._end = int(model.tokenizer.eos_token_id)

    def tree(self, row: Mapping[str, Any]) -> Tree:
        """The ids of one prepared document."""
        if row["task"] == "prose":
            ids = self.document(row["document"])
            return Tree([], [Branch(ids[:1], ids[1:])])
        if row["task"] == "chat":
            return Tree([], [self._chat(ask) for ask in row["asks"][:1]])
        trunk = self._framing[row["task"]].prefix_ids + self.document(row["document"])
        return Tree(trunk, [self._branch(row["task"], ask) for ask in row["asks"]])

    def prefix(self, task: str) -> list[int]:
        """Ids ahead of the document."""
        return self._framing[task].prefix_ids

    def suffix(self, text: str) -> list[int]:
        """Ids of ``text`` as what follows a document, up to the head of the answer."""
        return self._framing["question"].suffix_ids(text)

    def document(self, text: str) -> list[int]:
        """Ids of a document's text."""
        parts = (text[start : start + PASSAGE] for start in range(0, len(text), PASSAGE))
        return [token for part in parts for token in self._encoder.encode(part)[0]]

    def answer(self, text: str) -> list[int]:
        """Ids of an answer, with the end token."""
        return [*self._encoder.encode(text, "\n")[0], self._end]

    def _branch(self, task: str, ask: Mapping[str, Any]) -> Branch:
        question = ask["question"]
        if task == "summary":
            question = self._tasks[task].variants[question].question
        prompt = self._framing[task].suffix_ids(self._tasks[task].turn(question))
        return Branch(prompt, self.answer(ask["answer"]))

    def _chat(self, ask: Mapping[str, Any]) -> Branch:
        turns = [{"role": "user", "content": ask["question"]}]
        prompt = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return Branch(self._encoder.encode(prompt, "", markup=True)[0], self.answer(ask["answer"]))


@dataclass
class Pack:
    """Trees in one row: ids, positions [n]; ``mask`` [n, n] says who sees whom; ``targets`` are the learnt places.

    The hidden state at ``predict[i]`` predicts token ``targets[i]`` with weight ``weights[i]``.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    predict: Tensor
    targets: Tensor
    weights: Tensor


def pack(trees: Sequence[Tree]) -> Pack:
    """Lay trees side by side. An answer of n tokens weighs sqrt(n), so that long ones do not drown short ones."""
    ids: list[int] = []
    positions: list[int] = []
    owner: list[tuple[int, int]] = []
    learnt: list[tuple[int, int, float]] = []
    for index, tree in enumerate(trees):
        ids += tree.trunk
        positions += range(len(tree.trunk))
        owner += [(index, 0)] * len(tree.trunk)
        for number, branch in enumerate(tree.branches, start=1):
            first, count = len(ids) + len(branch.prompt), len(branch.answer)
            learnt += [(first + place - 1, branch.answer[place], count**-0.5) for place in range(count)]
            ids += branch.prompt + branch.answer
            positions += range(len(tree.trunk), len(tree.trunk) + len(branch.prompt) + count)
            owner += [(index, number)] * (len(branch.prompt) + count)
    predict, targets, weights = zip(*learnt, strict=True)
    return Pack(
        torch.tensor(ids),
        torch.tensor(positions),
        _mask(torch.tensor(owner)),
        torch.tensor(predict),
        torch.tensor(targets),
        torch.tensor(weights),
    )


def _mask(owner: Tensor) -> Tensor:
    """Everything before in the same tree that is trunk or the same branch: bool [n, n], row sees column."""
    tree, branch = owner[:, 0], owner[:, 1]
    kin = (tree[:, None] == tree[None]) & ((branch[None] == 0) | (branch[:, None] == branch[None]))
    return kin.tril()


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Zero where ``mask`` [n, m] sees, the lowest number elsewhere: every kernel takes this form."""
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def packs(trees: Sequence[Tree], tokens: int) -> Iterator[list[Tree]]:
    """Trees in order, in lists of at most ``tokens`` tokens (or of one tree that is longer)."""
    waiting: list[Tree] = []
    for tree in trees:
        if waiting and sum(map(len, waiting)) + len(tree) > tokens:
            yield waiting
            waiting = []
        waiting.append(tree)
    if waiting:
        yield waiting


def wording() -> str:
    """The question task's user turn as prompts/ has it now."""
    task = load_task("question", {})
    return f"{task.before}{{document}}{'{question}'.join(task.after)}"
