"""Train the reader adapter: LoRA on every linear layer, loss on the answers only, short documents first.

    python training/train.py [--data training/data/training.jsonl ...] [--out training/runs/first] [--tokens 450000]
    python training/train.py --pot --start training/runs/first/adapter.safetensors --out training/runs/pot

``--pot`` reads every document through a pot; ``--pot-tokens`` and ``--told`` mix such lessons, and lessons of documents
to be summarised, at random among the plain ones.

Resumes from the checkpoint in --out where there is one (--fresh starts anew). Writes there: adapter.safetensors
(bfloat16 factors), state-*.* (float32 factors, optimizer, place; every file under 16 MiB), log.jsonl (one line per
step). ``--tokens`` is the length of the whole run, and with it of the learning rate's schedule: warmup, constant,
then linear to zero over the last part.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.model import Model
from engine.models import load_model
from infinipot_cli.catalog import DEFAULT
from infinipot_cli.models import resolve
from infinipot_cli.prompts import load_catalyst
from training.checkpoint import load_state, save_adapter, save_state
from training.corpus import rows
from training.layout import Layout, Pack, Tree, additive, pack, packs, wording
from training.lora import LoraLinear, add_lora, lora_state, set_lora_state
from training.through_pot import PotTree, pot_course, pot_loss, read_whole, told_course


@dataclass
class Progress:
    """How far a run is."""

    step: int = 0
    tokens: int = 0
    questions: int = 0
    documents: int = 0
    seconds: float = 0.0


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    model = load_model(resolve(options.model), dtype=options.dtype, offline=True)
    if model.device.type == "cpu":
        # Plain matrix products: for rows this short, the fused kernel's backward pass on the CPU is slower.
        model.module.set_attn_implementation("eager")
    layers = add_lora(model.module, options.rank, options.alpha, options.seed)
    run = Run(model, layers, options)
    if options.start:
        set_lora_state(layers, load_file(options.start))
    if not options.fresh:
        run.resume()
    plan = _plan(model, options)
    print(f"{len(plan)} documents, {sum(map(len, plan)):,} tokens, {sum(len(t.branches) for t in plan):,} questions")
    stop = time.monotonic() + 60 * options.minutes
    for batch in batches(plan, options.batch, run.progress.documents):
        if run.progress.tokens >= run.end or time.monotonic() >= stop:
            break
        run.step(batch)
        if run.progress.step % options.save_every == 0:
            run.save()
    run.save()
    print(f"{run.progress.tokens:,} of {run.end:,} tokens, step {run.progress.step}")
    if options.check:
        print(f"loss on held-back documents: {run.held_back_loss(options.check, options.check_documents):.4f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--data", type=Path, nargs="+", default=[Path("training/data/training.jsonl")])
    parser.add_argument("--out", type=Path, default=Path("training/runs/first"))
    parser.add_argument("--tokens", type=int, default=450_000, help="tokens of the whole run")
    parser.add_argument("--end", type=int, help="tokens after which to end, and by which the rate falls to zero")
    parser.add_argument("--batch", type=int, default=16, help="questions per step, at least")
    parser.add_argument("--pack", type=int, default=512, help="tokens that go through the model at once")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--alpha", type=float, default=32.0)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--warmup", type=int, default=20, help="steps")
    parser.add_argument("--decay", type=float, default=0.5, help="share of the run over which the rate falls to zero")
    parser.add_argument("--dtype", default="bfloat16", help="of the frozen model; the adapter itself is float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--start", type=Path, help="adapter.safetensors of another run to start from")
    parser.add_argument("--pot", action="store_true", help="read through pots of random size (through_pot.py)")
    parser.add_argument("--pot-tokens", type=int, default=0, help="of --tokens, those whose questions go through pots")
    parser.add_argument("--told", type=Path, nargs="+", help="prepared documents to be summarised out of pots")
    parser.add_argument("--told-tokens", type=int, default=0, help="of --tokens, those of --told")
    parser.add_argument("--kl", type=float, default=0.5, help="through pots: share of the teacher in the loss")
    parser.add_argument("--check", type=Path, help="prepared documents held back, to print the loss on at the end")
    parser.add_argument("--check-documents", type=int, default=150)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end then; the same command goes on from there")
    parser.add_argument("--whole", type=int, default=1_000_000, help="longer documents are read without gradients")
    parser.add_argument("--mixed", action="store_true", help="documents in random order, not short ones first")
    return parser.parse_args()


def _plan(model: Model, options: argparse.Namespace) -> Sequence[Tree]:
    layout, documents = Layout(model), [row for path in options.data for row in rows(path)]
    general = load_catalyst("cap-g", {}).text or ""
    if options.pot:
        return pot_course(layout, documents, options.tokens, options.seed, general)
    plain = options.tokens - options.pot_tokens - options.told_tokens
    plan, lessons = curriculum(layout, documents, plain, options.seed, options.mixed), list[Tree]()
    if options.pot_tokens:
        lessons += pot_course(layout, documents, options.pot_tokens, options.seed, general, DEFAULT.focus)
    if options.told:
        told = [row for path in options.told for row in rows(path)]
        lessons += told_course(layout, told, options.told_tokens, options.seed, general)
    if lessons:
        plan += lessons
        random.Random(options.seed).shuffle(plan)
    return plan


def curriculum(
    layout: Layout, documents: Sequence[dict[str, Any]], tokens: int, seed: int, mixed: bool = False
) -> list[Tree]:
    """As many documents, drawn at random, as the run has tokens for (again from the start where they run out);
    roughly the shorter ones first, unless ``mixed``."""
    rng = random.Random(seed)
    drawn: list[Tree] = []
    count = 0
    while count < tokens:
        for row in rng.sample(documents, len(documents)):
            if count >= tokens:
                break
            drawn.append(layout.tree(row))
            count += len(drawn[-1])
    if mixed:
        return drawn
    return sorted(drawn, key=lambda tree: math.log(len(tree)) + rng.gauss(0, 0.4))


def batches(plan: Sequence[Tree], questions: int, skip: int) -> Iterator[list[Tree]]:
    """Documents in order, enough for ``questions`` questions at a time, after the first ``skip`` documents."""
    waiting: list[Tree] = []
    for tree in plan[skip:]:
        waiting.append(tree)
        if sum(len(t.branches) for t in waiting) >= questions:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


class Run:
    """A model in training, its optimizer and its folder."""

    def __init__(self, model: Model, layers: dict[str, LoraLinear], options: argparse.Namespace) -> None:
        self.model = model
        self.layers = layers
        self.options = options
        self.progress = Progress()
        self.end = options.end or options.tokens
        self.parameters = [p for layer in layers.values() for p in (layer.lora_a, layer.lora_b)]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=options.lr, weight_decay=0.0, betas=(0.9, 0.98))
        options.out.mkdir(parents=True, exist_ok=True)

    def step(self, trees: Sequence[Tree]) -> None:
        """One optimizer step on the answers of ``trees``."""
        began = time.perf_counter()
        rate = self._rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self._gradients(trees)
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, 1.0))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._count(trees, time.perf_counter() - began)
        self._log({"loss": round(loss, 4), "norm": round(norm, 3), "lr": round(rate, 7)})

    def _gradients(self, trees: Sequence[Tree]) -> float:
        """Add up the gradients of the weighted mean loss; the loss."""
        total = sum(len(branch.answer) ** 0.5 for tree in trees for branch in tree.branches)
        loss = 0.0
        for piece in self._losses(trees):
            (piece / total).backward()
            loss += float(piece.detach()) / total
        return loss

    def _losses(self, trees: Sequence[Tree]) -> Iterator[Tensor]:
        """Weighted sums of the answers' losses, one graph at a time."""
        yield from (pot_loss(self.model, tree, self.options.kl) for tree in trees if isinstance(tree, PotTree))
        plain = [tree for tree in trees if not isinstance(tree, PotTree)]
        short = [tree for tree in plain if len(tree.trunk) <= self.options.whole]
        yield from (pack_loss(self.model, part) for part in packs(short, self.options.pack))
        yield from (read_loss(self.model, tree) for tree in plain if len(tree.trunk) > self.options.whole)

    def _rate(self) -> float:
        """Warmup, constant, then linear to zero."""
        left = 1 - self.progress.tokens / self.end
        warm = (self.progress.step + 1) / self.options.warmup
        return self.options.lr * max(0.0, min(1.0, warm, left / self.options.decay))

    def _count(self, trees: Sequence[Tree], seconds: float) -> None:
        self.progress.step += 1
        self.progress.tokens += sum(map(len, trees))
        self.progress.questions += sum(len(tree.branches) for tree in trees)
        self.progress.documents += len(trees)
        self.progress.seconds += seconds

    def _log(self, values: dict[str, float]) -> None:
        now = self.progress
        line = {**vars(now), **values, "tokens_per_second": round(now.tokens / now.seconds, 1)}
        line["seconds"] = round(now.seconds, 1)
        with (self.options.out / "log.jsonl").open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")

    @torch.no_grad()
    def held_back_loss(self, data: Path, count: int) -> float:
        """Mean loss per answer on the first ``count`` question documents of ``data``, weighted as in training."""
        layout = Layout(self.model)
        wanted = (row for row in rows(data) if row["task"] == "question")
        trees = [layout.tree(row) for row in itertools.islice(wanted, count)]
        weight = sum(len(branch.answer) ** 0.5 for tree in trees for branch in tree.branches)
        return sum(float(pack_loss(self.model, part)) for part in packs(trees, self.options.pack)) / weight

    def save(self) -> None:
        """Write the adapter (bfloat16) and the state (float32, with the optimizer), each whole or not at all."""
        factors = lora_state(self.layers)
        about = {name: getattr(self.options, name) for name in ("rank", "alpha", "seed", "lr", "pot")}
        about |= {"wording": wording()} | vars(self.progress)
        save_adapter(self.options.out / "adapter.safetensors", factors, about)
        state = {"progress": vars(self.progress), "optimizer": self.optimizer.state_dict(), "adapter": factors}
        save_state(self.options.out, state, self.progress.step)

    def resume(self) -> None:
        """Go on from the last state, if there is one."""
        if state := load_state(self.options.out):
            self.progress = Progress(**state["progress"])
            self.optimizer.load_state_dict(state["optimizer"])
            set_lora_state(self.layers, state["adapter"])


