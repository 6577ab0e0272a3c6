"""How fast and in how much memory does a pot read, against the model's own forward?

    python benchmarks/reading.py --tokens 4000 100000 [--capacity 2048]

For each length: tokens per second, distillation's share, the process's peak memory so far. Before and after, in the
same process, the stock model reads blocks of the same length on an empty cache, with and without its output layer:
the rate that reading cannot exceed, and the ratio to it.
"""

from __future__ import annotations

import argparse
import resource
import time

import torch

from engine.model import Model
from engine.models import load_model
from engine.pot import Batch
from engine.reader import Reader
from engine.settings import PotSettings
from infinipot_cli.models import resolve


def peak_mib() -> float:
    """Largest resident memory of this process so far (Linux: kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@torch.inference_mode()
def stock_rate(model: Model, block: int, head: bool, rounds: int = 6) -> float:
    """Tokens per second of the stock forward on an empty cache, median of ``rounds``."""
    ids = torch.randint(0, model.vocabulary, (1, block))
    run = model.module if head else model.base
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        run(input_ids=ids, use_cache=True)
        times.append(time.perf_counter() - began)
    return block / sorted(times[1:])[rounds // 2]


def read_rate(model: Model, settings: PotSettings, tokens: int) -> tuple[float, float, int]:
    """(tokens per second, share of the time spent distilling, cycles) of reading ``tokens`` random tokens."""
    generator = torch.Generator().manual_seed(0)
    reader = Reader(model, settings, [1], list(range(2, 26)))
    began = time.perf_counter()
    done = 0
    while done < tokens:
        count = min(4096, tokens - done)
        ids = torch.randint(0, model.vocabulary, (count,), generator=generator)
        reader.feed(Batch(ids, torch.arange(done, done + count), torch.zeros_like(ids)))
        done += count
    reader.finish()
    seconds = time.perf_counter() - began
    return tokens / seconds, reader.stats.seconds_distilling / seconds, reader.stats.cycles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[4_000, 20_000])
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--block", type=int, default=PotSettings.block)
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    model = load_model(resolve(options.model), offline=True)
    settings = PotSettings(capacity=options.capacity, block=options.block)
    print(f"{model.name}, {model.device}, {model.dtype}, {torch.get_num_threads()} threads, {settings}")
    ceiling = [stock_rate(model, options.block, head=True)]
    bare = stock_rate(model, options.block, head=False)
    for tokens in options.tokens:
        rate, share, cycles = read_rate(model, settings, tokens)
        ceiling.append(stock_rate(model, options.block, head=True))
        ratio = rate / (sum(ceiling[-2:]) / 2)
        print(
            f"{tokens:>10,} tokens  {rate:6.0f} tokens/s  {cycles:>5} cycles  distilling {share:5.1%}  "
            f"peak {peak_mib():6.0f} MiB  {ratio:5.2f} of the stock forward",
            flush=True,
        )
    span = f"{ceiling[0]:.0f}..{ceiling[-1]:.0f}"
    print(f"stock forward on blocks of {options.block}: {span} tokens/s with its output layer, {bare:.0f} without")


if __name__ == "__main__":
    main()
