"""What a pot costs and loses in fewer bits: bytes, seconds, memory, answers, needles, logits; every dtype beside raw.

    python benchmarks/pots.py --out pots.jsonl --plot pots.png            the demo book, everything
    python benchmarks/pots.py --parts document --questions FILE.jsonl     questions with documents of their own
    python benchmarks/pots.py --parts pages,needles --needles 4 --count 8 small

Parts:
  document   one pot of the document (CaP-G), asked all questions; where rows have documents of their own, one for each
  pages      the demo book's questions, each with its own page alone, where a small model gets some right
  needles    pass keys, read as `ask` reads them, at evenly spaced depths

A pot is read once, saved in every dtype, loaded and asked. Files are timed by turns, medians over --repeats; the floor
of loading is reading the file's bytes and doing nothing with them. KL: how far the model's predictions of the answer
that the raw pot gives move, in nats a token.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import pots_parts as parts
from benchmarks.book import BOOK, EXAMPLES
from benchmarks.choices import pot_settings
from benchmarks.explained import explained
from benchmarks.pots_plot import draw
from engine.folders import file_sha256
from engine.packing import POT_DTYPES
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.bench.harness import Case, Held, Outcome, Setup, outcome_key, run_case
from infinipot_cli.bench.options import parse_length, parse_list
from infinipot_cli.bench.plots import require_plots
from infinipot_cli.bench.results import Results
from infinipot_cli.bench.scoring import token_f1
from infinipot_cli.bench.table import NOTHING, Table, show
from infinipot_cli.local import LocalSession, LocalWorkbench
from infinipot_cli.options import DEFAULT_MODEL, ModelOptions
from infinipot_cli.prompts import load_catalyst, load_task
from infinipot_cli.terminal import Terminal
from infinipot_cli.units import show_bytes

BENCH, RAW = "pots", "raw"


def main() -> None:
    with explained():
        run(Terminal.system(), options_of(sys.argv[1:]))


def run(terminal: Terminal, options: argparse.Namespace) -> None:
    """Measure what the options ask for, and print the tables."""
    require_plots(options.plot)
    chosen = parse_list(options.pot_dtypes, "--pot-dtypes", POT_DTYPES)
    dtypes = [RAW, *(name for name in chosen if name != RAW)]  # what all others are compared with
    choice = parts.Choice(
        parts=parse_list(options.parts, "--parts", parts.PARTS),
        document=options.document,
        questions=options.questions,
        count=options.count,
        needles=options.needles,
        length=parse_length(options.length, "--length"),
        seed=options.seed,
    )
    session = LocalWorkbench().load(ModelOptions(options.model, options.device, options.dtype), terminal.say)
    bench = Bench(terminal, session, dtypes, choice, options)
    times, outcomes = bench.measure()
    for table in (file_table(session, times), answer_table(session, outcomes, dtypes)):
        if table.rows:
            terminal.write("\n")
            show(terminal, table, options.markdown)
    if options.plot:
        draw(options.plot, times, outcomes)


class Bench:
    """One run: pot by pot, each in every dtype."""

    def __init__(
        self,
        terminal: Terminal,
        session: LocalSession,
        dtypes: Sequence[str],
        choice: parts.Choice,
        options: argparse.Namespace,
    ) -> None:
        self._terminal, self._session, self._dtypes, self._choice = terminal, session, dtypes, choice
        self._options = options
        self._settings: PotSettings = pot_settings(options)
        self._task = load_task("question", os.environ)
        self._general = load_catalyst("cap-g", os.environ).text
        self._generation = GenerationSettings(max_new_tokens=parts.ANSWER, focus=self._task.focus)
        described = session.describe()
        self._before: tuple[str, Any] = ("", None)  # what the raw pot makes of the case in hand
        self._identity = {**session.identity(), "device": described["device"], "dtype": described["dtype"]}

    def measure(self) -> tuple[list[parts.FileTimes], list[Outcome]]:
        """The times of the first pot's files, and all outcomes; each a line of --out as soon as it is known."""
        header = {
            "bench": BENCH,
            "seed": self._choice.seed,
            "about": {"settings": self._settings.to_dict(), "dtypes": self._dtypes, "pot": self._pot_digest()},
            "model": self._session.describe() | {"identity": self._identity},
        }
        times: list[parts.FileTimes] = []
        outcomes: list[Outcome] = []
        with Results(self._options.out, header) as results, tempfile.TemporaryDirectory() as folder:
            for cases in parts.make_cases(self._choice, self._session, self._settings.capacity):
                outcomes += self._answers(cases, results, Path(folder), times)
        return times, outcomes

    def _answers(
        self, cases: list[Case], results: Results, folder: Path, times: list[parts.FileTimes]
    ) -> Iterator[Outcome]:
        """The outcomes of cases that share a pot. Where all are in the file, nothing is read, unless to be timed."""
        whole = self._setup(cases[0], RAW)
        keys = {(case.id, dtype): self._key(case, dtype, results) for case in cases for dtype in self._dtypes}
        known = {name: results.known(key) for name, key in keys.items()}
        held: Held | None = None
        if not times or None in known.values():
            self._terminal.say(f"reading for {cases[0].labels['part']} {cases[0].id}")
            held = parts.read(self._session, cases[0], whole, self._task, self._pot_file(cases))
        if held is not None and not times:
            suffix = self._suffix(cases[0])
            times += parts.time_files(self._session, held, self._dtypes, suffix, folder, self._options.repeats)
            self._keep_times(times, cases[0], results)
        loaded = {} if held is None else self._loaded(held, folder)
        for case in cases:
            before = None
            for dtype in self._dtypes:
                found = known[case.id, dtype]
                if found is not None:
                    outcome = Outcome.from_dict(found)
                else:
                    outcome = self._outcome(case, dtype, loaded, before, keys[case.id, dtype], results)
                before = before or outcome
                yield outcome

    def _loaded(self, held: Held, folder: Path) -> dict[str, Held]:
        """The pot after a trip through a file of each dtype."""
        loaded = {}
        for dtype in self._dtypes:
            path = folder / f"{dtype}.pot"
            self._session.save(held.pot, path, {}, dtype)
            loaded[dtype] = replace(held, pot=self._session.load(path)[0])
        return loaded

    def _outcome(
        self, case: Case, dtype: str, loaded: dict[str, Held], raw: Outcome | None, key: str, results: Results
    ) -> Outcome:
        session, setup = self._session, self._setup(case, dtype)
        outcome = run_case(session, case, setup, self._task, self._generation, parts.score, lambda: loaded[dtype])
        told = parts.answer_ids(session, case, self._generation, (raw or outcome).answer)
        ids = [*self._suffix(case), *told]
        if self._before[0] != case.id:
            self._before = (case.id, parts.log_probabilities(session, loaded[RAW].pot, ids, len(told) + 1))
        after = parts.log_probabilities(session, loaded[dtype].pot, ids, len(told) + 1)
        labels = {**case.labels, "kl": round(parts.divergence(self._before[1], after), 7)}
        outcome = replace(outcome, labels=labels, key=key, run=results.run)
        results.add(outcome.to_dict())
        self._terminal.say(f"{outcome.score:.0f}  {dtype}  {case.id}  {outcome.answer!r}  {case.accepted[:1]}")
        return outcome

    def _keep_times(self, times: list[parts.FileTimes], case: Case, results: Results) -> None:
        for each in times:
            labels = {name: value for name, value in asdict(each).items() if value is not None}
            made = Outcome(f"file of {case.id}", each.dtype, "", 0.0, labels={**labels, "part": "file"})
            results.add(replace(made, key=f"{results.run} file {each.dtype}", run=results.run).to_dict())

    def _setup(self, case: Case, dtype: str) -> Setup:
        return Setup(dtype, self._settings, self._general if case.labels["part"] == "document" else None)

    def _suffix(self, case: Case) -> list[int]:
        framing = self._session.framing(self._task.before, self._task.system)
        return framing.suffix_ids(self._task.turn(case.question))

    def _key(self, case: Case, dtype: str, results: Results) -> str:
        setup = self._setup(case, dtype)
        return outcome_key(case, setup, self._task, self._generation, self._identity, results.scope)

    def _pot_digest(self) -> str | None:
        return file_sha256(self._options.pot) if self._options.pot else None

    def _pot_file(self, cases: list[Case]) -> Path | None:
        return self._options.pot if cases[0].labels["part"] == "document" else None


