"""How long reading takes, how fast answers are written, in how much memory, and how far all that is from the floor.

One process runs every method on every length several times, in the order A B A B, so that a machine that slows down
slows all of them down. Before each such round the rate is measured at which this machine multiplies the model's own
matrices; a reading's floor is its operations over that rate (``engine.measure``). No progress is drawn while a clock
runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.errors import ModelError
from engine.settings import GenerationSettings
from infinipot_cli.bench.harness import OUT_OF_MEMORY, Setup
from infinipot_cli.bench.memory import watched
from infinipot_cli.errors import is_out_of_memory
from infinipot_cli.prompts import Task
from infinipot_cli.workbench import Gauge, Generation, Reading, Session

#: The parts of the time, in the order in which they pass.
PARTS = ("reading", "distilling", "prompt", "writing")

clock = time.perf_counter


@dataclass(frozen=True)
class Timing:
    """One run: a document of about ``length`` tokens read by one method, and an answer written.

    ``seconds`` by part: reading (tokenising included), distilling (choosing and gathering entries), prompt (the
    question, until the first token is there; if the answer needs room, making it), writing (from the first token to
    the last). ``tokens`` of the document; ``protected`` before it; ``written`` tokens of the answer. Memory in bytes,
    measured as ``memory_how`` says. ``operations`` of the reading; ``matrix_rate`` operations a second.
    """

    method: str
    length: int
    repeat: int
    tokens: int = 0
    protected: int = 0
    written: int = 0
    cycles: int = 0
    entries: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory_before: int | None = None
    memory_peak: int | None = None
    memory_how: str = ""
    operations: int = 0
    matrix_rate: float = 0.0
    error: str | None = None

    @property
    def first_token(self) -> float:
        """Seconds until the first token of the answer."""
        return self._sum("reading", "distilling", "prompt")

    @property
    def total(self) -> float:
        """Seconds until the last token of the answer."""
        return self._sum(*PARTS)

    @property
    def distilling_share(self) -> float:
        """Distillation's share of the time to the first token (the paper's CD ratio), 0 to 1."""
        return self.seconds["distilling"] / self.first_token

    @property
    def reading_rate(self) -> float:
        """Document tokens read per second, distilling included."""
        return self.tokens / self._sum("reading", "distilling")

    @property
    def writing_rate(self) -> float | None:
        """Tokens written per second after the first; None where there was only one."""
        return (self.written - 1) / self.seconds["writing"] if self.written > 1 and self.seconds["writing"] else None

    @property
    def floor(self) -> float:
        """Seconds that the model's own operations take at the measured rate."""
        return self.operations / self.matrix_rate

    @property
    def times_floor(self) -> float:
        """How many times its floor reading took, distilling included."""
        return self._sum("reading", "distilling") / self.floor

    def _sum(self, *parts: str) -> float:
        return sum(self.seconds[part] for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, what follows from them included."""
        values = vars(self) | {"seconds": {part: round(value, 6) for part, value in self.seconds.items()}}
        if self.error is not None:
            return values
        names = ("first_token", "total", "distilling_share", "reading_rate", "writing_rate", "floor", "times_floor")
        return values | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Plan:
    """What is timed. ``document(tokens)`` gives the passages of a document of about so many tokens, the same at every
    call; ``after`` follows it; ``give_up``: a method that took longer than so many seconds to its first token is not
    tried on longer documents."""

    setups: Sequence[Setup]
    lengths: Sequence[int]
    repeats: int
    document: Callable[[int], Iterator[str]]
    task: Task
    after: str
    generation: GenerationSettings
    give_up: float | None = None


def time_all(session: Session, plan: Plan, tell: Callable[[str], None]) -> Iterator[Timing]:
    """Every length, repeat and method, in this order; each Timing as soon as it is known.

    A method for which memory ran out, or that took too long, is left out from then on.
    """
    gauge, given_up = session.gauge(), set[str]()
    for setup in plan.setups:
        tell(f"warming up {setup.name}")
        _warm_up(session, gauge, plan, setup)
    for length in sorted(plan.lengths):
        out = set(given_up)
        for repeat in range(plan.repeats):
            rate = gauge.matrix_rate(_rows(plan.setups))
            for setup in plan.setups:
                if setup.name in out:
                    continue
                tell(f"{setup.name}: {length:,} tokens, {repeat + 1} of {plan.repeats}")
                timing = time_one(session, gauge, plan, setup, length, repeat, rate)
                if timing.error is not None:
                    out.add(setup.name)
                if timing.error is not None or (plan.give_up is not None and timing.first_token > plan.give_up):
                    given_up.add(setup.name)
                yield timing


def _rows(setups: Sequence[Setup]) -> int:
    """Rows of the products that the rate is measured on: tokens of a forward pass."""
    return max(setup.settings.block for setup in setups)


def _warm_up(session: Session, gauge: Gauge, plan: Plan, setup: Setup) -> None:
    """A run that does not count: past the first cycle, if the shortest document gets there."""
    settings = setup.settings
    time_one(session, gauge, plan, setup, min(*plan.lengths, settings.capacity + settings.block), 0, 1.0)


def time_one(session: Session, gauge: Gauge, plan: Plan, setup: Setup, length: int, repeat: int, rate: float) -> Timing:
    """One run. Running out of memory is a Timing with an ``error``; so is a model that refuses the length."""
    passages = plan.document(length)
    try:
        with watched(gauge) as peak:
            run = _Run(session, gauge, plan, setup)
            run.read(passages)
            run.answer()
    except Exception as error:
        if not is_out_of_memory(error) and not isinstance(error, ModelError):
            raise
        message = OUT_OF_MEMORY if is_out_of_memory(error) else str(error)
        return Timing(setup.name, length, repeat, error=message)
    return Timing(
        method=setup.name,
        length=length,
        repeat=repeat,
        memory_before=peak.before,
        memory_peak=peak.most,
        memory_how=peak.how,
        operations=run.operations,
        matrix_rate=rate,
        **run.outcome(),
    )


class _Run:
    """Reads a document, then answers; with the clock on both."""

    def __init__(self, session: Session, gauge: Gauge, plan: Plan, setup: Setup) -> None:
        self._session, self._gauge, self._plan, self._setup = session, gauge, plan, setup
        framing = session.framing(plan.task.before, plan.task.system)
        self._prefix, self._suffix = framing.prefix_ids, framing.suffix_ids(plan.after)
        self._catalyst = self._suffix if setup.catalyst is None else framing.suffix_ids(setup.catalyst)
        self._pot: Any = None
        self._seconds = 0.0
        self._answer: Generation | None = None
        self._reading: Reading = session.reading(setup.settings, self._prefix, self._catalyst)

    def read(self, passages: Iterator[str]) -> None:
        """The clock stands still while the next passage is made."""
        offset = 0
        for passage in passages:
            began = clock()
            self._reading.read(passage, offset=offset, place=1, source=0, lines=False)
            self._seconds += clock() - began
            offset += len(passage)
        began = clock()
        self._pot = self._reading.finish()
        self._gauge.wait()
        self._seconds += clock() - began

    def answer(self) -> None:
        self._answer = self._session.generate(self._pot, self._suffix, self._plan.generation, None, None)

    @property
    def operations(self) -> int:
        tokens, protected, catalyst = self._reading.stats.tokens, len(self._prefix), len(self._catalyst)
        return self._gauge.operations(self._setup.settings, tokens, protected, catalyst)

    def outcome(self) -> dict[str, Any]:
        """What a Timing says of the run itself."""
        stats, answer = self._reading.stats, self._answer
        assert answer is not None
        return {
            "tokens": stats.tokens,
            "protected": len(self._prefix),
            "written": len(answer.token_ids),
            "cycles": stats.cycles,
            "entries": stats.entries,
            "seconds": {
                "reading": self._seconds - stats.seconds_distilling,
                "distilling": stats.seconds_distilling,
                "prompt": answer.seconds_prompt,
                "writing": answer.seconds_writing,
            },
        }
