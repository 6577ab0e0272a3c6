"""The options of the driver."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.gpu import decode, peers
from benchmarks.gpu.shapes import SHAPES
from engine.models import DTYPES

PARTS = ("tests", "cycles", "reading", "decode", "batch", "peers")


def count(text: str) -> int:
    """A number of tokens: 4096, 64k, 1m."""
    factor = {"k": 1000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    return round(float(text[:-1] if factor > 1 else text) * factor)


def one_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """An option that takes some of ``names``, between commas."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in names]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(names)}")
        return chosen

    return parse


def parse(description: str, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    real = [name for name in SHAPES if name != "tiny"]
    methods = [name for name in peers.PEERS if name not in ("transformers", "kvpress", "full", "snapkv")]
    add("--parts", type=one_of(PARTS), default=list(PARTS), help=f"between commas: {','.join(PARTS)}")
    add("--shapes", type=one_of(list(SHAPES)), default=real, help=f"between commas: {','.join(SHAPES)}")
    add("--tokens", type=count, default=1_000_000, help="tokens of the long text")
    add("--capacity", type=count, default=4096, help="|M|")
    add("--distilled", type=count, help="|C|, by default half of it")
    add("--block", type=count, default=2048, help="tokens of a forward pass")
    add("--methods", type=one_of(methods), default=["cap", "infinipot"], help="of reading; the first writes")
    add("--ways", type=one_of(decode.WAYS), default=list(decode.WAYS), help="of writing")
    add("--write", type=count, default=256, help="tokens of an answer")
    add("--documents", type=count, default=8, help="of a batch")
    add("--tokens-each", type=count, default=64_000, help="of a batch's documents")
    add("--peers", type=one_of(list(peers.PEERS)), default=list(peers.PEERS))
    add("--first", type=count, default=4096, help="the shortest length of the race")
    add("--last", type=count, default=1 << 20, help="the longest")
    add("--peer-limit", type=float, default=120.0, help="seconds to the first token that end a peer's race")
    add("--cycles", type=count, default=3, help="cycles under the profiler")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dtype", choices=sorted(DTYPES), default="bfloat16")
    add("--backend", help="compile the step of writing with this backend on any device, to try it")
    add("--seed", type=int, default=0)
    add("--time-limit", type=float, default=540.0, help="seconds for each part and shape")
    add("--out", type=Path, help="results, JSON lines; a run goes on with what is there")
    add("--plot", type=Path, help="the diagrams of the race (needs matplotlib)")
    add("--debug", action="store_true", help="show where a part failed, and stop there")
    add("--dry-run", action="store_true", help="only say what it will take")
    add("--assume-tflops", type=float, default=700.0, help="for --dry-run; an H100's matrix rate in bfloat16")
    add("--assume-bandwidth", type=float, default=3000.0, help="for --dry-run; GB/s")
    add("--assume-memory", type=float, default=78.0, help="for --dry-run; GiB")
    options = parser.parse_args(arguments)
    options.distilled = options.capacity // 2 if options.distilled is None else options.distilled
    if options.out is not None and not options.out.absolute().parent.is_dir():
        parser.error(f"there is no folder {options.out.absolute().parent}")
    return options
