"""How near does reading come to what it must cost, and does that last?

    python benchmarks/reading.py --tokens 1000000 [--capacity 2048] [--clock cpu] [--plot reading.png]

One process reads one endless text. After the first cycles, and whenever the text read has grown fourfold, it
measures in turn, over and over: the rate at which this machine multiplies the model's own matrices; the stock model's
own forward on blocks of the same length with an empty cache (with its output layer if the method needs novelty); and
the reading of whole cycles. It prints the medians, the reading over the stock forward, the floor (operations over the
matrix rate) over the time taken, and the process's largest memory so far; --plot draws them.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.explained import explained
from engine.measure import Fill, count, matrix_rate, wait
from engine.methods import REGISTRY
from engine.model import Model
from engine.models import load_model
from engine.pot import Batch
from engine.reader import Reader
from engine.settings import PotSettings
from infinipot_cli.bench.curves import Lines, Point, draw
from infinipot_cli.bench.plots import require_plots
from infinipot_cli.models import resolve

PREFIX, CATALYST = [1], list(range(2, 26))
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


class Text:
    """A reading that goes on for ever, of random tokens."""

    def __init__(self, model: Model, settings: PotSettings) -> None:
        self.model, self.read = model, 0
        self._reader = Reader(model, settings, PREFIX, CATALYST)
        self._random = torch.Generator().manual_seed(0)

    @property
    def cycles(self) -> int:
        return self._reader.stats.cycles

    def go(self, tokens: int) -> None:
        ids = torch.randint(0, self.model.vocabulary, (tokens,), generator=self._random)
        places = torch.arange(self.read, self.read + tokens)
        self._reader.feed(Batch(ids, places, torch.zeros_like(ids)))
        self.read += tokens


@torch.inference_mode()
def stock(model: Model, block: int, head: bool) -> None:
    """The stock forward of a block on an empty cache."""
    ids = torch.randint(0, model.vocabulary, (1, block), device=model.device)
    (model.module if head else model.base)(input_ids=ids, use_cache=True)


def peak_mib() -> float:
    """Largest resident memory of this process so far (Linux: kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rate(model: Model, clock: Callable[[], float], tokens: int, work: Callable[[], object]) -> float:
    """Tokens per second."""
    wait(model)
    began = clock()
    work()
    wait(model)
    return tokens / (clock() - began)


@dataclass(frozen=True)
class Look:
    """What was measured around ``read`` tokens, a value for each round: the rates of the matrices (operations a
    second), and in tokens a second of the stock forward, of reading and of the floor."""

    read: int
    cycles: int
    matrices: list[float]
    stock: list[float]
    reading: list[float]
    floor: list[float]
    peak_mib: float

    def line(self) -> str:
        """A row of the table: medians, of the ratios too."""
        middle = statistics.median
        of_stock = middle(ours / one for ours, one in zip(self.reading, self.stock, strict=True))
        of_floor = middle(ours / one for ours, one in zip(self.reading, self.floor, strict=True))
        return (
            f"{self.read:>10,}  {self.cycles:>6,}  {middle(self.matrices) / 1e9:>16.0f}  {middle(self.stock):>9.0f}  "
            f"{middle(self.reading):>11.0f}  {of_stock:>8.2f}  {of_floor:>12.2f}  {self.peak_mib:>8.0f}"
        )


def measure(text: Text, settings: PotSettings, rounds: int, clock: Callable[[], float]) -> Look:
    """``rounds`` of all three, one after the other; a reading's part is one cycle's tokens."""
    model, block, head = text.model, settings.block, REGISTRY[settings.method].novelty
    cycle = settings.capacity - settings.catalyst_room(len(CATALYST)) - len(PREFIX) - settings.kept
    fill = Fill(len(PREFIX) + settings.kept, cycle)
    operations = count(model, [fill], settings.capacity, head).total / cycle
    matrices, ordinary, ours = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        matrices.append(matrix_rate(model, block, clock))
        ordinary.append(rate(model, clock, block, lambda: stock(model, block, head)))
        ours.append(rate(model, clock, cycle, lambda: text.go(cycle)))
    floor = [each / operations for each in matrices]
    return Look(text.read, text.cycles, matrices, ordinary, ours, floor, peak_mib())


def draw_looks(path: Path, looks: Sequence[Look], title: str) -> None:
    """Rates and memory against the tokens read; bands from the slowest to the fastest round."""

    def points(name: str) -> list[Point]:
        rounds = [(look.read, getattr(look, name)) for look in looks]
        return [Point(read, statistics.median(own), min(own), max(own)) for read, own in rounds]

    rates = {"floor": points("floor"), "stock, empty cache": points("stock"), "reading": points("reading")}
    memory = [Point(look.read, look.peak_mib, look.peak_mib, look.peak_mib) for look in looks]
    draw(
        path,
        [
            Lines(title, "tokens read", "tokens a second", rates),
            Lines("memory", "tokens read", "peak MiB", {"reading": memory}),
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=70_000, help="read at least so many")
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--block", type=int, default=PotSettings.block)
    parser.add_argument("--method", default=PotSettings.method)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: where other programs run; with OMP_NUM_THREADS=1"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    options = parser.parse_args()
    with explained():
        run(options)


def run(options: argparse.Namespace) -> None:
    """Read and measure, a line at a time. Raises InfinipotError."""
    require_plots(options.plot)
    model = load_model(resolve(options.model), dtype=options.dtype, offline=True)
    settings = PotSettings(capacity=options.capacity, block=options.block, method=options.method)
    print(f"{options.model}, {model.device}, {model.dtype}, {torch.get_num_threads()} threads, {settings}")
    print("    tokens  cycles  matrices GFLOP/s  stock t/s  reading t/s  of stock  of the floor  peak MiB")
    text, mark, looks = Text(model, settings), 2 * options.capacity, list[Look]()
    while not looks or looks[-1].read < options.tokens:
        while text.read < mark:
            text.go(min(options.block, mark - text.read))
        looks.append(measure(text, settings, options.rounds, CLOCKS[options.clock]))
        print(looks[-1].line(), flush=True)
        mark = min(4 * mark, max(options.tokens, mark + 1))
    if options.plot:
        draw_looks(options.plot, looks, f"{options.model}, pot of {options.capacity:,}")


if __name__ == "__main__":
    main()
