"""Which wording of the question does a small model answer best?

    python benchmarks/wording.py QA.jsonl -n 60 [--tokens 8000 --capacity 2048]

QA.jsonl holds one object a line: title, context, question, answers (list). Each question is asked with its own
paragraph alone or, with --tokens, with the paragraph hidden at a random depth among paragraphs of other titles, read
through a pot. Prints, per wording: the share of answers that contain an accepted answer, token F1, exact match and
mean length, with the same questions and seed for all.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

from benchmarks.choices import pot_settings
from engine.framing import Framing
from engine.generation import generate
from engine.model import Model
from engine.models import load_model
from engine.reader import Reader
from engine.settings import GenerationSettings
from infinipot_cli.bench.scoring import contains, exact, token_f1
from infinipot_cli.models import resolve

WORDINGS = {
    "bare": ("", "\n\n{question}"),
    "question": ("", "\n\nQuestion: {question}"),
    "short": ("", "\n\nQuestion: {question} Give a short answer."),
    "few words": ("", "\n\nQuestion: {question} Answer in a few words."),
    "from text": ("", "\n\nQuestion: {question} Answer with a few words from the text."),
    "only": ("", "\n\nQuestion: {question} Answer with the answer only, in a few words from the text above."),
    "sentence": ("", "\n\nQuestion: {question} Answer in one short sentence."),
    "read first": ("Read the text, then answer the question.\n\n", "\n\nQuestion: {question} Answer in a few words."),
}


def document(row: dict, rows: list[dict], tokens: int, model: Model, chance: random.Random) -> str:
    """The row's paragraph, at a random depth among paragraphs of other titles worth about ``tokens`` tokens."""
    if not tokens:
        return row["context"]
    parts: list[str] = []
    budget = tokens * 4  # about four characters a token
    while sum(map(len, parts)) < budget:
        other = chance.choice(rows)
        if other["title"] != row["title"]:
            parts.append(other["context"])
    parts.insert(chance.randrange(len(parts) + 1), row["context"])
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qa", type=Path)
    parser.add_argument("-n", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--only", nargs="*", choices=WORDINGS, help="these wordings")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="pot settings, e.g. reduce=sum")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.qa.open(encoding="utf-8")]
    rows = [row for row in rows if row["answers"] and len(row["context"]) > 200]
    picked = random.Random(7).sample(rows, options.n)
    model = load_model(resolve(options.model), offline=True)
    settings = pot_settings(options)
    print(f"{'wording':<12} contained   F1     exact  words  seconds   (n = {options.n}, {settings})")
    for name in options.only or WORDINGS:
        before, after = WORDINGS[name]
        framing = Framing(model, before)
        scores = []
        began = time.perf_counter()
        for number, row in enumerate(picked):
            text = document(row, rows, options.tokens, model, random.Random(number))
            suffix = framing.suffix_ids(after.replace("{question}", row["question"]))
            reader = Reader(model, settings, framing.prefix_ids, suffix)
            reader.read(text)
            answer = generate(model, reader.finish(), suffix, GenerationSettings(max_new_tokens=48)).text
            wanted = row["answers"]
            scores.append(
                (contains(answer, wanted), token_f1(answer, wanted), exact(answer, wanted), len(answer.split()))
            )
        means = [sum(column) / len(scores) for column in zip(*scores, strict=True)]
        seconds = time.perf_counter() - began
        print(f"{name:<12} {means[0]:8.3f} {means[1]:7.3f} {means[2]:7.3f} {means[3]:6.1f} {seconds:7.0f}", flush=True)


if __name__ == "__main__":
    main()
