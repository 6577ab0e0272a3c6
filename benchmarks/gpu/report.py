"""What is made of results: tables with the floor beside each figure, the paper's words, the diagrams of its Figure 7.

Imports no torch: results can be drawn on another machine than the one that they were measured on.

    python -m benchmarks.gpu.report gpu.jsonl [--plot gpu.png] [--markdown]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.lines import PLACE, read
from infinipot_cli.bench import speed_report
from infinipot_cli.bench.curves import draw
from infinipot_cli.bench.harness import OUT_OF_MEMORY
from infinipot_cli.bench.plots import require_plots
from infinipot_cli.bench.speed import Timing
from infinipot_cli.bench.table import NOTHING, Table, as_markdown, as_text

_GIB, _MIB = 1 << 30, 1 << 20
#: What is the same for all runs of a race.
RACE = ("shape", "write", "capacity", "distilled", "block", "seed")
Record = dict[str, Any]

#: What the paper says of its own measurements (Mistral-7B-v0.3, GovReport, one A100-80GB; sections 4.5 and C.2).
PAPER = (
    "the paper (Mistral-7B-v0.3 on one A100-80GB, section C.2): context distillation takes 1 to 3 % of the time to the "
    "first token; SnapKV takes more than 70 GB at 80K tokens and does not run at about 100K",
    "the paper (section 4.5, Figure 7): InfiniPot-4K matches or beats SnapKV's time to the first token beyond 50K "
    "tokens, and writes at the same rate at any length",
)
#: Targets, by the name of the figure: what it must reach, or must not exceed.
SHARE, DISTILLING, BESIDE, FLAT, DECODE = 0.60, 0.01, _GIB, 0.01, 0.80


def tables(records: Sequence[Record]) -> list[Table]:
    """A table for every part that has results."""
    made = []
    for part, make in MAKERS.items():
        for found in _groups([record for record in records if record["part"] == part]):
            table = make(found)
            table.notes.append(_where(found))
            made.append(table)
    return made


def _groups(records: Sequence[Record]) -> list[list[Record]]:
    """What stands in one table: a race is that of one shape with the same settings in one place; of the rest,
    everything."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for one in records:
        key = tuple(one.get(name) for name in (*PLACE, *RACE)) if one["part"] == "peers" else ()
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def reading_table(records: Iterable[Record]) -> Table:
    """Reading against the matrix rate of the same run."""
    columns = (
        "shape", "method", "tokens", "first token s", "tokens/s", "TFLOP/s", "floor s", "of the rate", "distilling",
        "peak GiB", "beside MiB", "grows",
    )  # fmt: skip
    table = Table("Reading", columns, labels=2)
    for one in records:
        beside = None if one["peak"] is None else one["peak"] - one["weights"] - one["pot"]
        table.add(
            one["shape"],
            one["method"],
            _cut(one, f"{one['read']:,}"),
            f"{one['first_token']:.2f}",
            f"{one['tokens_per_second']:,.0f}",
            f"{one['matrix_rate'] / 1e12:.4g}",
            f"{one['floor']:.2f}",
            _judged(one["share"], SHARE, at_least=True),
            _judged(one["distilling_share"], DISTILLING),
            _maybe(one["peak"], lambda value: f"{value / _GIB:.2f}"),
            _maybe(beside, lambda value: f"{value / _MIB:,.0f}{'' if value <= BESIDE else ' !'}"),
            _maybe(one["flat"], lambda value: _judged(value, FLAT)),
        )
    table.notes += [
        "TFLOP/s: the model's own matrices on as many tokens as a block, before and after the reading; floor: its "
        "operations at that rate",
        f"! misses the target: {SHARE:.0%} of the rate, at most {DISTILLING:.0%} distilling, at most 1 GiB beside "
        f"weights and pot, peaks of the second to the last tenth within {FLAT:.0%}",
        PAPER[0],
    ]
    return table


def decode_table(records: Iterable[Record]) -> Table:
    """Writing against the rate at which memory gives the weights out."""
    columns = ("shape", "way", "tokens/s", "ceiling", "reached", "with the pot", "GB/s", "warm-up s")
    table = Table("Writing behind a full pot", columns, labels=2)
    for one in records:
        table.add(
            one["shape"],
            one["way"],
            f"{one['tokens_per_second']:,.1f}",
            f"{one['ceiling']:,.1f}",
            _judged(one["share"], DECODE, at_least=True),
            f"{one['share_with_pot']:.1%}",
            f"{one['bandwidth'] / 1e9:,.0f}",
            f"{one['warm_up']:.1f}",
        )
    table.notes.append(
        "ceiling: the bandwidth of a copy, measured in the same run, over the bytes of the weights; with the pot: over "
        f"those and the pot's; ! misses the target of {DECODE:.0%}"
    )
    return table


