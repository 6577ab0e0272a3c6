"""The pot-native stage: read through the real engine into a pot too small for the document, answer from what is left.

Reading and distilling run without gradients, with the adapter as it stands, so the kept entries are those that `ask`
would keep. The answer is learnt on the poured cache, from the gold tokens and from the same model's own
distribution when it has the whole text before it (Kullback-Leibler divergence, teacher to student). Where the answer
stands in the document but not in what is left of it, what is learnt is to say so instead of to guess.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from engine.filling import make_room
from engine.model import Model
from engine.pot import Batch, Pot
from engine.pour import pour
from engine.reader import Reader
from engine.settings import PotSettings
from infinipot_cli.bench.scoring import contains
from training.layout import Branch, Layout, Tree, additive, pack
from training.negatives import NEGATIVES, NOT_SAID

#: Sources whose questions still mean one thing when several documents stand together.
SOURCES = ("squadshifts_new_wiki", "wiki_rules", "needles")
JOINED = (2, 6)  # prepared documents in one lesson
#: Questions of a lesson at most: those that its document answers, and those that it does not.
ANSWERED, UNANSWERED = 10, 4
#: Shares of the lessons whose documents are distilled with each question in turn (CaP-Q), and with the general catalyst
#: (CaP-G). The others are held whole, so that only the focus of each question decides what is left: one reading serves
#: all questions.
BY_QUESTION, BY_GENERAL = 0.2, 0.25
READINGS = 3  # questions of a lesson at most that takes a reading for each
SLACK = 16  # entries left free behind the answer, as `ask` leaves room for a longer one
TOLD_POTS = (512, 2048)  # capacities of pots that are summarised


@dataclass
class PotTree(Tree):
    """A document, its questions, and the pot that it is read into. ``prefix`` tokens of the trunk are protected.

    Answers are written from ``focus`` entries at most (None: all). With ``taught`` there is a teacher beside the gold
    answer. ``refusal`` is what is learnt where the pot has lost the answer (None: the answer all the same).
    """

    prefix: int = 0
    settings: PotSettings = field(default_factory=PotSettings)
    catalyst: list[int] | None = None  # None: each question is its own catalyst (CaP-Q)
    focus: int | None = None
    taught: bool = True
    refusal: list[int] | None = None


def pot_course(
    layout: Layout,
    documents: Sequence[Mapping[str, Any]],
    tokens: int,
    seed: int,
    catalyst: str,
    focus: int | None = None,
) -> list[PotTree]:
    """As many long documents with questions as ``tokens`` allow, each with its own random pot; short ones first.

    ``catalyst`` is the text of the general catalyst (CaP-G); ``focus`` how many entries an answer is written from.
    """
    rng = random.Random(seed)
    fitting = [row for row in documents if row["source"] in SOURCES]
    general, refusal = layout.suffix(catalyst), layout.answer(NOT_SAID)
    lessons: list[PotTree] = []
    while sum(map(len, lessons)) < tokens:
        row = joined(rng.sample(fitting, rng.randint(*JOINED)), rng)
        tree = layout.tree(row)
        prefix = len(layout.prefix(row["task"]))
        way = rng.random()
        by_question, whole = way < BY_QUESTION, way >= BY_QUESTION + BY_GENERAL
        branches = tree.branches[:READINGS] if by_question else tree.branches
        settings = whole_pot(len(tree.trunk)) if whole else random_pot(len(tree.trunk), prefix, rng)
        own = None if by_question else general
        lessons.append(PotTree(tree.trunk, branches, prefix, settings, own, focus, refusal=refusal))
    return sorted(lessons, key=lambda tree: math.log(len(tree)) + rng.gauss(0, 0.3))


def told_course(
    layout: Layout, documents: Sequence[Mapping[str, Any]], tokens: int, seed: int, catalyst: str
) -> list[PotTree]:
    """As many documents to be summarised as ``tokens`` allow, in random order, each from a pot of its own (CaP-G).

    They have no teacher: it takes the text in one row, where a whole story would cost more than all the rest.
    """
    rng = random.Random(seed)
    general = layout.suffix(catalyst)
    lessons: list[PotTree] = []
    for row in rng.sample(documents, len(documents)):
        if sum(map(len, lessons)) >= tokens:
            break
        tree = layout.tree(row)
        capacity = int(math.exp(rng.uniform(*map(math.log, TOLD_POTS))))
        settings = PotSettings(capacity=capacity, distilled=int(capacity * rng.uniform(0.35, 0.65)), method="cap")
        prefix = len(layout.prefix(row["task"]))
        lessons.append(PotTree(tree.trunk, tree.branches, prefix, settings, general, taught=False))
    return lessons


def joined(rows: Sequence[Mapping[str, Any]], rng: random.Random) -> dict[str, Any]:
    """One document out of several, with questions from each that the others cannot answer."""
    document = "\n\n".join(row["document"].strip() for row in rows)
    asks = [ask for row in rows for ask in row["asks"]]
    known = {ask["question"] for ask in asks if ask["kind"] not in NEGATIVES}
    answered = [ask for ask in asks if ask["kind"] not in NEGATIVES]
    others = [ask for ask in asks if ask["kind"] in NEGATIVES and ask["question"] not in known]
    chosen = rng.sample(answered, min(ANSWERED, len(answered))) + rng.sample(others, min(UNANSWERED, len(others)))
    return {**rows[0], "document": document, "asks": rng.sample(chosen, len(chosen))}


def whole_pot(tokens: int) -> PotSettings:
    """A pot that holds a document of ``tokens`` tokens and any question of usual length."""
    return PotSettings(capacity=tokens + 256)


def random_pot(tokens: int, prefix: int, rng: random.Random) -> PotSettings:
    """A pot between a quarter of the document and all of it, with room for a question of usual length."""
    room = prefix + 160
    capacity = room + int(tokens * math.exp(rng.uniform(math.log(0.25), 0.0)))
    distilled = max(16, int((capacity - room) * rng.uniform(0.3, 0.8)))
    method = rng.choice(("cap", "infinipot"))
    return PotSettings(capacity=capacity, distilled=distilled, alpha=rng.choice((0.25, 0.5, 0.75)), method=method)


def pot_loss(model: Model, tree: PotTree, share: float) -> Tensor:
    """Sum over the answers of (1 - share) * -log p(gold) + share * KL(full text || pot), weighted as in ``pack``.

    Gradients reach the adapter where it reads question and answer; the pot's entries are constants. An answer that the
    pot has lost has no teacher: it saw what the pot has not.
    """
    teacher = full_text_logits(model, tree) if tree.taught else None
    total = torch.zeros((), device=model.device)
    done = 0
    pot: Pot | None = None
    for branch in tree.branches:
        if pot is None or tree.catalyst is None:
            pot = read_into_pot(model, tree, branch)
        left = with_room(model, pot, branch, tree.focus)
        learnt, wanted = branch, teacher[done : done + len(branch.answer)] if teacher is not None else None
        done += len(branch.answer)
        if tree.refusal is not None and lost(model, tree, left, branch):
            learnt, wanted = replace(branch, answer=tree.refusal), None
        total = total + _answer_loss(answer_logits(model, left, learnt), learnt.answer, wanted, share)
    return total


def _answer_loss(logits: Tensor, answer: Sequence[int], wanted: Tensor | None, share: float) -> Tensor:
    """One answer's part of ``pot_loss``: logits [n, V] against n tokens and the teacher's logits ``wanted`` [n, V]."""
    target = torch.tensor(answer, device=logits.device)
    loss = torch.nn.functional.cross_entropy(logits, target, reduction="sum")
    if wanted is not None:
        teacher = wanted.log_softmax(-1)
        gap = torch.nn.functional.kl_div(logits.log_softmax(-1), teacher, log_target=True, reduction="sum")
        loss = (1 - share) * loss + share * gap
    return loss * len(answer) ** -0.5


def lost(model: Model, tree: PotTree, pot: Pot, branch: Branch) -> bool:
    """Whether the answer stands in the document, word for word, but not in what the pot's first head holds of it.

    One head speaks for all where all decide together (``engine.scope``), which is how `ask` reads.
    """
    answer, decode = [model.tokenizer.decode(branch.answer[:-1])], model.tokenizer.decode
    store = pot.distilled_stores[0]
    held = store.token[0, pot.protected : store.length].tolist()
    return contains(decode(tree.trunk[tree.prefix :]), answer) and not contains(decode(held), answer)


@torch.no_grad()
def full_text_logits(model: Model, tree: Tree) -> Tensor:
    """What the model, as it stands, predicts for every answer token with the whole document before it: [m, V]."""
    row = pack([Tree([], tree.branches)])
    mask = torch.cat([torch.ones(len(row.ids), len(tree.trunk), dtype=torch.bool), row.mask], 1)
    hidden = model.base(
        input_ids=row.ids[None].to(model.device),
        position_ids=row.positions[None].to(model.device) + len(tree.trunk),
        attention_mask=additive(mask, model.dtype)[None, None].to(model.device),
        past_key_values=read_whole(model, tree.trunk),
        use_cache=True,
    ).last_hidden_state[0]
    return model.logits(hidden[row.predict.to(model.device)]).float()


def answer_logits(model: Model, pot: Pot, branch: Branch) -> Tensor:
    """Logits of the answer's tokens [n, V] from the distilled document, with gradients; the pot stays as it is."""
    cache = _constants(pour(model, pot))
    entries = cache.get_seq_length()
    ids = torch.tensor(branch.prompt + branch.answer, device=model.device)
    positions = torch.arange(entries, entries + len(ids), device=model.device)
    hidden = model.base(
        input_ids=ids[None], position_ids=positions[None], past_key_values=cache, use_cache=True
    ).last_hidden_state[0]
    return model.logits(hidden[len(branch.prompt) - 1 : -1]).float()


