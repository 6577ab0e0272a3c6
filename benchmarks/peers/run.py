"""infinipot beside what a user could run instead, on the same documents, with the same weights, on this machine.

    make peers                                                         the peers' own environments, once
    python benchmarks/peers/run.py --lengths 1k,2k,4k.. --out peers.jsonl --plot peers.png

Peers: full (transformers, attention to everything), snapkv (kvpress), llama.cpp (llama-cpp-python, the GGUF that the
weights come from), bm25 (bm25s finds passages, the model reads those), infinipot. Each runs in a process of its own,
which loads, then reads a document with a pass key and one with a question's paragraph hidden in a book. Lengths are
tokens of prompt and answer together. A peer that runs out of time or memory, or is beyond the context that the model
was trained on, says so and is not run at larger lengths. The order of the peers rotates.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from benchmarks.choices import pot_settings
from benchmarks.explained import explained
from benchmarks.peers.common import Case, Job
from benchmarks.peers.documents import DEPTHS, Haystack, Needle, book_text, pass_key, pick, questions
from benchmarks.peers.report import Line, outcomes, plot, said, table
from benchmarks.peers.supervise import supervise
from engine.settings import PotSettings
from infinipot_cli.artifact import GGUF_NAME, MODULE
from infinipot_cli.bench.options import parse_length
from infinipot_cli.bench.plots import require_plots
from infinipot_cli.bench.results import circumstances
from infinipot_cli.bench.table import as_text
from infinipot_cli.catalog import PLAIN
from infinipot_cli.machine import memory, processor_count
from infinipot_cli.models import resolve
from infinipot_cli.prompts import load_task

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Kind:
    """Where a peer's interpreter lies in the peers' folder, if it is not ours, and what else it needs.

    ``whole``: it attends to all of a document at once, at positions that the model must have been trained on.
    """

    whole: bool
    interpreter: str | None = None
    gguf: bool = False


PEERS = {
    "full": Kind(whole=True),
    "snapkv": Kind(whole=True, interpreter="kvpress-venv/bin/python"),
    "llama.cpp": Kind(whole=True, interpreter="llama-venv/bin/python", gguf=True),
    "bm25": Kind(whole=False),
    "infinipot": Kind(whole=False),
}


def parse_lengths(text: str) -> Iterator[int]:
    """``1k,4k..16k`` -> 1000, 4000, 8000, 16000; ``4k..`` doubles without end. Raises UsageError."""
    for part in text.split(","):
        first, dots, last = part.partition("..")
        length = parse_length(first)
        end = parse_length(last) if last else length if not dots else None
        while end is None or length <= end:
            yield length
            length *= 2


def rotated(names: Sequence[str], by: int) -> list[str]:
    """The names from number ``by`` on, those before it at the end."""
    by %= max(len(names), 1)
    return [*names[by:], *names[:by]]


def unfit(name: str, length: int, context: int, budget: int, past_context: bool) -> str | None:
    """Why a peer is beyond the model's trained context at this length, or None."""
    attends = length if PEERS[name].whole else min(length, budget)
    if past_context or attends <= context:
        return None
    return f"attends to {attends:,} positions, and the model was trained on {context:,}"


def pinned_gguf(folder: Path) -> Path:
    """The file that the plain default model is converted from, where `make peers` puts it."""
    return folder / "gguf" / MODULE / GGUF_NAME


def absent(kind: Kind, folder: Path, gguf: Path | None) -> str | None:
    """What of a peer is not on this machine, or None."""
    if kind.gguf and gguf is None:
        return "name the GGUF file of these weights with --gguf"
    needed = [folder / part for part in (kind.interpreter,) if part]
    needed += [gguf] if kind.gguf and gguf else []
    missing = next((path for path in needed if not path.exists()), None)
    return f"there is no {missing}; see `make peers`" if missing else None


