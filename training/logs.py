"""Logs made in code, with a list of what went wrong in them: what `summarize --task logs` learns to write.

A log is what some programs say while all is well, with a few faults among it: a message that comes once, or again and
again. The list has a line for each fault, in the order in which they began: the first line that tells of it, from its
level on. (A small model copies better than it words, and finds what to copy by where the copy begins: at the start of a
line nothing tells yet that a fault comes.)
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from training.corpus import Ask, Text
from training.needles import ip_address

NOTHING_WRONG = "No errors or warnings."
LINES = (4, 60)  # of a log, drawn evenly on a logarithmic scale
MOST_FAULTS = 5
MOST_TIMES = 12  # that a fault comes
#: Shares of the logs in which all is well, and of those that a web server wrote: its lines have a form of their own.
WELL, WEB = 0.2, 0.15
_WEB = "httpd"
#: Where a line of each form is copied from: its level, or its message where it has none.
_BEGINS = ("{line.message}", "{line.level} ", "{line.level} ", "{line.level}: ", "{line.level[0]}", "level=", "{{")
FORMS = len(_BEGINS)

_HOLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Line:
    """A message of a program; ``fault`` is the number of the fault that it tells of."""

    program: str
    pid: int
    level: str
    message: str
    fault: int | None = None
    when: datetime = datetime.min


def log(rng: random.Random, lines: int | None = None) -> Text:
    """One log of about so many lines, with its list as the only answer."""
    count = lines or int(LINES[0] * (LINES[1] / LINES[0]) ** rng.random())
    others = sorted(_said()["programs"].keys() - {_WEB})
    programs = [_WEB] if rng.random() < WEB else rng.sample(others, rng.choice((1, 1, 2, 3)))
    speakers = [Line(program, rng.randint(100, 32000), "INFO", "") for program in programs]
    said = [_well(rng.choice(speakers), rng) for _ in range(count)]
    if rng.random() > WELL:
        known = [(who, fault) for who in speakers for fault in _said()["programs"][who.program]["faults"]]
        wanted = rng.randint(1, min(MOST_FAULTS, 1 + count // 8))
        for number, (who, fault) in enumerate(rng.sample(known, min(wanted, len(known)))):
            for line in _fault(who, fault, number, count, rng):
                said.insert(rng.randint(0, len(said)), line)
    timed = list(_timed(said, rng))
    form, host = rng.randrange(FORMS), _word("machine", rng)
    document = "".join(f"{laid_out(line, form, host)}\n" for line in timed)
    faults = begun(timed)
    told = "\n".join(f"- {told_of(fault, form, host)}" for fault in faults) or NOTHING_WRONG
    messages = tuple(_said_in(fault) for fault in faults) or (NOTHING_WRONG,)
    return Text("logs", "made in code", "", document, [Ask("", told, messages, "summary")])


def begun(lines: Sequence[Line]) -> list[Line]:
    """The first line of each fault, in order."""
    firsts: dict[int, Line] = {}
    for line in lines:
        if line.fault is not None:
            firsts.setdefault(line.fault, line)
    return list(firsts.values())


def told_of(line: Line, form: int, host: str) -> str:
    """The line as it stands, from its level on; from its message on where it has no level."""
    whole = laid_out(line, form, host)
    begin = _said_in(line) if line.program == _WEB else _BEGINS[form].format(line=line)
    return whole[whole.index(begin) :]


def _said_in(line: Line) -> str:
    """The message as it stands in a line: a web server has the time in the middle of it."""
    return line.message[line.message.index('"') :] if line.program == _WEB else line.message


def _well(who: Line, rng: random.Random) -> Line:
    return replace(who, message=_filled(rng.choice(_said()["programs"][who.program]["well"]), rng))


def _fault(who: Line, fault: str, number: int, count: int, rng: random.Random) -> Iterator[Line]:
    """The lines of one fault: the same words each time, or others in the same sentence."""
    level, _, template = fault.partition(" ")
    times = 1 if rng.random() < 0.5 else rng.randint(2, min(MOST_TIMES, 2 + count // 6))
    message, same = _filled(template, rng), rng.random() < 0.5
    for time in range(times):
        yield replace(who, level=level, message=message if same or not time else _filled(template, rng), fault=number)


def _timed(lines: Sequence[Line], rng: random.Random) -> Iterator[Line]:
    now = datetime(2018, 1, 1) + timedelta(seconds=rng.randrange(8 * 365 * 86_400))
    pause = 3 ** rng.uniform(-1, 5)  # seconds between two lines, on average
    for line in lines:
        now += timedelta(seconds=int(rng.expovariate(1 / pause)))
        yield replace(line, when=now)


def laid_out(line: Line, form: int, host: str) -> str:
    """A line of the log in one of the ``FORMS``; a web server's has its own."""
    when, level, who, message = line.when, line.level, line.program, line.message
    if who == _WEB:
        before, quote, request = message.partition('"')
        return f'{before}[{when:%d/%b/%Y:%H:%M:%S} +0000] {quote}{request} "-" "Mozilla/5.0"'
    return (
        f"{when:%b %d %H:%M:%S} {host} {who}[{line.pid}]: {message}",
        f"{when:%Y-%m-%d %H:%M:%S},{line.pid % 1000:03} {level} {who}: {message}",
        f"{when:%Y-%m-%dT%H:%M:%S}Z {level} [{who}] {message}",
        f"[{when:%Y-%m-%d %H:%M:%S}] {who}.{level}: {message}",
        f"{level[0]}{when:%m%d %H:%M:%S} {line.pid} {who}] {message}",
        f'ts={when:%Y-%m-%dT%H:%M:%S} level={level.lower()} component={who} msg="{message}"',
        json.dumps({"level": level.lower(), "time": f"{when:%Y-%m-%dT%H:%M:%S}", "logger": who, "msg": message}),
    )[form]


def _filled(template: str, rng: random.Random) -> str:
    return _HOLE.sub(lambda hole: _word(hole[1], rng), template)


def _word(kind: str, rng: random.Random) -> str:
    match kind:
        case "n":
            return str(rng.randint(100, 99_999))
        case "d":
            return str(rng.randint(1, 60))
        case "ms":
            return str(rng.randint(3, 30_000))
        case "c":
            return rng.choice("abc")
        case "ip":
            return ip_address(rng)
    return str(rng.choice(_said()["words"][kind]))


@cache
def _said() -> dict[str, Any]:
    """What programs say, and the words in it (logs.yaml)."""
    known: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("logs.yaml").read_text(encoding="utf-8"))
    return known
