"""Make the training, tuning and final test sets of the reader from a corpus folder.

    python training/prepare.py CORPUS [--out training/data] [--documents 9000] [--seed 0]

One JSON line is one document with its questions: {source, licence, group, task, document, asks: [{question, answer,
accepted, kind}]}. Questions and documents are stored bare; the wording around them comes from prompts/ when training.
Whole documents (articles, products, stories, books) are held back, never single questions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from training import corpus
from training.corpus import Ask, Split, Text, split_of
from training.logs import log
from training.needles import needle
from training.negatives import near_miss, swapped

#: Shares of the documents, by source.
MIX = {
    "squadshifts_new_wiki": 0.38,
    "qamr_wiki": 0.14,
    "squadshifts_amazon_reviews": 0.07,
    "squadshifts_reddit": 0.09,
    "wiki_rules": 0.05,
    "fairytaleqa_train": 0.07,
    "quoref_contrast": 0.03,
    "ropes_contrast": 0.02,
    "needles": 0.10,
    "summary": 0.02,
    "chat": 0.02,
    "prose": 0.01,
}
#: The same for a last stage against forgetting: summaries in every form, requests and prose have the larger part.
GENERAL = {
    "squadshifts_new_wiki": 0.16,
    "qamr_wiki": 0.04,
    "squadshifts_reddit": 0.03,
    "fairytaleqa_train": 0.04,
    "needles": 0.08,
    "summary": 0.35,
    "chat": 0.12,
    "prose": 0.18,
}
#: The same for a stage on longer documents: what asks and answers is nearly all of it.
LONG = {
    "squadshifts_new_wiki": 0.50,
    "wiki_rules": 0.06,
    "qamr_wiki": 0.08,
    "fairytaleqa_train": 0.08,
    "squadshifts_reddit": 0.02,
    "squadshifts_amazon_reviews": 0.02,
    "needles": 0.06,
    "summary": 0.10,
    "chat": 0.03,
    "prose": 0.05,
}
#: The same for long documents that are summarised out of a pot.
TOLD = {"openstax": 0.62, "wiki_long": 0.28, "qmsum_train": 0.05, "squality_train": 0.05}
#: The same for logs whose faults are listed.
LOGS = {"logs": 1.0}
MIXES = {"reading": MIX, "general": GENERAL, "long": LONG, "told": TOLD, "logs": LOGS}
#: Sources that are no questions about passages, with what is asked of them.
TASKS = dict.fromkeys(("summary", *TOLD), "summary") | {"chat": "chat", "prose": "prose", "logs": "logs"}
#: Sources whose questions name what they are about, so that passages can stand beside others: from the same
#: document at this share, else from any.
JOINABLE = {"squadshifts_new_wiki": 0.5, "wiki_rules": 0.5, "fairytaleqa_train": 1.0}
LONGEST = 2400  # characters of a document, about 600 tokens
#: Characters of a document of the mix ``long``: drawn between these, evenly on a logarithmic scale.
LONG_RANGE = (500, 5600)
MOST_ASKS = 10
#: Questions that a document answers for each that it does not.
ANSWERED = 5
#: Sentences in a document of the source that has single ones.
SENTENCES = (4, 10)

Pools = Mapping[str, Sequence[Text]]


def main() -> None:
    options = _options()
    pools = _pools(options.corpus, options.fullest)
    options.out.mkdir(parents=True, exist_ok=True)
    counts = {"training": options.documents, "tuning": options.held_back, "final": options.held_back}
    for split in get_args(Split):
        own = {name: [t for t in texts if split_of(t.group, options.seed) == split] for name, texts in pools.items()}
        rng = random.Random(f"{options.seed}:{split}")
        documents = list(_documents(own, counts[split], options.mix, rng))
        _write(options.out / f"{split}.jsonl", documents)
        kinds = Counter(ask["kind"] for document in documents for ask in document["asks"])
        print(f"{split}: {len(documents)} documents, {sum(kinds.values())} questions, {dict(kinds.most_common())}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, default=Path("training/data"))
    parser.add_argument("--documents", type=int, default=9000)
    parser.add_argument("--held-back", type=int, default=1200, help="documents of the tuning and of the final set")
    parser.add_argument("--mix", choices=MIXES, default="reading", help="shares of the sources")
    parser.add_argument("--fullest", action="store_true", help="teach the fullest accepted answer, not the commonest")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _pools(folder: Path, fullest: bool) -> dict[str, list[Text]]:
    others = {"summary": corpus.summaries(folder), "chat": corpus.chat(folder), "prose": corpus.prose(folder)}
    return corpus.reading(folder, fullest) | corpus.long_summaries(folder) | others


def _documents(pools: Pools, count: int, mix: str, rng: random.Random) -> Iterator[dict[str, Any]]:
    """``count`` documents in the shares of ``mix``; a passage returns only when its source is used up."""
    kin = {name: _by_group(texts) for name, texts in pools.items()}
    made = {"needles": lambda: needle(pools["prose"], rng), "logs": lambda: log(rng)}
    for source, share in MIXES[mix].items():
        waiting: list[Text] = []
        for _ in range(round(share * count)):
            if source in made:
                yield _row(made[source](), task=TASKS.get(source, "question"))
                continue
            waiting = waiting or _shuffled(pools[source], rng)
            text = waiting.pop()
            if source in TASKS:
                yield _row(text, task=TASKS[source])
            else:
                parts = _parts(text, kin[source][text.group], pools[source], mix == "long", rng)
                yield _row(_reading(parts, kin[source][text.group], pools[source], rng))


def _shuffled(texts: Sequence[Text], rng: random.Random) -> list[Text]:
    """All texts in random order, those of the rarer kinds (novels among articles) as early as the common ones."""
    kinds = defaultdict(list)
    for text in rng.sample(list(texts), len(texts)):
        kinds[text.source.partition("/")[0]].append(text)
    turns = itertools.zip_longest(*kinds.values())
    return [text for turn in turns for text in turn if text][::-1]


def _by_group(texts: Sequence[Text]) -> dict[str, list[Text]]:
    groups = defaultdict(list)
    for text in texts:
        groups[text.group].append(text)
    return groups


def _parts(text: Text, kin: Sequence[Text], pool: Sequence[Text], long: bool, rng: random.Random) -> list[Text]:
    """``text`` and what stands around it: one to three passages, or as many as a long document takes."""
    if text.source == "qamr_wiki":
        others = [t for t in kin if t is not text]
        others = rng.sample(others, min(len(others), 3)) + rng.sample(list(pool), SENTENCES[1])
        parts = [text, *others[: rng.randint(*SENTENCES) - 1]]
    elif text.source in JOINABLE and long:
        parts = _many(text, kin, pool, int(LONG_RANGE[0] * (LONG_RANGE[1] / LONG_RANGE[0]) ** rng.random()), rng)
    else:
        parts = [text]
        if text.source in JOINABLE and rng.random() < 0.45:
            for _ in range(rng.randint(1, 2)):
                other = rng.choice(kin if rng.random() < JOINABLE[text.source] else pool)
                if other not in parts and sum(len(part.text) for part in [*parts, other]) < LONGEST:
                    parts.append(other)
    rng.shuffle(parts)
    return parts


def _many(text: Text, kin: Sequence[Text], pool: Sequence[Text], length: int, rng: random.Random) -> list[Text]:
    """``text`` among others of about ``length`` characters in all: of its own document, or of any of the source."""
    near = rng.random() < JOINABLE[text.source]
    others = [other for other in (kin if near else rng.sample(list(pool), min(len(pool), 60))) if other is not text]
    parts, left = [text], length - len(text.text)
    for other in rng.sample(others, len(others)):
        if len(other.text) <= left:
            parts.append(other)
            left -= len(other.text)
    return parts


def _reading(parts: Sequence[Text], kin: Sequence[Text], pool: Sequence[Text], rng: random.Random) -> Text:
    """The passages as one document, with questions that it answers and some that it does not."""
    text = parts[0]
    between = " " if text.source == "qamr_wiki" else "\n\n"
    document = between.join(part.text for part in parts) + rng.choice(("", "\n"))
    answered = list({ask.question: ask for part in parts for ask in part.asks}.values())
    asks = rng.sample(answered, min(len(answered), MOST_ASKS - 1 + len(parts)))
    asks += _unanswered(document, asks, kin, pool, rng)
    rng.shuffle(asks)
    return Text(text.source, text.licence, text.group, document, asks)


def _unanswered(
    document: str, asks: Sequence[Ask], kin: Sequence[Text], pool: Sequence[Text], rng: random.Random
) -> list[Ask]:
    """One question without an answer for every ``ANSWERED`` with one."""
    wanted = len(asks) / ANSWERED
    count = int(wanted) + (rng.random() < wanted % 1)
    found: dict[str, Ask] = {}
    for _ in range(count):
        others = kin if len(kin) > 2 and rng.random() < 0.6 else pool
        ask = near_miss(document, asks, pool, rng) if rng.random() < 0.5 else None
        if ask := ask or swapped(document, others, rng) or swapped(document, pool, rng):
            found[ask.question] = ask
    return list(found.values())


def _row(text: Text, task: str = "question") -> dict[str, Any]:
    return {
        "source": text.source,
        "licence": text.licence,
        "group": text.group,
        "task": task,
        "document": text.text,
        "asks": [asdict(ask) for ask in text.asks],
    }


def _write(path: Path, documents: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as out:
        for document in documents:
            out.write(json.dumps(document, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
