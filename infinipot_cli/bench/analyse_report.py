"""What ``bench analyse`` says: tables, JSON and pictures of its studies (``engine.study``), averaged over cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from infinipot_cli.bench.curves import Lines, Point, draw
from infinipot_cli.bench.options import BenchOptions
from infinipot_cli.bench.table import NOTHING, Table, show
from infinipot_cli.terminal import Terminal
from infinipot_cli.units import show_count

Record = Mapping[str, Any]
_PARTS = 10
_GLOBAL = "global scoring"


def report(terminal: Terminal, bench: BenchOptions, model: Mapping[str, Any], records: Sequence[Record]) -> None:
    """The tables on stdout, or everything as JSON; and the picture."""
    if terminal.json:
        terminal.write_json({"bench": "analyse", "model": dict(model), "studies": [dict(record) for record in records]})
    else:
        for number, table in enumerate((kept_table(model, records), overlap_table(records), place_table(records))):
            if table.rows:
                terminal.write("\n" if number else "")
                show(terminal, table, bench.markdown)
    if bench.plot is not None:
        draw(bench.plot, diagrams(records))
        terminal.say(f"drawn: {bench.plot}")


def ways_of(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The results of every way, case by case."""
    found: dict[str, list[Record]] = {}
    for record in records:
        for way in record["ways"]:
            found.setdefault(way["name"], []).append(way)
    return found


def kept_table(model: Mapping[str, Any], records: Sequence[Record]) -> Table:
    """How much of what matters is still there in the end (Figure 2, top; Figure 3, bottom)."""
    tokens = fmean(record["tokens"] for record in records)
    title = f"{model['name']}: {show_count(len(records), 'document')} of {tokens:,.0f} tokens"
    table = Table(
        title, ["method", "kept", "hit rate", "by chance", "attention", "cycles", "last: hit rate", "novelty"]
    )
    for name, ways in ways_of(records).items():
        table.add(
            name,
            f"{fmean(way['kept'] for way in ways):,.0f}",
            _percent(way["hit"] for way in ways),
            _percent(way["chance"] for way in ways),
            _percent(way["mass"] for way in ways),
            f"{fmean(len(way['read']) for way in ways):.0f}",
            _percent(way["hit_cycles"][-1] for way in ways if way["read"]),
            _percent(_novelty(way) for way in ways if way["read"]),
        )
    table.notes += [
        "per cent; means over layers and KV heads, in the end, and after the last cycle (last: hit rate, novelty)",
        "hit rate: kept tokens among as many to which the first answered token attends most with all in memory",
        "attention: of its attention to the document, what falls on kept tokens",
        "novelty: of the highest that as many tokens could have",
    ]
    return table


def overlap_table(records: Sequence[Record]) -> Table:
    """What one way keeps that another keeps, too, after the first cycles, the last, and in the end (Figure 3, top)."""
    table = Table("the same tokens kept", ["method", "as", "1st cycle", "2nd", "4th", "last", "in the end"], labels=2)
    for name, ways in ways_of(records).items():
        pairs = [way["overlap"] for way in ways if way["overlap"]]
        if not pairs:
            continue
        cycles = [pair["cycles"] for pair in pairs]
        cells = [_percent(found[at] for found in cycles if len(found) > at) for at in (0, 1, 3)]
        last = _percent(found[-1] for found in cycles if found)
        table.add(name, pairs[0]["with"], *cells, last, _percent(pair["final"] for pair in pairs))
    table.notes.append("per cent of what is kept in a slot; – where the cycles of the two end at different tokens")
    return table


def place_table(records: Sequence[Record]) -> Table:
    """Where in the document the kept tokens stand (Figure 2, bottom, over all heads)."""
    columns = [f"{100 * part // _PARTS}–{100 * (part + 1) // _PARTS}" for part in range(_PARTS)]
    table = Table("where the kept tokens stand (per cent of the document)", ["method", *columns])
    rows = [(name, [way["frequency"] for way in ways]) for name, ways in ways_of(records).items()]
    for name, counts in [*rows, (_GLOBAL, [record["global"]["frequency"] for record in records])]:
        sums = [sum(map(sum, _by_part(counts, part))) for part in range(_PARTS)]
        table.add(name, *(f"{100 * value / max(sum(sums), 1):.0f}" for value in sums))
    table.notes.append("per cent of all kept tokens; global scoring: as many of highest attention with all in memory")
    return table


