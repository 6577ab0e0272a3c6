"""How near does reading come to what it must cost, and does that last?

    python benchmarks/reading.py --tokens 1000000 [--capacity 2048] [--clock cpu]

One process reads one endless text. After the first cycles, and whenever the text read has grown fourfold, it
measures in turn, over and over: the rate at which this machine multiplies the model's own matrices; the stock model's
own forward on blocks of the same length with an empty cache (with its output layer if the method needs novelty); and
the reading of whole cycles. It prints the medians, the reading over the stock forward, the floor (operations over the
matrix rate) over the time taken, and the process's largest memory so far.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch

from engine.measure import Fill, count, matrix_rate
from engine.methods import REGISTRY
from engine.model import Model
from engine.models import load_model
from engine.pot import Batch
from engine.reader import Reader
from engine.settings import PotSettings
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
    (model.module if head else model.base)(input_ids=torch.randint(0, model.vocabulary, (1, block)), use_cache=True)


def peak_mib() -> float:
    """Largest resident memory of this process so far (Linux: kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rate(clock: Callable[[], float], tokens: int, work: Callable[[], object]) -> float:
    """Tokens per second."""
    began = clock()
    work()
    return tokens / (clock() - began)


def measure(text: Text, settings: PotSettings, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Medians over ``rounds``, each of all three one after the other; a reading's part is one cycle's tokens."""
    model, block, head = text.model, settings.block, REGISTRY[settings.method].novelty
    cycle = settings.capacity - len(CATALYST) - len(PREFIX) - settings.kept
    fill = Fill(len(PREFIX) + settings.kept, cycle)
    operations = count(model, [fill], settings.capacity, head).total / cycle
    found: dict[str, list[float]] = {"matrix": [], "stock": [], "ours": []}
    for _ in range(rounds):
        found["matrix"].append(matrix_rate(model, block, clock))
        found["stock"].append(rate(clock, block, lambda: stock(model, block, head)))
        found["ours"].append(rate(clock, cycle, lambda: text.go(cycle)))
    middle = {name: statistics.median(values) for name, values in found.items()}
    return middle | {
        "of stock": statistics.median(ours / one for ours, one in zip(found["ours"], found["stock"], strict=True)),
        "of floor": statistics.median(
            ours * operations / one for ours, one in zip(found["ours"], found["matrix"], strict=True)
        ),
    }


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
    options = parser.parse_args()
    model = load_model(resolve(options.model), dtype=options.dtype, offline=True)
    settings = PotSettings(capacity=options.capacity, block=options.block, method=options.method)
    print(f"{model.name}, {model.device}, {model.dtype}, {torch.get_num_threads()} threads, {settings}")
    print("    tokens  cycles  matrices GFLOP/s  stock t/s  reading t/s  of stock  of the floor  peak MiB")
    text, mark = Text(model, settings), 2 * options.capacity
    while True:
        while text.read < mark:
            text.go(min(options.block, mark - text.read))
        found = measure(text, settings, options.rounds, CLOCKS[options.clock])
        print(
            f"{text.read:>10,}  {text.cycles:>6,}  {found['matrix'] / 1e9:>16.0f}  {found['stock']:>9.0f}  "
            f"{found['ours']:>11.0f}  {found['of stock']:>8.2f}  {found['of floor']:>12.2f}  {peak_mib():>8.0f}",
            flush=True,
        )
        if text.read >= options.tokens:
            return
        mark = min(4 * mark, max(options.tokens, mark + 1))


if __name__ == "__main__":
    main()
