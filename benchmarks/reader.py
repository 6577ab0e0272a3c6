"""What the reader adds: the plain model beside it, by parts.

    python benchmarks/reader.py --out reader.jsonl                       everything, small
    python benchmarks/reader.py --parts gold,hidden --source squadshifts_new_wiki --lengths 2k,8k --out reader.jsonl
    python benchmarks/reader.py --dry-run                                what it would read, and how long that takes

Parts:
  gold       questions with their own document alone; a third of them have no answer there
  hidden     the same questions, the document at a random place among others, 2K to 32K tokens; read through pots as
             `ask` does (CaP-Q), or cut in the middle, or what BM25 finds of them, with the same number of entries
  needles    pass keys, and keys among others of their kind
  book       the demo book's forty questions: the page alone, pages that BM25 finds, cut in the middle, one pot for all
             questions (CaP-G); with --book-ways also `ask`, which reads the book anew for each (hours)
  summaries  of held-back documents, by ROUGE-L; --texts writes them down to be read
  logs       made in code: how many of their faults `summarize --task logs` lists, and what else
  prose      perplexity on held-back passages

Answers are greedy, and cut at --most-tokens. Intervals: 95 %, bootstrap over the questions. The data are those of
training/prepare.py, held back from training by document; --data final is for the very last look. With --out each
outcome is kept as a JSON line as soon as it is known, and the same command goes on where it was broken off.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from benchmarks.choices import settings_of
from benchmarks.explained import explained
from benchmarks.reader_cases import Document, load
from benchmarks.reader_parts import BOOK_WAYS, PARTS, WAYS, Choice, Job, jobs, prose, score
from benchmarks.reader_report import tables, write_texts
from engine.folders import file_sha256
from engine.settings import GenerationSettings
from infinipot_cli.bench.harness import Label, Outcome
from infinipot_cli.bench.needles import TASKS
from infinipot_cli.bench.options import ResultOptions, parse_lengths, parse_list, parse_shares
from infinipot_cli.bench.results import Results
from infinipot_cli.bench.running import run_watched
from infinipot_cli.bench.table import show
from infinipot_cli.cache import cache_dir
from infinipot_cli.catalog import DEFAULT, PLAIN
from infinipot_cli.errors import UsageError
from infinipot_cli.local import LocalSession, LocalWorkbench
from infinipot_cli.models import resolve
from infinipot_cli.options import ModelOptions
from infinipot_cli.prompts import Task
from infinipot_cli.terminal import Terminal
from infinipot_cli.units import show_seconds
from infinipot_cli.wishes import refusal, usual_doubt, usual_focus
from infinipot_cli.workbench import Session

BENCH = "reader"
DATA = Path(__file__).parents[1] / "training" / "data"
#: For estimates: tokens read in the time that one is written; length of a short answer; characters of a token.
READ_PER_WRITTEN, SHORT_ANSWER, CHARACTERS = 25, 12, 4.2


def main() -> None:
    with explained():
        run(Terminal.system(), _options())


def run(terminal: Terminal, options: argparse.Namespace) -> None:
    """Measure, or estimate, what the options ask for, and print the tables."""
    choice = choice_of(options)
    path = Path(options.data) if options.data.endswith(".jsonl") else DATA / f"{options.data}.jsonl"
    documents = load(path, options.source)
    if options.dry_run:
        estimate(terminal, choice, documents, options)
        return
    about = {"data": file_sha256(path), "sources": sorted(options.source)}
    found: dict[str, list[Outcome]] = {}
    for name in options.models:
        session = open_model(terminal, name, options)
        found[session.name] = measure(terminal, session, choice, documents, options, about)
    for table in tables(found):
        terminal.write("\n")
        show(terminal, table, options.markdown)
    if options.texts is not None:
        write_texts(options.texts, found, texts_of(choice, documents))


def choice_of(options: argparse.Namespace) -> Choice:
    """The options in their own types. Raises UsageError."""
    return Choice(
        parts=parse_list(options.parts, "--parts", PARTS),
        seed=options.seed,
        questions=options.questions,
        unanswerable=options.unanswerable,
        hidden=min(options.hidden, options.questions),
        hidden_unanswerable=options.hidden_unanswerable,
        lengths=parse_lengths(options.lengths, "--lengths"),
        capacities=parse_lengths(options.capacities, "--capacities"),
        ways=parse_list(options.ways, "--ways", WAYS),
        needle_tasks=parse_list(options.needle_tasks, "--needle-tasks", [n for n, t in TASKS.items() if t.by_depth]),
        needle_lengths=parse_lengths(options.needle_lengths, "--needle-lengths"),
        depths=parse_shares(options.depths, "--depths"),
        trials=options.trials,
        needle_capacity=options.needle_capacity,
        book_ways=parse_list(options.book_ways, "--book-ways", BOOK_WAYS),
        book_questions=options.book_questions,
        book_capacity=options.book_capacity,
        summaries=options.summaries,
        logs=options.logs,
        log_lines=parse_lengths(options.log_lines, "--log-lines"),
        prose=options.prose,
        most_tokens=options.most_tokens,
        settings=_settings(options.set),
        focus=options.focus,
    )


def open_model(terminal: Terminal, name: str, options: argparse.Namespace) -> LocalSession:
    """A model by name, or the plain one with an adapter FILE.safetensors merged in. Raises ModelError."""
    wanted = str(merged_folder(Path(name))) if is_adapter(name) else name
    session = LocalWorkbench().load(ModelOptions(wanted, options.device, options.dtype, offline=True), terminal.say)
    if is_adapter(name):
        session.name = session.model.name = f"{PLAIN.alias} + {Path(name)}"
    return session


def is_adapter(name: str) -> bool:
    """Whether a model's name is that of an adapter's file, or ends in it."""
    return name.endswith(".safetensors")


def merged_folder(adapter: Path) -> Path:
    """The plain model with ``adapter`` merged in, made as the shipped one is, kept in the cache. Raises ModelError."""
    from engine.adapter import merge_transform
    from engine.derive import derive_folder

    base, digest = Path(resolve(PLAIN.alias, offline=True)), file_sha256(adapter)
    folder = cache_dir() / "adapters" / digest[:16]
    about = {"name": f"{PLAIN.alias} with {digest}", "adapter_sha256": digest}
    derive_folder(base, folder, about, transforms=[merge_transform(adapter)])
    return folder


def measure(
    terminal: Terminal,
    session: LocalSession,
    choice: Choice,
    documents: Sequence[Document],
    options: argparse.Namespace,
    about: dict[str, Any],
) -> list[Outcome]:
    """All outcomes of one model."""
    results = ResultOptions(out=options.out, seed=choice.seed)
    known_as = DEFAULT.alias if is_adapter(session.name) else session.name
    found: list[Outcome] = []
    for job in jobs(choice, documents, session.count):
        terminal.say(f"{session.name}: {job.part}, {len(job.cases)} cases, {', '.join(s.name for s in job.setups)}")
        found += run_watched(
            terminal,
            cast(Session, session),
            job.cases,
            job.setups,
            results,
            name=BENCH,
            task=job.task,
            generation=GenerationSettings(
                max_new_tokens=job.max_new_tokens,
                focus=usual_focus(job.task, known_as),
                refusal=refusal(_doubt(job.task, known_as, options.doubt)),
            ),
            scorer=score,
            about=about,
            part=True,
        )
    if "prose" in choice.parts:
        found += measure_prose(session, prose(choice, documents), options.out, choice.seed, about)
    return found


def _settings(items: Sequence[str]) -> dict[str, Any]:
    """Pot settings by name. Raises UsageError."""
    settings = settings_of(items)
    if "capacity" in settings:
        sizes = "--capacities, --needle-capacity, --book-capacity"
        raise UsageError("--set takes no capacity: the parts have options for it", hint=sizes)
    return settings


def _doubt(task: Task, model: str, wanted: float | None) -> float | None:
    """The least probability of a refusal: what is ``wanted``, if anything, where questions are asked.

    Never is a probability of 1: what is left open, the harness fills in.
    """
    if wanted is None or not task.asks:
        return usual_doubt(task, model)
    return wanted or 1.0


def measure_prose(
    session: LocalSession, passages: Sequence[Document], out: Path | None, seed: int, about: dict[str, Any]
) -> list[Outcome]:
    """-log p of every passage after its first token, as the outcome's score, with the tokens that it is summed over."""
    import torch

    from engine.text import Encoder

    encoder, model = Encoder(session.model.tokenizer), session.model
    identity = session.identity()
    header = {"bench": BENCH, "seed": seed, "about": about, "model": session.describe() | {"identity": identity}}
    found = []
    with Results(out, header) as results, torch.inference_mode():
        for passage in passages:
            key = f"prose {passage.number} {identity['weights'][:16]} {model.dtype} {about['data'][:16]}"
            known = results.known(key)
            if known is None:
                ids = torch.tensor(encoder.encode(passage.text)[0], device=model.device)[None]
                logits = model.module(ids).logits[0, :-1].float()
                nats = float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
                labels: dict[str, Label] = {
                    "part": "prose",
                    "source": passage.source,
                    "kind": passage.source,
                    "answerable": 1,
                }
                count = ids.shape[1] - 1
                outcome = Outcome(f"prose {passage.number}", "prose", "", nats, count, labels=labels, key=key)
                outcome = replace(outcome, run=results.run)
                results.add(outcome.to_dict())
            else:
                outcome = Outcome.from_dict(known)
            found.append(outcome)
    return found


