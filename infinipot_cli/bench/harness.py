"""The benchmark harness: cases × setups through a Session, in the framing, wording and distillation of `ask`.

A **case** is one question to one document; a **setup** is one way of keeping a pot; an **outcome** is the answer and
its score. ``run_all`` takes the cases in order and runs every setup on each before the next case (A B A B), so that a
machine that slows down slows all of them down.

Several questions to one document: give their cases the same ``text`` and put them one after the other. Where a setup
distils without the question (a literal catalyst, CaP-G), the document is then read once and all are put to the same
pot; where the question is the catalyst (CaP-Q) the pot depends on it, so each is read anew, as `ask` does. Setups that
follow each other and differ in ``focus`` alone share a pot as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.bench.results import Results, digest
from infinipot_cli.errors import UsageError, is_out_of_memory
from infinipot_cli.prompts import Task
from infinipot_cli.wishes import check_room as require_room
from infinipot_cli.wishes import refusal, usual_doubt, usual_focus
from infinipot_cli.workbench import Framing, Session, Stats

Label = int | float | str
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Case:
    """One question to one document.

    ``id`` names the case among all of its benchmark, and everything that makes it: length, depth, trial, seed.
    ``document`` gives the passages anew at every call, so that a text of any length is never held. ``accepted`` is
    what the scorer compares with. ``labels`` are the columns that a table is made of. ``text`` names the document
    for cases that share one (see the module); ``max_new_tokens`` replaces the run's own; ``tokens`` is about how long
    the document is, for progress and estimates.
    """

    id: str
    document: Callable[[], Iterable[str]]
    question: str
    accepted: tuple[str, ...]
    labels: Mapping[str, Label] = field(default_factory=dict)
    text: str | None = None
    max_new_tokens: int | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class Setup:
    """One way of keeping a pot. ``catalyst``: the literal text (CaP-G), or None for the question itself (CaP-Q).

    ``focus``: the most entries that answers are written from, 0 for all, or None for what the task says.
    """

    name: str
    settings: PotSettings
    catalyst: str | None = None
    focus: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a case under a setup.

    ``score`` is the scorer's, 0.0 if there was an ``error``. ``tokens`` counts those of the document, ``cycles`` the
    distillations, ``entries`` what the pot held per layer and head before the question. ``seconds``: reading (without
    distilling), distilling, first_token (the question), writing; where a pot was shared, all questions carry the
    same reading. ``key`` is what resuming compares; ``run`` names the header line of the file.
    """

    case: str
    setup: str
    answer: str
    score: float
    tokens: int = 0
    cycles: int = 0
    entries: int = 0
    answer_tokens: int = 0
    stop_reason: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    error: str | None = None
    key: str = ""
    run: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a line of JSON."""
        seconds = {name: round(value, 4) for name, value in self.seconds.items()}
        return vars(self) | {"seconds": seconds, "labels": dict(self.labels), "accepted": list(self.accepted)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Outcome:
        """The outcome of such a line. Raises TypeError or KeyError for anything else."""
        return cls(**{**values, "accepted": tuple(values["accepted"])})


#: (answer, the case) -> score.
Scorer = Callable[[str, Case], float]


class Watch(Protocol):
    """Whom a benchmark tells how far it is."""

    def start(self, total: int, known: int, others: int) -> None:
        """``total`` outcomes are wanted, ``known`` of them are in the file, which holds ``others`` as well."""

    def begin(self, case: Case, setup: Setup) -> None: ...

    def reading(self, stats: Stats) -> None: ...

    def done(self, outcome: Outcome, resumed: bool) -> None: ...


class Unwatched:
    """Nobody."""

    def start(self, total: int, known: int, others: int) -> None: ...

    def begin(self, case: Case, setup: Setup) -> None: ...

    def reading(self, stats: Stats) -> None: ...

    def done(self, outcome: Outcome, resumed: bool) -> None: ...


@dataclass
class Held:
    """A pot that has read a case's document, and what that took; ``waited``: seconds more until a GPU was done."""

    pot: Any
    stats: Stats
    waited: float = 0.0