def with_room(model: Model, pot: Pot, branch: Branch, focus: int | None = None) -> Pot:
    """A copy of the pot, with room made for question and answer as ``generate`` makes it."""
    pot = pot.copy()
    make_room(model, pot, _need(branch), torch.tensor(branch.prompt), focus)
    return pot


def _constants(cache: DynamicCache) -> DynamicCache:
    """What inference mode made cannot take part in a backward pass; a copy can."""
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
    return cache


def read_whole(model: Model, ids: Sequence[int]) -> DynamicCache:
    """A stock cache of constants that holds all of ``ids``, read by the engine with nothing evicted."""
    settings = PotSettings(capacity=max(len(ids) + 1, 32), method="recent")
    reader = Reader(model, settings, [], [])
    reader.feed(Batch.of(ids))
    return _constants(pour(model, reader.finish()))


def read_into_pot(model: Model, tree: PotTree, branch: Branch) -> Pot:
    """The pot after reading the tree's document as `ask` reads it, or as `pot save` does where it has a catalyst."""
    catalyst = branch.prompt if tree.catalyst is None else tree.catalyst
    need = max(map(_need, tree.branches))
    reader = Reader(model, _fitting(tree, len(catalyst), need), tree.trunk[: tree.prefix], catalyst)
    ids = torch.tensor(tree.trunk[tree.prefix :])
    reader.feed(Batch(ids, torch.arange(len(ids)), torch.ones_like(ids)))
    return reader.finish()


def _need(branch: Branch) -> int:
    """Entries that question and answer take."""
    return len(branch.prompt) + len(branch.answer) + SLACK


def _fitting(tree: PotTree, catalyst: int, need: int) -> PotSettings:
    """The tree's settings, with the capacity raised where an unusually long question needs it."""
    least = tree.prefix + max(tree.settings.kept + catalyst + 1, need + 1)
    return replace(tree.settings, capacity=max(tree.settings.capacity, least))