def estimate(terminal: Terminal, choice: Choice, documents: Sequence[Document], options: argparse.Namespace) -> None:
    """Print outcomes, tokens and time of every part, loading no model: tokens are counted by characters."""
    every = list(jobs(choice, documents, lambda text: max(1, round(len(text) / CHARACTERS))))
    total: dict[str, float] = {}
    for name in options.models:
        model = PLAIN.alias if is_adapter(name) else name
        speed = LocalWorkbench().facts(ModelOptions(model, options.device, options.dtype)).tokens_per_second
        for job in every:
            tokens, answers = job.tokens(), len(job.cases) * len(job.setups)
            lengths = [case.max_new_tokens or job.max_new_tokens for case in job.cases]
            short = name != PLAIN.alias and job.part not in ("summaries", "logs")
            written = sum(SHORT_ANSWER if short else length for length in lengths) * len(job.setups)
            work = tokens + written * READ_PER_WRITTEN
            seconds = work / speed if speed else None
            total[name] = total.get(name, 0.0) + (seconds or 0.0)
            time = "not known" if seconds is None else f"about {show_seconds(seconds)}"
            ways = ", ".join(setup.name for setup in job.setups)
            terminal.write(f"{name}  {job.part} ({ways}): {answers:,} answers, {tokens:,} tokens read, {time}\n")
    if "prose" in choice.parts:
        terminal.write(f"prose: {len(prose(choice, documents))} passages for each model\n")
    terminal.write(f"in all about {show_seconds(sum(total.values()))}, outcomes that --out holds already included\n")