def read_case(session: Session, case: Case, setup: Setup, task: Task, watch: Watch | None = None) -> Held:
    """Read the case's document into a pot, as `ask` does. Raises SettingsError where the pot has no room."""
    framing = session.framing(task.before, task.system)
    reading = session.reading(setup.settings, framing.prefix_ids, _catalyst_ids(framing, case, setup, task))
    watch = watch or Unwatched()
    offset = 0
    for passage in case.document():
        reading.read(passage, offset=offset, place=1, source=0, lines=False)
        offset += len(passage)
        watch.reading(reading.stats)
    pot, began = reading.finish(), time.perf_counter()
    session.gauge().wait()
    return Held(pot, reading.stats, time.perf_counter() - began)


def _catalyst_ids(framing: Framing, case: Case, setup: Setup, task: Task) -> list[int]:
    return framing.suffix_ids(task.turn(case.question) if setup.catalyst is None else setup.catalyst)


def run_case(
    session: Session,
    case: Case,
    setup: Setup,
    task: Task,
    generation: GenerationSettings,
    scorer: Scorer,
    read: Callable[[], Held],
) -> Outcome:
    """Answer one case from the pot that ``read`` gives, and score it.

    Running out of memory is an outcome, with an ``error`` and score 0. Raises SettingsError where settings, question
    and answer do not go together.
    """
    try:
        held = read()
        suffix = session.framing(task.before, task.system).suffix_ids(task.turn(case.question))
        result = session.generate(held.pot, suffix, generation_of(case, setup, generation), None, None)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return Outcome(case.id, setup.name, "", 0.0, labels=case.labels, accepted=case.accepted, error=OUT_OF_MEMORY)
    stats = held.stats
    return Outcome(
        case=case.id,
        setup=setup.name,
        answer=result.text,
        score=float(scorer(result.text, case)),
        tokens=stats.tokens,
        cycles=stats.cycles,
        entries=stats.entries,
        answer_tokens=len(result.token_ids),
        stop_reason=result.stop_reason,
        seconds={
            "reading": stats.seconds_reading + held.waited,
            "distilling": stats.seconds_distilling,
            "first_token": result.seconds_prompt,
            "writing": result.seconds_writing,
        },
        labels=case.labels,
        accepted=case.accepted,
    )


#: What a pot depends on: the document, the settings, and the catalyst, which may be the question.
Origin = tuple[str, PotSettings, str | None, str | None]


def origin_of(case: Case, setup: Setup) -> Origin:
    """Cases and setups with the same one have the same pot."""
    question = case.question if setup.catalyst is None else None
    return (_document(case), setup.settings, setup.catalyst, question)


def _document(case: Case) -> str:
    """The same for cases that share a document."""
    return case.text or f"\0{case.id}"


def generation_of(case: Case, setup: Setup, generation: GenerationSettings) -> GenerationSettings:
    """The run's way of writing, with the case's own length and the setup's own focus where they have one."""
    focus = generation.focus if setup.focus is None else setup.focus or None
    return replace(generation, max_new_tokens=case.max_new_tokens or generation.max_new_tokens, focus=focus)


def outcome_key(
    case: Case, setup: Setup, task: Task, generation: GenerationSettings, identity: Mapping[str, Any], about: Any = None
) -> str:
    """What must be the same for an outcome to count as this one: a hash of everything that the answer depends on."""
    wording = {"system": task.system, "before": task.before, "after": task.after}
    written = vars(generation_of(case, setup, generation))
    asked = [case.id, case.question, case.accepted]
    return digest([asked, setup.name, setup.settings.to_dict(), setup.catalyst, wording, written, identity, about])


