"""What pots in fewer bits are measured on, and how: files timed by turns, answers and logits beside the raw pot's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from benchmarks.book import EXAMPLES, passages
from engine.pour import pour
from engine.settings import GenerationSettings
from infinipot_cli.bench import nih
from infinipot_cli.bench.harness import Case, Held, Setup, read_case
from infinipot_cli.bench.memory import watched
from infinipot_cli.bench.questions import SAYS_NOT, load_questions, pick
from infinipot_cli.bench.questions import make_cases as question_cases
from infinipot_cli.bench.scoring import contains
from infinipot_cli.ingest import IngestOptions
from infinipot_cli.local import LocalSession
from infinipot_cli.options import InputOptions
from infinipot_cli.prompts import Task

PARTS = ("document", "pages", "needles")
#: An answer to a question about a text: short, and the same for all.
ANSWER = 48


@dataclass(frozen=True)
class Choice:
    """What is to be measured; see the options of pots.py for what the fields mean."""

    parts: Sequence[str]
    document: Path
    questions: Path
    count: int
    needles: int
    length: int
    seed: int = 0


@dataclass(frozen=True)
class FileTimes:
    """A pot in one dtype: bytes of the file and of keys and values in it; seconds (medians) to save it, to load it, to
    load it and write the first token of an answer, and to read the file's bytes and do nothing with them (the floor);
    bytes of memory that saving and loading took at most beside what was there, None where the system does not say."""

    dtype: str
    bytes: int
    numbers: int
    save: float
    load: float
    first_token: float
    floor: float
    save_rise: int | None
    load_rise: int | None


def make_cases(choice: Choice, session: LocalSession, capacity: int) -> Iterator[list[Case]]:
    """Cases that share a pot, together: those of a document, or one alone."""
    most = min(ANSWER, capacity // 4)
    if "document" in choice.parts:
        asked = load_questions(choice.questions, choice.document, IngestOptions())
        asks = pick(asked.asks, choice.count, (), choice.seed)
        cases = question_cases(asks, asked.documents, None, session.count, most, choice.seed)
        for _, group in groupby(cases, key=lambda case: case.text):
            yield [_labelled(case, "document") for case in group]
    if "pages" in choice.parts:
        yield from ([case] for case in _page_cases(choice.count, most))
    if "needles" in choice.parts:
        wanted = nih.Wanted(
            ("passkey",), (choice.length,), [(i + 0.5) / choice.needles for i in range(choice.needles)], 1
        )
        stacks = nih.make_haystacks(wanted, InputOptions())
        made = nih.make_cases(wanted, choice.seed, stacks, session.count, capacity // 4)
        yield from ([_labelled(case, "needles")] for case in made)


def _labelled(case: Case, part: str) -> Case:
    return Case(**{**vars(case), "labels": {**case.labels, "part": part}})


def _page_cases(count: int, most: int) -> Iterator[Case]:
    """The demo book's questions, each with its own page alone: where a small model knows the answer at all."""
    rows = [row for row in yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8")) if "page" in row]
    for row in rows[:: max(1, len(rows) // max(1, count))][:count]:
        pages = [row["page"]] if isinstance(row["page"], int) else row["page"]
        yield Case(
            id=f"page {row['id']}",
            document=partial(_page_texts, pages),
            question=row["question"],
            accepted=tuple(row["answers"]) or SAYS_NOT,
            labels={"part": "pages"},
            max_new_tokens=most,
        )


def _page_texts(pages: Sequence[int]) -> list[str]:
    return [passage.text for passage in passages(pages)]


def score(answer: str, case: Case) -> float:
    """1 if an accepted answer stands in it; a needle's own rule for a needle."""
    if case.labels["part"] == "needles":
        return nih.score(answer, case)
    return float(contains(answer, case.accepted))


def read(session: LocalSession, case: Case, setup: Setup, task: Task, pot: Path | None) -> Held:
    """The pot that has read the case's document; or that of a file, of a document that was read before."""
    if pot is None:
        return read_case(session, case, setup, task)
    loaded, _ = session.load(pot)
    return Held(loaded, _Stats(loaded.tokens_read, loaded.cycles, loaded.entries))


@dataclass(frozen=True)
class _Stats:
    """What the reading of a pot that came from a file was (``workbench.Stats``)."""

    tokens: int
    cycles: int
    entries: int
    capacity: int | None = None
    waiting: int = 0
    seconds_reading: float = 0.0
    seconds_distilling: float = 0.0


def time_files(
    session: LocalSession, held: Held, dtypes: Sequence[str], suffix: Sequence[int], folder: Path, repeats: int
) -> list[FileTimes]:
    """Save, load and ask the pot in every dtype ``repeats`` times, A B C A B C, so that all meet the same machine."""
    seconds: dict[str, dict[str, list[float]]] = {dtype: {} for dtype in dtypes}
    paths = {dtype: folder / f"{dtype}.pot" for dtype in dtypes}
    one = GenerationSettings(max_new_tokens=1)
    for _ in range(repeats):
        for dtype, path in paths.items():

            def note(name: str, work: Callable[[], Any], dtype: str = dtype) -> Any:
                began = time.perf_counter()
                result = work()
                seconds[dtype].setdefault(name, []).append(time.perf_counter() - began)
                return result

            def first_token(path: Path = path) -> None:
                session.generate(session.load(path)[0], suffix, one, None, None)

            note("save", lambda dtype=dtype, path=path: session.save(held.pot, path, {}, dtype))  # type: ignore[misc]
            note("floor", path.read_bytes)
            note("load", lambda path=path: session.load(path))  # type: ignore[misc]
            note("first_token", first_token)
    return [_times(session, held, dtype, paths[dtype], seconds[dtype]) for dtype in dtypes]


def _times(session: LocalSession, held: Held, dtype: str, path: Path, seconds: dict[str, list[float]]) -> FileTimes:
    from engine.potfile import read_info

    gauge = session.gauge()
    with watched(gauge) as saving:
        session.save(held.pot, path, {}, dtype)
    with watched(gauge) as loading:
        session.load(path)
    rises = [None if p.most is None or p.before is None else p.most - p.before for p in (saving, loading)]
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return FileTimes(
        dtype=dtype,
        bytes=path.stat().st_size,
        numbers=read_info(path).nbytes,
        save=middle["save"],
        load=middle["load"],
        first_token=middle["first_token"],
        floor=middle["floor"],
        save_rise=rises[0],
        load_rise=rises[1],
    )


@torch.inference_mode()
def log_probabilities(session: LocalSession, pot: Any, ids: Sequence[int], last: int) -> Tensor:
    """What the model says after ``ids`` behind the pot: log p at the ``last`` places, float32 [last, vocabulary]."""
    start = pot.taken if pot.stays else pot.entries
    positions = torch.arange(start, start + len(ids), device=session.model.device)
    output = session.model.module(
        input_ids=torch.tensor([list(ids)], device=session.model.device),
        position_ids=positions[None],
        past_key_values=pour(session.model, pot),
        logits_to_keep=last,
    )
    return output.logits[0].float().log_softmax(-1)


def divergence(before: Tensor, after: Tensor) -> float:
    """Mean Kullback-Leibler divergence, in nats a token, of what is said after from what was said before."""
    return float((before.exp() * (before - after)).sum(-1).mean())


def answer_ids(session: LocalSession, case: Case, generation: GenerationSettings, answer: str) -> list[int]:
    """The tokens of an answer, so that another pot can be asked what it makes of them."""
    ids: list[int] = session.model.tokenizer.encode(answer, add_special_tokens=False)
    return ids[: case.max_new_tokens or generation.max_new_tokens]
