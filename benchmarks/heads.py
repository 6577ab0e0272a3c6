"""Which heads look at the answer, and what would be left of it after one cycle, by how the heads agree?

    python benchmarks/heads.py --questions 120 --tokens 1900

Each question of a prepared set (training/prepare.py) is put to a document of so many tokens that hides its paragraph;
everything is read, nothing evicted, and the catalyst (the question itself) looks at it once. Then, for every way in
which heads can agree (``engine.scope``), the entries of highest score are taken, and counted is in how many documents
the whole answer is among them. Beside that stands what picking the best heads by hand would give: those that find the
answers of one half of the questions are tried on the other half.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.explained import explained
from benchmarks.reader import DATA
from benchmarks.reader_cases import ANSWERABLE, Hay, draw, hidden_cases, load
from engine.ccd import as_ids, score
from engine.methods.candidates import pooled
from engine.scope import agreed
from engine.settings import PotSettings
from infinipot_cli.bench.harness import Case, Setup, read_case
from infinipot_cli.bench.table import Table, as_text
from infinipot_cli.catalog import DEFAULT
from infinipot_cli.errors import UsageError
from infinipot_cli.local import LocalSession, LocalWorkbench
from infinipot_cli.options import ModelOptions
from infinipot_cli.prompts import Task, load_task

NORMS = (1.0, 2.0, 4.0, 8.0)
POOLINGS = (1, 15, 31, 63, 127)
KEPT = (128, 256, 512)
#: So many of the best heads are picked by hand.
PICKED = (3, 6, 12)


@dataclass(frozen=True)
class Look:
    """What every KV head's look at a document gives each of its n entries: ``scores`` float32 [heads, n] (equation 2),
    and which of them are the ``answer``: bool [n]."""

    scores: Tensor
    answer: Tensor

    def keeps(self, total: Tensor, count: int) -> bool:
        """Whether the answer is whole among the ``count`` entries of highest ``total`` [n]."""
        best = torch.zeros_like(self.answer).index_fill(0, total.argsort(descending=True)[:count], True)
        return bool(best[self.answer].all())


#: One score for every entry [n].
Rank = Callable[[Look], Tensor]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with explained():
        run(options)
    return 0


def run(options: argparse.Namespace) -> None:
    """Measure what the options ask for, and print the table. Raises InfinipotError."""
    documents = load(options.data, options.source)
    session = LocalWorkbench().load(ModelOptions(options.model, "auto", options.dtype, offline=True), lambda *_: None)
    items = draw(documents, ANSWERABLE, options.questions, options.seed)
    cases = hidden_cases(items, Hay(documents, session.count, options.seed), [options.tokens])
    task = load_task("question", {})
    looks = [found for case in cases if (found := look(session, case, task)) is not None]
    if len(looks) < 2:
        raise UsageError("heads are picked on one half of the questions and tried on the other", hint="ask for more")
    table = Table(f"Answers whole among the entries of highest score: {session.name}", ["", *map(str, KEPT)])
    for pooling in POOLINGS:
        for norm in NORMS:
            how = PotSettings(norm=norm, pooling=pooling)
            _add(table, f"norm {norm:.0f}, pooling {pooling}", looks, partial(total, how))
    tried, ranks = _by_hand(looks, PICKED, options.pooling)
    for count, rank in zip(PICKED, ranks, strict=True):
        _add(table, f"the best {count} heads, pooling {options.pooling}", tried, rank)
    sys.stdout.write(as_text(table))
    sys.stdout.write(f"\nper cent of {len(looks)} documents of about {options.tokens} tokens; ")
    sys.stdout.write(f"heads picked on {len(looks) - len(tried)} of them, tried on the other {len(tried)}\n")


def look(session: LocalSession, case: Case, task: Task) -> Look | None:
    """Read the case's document whole and let its question look; None where an accepted answer does not stand in it."""
    room = 2 * (case.tokens or 0) + 256
    pot = read_case(session, case, Setup("everything", PotSettings(capacity=room, distilled=1)), task).pot
    suffix = session.framing(task.before, task.system).suffix_ids(task.turn(case.question))
    scores = score(session.model, pot, as_ids(suffix))
    text, store = "".join(case.document()), pot.distilled_stores[0]
    begins = store.position[0, pot.protected : store.length]
    for answer in case.accepted:
        if place := re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text):
            ends = torch.cat([begins[1:], begins.new_tensor([len(text)])])
            rows = torch.cat([own[:, pot.protected :] for own in scores.values()])
            return Look(rows, (ends > place.start()) & (begins < place.end()))
    return None


def total(settings: PotSettings, look: Look) -> Tensor:
    """One score for every entry [n], as a cycle ranks them."""
    return pooled(agreed({0: look.scores}, settings, 0)[0][:1], settings.pooling, settings.pool)[0]


def _by_hand(looks: Sequence[Look], counts: Sequence[int], pooling: int) -> tuple[Sequence[Look], list[Rank]]:
    """The looks that decided nothing, and for each count the agreement of the heads that find most answers of the
    others."""
    chosen, tried = looks[::2], looks[1::2]
    settings = PotSettings(norm=2, pooling=pooling)

    def by(heads: Tensor, look: Look) -> Tensor:
        return total(settings, replace(look, scores=look.scores[heads]))

    every = torch.arange(len(looks[0].scores))
    found = [sum(look.keeps(by(head[None], look), KEPT[1]) for look in chosen) for head in every]
    best = torch.tensor(found).argsort(descending=True, stable=True)
    return tried, [partial(by, best[:count]) for count in counts]


def _add(table: Table, name: str, looks: Sequence[Look], rank: Rank) -> None:
    totals = [rank(look) for look in looks]
    shares = [
        100 * sum(look.keeps(made, count) for look, made in zip(looks, totals, strict=True)) / len(looks)
        for count in KEPT
    ]
    table.add(name, *(f"{share:.1f}" for share in shares))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT.alias)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--data", type=Path, default=DATA / "tuning.jsonl", help="a prepared set")
    parser.add_argument("--source", action="append", default=[], help="only documents of this source (repeatable)")
    parser.add_argument("--questions", type=int, default=120)
    parser.add_argument("--tokens", type=int, default=1900, help="of a document")
    parser.add_argument("--pooling", type=int, default=PotSettings.pooling, help="of the heads picked by hand")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