def batch_table(records: Iterable[Record]) -> Table:
    """Several documents at once, and one after another."""
    columns = ("shape", "how", "documents", "tokens each", "s", "tokens/s", "floor s", "of the rate", "peak GiB")
    table = Table("Several documents", columns, labels=2)
    for one in records:
        table.add(
            one["shape"],
            one["how"],
            str(one["documents"]),
            _cut(one, f"{one['read']:,}"),
            f"{one['seconds']:.2f}",
            f"{one['tokens_per_second']:,.0f}",
            f"{one['floor']:.2f}",
            f"{one['share']:.1%}",
            _maybe(one["peak"], lambda value: f"{value / _GIB:.2f}"),
        )
    return table


def cycles_table(records: Iterable[Record]) -> Table:
    """Where the host waits, and how long the device does."""
    columns = ("shape", "method", "on", "layers", "launches a cycle", "waits a cycle", "device idle")
    table = Table("Cycles", columns, labels=3)
    for one in records:
        waits = sum(wait["per_cycle"] for wait in one["waits"])
        idle = one.get("idle_share")
        table.add(
            one["shape"],
            one["method"],
            one["on"],
            str(one["layers"]),
            f"{sum(one['launches'].values()):,.0f}",
            f"{waits:,.0f}",
            _maybe(idle, lambda value: f"{value:.1%}"),
        )
        phases = ", ".join(f"{phase} {count:,.0f}" for phase, count in one["launches"].items())
        table.notes.append(f"{one['shape']}, {one['method']}, on {one['on']}: launches {phases}")
        table.notes += [
            f"  {wait['where']} {wait['kind']}, {wait['per_cycle']:g} times a cycle: {wait['line']}"
            for wait in one["waits"]
        ]
        table.notes += [f"  {name}: {count:g} a cycle" for name, count in one.get("synchronising", {}).items()]
        table.notes += [f"  {share:6.1%}  {name}" for name, share in one.get("kernels", [])]
    return table


def timings(records: Iterable[Record]) -> list[Timing]:
    """Peers' results as the timings that `infinipot bench speed` makes tables and diagrams of."""
    return [_timing(one) for one in records]


def _timing(one: Record) -> Timing:
    if one["error"] is not None:
        error = OUT_OF_MEMORY if "memory" in one["error"] else one["error"]
        return Timing(one["peer"], one["length"], 0, error=error)
    return Timing(
        method=one["peer"],
        length=one["length"],
        repeat=0,
        tokens=one["length"],
        written=one["written"],
        cycles=one["cycles"],
        entries=one["entries"],
        seconds={part: one[part] for part in ("reading", "distilling", "prompt", "writing")},
        memory_before=one["before"],
        memory_peak=one["peak"],
        memory_how="CUDA memory that tensors took at most" if one["peak"] is not None else "not measured",
        operations=one["operations"],
        matrix_rate=one["matrix_rate"],
    )


def peers_table(records: Sequence[Record]) -> Table:
    """The table of the paper's Tables 5 and 6."""
    table = speed_report.make_table(f"Peers: {records[0]['shape']}", timings(records))
    table.notes += [
        *PAPER,
        "the figures of its Tables 5 and 6 are not quoted: the copy at hand holds their captions only",
    ]
    return table


MAKERS: dict[str, Callable[[list[Record]], Table]] = {
    "reading": reading_table,
    "decode": decode_table,
    "batch": batch_table,
    "cycles": cycles_table,
    "peers": peers_table,
}


def plot(records: Iterable[Record], path: Path) -> None:
    """The four diagrams of Figure 7 for every race; of several, each in a file of its own."""
    races = _groups([record for record in records if record["part"] == "peers"])
    for raced in races:
        own = path if len(races) == 1 else path.with_stem(f"{path.stem}-{raced[0]['shape']}")
        draw(own, speed_report.diagrams(timings(raced)))


def _where(records: Sequence[Record]) -> str:
    """The machines and libraries that the figures are from."""
    said = (f"{one['device']}, torch {one['torch']}, transformers {one['transformers']}" for one in records)
    return "; ".join(dict.fromkeys(said))


def _cut(one: Record, text: str) -> str:
    return text if one["stopped"] is None else f"{text} (out of {one['stopped']})"


def _judged(value: float, target: float, at_least: bool = False) -> str:
    """A share in per cent, with ! where it misses its target."""
    good = value >= target if at_least else value <= target
    return f"{value:.1%}" if good else f"{value:.1%} !"


def _maybe(value: Any, show: Callable[[Any], str]) -> str:
    return NOTHING if value is None else show(value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    require_plots(options.plot)
    records = read(options.results)
    for table in tables(records):
        sys.stdout.write((as_markdown if options.markdown else as_text)(table) + "\n")
    if options.plot is not None:
        plot(records, options.plot)


if __name__ == "__main__":
    main()