class Bench:
    """One run of the benchmark: what is the same for every peer, and the lines so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        from transformers import AutoConfig, AutoTokenizer

        self.options = options
        self.sink: IO[str] | None = None
        self.lines: list[Line] = []
        self.model = resolve(options.model)
        self.gguf = options.gguf or (pinned_gguf(options.peers_dir) if options.model == PLAIN.alias else None)
        self.settings = pot_settings(options)
        self.context = int(AutoConfig.from_pretrained(self.model).max_position_embeddings)
        self.tokenizer = AutoTokenizer.from_pretrained(self.model)
        self.tokenizer.model_max_length = sys.maxsize  # it warns of long texts, which are meant here
        self.task = load_task("question", os.environ)
        self.haystack = Haystack(book_text(options.book), self.count)
        self.questions = pick(questions(options.questions, options.book), options.trials, options.seed)
        self.about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **_plain(options), **circumstances()}

    def count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def cases(self, length: int, trial: int, folder: Path) -> tuple[Case, ...]:
        """The documents of a trial, written to ``folder``. A question whose paragraph does not fit is left out."""
        needles = [pass_key(self.options.seed, trial), *self.questions[trial : trial + 1]]
        depth = DEPTHS[trial % len(DEPTHS)]
        return tuple(case for needle in needles if (case := self._case(needle, depth, length, folder)) is not None)

    def _case(self, needle: Needle, depth: float, length: int, folder: Path) -> Case | None:
        before, after = self._around(needle.question)
        room = length - self.options.max_tokens - self.count(before + after)
        try:
            text = self.haystack.hide(needle, depth, room)
        except ValueError as error:
            print(f"{length:,}: {error}", file=sys.stderr)
            return None
        path = folder / f"{needle.kind}.txt"
        path.write_text(text, encoding="utf-8")
        return Case(needle.id, needle.kind, str(path), before, after, needle.question, needle.accepted)

    def _around(self, question: str) -> tuple[str, str]:
        """What stands before and after a document: the chat template and the wording of the question."""
        mark = "DOCUMENTsentinelDOCUMENT"
        turn = [{"role": "user", "content": self.task.before + mark + self.task.turn(question)}]
        text = self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        before, _, after = text.partition(mark)
        return before, after

    def measure(self, name: str, length: int, trial: int) -> bool:
        """Run one peer on the documents of one trial and note what came of it; whether it answered them all."""
        about = {"peer": name, "length": length, "trial": trial}
        reason = absent(PEERS[name], self.options.peers_dir, self.gguf)
        if reason:
            return self._note({**about, "outcome": "absent", "message": reason})
        reason = unfit(name, length, self.context, self.options.capacity, self.options.past_context)
        if reason:
            return self._note({**about, "outcome": "context", "message": reason})
        with tempfile.TemporaryDirectory() as folder:
            cases = self.cases(length, trial, Path(folder))
            ended = supervise(*self._command(name, length, cases, Path(folder)), *self._limits())
        done = [self._note({**about, **line}) for line in outcomes(ended, cases)]
        return all(done)

    def _limits(self) -> tuple[float, float]:
        return self.options.time_limit, self.options.memory_limit * 1024

    def _command(
        self, name: str, length: int, cases: tuple[Case, ...], folder: Path
    ) -> tuple[list[str], dict[str, str]]:
        """The worker's command line and environment; its job lies in ``folder``."""
        options, kind = self.options, PEERS[name]
        job = Job(
            model=self.model,
            gguf=str(self.gguf or ""),
            length=length,
            budget=options.capacity,
            new_tokens=options.max_tokens,
            threads=options.threads,
            settings=self.settings.to_dict(),
            cases=cases,
        )
        job.save(folder / "job.json")
        interpreter = str(options.peers_dir / kind.interpreter) if kind.interpreter else sys.executable
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": str(options.threads),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        return [interpreter, "-m", "benchmarks.peers.worker", name, str(folder / "job.json")], environment

    def _note(self, line: Line) -> bool:
        """Keep and show a line; whether it is one of success."""
        self.lines.append(line)
        if self.sink:
            self.sink.write(json.dumps({**line, **self.about}, ensure_ascii=False) + "\n")
            self.sink.flush()
        print(said(line), file=sys.stderr, flush=True)
        return bool(line["outcome"] == "ok")


def _plain(options: argparse.Namespace) -> dict[str, Any]:
    names = ("model", "seed", "capacity", "max_tokens", "threads", "set", "book", "questions")
    limits = ("time_limit", "memory_limit")
    return {"settings": {name: getattr(options, name) for name in (*names, *limits)}}


def run_all(
    names: Sequence[str], lengths: Iterable[int], trials: int, measure: Callable[[str, int, int], bool]
) -> None:
    """Every peer at every length and trial, until it fails; another one begins each time."""
    left, turns = list(names), itertools.count()
    for length in lengths:
        for trial in range(trials):
            left = [name for name in rotated(names, next(turns)) if name in left and measure(name, length, trial)]
        if not left:
            return


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--lengths", default="1k..", help="tokens: 4k,8k or 4k..64k (doubling) or 4k.. (until every peer has stopped)")
    add("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)}")
    add("--trials", type=int, default=1, help="pairs of documents at each length")
    add("--time-limit", type=float, default=600, metavar="S", help="seconds for loading, and for each document")
    add("--memory-limit", type=float, default=memory()[0] * 0.8 / (1 << 30), metavar="GB", help="resident, of a peer")
    add("--capacity", type=int, default=PotSettings.capacity, help="pot, and budget of snapkv and bm25, in entries")
    add("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other pot settings of infinipot")
    add("--past-context", action="store_true", help="go on beyond the trained context, to see time and memory")
    add("--max-tokens", type=int, default=32, help="tokens that every peer writes")
    add("--threads", type=int, default=processor_count())
    add("--book", default=str(EXAMPLES / "the-weight-of-albert-noon.pdf"), help="any document that infinipot reads")
    add("--questions", default=str(EXAMPLES / "questions.yaml"), help="JSON lines (context, question, answers) or YAML")
    add("--model", default=PLAIN.alias)
    add("--gguf", type=Path, help="the same weights for llama.cpp, where --model is another one")
    add("--peers-dir", type=Path, default=ROOT / ".peers", help="where `make peers` put the environments")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="JSON lines are added here")
    add("--plot", type=Path, help="a picture of the results")
    return parser


def run(options: argparse.Namespace, names: Sequence[str]) -> None:
    """The benchmark, its lines, table and picture."""
    require_plots(options.plot)
    bench = Bench(options)
    with options.out.open("a", encoding="utf-8") if options.out else nullcontext() as bench.sink:
        try:
            run_all(names, parse_lengths(options.lengths), options.trials, bench.measure)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
    title = f"{options.model}, {options.threads} threads, budget {options.capacity:,} entries, seed {options.seed}"
    print(as_text(table(bench.lines, title)), end="")
    if options.plot:
        plot(bench.lines, options.plot)


def main() -> None:
    parser = arguments()
    options = parser.parse_args()
    options.peers_dir = options.peers_dir.absolute()
    names = options.peers.split(",")
    strange = [name for name in names if name not in PEERS]
    if strange:
        parser.error(f"--peers knows no {strange[0]!r}")
    with explained():
        run(options, names)


if __name__ == "__main__":
    main()
