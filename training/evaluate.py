"""The plain model beside the adapter, on documents that were held back from training.

    python training/evaluate.py [--adapter training/out/reader.safetensors] [--data training/data/tuning.jsonl]
        [--questions 60] [--unanswerable 40] [--needles 30] [--prose 30] [--capacity 2048] [--seed 0]

Every answer goes the way of `ask`: the document is read into a pot, the answer is generated greedily. One question
per document. Intervals: 95 %, bootstrap over the questions (for perplexity: over the passages).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from engine.adapter import merge_transform
from engine.convert import apply_transforms
from engine.framing import Framing
from engine.generation import generate
from engine.model import Model
from engine.models import load_model
from engine.reader import Reader
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.bench.scoring import contains, exact, token_f1
from infinipot_cli.models import resolve
from infinipot_cli.prompts import load_task
from training.corpus import rows
from training.layout import Layout
from training.negatives import NOT_SAID

#: Which kinds of questions each part of the test takes.
PARTS = {"questions": ("extractive",), "unanswerable": ("swapped", "near"), "needles": ("needle", "yesno")}
Score = dict[str, float]


@dataclass(frozen=True)
class Item:
    """One question about one document."""

    part: str
    source: str
    kind: str
    document: str
    question: str
    accepted: tuple[str, ...]


@dataclass(frozen=True)
class Answered:
    """What a model said to an item."""

    item: Item
    text: str
    seconds: float

    @property
    def refused(self) -> bool:
        return contains(self.text, [NOT_SAID])


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    items = draw(list(rows(options.data)), vars(options), options.seed)
    passages = [row["document"] for row in rows(options.data) if row["task"] == "prose"][: options.prose]
    report: dict[str, Any] = {"command": " ".join(sys.argv), "seed": options.seed, "n": len(items)}
    nats: dict[str, list[tuple[float, int]]] = {}
    for name in ("plain", "adapter")[options.only == "adapter" : 1 if options.only == "plain" else 2]:
        model = load_model(resolve(options.model), dtype=options.dtype, offline=True)
        if name == "adapter":
            merge(model, options.adapter)
        answers = list(answer(model, items, options.capacity, options.most_tokens))
        report[name] = summarise(answers, options.seed)
        nats[name] = [passage_nats(model, passage) for passage in passages]
        report[name]["perplexity"] = perplexity(nats[name])
        report[name]["answers"] = [asdict(a) | {"item": asdict(a.item) | {"document": ""}} for a in answers]
        show(name, report[name])
    if len(nats) == 2 and passages:
        report["perplexity_ratio"] = ratio(nats["plain"], nats["adapter"], options.seed)
        print(f"perplexity after / before: {report['perplexity_ratio']} on {len(passages)} passages")
    if options.out:
        options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", type=Path, default=Path("training/out/reader.safetensors"))
    parser.add_argument("--data", type=Path, default=Path("training/data/tuning.jsonl"))
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--unanswerable", type=int, default=40)
    parser.add_argument("--needles", type=int, default=30)
    parser.add_argument("--prose", type=int, default=30, help="passages")
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--most-tokens", type=int, help="of an answer; default: the task's own")
    parser.add_argument("--only", choices=("plain", "adapter"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write everything, answers included, as JSON")
    return parser.parse_args()


def merge(model: Model, adapter: Path) -> None:
    """Merge an adapter into a loaded model, as conversion does."""
    transform = merge_transform(adapter)
    apply_transforms(model.module, [transform])
    transform.require_complete()


def draw(documents: Sequence[dict[str, Any]], counts: dict[str, int], seed: int) -> list[Item]:
    """As many questions of each part as ``counts`` says, each from another document."""
    rng = random.Random(seed)
    items, left = [], {part: counts[part] for part in PARTS}
    for row in rng.sample(documents, len(documents)):
        for ask in rng.sample(row["asks"], len(row["asks"])):
            part = next((part for part, kinds in PARTS.items() if ask["kind"] in kinds), None)
            if part and left[part]:
                left[part] -= 1
                said = tuple(ask["accepted"])
                items.append(Item(part, row["source"], ask["kind"], row["document"], ask["question"], said))
                break
    return items


def answer(model: Model, items: Sequence[Item], capacity: int, most: int | None) -> Iterator[Answered]:
    """Ask every item as `ask` would."""
    task = load_task("question", {})
    framing = Framing(model, task.before, task.system)
    settings = GenerationSettings(max_new_tokens=most or task.max_new_tokens or 128)
    for item in items:
        began = time.perf_counter()
        suffix = framing.suffix_ids(task.turn(item.question))
        reader = Reader(model, PotSettings(capacity=capacity), framing.prefix_ids, suffix)
        reader.read(item.document, offset=0)
        said = generate(model, reader.finish(), suffix, settings).text
        yield Answered(item, said, time.perf_counter() - began)


def summarise(answers: Sequence[Answered], seed: int) -> dict[str, Any]:
    """Scores with intervals, by part and by source; precision and recall of saying that nothing is said."""
    found: dict[str, Any] = {}
    groups = {part: [a for a in answers if a.item.part == part] for part in PARTS}
    for source in sorted({a.item.source for a in answers if a.item.part == "questions"}):
        groups[source] = [a for a in groups["questions"] if a.item.source == source]
    for name, group in groups.items():
        if group and name != "unanswerable":
            found[name] = {"n": len(group)} | _scores(group, seed)
    found["does_not_say"] = {
        "n": len(answers),
        "recall": interval(groups["unanswerable"], lambda some: _share([a.refused for a in some]), seed),
        "precision": interval(answers, _precision, seed),
    }
    return found


def _scores(group: Sequence[Answered], seed: int) -> dict[str, list[float]]:
    measures: dict[str, Callable[[str, Sequence[str]], float]] = {"contained": contains, "f1": token_f1, "exact": exact}
    return {
        name: interval(group, lambda some, m=measure: _share([m(a.text, a.item.accepted) for a in some]), seed)
        for name, measure in measures.items()
    }


def _share(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _precision(answers: Sequence[Answered]) -> float:
    return _share([a.item.part == "unanswerable" for a in answers if a.refused])


def interval(some: Sequence[Any], measure: Callable[[Sequence[Any]], float], seed: int, rounds: int = 1000) -> list:
    """[value, low, high] of a measure, 95 % by resampling; nan where nothing is measured."""
    rng = random.Random(seed)
    drawn = sorted(v for _ in range(rounds) if not math.isnan(v := measure(rng.choices(some, k=len(some)))))
    if not drawn:
        return [math.nan] * 3
    low, high = drawn[int(0.025 * len(drawn))], drawn[min(int(0.975 * len(drawn)), len(drawn) - 1)]
    return [round(value, 3) for value in (measure(some), low, high)]


@torch.inference_mode()
def passage_nats(model: Model, text: str) -> tuple[float, int]:
    """(-log p of a passage after its first token, how many tokens that is)."""
    ids = torch.tensor(Layout(model).document(text), device=model.device)[None]
    logits = model.module(ids).logits[0, :-1].float()
    return float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")), ids.shape[1] - 1


def perplexity(nats: Sequence[tuple[float, int]]) -> float:
    """Per token over all passages."""
    return round(math.exp(sum(n for n, _ in nats) / max(1, sum(count for _, count in nats))), 3)


def ratio(before: Sequence[tuple[float, int]], after: Sequence[tuple[float, int]], seed: int) -> list[float]:
    """[perplexity after / before, low, high], resampled by passage."""
    pairs = list(zip(before, after, strict=True))
    return interval(pairs, lambda some: math.exp(sum(b[0] - a[0] for a, b in some) / sum(a[1] for a, _ in some)), seed)


def show(name: str, scores: dict[str, Any]) -> None:
    """One line for each part."""
    print(f"{name}: perplexity on prose {scores['perplexity']}")
    for part, values in scores.items():
        if isinstance(values, dict):
            line = "  ".join(f"{k} {v[0]:.3f} [{v[1]:.3f}, {v[2]:.3f}]" for k, v in values.items() if k != "n")
            print(f"  {part:<28} n={values['n']:<4} {line}", flush=True)


if __name__ == "__main__":
    main()
