"""What a run would take, said before it is begun."""

from __future__ import annotations

import argparse

from benchmarks.gpu import batch, peers, plan, reading
from benchmarks.gpu.arithmetic import Reading
from benchmarks.gpu.shapes import SHAPES

MINUTES = 60.0


def estimates(o: argparse.Namespace) -> list[plan.Estimate]:
    """What every part will take at the assumed rates, by arithmetic."""
    rates = plan.Rates(o.assume_tflops * 1e12, o.assume_bandwidth * 1e9, o.assume_memory * 2**30)
    found: list[plan.Estimate] = []
    for shape in (SHAPES[name] for name in o.shapes):
        for method in o.methods if "reading" in o.parts else ():
            parts = Reading(
                o.tokens, o.capacity, o.distilled, reading.PREFIX, reading.QUESTION, novelty=method == "infinipot"
            )
            found.append(plan.reading(shape, f"{method}, {o.tokens:,} tokens", parts, o.block, rates))
        if "decode" in o.parts:
            found += [plan.decode(shape, way, o.write, o.capacity, rates) for way in o.ways]
        if "batch" in o.parts:
            found += [batch.estimate(shape, batch.wanted(o, shape, how), rates) for how in batch.HOWS]
        if "peers" in o.parts:
            lengths = list(peers.doubled(o.first, o.last))
            way = plan.Race(lengths, o.block, o.capacity, o.distilled, o.peer_limit)
            found += [plan.peer(shape, name, way, rates) for name in o.peers]
    return found


def show_plan(o: argparse.Namespace) -> str:
    """The estimates as a table, with their sum."""
    lines = [
        f"assumed: {o.assume_tflops:g} TFLOP/s in bfloat16, {o.assume_bandwidth:g} GB/s, {o.assume_memory:g} GiB; "
        f"reading at {plan.READ_SHARE:.0%} of its floor's rate, writing at {plan.WRITE_SHARE:.0%}; an estimate",
        f"{'part':8} {'shape':14} {'what':32} {'floor s':>9} {'about s':>9} {'peak GiB':>9}",
    ]
    total = len(o.shapes) * plan.BUILD
    for one in estimates(o):
        fits = "" if one.peak <= o.assume_memory * 2**30 else "  does not fit"
        seconds = min(one.seconds, o.time_limit) if not fits else 0.0
        total += seconds
        lines.append(
            f"{one.part:8} {one.shape:14} {one.what:32} {one.floor:9.1f} {seconds:9.1f} {one.peak / 2**30:9.1f}{fits}"
        )
    extra = [part for part in ("tests", "cycles") if part in o.parts]
    lines.append(
        f"about {total / MINUTES:.0f} minutes" + (f", and one or two for {' and '.join(extra)}" if extra else "")
    )
    return "\n".join(lines)