def file_table(session: LocalSession, times: Sequence[parts.FileTimes]) -> Table:
    """Bytes, seconds and memory of one pot in every dtype."""
    columns = ("dtype", "file", "of raw", "keys, values", "save", "load", "floor", "first token", "save +", "load +")
    table = Table(f"a pot on disk: {session.name}, {session.describe()['dtype']}", columns)
    for each in times:
        seconds = (f"{value:.3f} s" for value in (each.save, each.load, each.floor, each.first_token))
        rises = (NOTHING if rise is None else show_bytes(rise) for rise in (each.save_rise, each.load_rise))
        share = f"{each.bytes / times[0].bytes:.2f}"
        table.add(each.dtype, show_bytes(each.bytes), share, show_bytes(each.numbers), *seconds, *rises)
    table.notes.append("first token: loading included. floor: the file's bytes read, nothing done with them.")
    table.notes.append("save +, load +: memory at most beside what was there before")
    return table


def answer_table(session: LocalSession, outcomes: Sequence[Outcome], dtypes: Sequence[str]) -> Table:
    """Answers by part and dtype, beside those of the raw pot."""
    columns = ("part", "dtype", "answers", "equal to raw", "right", "F1", "KL", "KL at most")
    table = Table(f"answers from it: {session.name}, {session.describe()['dtype']}", columns, labels=2)
    for part in dict.fromkeys(str(outcome.labels["part"]) for outcome in outcomes):
        raw = [o for o in outcomes if o.labels["part"] == part and o.setup == RAW]
        for dtype in dtypes:
            own = [o for o in outcomes if o.labels["part"] == part and o.setup == dtype]
            table.add(part, dtype, f"{len(own)}", *_compared(raw, own, part))
    table.notes.append("right: an accepted answer stands in it, a pass key is its first number. KL: nats a token")
    return table