def texts_of(choice: Choice, documents: Sequence[Document]) -> dict[str, str]:
    """The documents of the summaries by the ids of their cases."""
    only = replace(choice, parts=("summaries",))
    every: list[Job] = list(jobs(only, documents, len))
    return {case.id: "".join(case.document()) for job in every for case in job.cases}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Choice()

    def add(name: str, value: Any, help: str = "", **more: Any) -> None:
        text = ",".join(map(str, value)) if isinstance(value, tuple) else value
        parser.add_argument(name, default=text, type=type(text), help=f"{help} (default {text})".strip(), **more)

    add("--models", (PLAIN.alias, DEFAULT.alias), "names, or an adapter FILE.safetensors for the plain model")
    add("--data", "tuning", "tuning, final, or a .jsonl file")
    parser.add_argument("--source", action="append", default=[], help="only documents of this source; may be repeated")
    add("--parts", default.parts)
    add("--questions", default.questions, "gold: with an answer")
    add("--unanswerable", default.unanswerable, "gold: without one")
    add("--hidden", default.hidden, "hidden: of the same questions")
    add("--hidden-unanswerable", default.hidden_unanswerable)
    add("--lengths", default.lengths, "hidden: tokens of the documents, such as 2k,8k,32k")
    add("--capacities", default.capacities, "hidden: entries of the pots, such as 1024,2048,4096")
    add("--ways", default.ways, "hidden: pot (the default method), infinipot (with novelty), truncate, bm25")
    add("--needle-tasks", default.needle_tasks)
    add("--needle-lengths", default.needle_lengths)
    add("--depths", default.depths)
    add("--trials", default.trials, "needles of each task, length and depth")
    add("--needle-capacity", default.needle_capacity)
    add("--book-ways", default.book_ways, f"of {', '.join(BOOK_WAYS)}")
    add("--book-questions", default.book_questions)
    add("--book-capacity", default.book_capacity)
    add("--summaries", default.summaries)
    add("--logs", default.logs, "of each of --log-lines")
    add("--log-lines", default.log_lines, "lines of the logs, about")
    add("--prose", default.prose, "passages")
    add("--most-tokens", default.most_tokens, "of an answer")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="hidden, needles, book: pot settings"
    )
    parser.add_argument("--focus", type=int, help="the same: entries that an answer is written from")
    parser.add_argument("--doubt", type=float, help="least probability at which an answer refuses (default: as `ask`)")
    add("--seed", default.seed)
    add("--device", "auto")
    add("--dtype", "auto")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--texts", type=Path, metavar="FILE.md", help="write the summaries there")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    options.models = parse_list(options.models, "--models")
    if min(options.questions, options.hidden, options.most_tokens, options.trials) < 1:
        raise UsageError("--questions, --hidden, --trials and --most-tokens are at least 1")
    return options


if __name__ == "__main__":
    main()
