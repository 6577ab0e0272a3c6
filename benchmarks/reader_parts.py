"""What the reader is measured on, part by part: cases, and the ways of reading under which each is put."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import yaml

from benchmarks.book import EXAMPLES, passages, right
from benchmarks.reader_cases import (
    ANSWERABLE,
    BETWEEN,
    UNANSWERABLE,
    Count,
    Document,
    Hay,
    draw,
    gold_cases,
    hidden_cases,
    retrieve,
    retrieved_cases,
    without_paragraph,
)
from benchmarks.reader_logs import log_cases, named
from engine.settings import PotSettings
from infinipot_cli.bench import nih
from infinipot_cli.bench.harness import Case, Label, Setup
from infinipot_cli.bench.longbench.rouge import rouge_l
from infinipot_cli.bench.scoring import contains
from infinipot_cli.options import InputOptions
from infinipot_cli.prompts import Task, load_catalyst, load_task

PARTS = ("gold", "hidden", "needles", "book", "summaries", "logs", "prose")
WAYS = ("pot", "infinipot", "truncate", "bm25")
BOOK_WAYS = ("page", "bm25", "truncate", "pot", "ask")
#: What the chat template and the wording of the question take beside the question itself, in tokens, about.
OVERHEAD = 48
#: The default pot holds any prepared document whole.
ALONE = Setup("alone", PotSettings())


@dataclass(frozen=True)
class Choice:
    """What is to be measured; see the options of reader.py for what the fields mean."""

    parts: Sequence[str] = PARTS
    seed: int = 0
    questions: int = 40
    unanswerable: int = 20
    hidden: int = 16
    hidden_unanswerable: int = 8
    lengths: Sequence[int] = (2000, 8000)
    capacities: Sequence[int] = (1024, 2048)
    ways: Sequence[str] = ("pot", "truncate", "bm25")
    needle_tasks: Sequence[str] = ("passkey", "multikey")
    needle_lengths: Sequence[int] = (4000, 16000)
    depths: Sequence[float] = (0.1, 0.5, 0.9)
    trials: int = 1
    needle_capacity: int = 2048
    book_ways: Sequence[str] = ("page", "bm25", "truncate", "pot")
    book_questions: int = 40
    book_capacity: int = 2048
    summaries: int = 8
    logs: int = 8
    log_lines: Sequence[int] = (30, 200)
    prose: int = 60
    most_tokens: int = 48
    settings: Mapping[str, Any] = field(default_factory=dict)
    focus: int | None = None

    def pot(self, capacity: int, name: str = "pot", catalyst: str | None = None, **own: Any) -> Setup:
        """A pot of ``capacity`` entries, the others of its settings as chosen, or its ``own``."""
        settings = PotSettings(**{**self.settings, "capacity": capacity, **own})
        return Setup(f"{name} {capacity}", settings, catalyst, self.focus)


@dataclass(frozen=True)
class Job:
    """Cases that are run under the same setups with the same task."""

    part: str
    task: Task
    cases: Sequence[Case]
    setups: Sequence[Setup]
    max_new_tokens: int

    def tokens(self) -> int:
        """About how many tokens are read: a pot with a general catalyst is shared, truncation stops at its size."""
        total = 0
        for setup in self.setups:
            shared = {case.text: case.tokens or 0 for case in self.cases if case.text and setup.catalyst is not None}
            alone = [case.tokens or 0 for case in self.cases if not (case.text and setup.catalyst is not None)]
            most = setup.settings.capacity if setup.settings.method == "truncate" else None
            total += sum(min(size, most or size) for size in [*shared.values(), *alone])
        return total


def jobs(choice: Choice, documents: Sequence[Document], count: Count) -> Iterator[Job]:
    """All that ``choice`` asks for, but prose, which is no question."""
    makers: dict[str, Callable[[], Iterator[Job]]] = {
        "gold": lambda: gold(choice, documents, count),
        "hidden": lambda: hidden(choice, documents, count),
        "needles": lambda: needles(choice, count),
        "book": lambda: book(choice, count),
        "summaries": lambda: summaries(choice, documents, count),
        "logs": lambda: logs(choice, count),
    }
    for part in PARTS:
        if part in choice.parts and part in makers:
            yield from makers[part]()


def gold(choice: Choice, documents: Sequence[Document], count: Count) -> Iterator[Job]:
    """(1) and (3): the question's own document, answerable and not."""
    items = draw(documents, ANSWERABLE, choice.questions, choice.seed)
    taken = {item.document for item in items}
    rest = [document for document in documents if document not in taken]
    items += draw(rest, UNANSWERABLE, choice.unanswerable, choice.seed)
    yield Job("gold", _question(), gold_cases(items, count), [ALONE], choice.most_tokens)