def _by_part(counts: Sequence[Any], part: int) -> list[list[int]]:
    """The counts of all slots in the bins of one part of the document."""
    rows = [bins for case in counts for heads in case for bins in heads]
    return [bins[part * len(bins) // _PARTS : (part + 1) * len(bins) // _PARTS] for bins in rows]


def _novelty(way: Record) -> float:
    highest = way["highest_novelty"][-1]
    return float(way["novelty"][-1] / highest) if highest else 0.0


def _percent(values: Any) -> str:
    known = list(values)
    return f"{100 * fmean(known):.1f}" if known else NOTHING


def diagrams(records: Sequence[Record]) -> list[Lines]:
    """Hit rate by layer, overlap and novelty over cycles, and how often tokens are kept in the first and last layer."""
    ways = ways_of(records)
    made = [
        Lines("Hit rate in the end", "layer", "%", {name: _by_layer(found) for name, found in ways.items()}, log=False),
        Lines("Hit rate after cycles", "tokens read", "%", _hits(ways), log=False),
        Lines("Same tokens kept", "tokens read", "%", dict(_overlaps(ways)), log=False),
        Lines("Novelty of what is kept", "tokens read", "nats per slot", _novelties(ways), log=False),
    ]
    layers = records[0]["global"]["layers"]
    for layer in dict.fromkeys((layers[0], layers[-1])):
        title = f"Kept per KV head, layer {layer}"
        lines = {name: _places(found, layer, lambda way: way) for name, found in ways.items()}
        lines[_GLOBAL] = _places(records, layer, lambda record: record["global"])
        made.append(Lines(title, "% of the document", "tokens", lines, log=False))
    return [diagram for diagram in made if diagram.lines]


def _by_layer(ways: Sequence[Record]) -> list[Point]:
    """Per cent by layer, with the range of the heads."""
    points = []
    for row, layer in enumerate(ways[0]["layers"]):
        heads = [100 * value for way in ways for value in way["hits"][row] if value is not None]
        points.append(Point(layer, fmean(heads), min(heads), max(heads)))
    return points


def _hits(ways: Mapping[str, Sequence[Record]]) -> dict[str, list[Point]]:
    return {name: _over(found, "hit_cycles", 100) for name, found in ways.items() if found[0]["read"]}


def _overlaps(ways: Mapping[str, Sequence[Record]]) -> Any:
    for name, found in ways.items():
        pairs = [way["overlap"] for way in found if way["overlap"] and way["overlap"]["cycles"]]
        if pairs:
            yield f"{name} / {pairs[0]['with']}", _over(pairs, "cycles", 100)


def _novelties(ways: Mapping[str, Sequence[Record]]) -> dict[str, list[Point]]:
    lines = {name: _over(found, "novelty") for name, found in ways.items() if found[0]["read"]}
    if lines:
        lines["highest possible"] = _over(ways[next(iter(lines))], "highest_novelty")
    return lines


def _over(found: Sequence[Record], what: str, scale: float = 1) -> list[Point]:
    """Values over the tokens read, as far as all cases go, with the range of the cases."""
    points = []
    for at in range(min(len(item[what]) for item in found)):
        values = [scale * item[what][at] for item in found]
        points.append(Point(fmean(item["read"][at] for item in found), fmean(values), min(values), max(values)))
    return points


def _places(found: Sequence[Record], layer: int, part: Callable[[Record], Record]) -> list[Point]:
    """Kept tokens per head of a layer in each bin of the document, with the range of the heads."""
    rows = [part(item) for item in found]
    heads = [bins for row in rows for bins in row["frequency"][row["layers"].index(layer)]]
    count = len(heads[0])
    return [
        Point(100 * (at + 0.5) / count, fmean(values), min(values), max(values))
        for at, values in enumerate(zip(*heads, strict=True))
    ]
