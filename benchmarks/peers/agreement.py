"""Do our methods keep what kvpress's presses of the same name keep?

    make peers
    python benchmarks/peers/agreement.py

A tiny random model (llama, two queries to a KV head) reads the same random tokens on both sides, once; each side then
keeps half of them. Prints, for each pair, the share of kept entries that both keep, over all layers and KV heads: by
the two rules as they are, and once what is known to differ has been done to the press's scores too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy
import torch
from transformers.utils import logging

from engine.methods import REGISTRY, snapkv
from engine.methods.candidates import Candidates, guard_recent, highest
from engine.model import Model
from engine.pot import Batch
from engine.reader import Reader
from engine.settings import PotSettings
from infinipot_cli.bench.table import Table, as_text
from tests import tiny

ROOT = Path(__file__).parents[2]
TOKENS = 256
KEPT = TOKENS // 2
# SnapKV's observation window; the catalyst is as long, so that both sides observe from the same tokens.
CATALYST = snapkv.WINDOW

Scores = torch.Tensor  # of one layer: [KV heads, tokens]


@dataclass(frozen=True)
class Pair:
    """A method of ours, the press beside it, and how the press's scores become those that our rule would rank."""

    method: str
    press: str
    align: Callable[[Scores], Scores] = lambda scores: scores
    aligned: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def accumulated(scores: Scores) -> Scores:
    """H2O's sum from the mean over the queries that see an entry, with the last entries on top."""
    queries = torch.arange(scores.shape[1], 0, -1)
    return guard_recent(scores * queries, KEPT - KEPT // 2, KEPT)


def pooled(scores: Scores) -> Scores:
    """The largest score among the neighbours."""
    return Candidates(scores, scores).catalyst(snapkv.KERNEL, "max")


PAIRS = (
    Pair("streaming", "StreamingLLM"),
    Pair("tova", "TOVA", settings={"recent": 1}),  # the press always keeps the last token
    Pair("keydiff", "KeyDiff"),
    Pair(
        "h2o", "ObservedAttention", accumulated, "a sum, not a mean over queries; half of the room for the last entries"
    ),
    Pair("cap", "SnapKV, kernel 1", settings={"reduce": "mean", "scope": "head", "pooling": 1}),
    Pair("snapkv", "SnapKV, kernel 7"),
    Pair("snapkv", "SnapKV, kernel 1", pooled, "neighbours pooled by their maximum, as in the paper's listing"),
)


def ours(model: Model, pair: Pair, document: torch.Tensor, catalyst: torch.Tensor) -> dict[int, torch.Tensor]:
    """Source positions that a method keeps of the document, ascending: layer -> [KV heads, kept].

    SnapKV cuts once at the end, to what the catalyst leaves of the capacity. The others run a cycle when the pot is
    full and another token comes.
    """
    method = REGISTRY[pair.method]
    asked = catalyst if method.attention else catalyst[:0]
    once = pair.method == "snapkv"
    capacity = len(asked) + (KEPT if once else len(document))
    settings = PotSettings(
        capacity=capacity, distilled=KEPT, method=pair.method, block=TOKENS + CATALYST, **pair.settings
    )
    reader = Reader(model, settings, [], asked.tolist())
    ids = document if once else torch.cat([document, document[:1]])
    reader.feed(Batch(ids, torch.arange(len(ids)), torch.ones_like(ids)))
    pot = reader.finish()
    if pot.cycles != 1:
        raise RuntimeError(f"{pot.cycles} cycles of {pair.method}, not one")
    return {index: store.position[:, :KEPT].sort(dim=1).values for index, store in pot.stores.items()}


def theirs(python: Path, folder: Path, document: torch.Tensor, catalyst: torch.Tensor) -> dict[str, list[Scores]]:
    """What every press thinks of the tokens of the document, by its name, layer by layer."""
    source, target = folder / "input.npz", folder / "scores.npz"
    numpy.savez(source, document=document.numpy(), catalyst=catalyst.numpy(), ratio=1 - KEPT / TOKENS)
    command = [str(python), "-m", "benchmarks.peers.agreement_press", str(folder), str(source), str(target)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"})
    with numpy.load(target) as found:
        return {name: list(torch.from_numpy(found[name])) for name in found.files}


def overlap(one: dict[int, torch.Tensor], other: Sequence[Scores]) -> list[float]:
    """For each layer and KV head, the share of our kept positions that are also among the highest scores there."""
    shares = []
    for layer, rows in one.items():
        best = highest(other[layer], KEPT)
        for left, right in zip(rows.tolist(), best.tolist(), strict=True):
            shares.append(len(set(left) & set(right)) / len(left))
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-dir", type=Path, default=ROOT / ".peers", help="where `make peers` put kvpress")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    python = options.peers_dir.absolute() / "kvpress-venv/bin/python"
    if not python.exists():
        sys.exit(f"error: there is no {python}\nhint: make peers")
    logging.disable_progress_bar()
    document = tiny.random_ids(TOKENS, options.seed)
    catalyst = tiny.random_ids(CATALYST, options.seed + 1)
    with tempfile.TemporaryDirectory() as name:
        tiny.module("llama").save_pretrained(name)
        found = theirs(python, Path(name), document, catalyst)
    title = f"{TOKENS} tokens, {KEPT} kept, seed {options.seed}: the share of kept entries that both sides keep"
    made = Table(title, ("method", "press", "aligned", "as they are", "aligned", "least"), labels=3)
    for pair in PAIRS:
        kept = ours(tiny.model("llama"), pair, document, catalyst)
        raw = overlap(kept, found[pair.press])
        same = overlap(kept, [pair.align(scores) for scores in found[pair.press]])
        made.add(pair.method, pair.press, pair.aligned, f"{mean(raw):.3f}", f"{mean(same):.3f}", f"{min(same):.3f}")
    print(as_text(made), end="")


if __name__ == "__main__":
    main()
