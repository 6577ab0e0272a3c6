"""What a run of the peers says, as lines, table and picture.

python benchmarks/peers/report.py peers.jsonl [--plot peers.png]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.explained import explained
from benchmarks.peers.common import Case
from benchmarks.peers.supervise import Run
from infinipot_cli.bench.plots import lengths_across, new_figure, powers_up, require_plots, save
from infinipot_cli.bench.scoring import contains
from infinipot_cli.bench.table import NOTHING, Table, as_text
from infinipot_cli.errors import UsageError

Line = dict[str, Any]

COLUMNS = ("tokens", "peer", "load s", "first token s", "read tok/s", "write tok/s", "peak MiB", "pass key", "question")
PANELS = (
    ("seconds_first", "time to first token, s"),
    ("read_rate", "tokens read a second"),
    ("peak_mib", "peak resident memory, MiB"),
)


def outcomes(ended: Run, cases: Sequence[Case]) -> Iterator[Line]:
    """A line for each answer, with what it says of speed and memory, and one for how the process ended, if not well.

    Rates: tokens of the whole document, its question included, over the time to the first token; new tokens after the
    first over the time that they took.
    """
    asked = {case.id: case for case in cases}
    loaded = next((event for event in ended.events if event["event"] == "loaded"), {})
    for event in ended.events:
        if event["event"] != "answered":
            continue
        case = asked[event["case"]]
        answer = {name: value for name, value in event.items() if name not in ("event", "seconds")}
        yield {
            **answer,
            "outcome": "ok",
            "kind": case.kind,
            "accepted": list(case.accepted),
            "right": contains(event["text"], case.accepted),
            "seconds_load": loaded["seconds"],
            "versions": loaded["versions"],
            "read_rate": event["prompt_tokens"] / event["seconds_first"],
            "write_rate": (event["written"] - 1) / max(event["seconds_writing"], 1e-9),
        }
    if ended.ended != "ok":
        yield {"outcome": ended.ended, "message": ended.message, "peak_mib": ended.peak_mib}


def table(lines: Sequence[Line], title: str) -> Table:
    """One row for each length and peer; medians over the documents, the largest peak, right answers of those asked.

    A peer that stopped has a word in place of its numbers, and says more below the table.
    """
    peers = list(dict.fromkeys(line["peer"] for line in lines))
    made = Table(title, COLUMNS, labels=2)
    for length in sorted({line["length"] for line in lines}):
        for peer in peers:
            own = [line for line in lines if (line["length"], line["peer"]) == (length, peer)]
            if own:
                made.add(f"{length:,}", peer, *_numbers(own))
    stopped = [line for line in lines if line["outcome"] != "ok"]
    made.notes += [f"{line['length']:,} {line['peer']}: {stopped_by(line)}" for line in stopped]
    return made


def _numbers(lines: Sequence[Line]) -> tuple[str, ...]:
    done = [line for line in lines if line["outcome"] == "ok"]
    if not done:
        return (lines[0]["outcome"], *(NOTHING,) * (len(COLUMNS) - 3))
    return (
        f"{_median(done, 'seconds_load'):.1f}",
        f"{_median(done, 'seconds_first'):.1f}",
        f"{_median(done, 'read_rate'):.0f}",
        f"{_median(done, 'write_rate'):.1f}",
        f"{max(line['peak_mib'] for line in done):.0f}",
        _hits(done, "passkey"),
        _hits(done, "question"),
    )


def said(line: Line) -> str:
    """One line about a line, for who waits."""
    start = f"{line['length']:>9,}  {line['peer']:<9}"
    if line["outcome"] != "ok":
        return f"{start}  {stopped_by(line)}"
    mark = "right" if line["right"] else "wrong"
    return f"{start}  {line['kind']:<8}  {line['seconds_first']:.1f} s  {mark}  {line['text']!r}"


def stopped_by(line: Line) -> str:
    """Why a peer gave no answer."""
    reasons = {"time": "out of time", "memory": "out of memory", "context": "beyond its context", "absent": "not here"}
    return f"{reasons.get(line['outcome'], line['outcome'])}: {line['message']}"


def _median(lines: Iterable[Line], name: str) -> float:
    return statistics.median(line[name] for line in lines)


def _hits(lines: Sequence[Line], kind: str) -> str:
    asked = [line for line in lines if line["kind"] == kind]
    return f"{sum(line['right'] for line in asked)}/{len(asked)}" if asked else NOTHING


def plot(lines: Sequence[Line], target: Path) -> None:
    """Time, rate and memory over length, one line a peer. Raises InfinipotError where it cannot be written."""
    figure = new_figure(5 * len(PANELS), 4)
    done = [line for line in lines if line["outcome"] == "ok"]
    for panel, (name, title) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for peer in dict.fromkeys(line["peer"] for line in done):
            own = [line for line in done if line["peer"] == peer]
            lengths = sorted({line["length"] for line in own})
            values = [_median((line for line in own if line["length"] == length), name) for length in lengths]
            panel.plot(lengths, values, marker="o", label=peer)
        panel.set(title=title, xlabel="tokens")
        lengths_across(panel, {line["length"] for line in done})
        powers_up(panel)
        panel.grid(alpha=0.3)
    if done:
        panel.legend()
    save(figure, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    with explained():
        report(options.results, options.plot)


def report(results: Path, picture: Path | None) -> None:
    """Table, and picture if asked for."""
    require_plots(picture)
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    if len({json.dumps(line.get("settings"), sort_keys=True) for line in lines}) > 1:
        raise UsageError(f"{results.name} holds runs with different settings", hint="give each its own --out")
    print(as_text(table(lines, results.name)), end="")
    if picture:
        plot(lines, picture)


if __name__ == "__main__":
    main()
