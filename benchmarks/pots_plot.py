"""The picture of pots.py: what each --pot-dtype takes in seconds, and what it loses for the bytes that it saves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pots_parts import FileTimes
from infinipot_cli.bench.harness import Outcome
from infinipot_cli.bench.plots import new_figure, save

_WIDTH = 0.25  # of a bar
_MIB = 1 << 20


def draw(path: Path, times: Sequence[FileTimes], outcomes: Sequence[Outcome]) -> None:
    """Bars of seconds by dtype, and divergence from the raw pot's predictions by bytes of the file and part."""
    figure = new_figure(9.0, 3.6)
    seconds, loss = figure.subplots(1, 2)
    dtypes = [each.dtype for each in times]
    for number, name in enumerate(("save", "load", "floor")):
        places = [place + (number - 1) * _WIDTH for place in range(len(times))]
        seconds.bar(places, [getattr(each, name) for each in times], _WIDTH, label=name)
    seconds.set_xticks(range(len(times)), dtypes)
    seconds.set_ylabel("seconds")
    seconds.set_title("a file (floor: its bytes read)", fontsize=10)
    seconds.legend(fontsize=8)
    sizes = {each.dtype: each.bytes / _MIB for each in times}
    for part in dict.fromkeys(str(outcome.labels["part"]) for outcome in outcomes):
        loss.plot(list(sizes.values()), [divergence(outcomes, part, dtype) for dtype in dtypes], "o-", label=part)
    for dtype, size in sizes.items():
        loss.annotate(dtype, (size, 0), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=8)
    loss.set_ylim(bottom=0)
    loss.set_xlabel("MiB")
    loss.set_ylabel("KL, nats a token")
    loss.set_title("predictions, beside the raw pot's", fontsize=10)
    loss.legend(fontsize=8)
    save(figure, path)


def divergence(outcomes: Sequence[Outcome], part: str, dtype: str) -> float:
    """Mean of the answers' ``kl`` of one part from a pot in ``dtype``."""
    found = (o for o in outcomes if o.labels["part"] == part and o.setup == dtype)
    return statistics.fmean(float(outcome.labels["kl"]) for outcome in found)