def run_all(
    session: Session,
    cases: Sequence[Case],
    setups: Sequence[Setup],
    out: Path | None,
    *,
    bench: str,
    task: Task,
    generation: GenerationSettings,
    scorer: Scorer,
    seed: int = 0,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    taught: bool = True,
) -> list[Outcome]:
    """Every case under every setup, in the order of the cases; each outcome a line of ``out`` as soon as it is known.

    Answers are written from as many entries and with as much doubt as suits task and model, and repeat themselves as
    little as the task says, unless ``generation`` or the setup says it. Where the wording is not the one that the model
    was ``taught``, its own focus and doubt are left out.
    ``bench`` is the benchmark's name and ``about`` whatever else its outcomes depend on; both are part of what an
    outcome is known by. Outcomes that ``out`` holds already, of the same case, setup, wording, model and version,
    are taken from there, but for those with an error. Raises UsageError for a file that holds something else than
    results, or for two cases of one id, or two setups of one name.
    """
    generation = replace(
        generation,
        focus=generation.focus or (usual_focus(task, session.name) if taught else task.focus),
        no_repeat=generation.no_repeat or task.no_repeat,
        avoid=generation.avoid or task.avoid,
        whole_sentences=generation.whole_sentences or task.whole_sentences,
        lines_once=generation.lines_once or task.lines_once,
        refusal=generation.refusal or (refusal(usual_doubt(task, session.name)) if taught else None),
    )
    _require_distinct("cases", [case.id for case in cases])
    _require_distinct("setups", [setup.name for setup in setups])
    header = {
        "bench": bench,
        "seed": seed,
        "about": dict(about or {}),
        "model": session.describe() | {"identity": session.identity()},
        "task": {"name": task.name, "system": task.system, "before": task.before, "after": list(task.after)},
        "generation": vars(generation),
        "setups": [{**vars(setup), "settings": setup.settings.to_dict()} for setup in setups],
    }
    for setup in setups:
        check_room(session, cases, setup, task, generation)
    with Results(out, header) as results:
        return list(_Loop(session, setups, task, generation, scorer, results, watch or Unwatched()).run(cases))


def check_room(
    session: Session, cases: Sequence[Case], setup: Setup, task: Task, generation: GenerationSettings
) -> None:
    """Raise SettingsError where the longest question would leave no room to read or to answer, before hours of
    reading."""
    if not setup.settings.bounded:
        return
    framing = session.framing(task.before, task.system)
    longest = {case.max_new_tokens: case for case in sorted(cases, key=lambda case: len(case.question))}
    for case in longest.values():
        answer = generation_of(case, setup, generation).max_new_tokens
        suffix = framing.suffix_ids(task.turn(case.question))
        setup.settings.check_room(len(framing.prefix_ids), len(_catalyst_ids(framing, case, setup, task)))
        require_room(setup.settings, len(framing.prefix_ids) + len(suffix) + answer)


class _Loop:
    """One ``run_all``."""

    def __init__(
        self,
        session: Session,
        setups: Sequence[Setup],
        task: Task,
        generation: GenerationSettings,
        scorer: Scorer,
        results: Results,
        watch: Watch,
    ) -> None:
        self.session, self.setups, self.task, self.generation = session, setups, task, generation
        self.scorer, self.results, self.watch = scorer, results, watch
        described = session.describe()
        self._last: tuple[Origin, Held] | None = None
        self.identity = {**session.identity(), "device": described.get("device"), "dtype": described.get("dtype")}

    def run(self, cases: Sequence[Case]) -> Iterator[Outcome]:
        keys = {self._key(case, setup) for case in cases for setup in self.setups}
        self.watch.start(len(keys), len(keys & self.results.keys), len(self.results.keys - keys))
        for _, group in groupby(cases, key=_document):
            together = list(group)
            for setup in self.setups:
                yield from self._setup(together, setup)

    def _setup(self, cases: Sequence[Case], setup: Setup) -> Iterator[Outcome]:
        """Cases of one document under one setup."""
        for case in cases:
            key = self._key(case, setup)
            known = self.results.known(key)
            if known is not None:
                outcome = Outcome.from_dict(known)
            else:
                self.watch.begin(case, setup)
                outcome = self._run(case, setup, key)
                self.results.add(outcome.to_dict())
            self.watch.done(outcome, resumed=known is not None)
            yield outcome

    def _pot(self, case: Case, setup: Setup) -> Held:
        """The case's pot: the last one, if the same was read for the same."""
        wanted = origin_of(case, setup)
        if self._last is None or self._last[0] != wanted:
            self._last = None  # never two at once
            self._last = (wanted, read_case(self.session, case, setup, self.task, self.watch))
        return self._last[1]

    def _run(self, case: Case, setup: Setup, key: str) -> Outcome:
        read = partial(self._pot, case, setup)
        outcome = run_case(self.session, case, setup, self.task, self.generation, self.scorer, read)
        return replace(outcome, key=key, run=self.results.run)

    def _key(self, case: Case, setup: Setup) -> str:
        return outcome_key(case, setup, self.task, self.generation, self.identity, self.results.scope)


def _require_distinct(what: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two {what} of a benchmark have the name {twice!r}")
