"""--dry-run: what a run would take, without reading anything into a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine import estimate
from engine.settings import PotSettings
from infinipot_cli.counting_sources import count_sources
from infinipot_cli.errors import UsageError
from infinipot_cli.plan import Plan
from infinipot_cli.terminal import one_line
from infinipot_cli.units import show_bytes, show_count, show_seconds
from infinipot_cli.wiring import App
from infinipot_cli.wishes import Options, Wish, check_options, check_room, generation_settings, pot_settings
from infinipot_cli.workbench import Counter, Facts

# Tokens of a chat template ahead of the document and behind the question, roughly.
_BEFORE, _AFTER = 24, 6


@dataclass(frozen=True)
class Estimate:
    """What a run would take. ``seconds`` and ``pot_bytes`` are None where nothing tells, ``capacity`` without a bound.

    ``peak_entries`` is the most that is held at a time while reading.
    """

    sources: list[dict[str, Any]]
    tokens: int
    counted_with: str
    exact: bool
    capacity: int | None
    cycles: int
    entries: int
    peak_entries: int
    pot_bytes: int | None
    seconds: float | None
    seconds_measured: bool
    model: str


def dry_run(app: App, plan: Plan, options: Options, wish: Wish, each: bool = False) -> None:
    """Print the estimate, as lines or as JSON; one per document with ``each``. Settings that the run itself would
    refuse are refused here as well."""
    check_options(options)
    if plan.pot:
        raise UsageError(f"{plan.names[0]} is a pot: it was read already", hint="`infinipot pot info` describes it")
    terminal = app.terminal
    counter = app.workbench.counter(options.model, app.chosen("model"), terminal.say)
    facts = app.workbench.facts(options.model)
    settings = _settings(options, facts)
    _check_room(options, wish, settings, counter, facts)
    counted = count_sources(app, plan, options.inputs, counter)
    for sources in [[source] for source in counted] if each else [counted]:
        result = _estimate(sources, counter, facts, settings, wish)
        if terminal.json and each:
            terminal.write_json({"source": sources[0]["name"]} | vars(result), indent=None)
        elif terminal.json:
            terminal.write_json(vars(result))
        else:
            terminal.write("".join(f"{line}\n" for line in _lines(result)))


def _settings(options: Options, facts: Facts) -> PotSettings:
    if options.pot.pot_size is not None and facts.entry_bytes is None:
        raise UsageError(
            f"how many entries --pot-size holds depends on {facts.name}, which is not on this machine",
            hint="use --capacity, or fetch the model first",
        )
    return pot_settings(options.pot, facts.entry_bytes or 1)


def _check_room(options: Options, wish: Wish, settings: PotSettings, counter: Counter, facts: Facts) -> None:
    """Raise SettingsError or UsageError where question and answer fit no such pot, or cannot be written like that."""
    answer = generation_settings(options.answer, wish, settings, facts.name).max_new_tokens
    settings.check_room(_protected(counter, wish), _catalyst(counter, wish))
    check_room(settings, _protected(counter, wish) + counter.count(wish.after) + _AFTER + answer)


def _protected(counter: Counter, wish: Wish) -> int:
    return counter.count(wish.task.before) + _BEFORE


def _catalyst(counter: Counter, wish: Wish) -> int:
    return counter.count(wish.after if wish.catalyst.text is None else wish.catalyst.text) + _AFTER


def _estimate(
    sources: list[dict[str, Any]], counter: Counter, facts: Facts, settings: PotSettings, wish: Wish
) -> Estimate:
    tokens = sum(source["tokens"] for source in sources)
    protected, catalyst = _protected(counter, wish), _catalyst(counter, wish)
    entries = estimate.entries(tokens, settings, protected, catalyst)
    speed = facts.tokens_per_second
    return Estimate(
        sources=sources,
        tokens=tokens,
        counted_with=counter.name,
        exact=counter.exact,
        capacity=settings.capacity if settings.bounded else None,
        cycles=estimate.cycles(tokens, settings, protected, catalyst),
        entries=entries,
        peak_entries=estimate.peak(tokens, settings, protected, catalyst),
        pot_bytes=None if facts.entry_bytes is None else entries * facts.entry_bytes,
        seconds=None if speed is None else round(estimate.passed(tokens, settings, protected) / speed, 1),
        seconds_measured=facts.measured,
        model=facts.name,
    )


def _lines(result: Estimate) -> list[str]:
    lines = []
    for source in result.sources:
        pages = f"{show_count(source['pages'], source['unit'])}, " if source["pages"] else ""
        lines.append(f"{one_line(source['name'])}: {pages}{show_count(source['tokens'], 'token')}")
    about = "" if result.exact else "about "
    size = f", {show_bytes(result.pot_bytes)}" if result.pot_bytes is not None else ""
    lines.append(f"tokens: {about}{result.tokens:,} (counted with {result.counted_with})")
    fill = f"{result.entries:,} of {result.capacity:,} entries" if result.capacity else f"{result.entries:,} entries"
    held = f", {result.peak_entries:,} entries while reading" if result.capacity is None else ""
    lines.append(f"pot: {about}{fill}{size}, {show_count(result.cycles, 'cycle')}{held}")
    lines.append(f"time: {_time(result)}")
    return lines


def _time(result: Estimate) -> str:
    if result.seconds is None:
        return f"not known; {result.model} has not read on this machine yet"
    basis = "as fast as it read here last" if result.seconds_measured else "a guess from the size of the model"
    return f"about {show_seconds(result.seconds)} to read with {result.model} ({basis})"
