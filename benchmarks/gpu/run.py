"""Everything that is measured on a GPU, in one command: `python -m benchmarks.gpu.run` from the repository's root.

    python -m benchmarks.gpu.run --dry-run                                     what each part will take
    python -m benchmarks.gpu.run --out gpu.jsonl --plot gpu.png                  everything, within ten minutes a part
    python -m benchmarks.gpu.run --parts reading --shapes llama-3.1-8b --tokens 1000000 --out gpu.jsonl
    python -m benchmarks.gpu.run --shapes tiny --device cpu --tokens 2k --capacity 256 --block 64 --write 16 \
        --tokens-each 600 --first 256 --last 512 --backend eager                 does it all run?

Weights are random and nothing is downloaded. Every figure stands beside its floor, measured in the same run. Results
go to --out line by line: a run that is begun again, on the same device, goes on where it was. A part that reaches its
--time-limit stops, says how far it came, and is measured again by the next run.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import batch, cycles, decode, peers, reading, static
from benchmarks.gpu.clock import Deadline
from benchmarks.gpu.dryrun import show_plan
from benchmarks.gpu.lines import Ledger, latest
from benchmarks.gpu.models import build, circumstances, give_back
from benchmarks.gpu.options import PARTS, parse
from benchmarks.gpu.shapes import SHAPES, Shape
from engine.errors import first_line
from engine.model import Model
from engine.models import DTYPES

ROOT = Path(__file__).parents[2]


class Run:
    """One run of the driver: the options, the results so far, and the model of the shape that it is at."""

    def __init__(self, options: argparse.Namespace, say: Callable[[str], None]) -> None:
        self.options = options
        self.say = say
        self.device = torch.device(options.device)
        self.ledger = Ledger(options.out, circumstances(self.device) | {"dtype": options.dtype})
        self.failed: list[str] = []
        self.warm: set[tuple[str, str]] = set()
        self._shape: Shape | None = None
        self._model: Model | None = None

    def model(self, shape: Shape) -> Model:
        """The shape's model, built when it is first asked for; one at a time."""
        if self._model is None or self._shape != shape:
            self._model = None
            give_back(self.device)
            self.say(f"{shape.name}: drawing weights")
            self._model = build(shape, self.device, DTYPES[self.options.dtype], self.options.seed)
            self._shape = shape
        return self._model

    def ask(self, part: str, about: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The result that the file holds, or a new one."""
        if (known := self.ledger.known(part, about)) is not None:
            self.say(f"{part}: {_brief(about)}: known")
            return known
        self.say(f"{part}: {_brief(about)}")
        return self.ledger.add(part, about, {"stopped": None, **measure()})

    @cached_property
    def peers(self) -> list[str]:
        """Those who can run here; who cannot is said once."""
        for peer in self.options.peers:
            if reason := peers.absent(peer):
                self.say(f"peers: {peer}: {reason}")
        return [peer for peer in self.options.peers if peers.absent(peer) is None]


def read_texts(run: Run, shape: Shape, deadline: Deadline) -> None:
    """Part reading."""
    o = run.options
    for method in o.methods:
        wanted = reading.Wanted(shape.name, o.tokens, o.capacity, o.distilled, o.block, method, o.seed)
        run.ask("reading", wanted.about(), partial(_read, run, shape, wanted, deadline))


def write_answers(run: Run, shape: Shape, deadline: Deadline) -> None:
    """Part decode. What is left when the time is over is said, not measured."""
    o = run.options
    for way in o.ways:
        wanted = decode.Wanted(shape.name, way, o.write, o.capacity, o.methods[0], o.seed, o.backend)
        if deadline.over:
            run.say(f"decode: {way}: left out, the time is over")
            continue
        run.ask("decode", wanted.about(), partial(_write, run, shape, wanted))
    static.forget()
    give_back(run.device)


def read_documents(run: Run, shape: Shape, deadline: Deadline) -> None:
    """Part batch: one after another, and together."""
    o = run.options
    for how in batch.HOWS:
        wanted = batch.wanted(o, shape, how)
        run.ask("batch", wanted.about(), partial(_batch, run, shape, wanted, deadline))


def watch_cycles(run: Run, shape: Shape, deadline: Deadline) -> None:
    """Part cycles: as a GPU would be asked, and on this device."""
    o = run.options
    for method in o.methods:
        wanted = reading.Wanted(shape.name, 0, o.capacity, o.distilled, o.block, method, o.seed)
        about = {**wanted.about(), "cycles": o.cycles}
        run.ask("cycles", {**about, "on": "meta"}, partial(cycles.pretended, shape, wanted, o.cycles))
        run.ask(
            "cycles",
            {**about, "on": run.device.type},
            partial(_cycles, run, shape, wanted),
        )


def race(run: Run, shape: Shape, deadline: Deadline) -> None:
    """Part peers: lengths double until each fails, or the time is over."""
    o = run.options

    def ask(peer: str, length: int) -> dict[str, Any]:
        wanted = peers.Wanted(shape.name, peer, length, o.write, o.capacity, o.distilled, o.block, o.seed)
        return run.ask("peers", wanted.about(), partial(_peer, run, shape, wanted))

    lengths = list(peers.doubled(o.first, o.last))
    for peer, length, found in peers.run_all(peers.Race(run.peers, lengths, ask, o.peer_limit), deadline):
        if found["error"]:
            run.say(f"peers: {peer} at {length:,}: {found['error']}")


def _read(run: Run, shape: Shape, wanted: reading.Wanted, deadline: Deadline) -> dict[str, Any]:
    return reading.measure(run.model(shape), shape, wanted, deadline)


def _write(run: Run, shape: Shape, wanted: decode.Wanted) -> dict[str, Any]:
    config = decode.on_any_device(run.options.backend) if run.options.backend else None
    return decode.measure(run.model(shape), shape, wanted, config)


def _batch(run: Run, shape: Shape, wanted: batch.Wanted, deadline: Deadline) -> dict[str, Any]:
    return batch.measure(run.model(shape), shape, wanted, deadline)


def _cycles(run: Run, shape: Shape, wanted: reading.Wanted) -> dict[str, Any]:
    return cycles.measure(run.model(shape), shape, wanted, run.options.cycles)


def _peer(run: Run, shape: Shape, wanted: peers.Wanted) -> dict[str, Any]:
    """The first run of a peer in this process warms it up, at the shortest length."""
    if (shape.name, wanted.peer) not in run.warm:
        run.warm.add((shape.name, wanted.peer))
        peers.measure(run.model(shape), shape, replace(wanted, length=run.options.first))
    return peers.measure(run.model(shape), shape, wanted)


def test(run: Run) -> None:
    """Part tests: what only CUDA can show, by pytest."""
    if importlib.util.find_spec("pytest") is None:
        run.say("tests: pytest is not installed")
        return
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-rs", "tests"]
    run.say("tests: " + " ".join(command))
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        run.failed.append("tests")


BY_SHAPE: dict[str, Callable[[Run, Shape, Deadline], None]] = {
    "cycles": watch_cycles,
    "reading": read_texts,
    "decode": write_answers,
    "batch": read_documents,
    "peers": race,
}


def run_parts(run: Run) -> None:
    """Every part that was asked for, shape by shape; a part that fails is said, and the others run."""
    o = run.options
    if "tests" in o.parts:
        test(run)
    for name in o.shapes:
        for part in (part for part in PARTS if part in o.parts and part in BY_SHAPE):
            try:
                BY_SHAPE[part](run, SHAPES[name], Deadline(o.time_limit))
            except Exception as error:
                # What one part cannot do is no reason to lose the minutes that the others need.
                run.failed.append(f"{part} {name}")
                run.say(f"{part}: {name}: failed: {type(error).__name__}: {first_line(error)}")
                if o.debug:
                    raise


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _brief(about: Mapping[str, Any]) -> str:
    """A question in a few words."""
    names = ("shape", "on", "method", "way", "how", "peer", "length", "tokens", "documents")
    return ", ".join(
        f"{about[name]:,}" if isinstance(about[name], int) else about[name] for name in names if name in about
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where a part failed; what was measured before is kept."""
    options = parse(__doc__ or "", arguments)
    if options.dry_run:
        print(show_plan(options))
        return 0
    run = Run(options, say)
    run_parts(run)
    _report(run)
    if run.failed:
        say(f"failed: {', '.join(run.failed)}")
    return int(bool(run.failed))


def _report(run: Run) -> None:
    """Tables, and diagrams where they are asked for; where what draws them is not installed, the lines are there."""
    try:
        from benchmarks.gpu import report
        from infinipot_cli.bench.table import as_text
    except ImportError as error:
        say(f"no tables: {error}; `python -m benchmarks.gpu.report {run.options.out}` makes them elsewhere")
        return
    records = latest(run.ledger.records)
    for table in report.tables(records):
        print(as_text(table))
    if run.options.plot is not None:
        report.plot(records, run.options.plot)


if __name__ == "__main__":
    sys.exit(main())
