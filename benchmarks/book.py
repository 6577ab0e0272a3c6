"""How many of the demo book's forty questions are answered?

    python benchmarks/book.py                      one pot (CaP-G), all questions put to it
    python benchmarks/book.py --ask -n 10          the book read anew for each question (CaP-Q)
    python benchmarks/book.py --page               only the page with the answer in front of the model: the ceiling

Pot settings: --capacity N, --set NAME=VALUE. An answer counts if an accepted one stands in it, word for word; a
question that the book does not answer counts if the model says that the document does not say.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.choices import pot_settings
from engine.framing import Framing
from engine.generation import generate
from engine.model import Model
from engine.models import load_model
from engine.pot import Pot
from engine.reader import Reader
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.bench.questions import SAYS_NOT
from infinipot_cli.bench.scoring import contains
from infinipot_cli.ingest import IngestOptions, Passage, open_sources
from infinipot_cli.models import resolve
from infinipot_cli.prompts import Task, load_catalyst, load_task

EXAMPLES = Path(__file__).parent.parent / "examples"
BOOK = EXAMPLES / "the-weight-of-albert-noon.pdf"


def passages(pages: Sequence[int] = ()) -> Iterator[Passage]:
    """The book's text, or that of some pages."""
    for source in open_sources([str(BOOK)], IngestOptions()):
        for passage in source.passages():
            if not pages or passage.place in pages:
                yield passage


def read(model: Model, settings: PotSettings, framing: Framing, catalyst: list[int], pages: Sequence[int] = ()) -> Pot:
    """The book, or some pages of it, in a pot."""
    reader = Reader(model, settings, framing.prefix_ids, catalyst)
    for passage in passages(pages):
        reader.read(passage.text, offset=passage.offset, place=passage.place)
    return reader.finish()


def right(question: dict[str, Any], answer: str) -> bool:
    """Whether the answer counts."""
    return contains(answer, question["answers"] if question["answerable"] else SAYS_NOT)


def answer_all(options: argparse.Namespace, model: Model, task: Task, questions: list[dict[str, Any]]) -> None:
    """Put the questions one after the other; a line each, and a summary line."""
    framing = Framing(model, task.before, task.system)
    settings = pot_settings(options)
    generation = GenerationSettings(max_new_tokens=options.max_tokens)
    catalyst = load_catalyst(options.catalyst, os.environ).text or ""
    began = time.perf_counter()
    shared = None if options.ask or options.page else read(model, settings, framing, framing.suffix_ids(catalyst))
    hits = 0
    for question in questions:
        suffix = framing.suffix_ids(task.turn(question["question"]))
        pages = question.get("page", [1]) if options.page else []
        pot = shared
        if pot is None:
            pot = read(model, settings, framing, suffix, [pages] if isinstance(pages, int) else pages)
        answer = generate(model, pot, suffix, generation).text
        hits += right(question, answer)
        mark = "right" if right(question, answer) else "wrong"
        print(
            f"{mark}  {question['id']}  {question['question']}\n       {answer!r}  ({question['answers'][:1]})",
            flush=True,
        )
    how = "page alone" if options.page else "read for each question" if options.ask else f"one pot, {options.catalyst}"
    seconds = time.perf_counter() - began
    print(f"{hits} of {len(questions)}  {how}, task {task.name}, {model.name}, {settings}, {seconds:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=PotSettings.capacity)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--catalyst", default="cap-g")
    parser.add_argument("--task", default="question")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("-n", type=int, help="only this many questions, evenly picked")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--ask", action="store_true")
    group.add_argument("--page", action="store_true")
    options = parser.parse_args()
    questions = yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8"))
    step = len(questions) / (options.n or len(questions))
    picked = [questions[int(i * step)] for i in range(options.n or len(questions))]
    model = load_model(resolve(options.model), dtype=options.dtype, offline=True)
    answer_all(options, model, load_task(options.task, os.environ), picked)


if __name__ == "__main__":
    main()