def hidden(choice: Choice, documents: Sequence[Document], count: Count) -> Iterator[Job]:
    """(2) and (3): the same questions in long documents: answerable; unanswerable, half with their paragraph left
    out, half near misses with the paragraph that they were made from."""
    asked = draw(documents, ANSWERABLE, choice.questions + choice.hidden_unanswerable, choice.seed)
    missing = choice.hidden_unanswerable // 2
    absent = without_paragraph(asked[choice.questions : choice.questions + choice.hidden_unanswerable - missing])
    items = [*asked[: choice.hidden], *absent, *draw(documents, ("near",), missing, choice.seed)]
    hay = Hay(documents, count, choice.seed)
    long = hidden_cases(items, hay, choice.lengths)
    methods = {way: way for way in WAYS} | {"pot": choice.settings.get("method", PotSettings.method)}
    for capacity in choice.capacities:
        setups = [choice.pot(capacity, way, method=methods[way]) for way in choice.ways if way != "bm25"]
        if setups:
            yield Job("hidden", _question(), long, setups, choice.most_tokens)
        if "bm25" in choice.ways:
            found = Setup(f"bm25 {capacity}", PotSettings(capacity=capacity), focus=0)
            budget = capacity - choice.most_tokens - OVERHEAD
            cases = retrieved_cases(items, hay, choice.lengths, budget, found.name)
            yield Job("hidden", _question(), cases, [found], choice.most_tokens)