def pack_loss(model: Model, trees: Sequence[Tree]) -> Tensor:
    """Weighted sum of -log p of the answer tokens of ``trees``, read in one row."""
    row = pack(trees)
    return _row_loss(model, row, row.mask, row.positions, use_cache=False)


def read_loss(model: Model, tree: Tree) -> Tensor:
    """The same for one long document, which the engine reads without gradients; they reach questions and answers."""
    row = pack([Tree([], tree.branches)])
    cache = read_whole(model, tree.trunk)
    mask = torch.cat([torch.ones(len(row.ids), len(tree.trunk), dtype=torch.bool), row.mask], 1)
    return _row_loss(model, row, mask, row.positions + len(tree.trunk), past_key_values=cache, use_cache=True)


def _row_loss(model: Model, row: Pack, mask: Tensor, positions: Tensor, **cache: Any) -> Tensor:
    """The loss of a row of n tokens at ``positions`` [n] that see of all m what ``mask`` [n, m] says."""
    device = model.device
    hidden = model.base(
        input_ids=row.ids[None].to(device),
        position_ids=positions[None].to(device),
        attention_mask=additive(mask, model.dtype)[None, None].to(device),
        **cache,
    ).last_hidden_state[0]
    logits = model.logits(hidden[row.predict.to(device)]).float()
    losses = torch.nn.functional.cross_entropy(logits, row.targets.to(device), reduction="none")
    return (losses * row.weights.to(device)).sum()


if __name__ == "__main__":
    main()
