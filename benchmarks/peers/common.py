"""What the side that measures and the peers' own processes say to each other. Standard library only: it runs in every
peer's interpreter.

A worker gets a job as a JSON file and answers with one JSON object a line on its standard output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """One document and one question. The prompt is ``before`` + the text of the file ``document`` + ``after``."""

    id: str
    kind: str
    document: str
    before: str
    after: str
    question: str
    accepted: tuple[str, ...]

    def text(self) -> str:
        """The document."""
        return Path(self.document).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Job:
    """What one worker has to do: load, then answer each case with ``new_tokens`` tokens, whatever it writes.

    ``length`` is how many tokens prompt and answer take together, ``budget`` how many entries a peer with a bound may
    keep, the answer included.
    """

    model: str
    gguf: str
    length: int
    budget: int
    new_tokens: int
    threads: int
    settings: dict[str, Any]
    cases: tuple[Case, ...] = ()

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Job:
        values = json.loads(path.read_text(encoding="utf-8"))
        cases = tuple(Case(**{**case, "accepted": tuple(case["accepted"])}) for case in values.pop("cases"))
        return cls(**values, cases=cases)


@dataclass(frozen=True)
class Answer:
    """What a peer wrote, up to the first stop token, and how long it took.

    ``prompt_tokens`` is the whole document with its question, also for a peer that reads only a part of it.
    ``seconds_first`` runs from the text to the first new token, ``seconds_writing`` from there to the last of
    ``written``. ``parts`` holds what a peer wants to add.
    """

    text: str
    prompt_tokens: int
    seconds_first: float
    seconds_writing: float
    written: int
    parts: dict[str, float] = field(default_factory=dict)


class Peer(Protocol):
    """A loaded system that answers."""

    def answer(self, case: Case) -> Answer: ...

    def versions(self) -> dict[str, str]:
        """Its libraries."""


def until_stop(ids: Sequence[int], stops: Sequence[int]) -> list[int]:
    """The ids before the first stop token."""
    end = next((i for i, token in enumerate(ids) if token in stops), len(ids))
    return list(ids[:end])


def peak_mib() -> float:
    """Largest resident memory of this process so far, in MiB, what it maps from files included.

    Linux's own mark, because ``getrusage`` there also counts the parent that started this process.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (MIB if sys.platform == "darwin" else 1024)


def own_stdout() -> TextIO:
    """The standard output for events alone: whatever a library prints there goes to stderr from now on."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return events


def emit(events: TextIO, event: str, **values: Any) -> None:
    """One event: a line of JSON, flushed."""
    events.write(json.dumps({"event": event, **values}) + "\n")
    events.flush()