def needles(choice: Choice, count: Count) -> Iterator[Job]:
    """(4): pass keys and keys among others of their kind."""
    wanted = nih.Wanted(choice.needle_tasks, choice.needle_lengths, choice.depths, choice.trials)
    stacks = nih.make_haystacks(wanted, InputOptions())
    capacity = choice.needle_capacity
    made = nih.make_cases(wanted, choice.seed, stacks, count, capacity // 4)
    cases = [_labelled(case, {"part": "needles", "answerable": 1}) for case in made]
    yield Job("needles", _question(), cases, [choice.pot(capacity)], capacity // 4)


def _labelled(case: Case, labels: dict[str, Label]) -> Case:
    return replace(case, labels={**case.labels, **labels})


def book(choice: Choice, count: Count) -> Iterator[Job]:
    """(5): the demo book's questions: the page alone, pages found by BM25, the middle left out, one pot for all
    questions (CaP-G), and the book read anew for each (CaP-Q)."""
    questions = yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8"))
    every = max(1, len(questions) // max(1, choice.book_questions))
    questions = questions[::every][: choice.book_questions]
    capacity, general = choice.book_capacity, load_catalyst("cap-g", os.environ).text or ""
    setups = {
        "page": Setup("page", PotSettings(capacity=capacity)),
        "bm25": Setup(f"bm25 {capacity}", PotSettings(capacity=capacity), focus=0),
        "truncate": Setup(f"truncate {capacity}", PotSettings(capacity=capacity, method="truncate"), general),
        "pot": choice.pot(capacity, "one pot", general),
        "ask": choice.pot(capacity),
    }
    pages = _pages()
    whole = sum(count(text) for text in pages.values())
    for way in (way for way in BOOK_WAYS if way in choice.book_ways):
        cases = [_book_case(question, way, pages, choice, count, whole) for question in questions]
        yield Job("book", _question(), cases, [setups[way]], choice.most_tokens)


@lru_cache
def _pages() -> dict[int, str]:
    """The demo book's text by page."""
    found: dict[int, str] = {}
    for passage in passages():
        found[passage.place] = found.get(passage.place, "") + passage.text
    return found


def _book_case(
    question: dict[str, Any], way: str, pages: dict[int, str], choice: Choice, count: Count, whole: int
) -> Case:
    if way == "page":
        places = question.get("page", [1])
        texts = [pages[place] for place in ([places] if isinstance(places, int) else places)]
    elif way == "bm25":
        room = choice.book_capacity - choice.most_tokens - OVERHEAD - count(question["question"])
        texts = retrieve(list(pages.values()), question["question"], room, count)
    else:
        texts = list(pages.values())
    answerable = int(question["answerable"])
    return Case(
        id=f"book {way} {question['id']}",
        document=lambda: [text if text.endswith("\n") else text + BETWEEN for text in texts],
        question=question["question"],
        accepted=tuple(question["answers"]),
        labels={"part": "book", "source": "book", "kind": question["kind"], "answerable": answerable, "way": way},
        text="book" if way in ("truncate", "pot", "ask") else None,
        tokens=whole if way in ("truncate", "pot", "ask") else sum(map(count, texts)),
    )


def summaries(choice: Choice, documents: Sequence[Document], count: Count) -> Iterator[Job]:
    """(6): held-back documents that have a summary, each in the form of `summarize` that its own summary has."""
    task = load_task("summary", os.environ)
    items = draw(documents, ("summary",), choice.summaries, choice.seed)
    cases = []
    for case in gold_cases(items, count, "summary", "summaries"):
        form = task.variants[case.question]
        cases.append(replace(case, question=form.question, max_new_tokens=form.max_new_tokens))
    yield _summarised("summaries", task, cases)


def logs(choice: Choice, count: Count) -> Iterator[Job]:
    """(7): what went wrong in logs that are made for this, listed as `summarize --task logs` does."""
    task = load_task("logs", os.environ)
    yield _summarised("logs", task, list(log_cases(choice.log_lines, choice.logs, choice.seed, count)))


def _summarised(part: str, task: Task, cases: Sequence[Case]) -> Job:
    """As `summarize` reads: the default pot, distilled by the task's own catalyst."""
    catalyst = load_catalyst(task.catalyst, os.environ).text
    return Job(part, task, cases, [replace(ALONE, catalyst=catalyst)], task.max_new_tokens or 256)


def _question() -> Task:
    return load_task("question", os.environ)


def score(answer: str, case: Case) -> float:
    """0 to 1: accepted answer contained; a needle's own rule; the book's own rule; ROUGE-L for a summary; the share
    of a log's faults that are listed."""
    part = case.labels["part"]
    if part == "needles":
        return nih.score(answer, case)
    if part == "book":
        return float(right({"answers": case.accepted, "answerable": case.labels["answerable"]}, answer))
    if part == "summaries":
        return rouge_l(answer, case.accepted[0])
    if part == "logs":
        return named(answer, case.accepted)
    return float(contains(answer, case.accepted)) if case.labels["answerable"] else 0.0


def prose(choice: Choice, documents: Sequence[Document]) -> list[Document]:
    """(8): held-back passages of novels and articles, then stories and encyclopaedic paragraphs of the questions."""
    plain = [document for document in documents if document.task == "prose"]
    stories = [document for document in documents if document.source in ("fairytaleqa_train", "squadshifts_new_wiki")]
    return [*plain, *stories][: choice.prose]