def _compared(raw: Sequence[Outcome], own: Sequence[Outcome], part: str) -> list[str]:
    equal = sum(one.answer == other.answer for one, other in zip(raw, own, strict=True))
    right = sum(outcome.score for outcome in own)
    f1 = sum(token_f1(outcome.answer, outcome.accepted) for outcome in own) / len(own)
    moved = [float(outcome.labels["kl"]) for outcome in own]
    shown_f1 = NOTHING if part == "needles" else f"{f1:.3f}"
    return [f"{equal / len(own):.0%}", f"{right:.0f}", shown_f1, f"{sum(moved) / len(moved):.5f}", f"{max(moved):.4f}"]


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", help="of the model, and so of the raw pot")
    parser.add_argument("--pot-dtypes", default=",".join(POT_DTYPES), metavar="NAME,…")
    parser.add_argument("--parts", default=",".join(parts.PARTS), metavar="NAME,…")
    parser.add_argument("--document", type=Path, default=BOOK, help="what questions without a document are about")
    parser.add_argument("--questions", type=Path, default=EXAMPLES / "questions.yaml")
    parser.add_argument("--pot", type=Path, help="a raw pot of the document, saved before, instead of reading it")
    parser.add_argument("--count", type=int, default=40, help="questions of each part")
    parser.add_argument("--needles", type=int, default=20)
    parser.add_argument("--length", default="4k", help="tokens of a document with a needle")
    parser.add_argument("--capacity", type=int, default=PotSettings.capacity)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="pot settings")
    parser.add_argument("--repeats", type=int, default=5, help="of the timing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keep every outcome as a JSON line here; goes on where it ended")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    parser.add_argument("--markdown", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
