"""Tables of what the reader's evaluation found: plain model beside reader, each number with its 95 % interval."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.reader_cases import says_nothing
from benchmarks.reader_logs import right
from infinipot_cli.bench.harness import Outcome
from infinipot_cli.bench.scoring import contains, exact, token_f1
from infinipot_cli.bench.table import NOTHING, Table

#: Model's name -> its outcomes.
Found = Mapping[str, Sequence[Outcome]]
Measure = Callable[[Sequence[Any]], float]


def mean_of(score: Callable[[Outcome], float]) -> Measure:
    """The mean of a score over outcomes; nan for none."""
    return lambda some: sum(score(outcome) for outcome in some) / len(some) if some else math.nan


def contained(outcome: Outcome) -> float:
    """Whether an accepted answer stands in the answer."""
    return _scored(contains, outcome.answer, outcome.accepted)


def f1(outcome: Outcome) -> float:
    """Token F1 with the nearest accepted answer."""
    return _scored(token_f1, outcome.answer, outcome.accepted)


def exactly(outcome: Outcome) -> float:
    """Whether the answer is an accepted one and nothing else."""
    return _scored(exact, outcome.answer, outcome.accepted)


@lru_cache(None)
def _scored(rule: Callable[[str, tuple[str, ...]], float], answer: str, accepted: tuple[str, ...]) -> float:
    """A score, kept: resampling asks for it a thousand times."""
    return float(rule(answer, accepted))


def words(outcome: Outcome) -> float:
    """How long the answer is."""
    return float(len(outcome.answer.split()))


def refused(outcome: Outcome) -> float:
    """Whether the answer is that the document does not say."""
    return _scored(_refused, outcome.answer, ())


def _refused(answer: str, _: tuple[str, ...]) -> float:
    return float(says_nothing(answer))


def recall(outcomes: Sequence[Outcome]) -> float:
    """Of the questions without an answer, the share that was met with "does not say"; nan where there are none."""
    return mean_of(refused)([outcome for outcome in outcomes if not outcome.labels["answerable"]])


def precision(outcomes: Sequence[Outcome]) -> float:
    """Of the answers "does not say", the share that was given to questions without an answer; nan for none."""
    said = [outcome for outcome in outcomes if refused(outcome)]
    return mean_of(lambda outcome: 1.0 - float(outcome.labels["answerable"]))(said)


def bootstrap(some: Sequence[Any], measure: Measure, rounds: int = 1000, seed: int = 0) -> tuple[float, float, float]:
    """(value, 2.5 % and 97.5 % quantile over resamples) of any measure; nan where it is undefined."""
    value = measure(some) if some else math.nan
    if math.isnan(value):
        return (math.nan,) * 3
    chance = random.Random(seed)
    drawn = sorted(v for _ in range(rounds) if not math.isnan(v := measure(chance.choices(some, k=len(some)))))
    return value, drawn[int(0.025 * len(drawn))], drawn[min(int(0.975 * len(drawn)), len(drawn) - 1)]


def shown(found: tuple[float, float, float], digits: int = 2, sign: str = "") -> str:
    """A value with its interval in brackets, or a dash."""
    value, low, high = found
    if math.isnan(value):
        return NOTHING
    return f"{value:{sign}.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def difference(before: Sequence[Outcome], after: Sequence[Outcome], measure: Measure) -> tuple[float, float, float]:
    """after - before with its interval, the cases resampled together: the same questions are on both sides."""
    known = {outcome.case: outcome for outcome in before}
    pairs = [(known[outcome.case], outcome) for outcome in after if outcome.case in known]
    return bootstrap(pairs, lambda some: measure([b for _, b in some]) - measure([a for a, _ in some]))


def _columns(found: Found) -> list[str]:
    return [*found, *(["difference"] if len(found) == 2 else [])]


def _compared(found: Found, measure: Measure, digits: int = 2) -> list[str]:
    """One cell per model, and their difference where there are two."""
    cells = [shown(bootstrap(outcomes, measure), digits) for outcomes in found.values()]
    if len(found) == 2:
        before, after = found.values()
        cells.append(shown(difference(before, after, measure), digits, "+"))
    return cells


def chosen(found: Found, keep: Callable[[Outcome], Any]) -> dict[str, list[Outcome]]:
    """The outcomes that ``keep`` is true of, by model."""
    return {name: [outcome for outcome in outcomes if keep(outcome)] for name, outcomes in found.items()}


def answerable(outcome: Outcome) -> bool:
    """Whether the document answers the question."""
    return bool(outcome.labels["answerable"])


def _count(found: Found) -> str:
    return str(max((len(outcomes) for outcomes in found.values()), default=0))


def gold_table(found: Found) -> Table:
    """(1) and (3): the document alone; by source where there are several."""
    table = Table("The question's own document alone", ["measure", "n", *_columns(found)], labels=1)
    asked = chosen(found, answerable)
    for name, score in (("answer contained", contained), ("token F1", f1), ("exact match", exactly), ("words", words)):
        table.add(name, _count(asked), *_compared(asked, mean_of(score)))
    unanswered = chosen(found, lambda outcome: not answerable(outcome))
    table.add("does not say: recall", _count(unanswered), *_compared(found, recall))
    table.add("does not say: precision", _count(found), *_compared(found, precision))
    sources = _labels(asked, "source")
    for source in sources if len(sources) > 1 else ():
        own = chosen(asked, lambda outcome, source=source: outcome.labels["source"] == source)
        table.add(f"{source}: contained", _count(own), *_compared(own, mean_of(contained)))
    return table


def _labels(found: Found, name: str) -> list[Any]:
    """The values of a label, in the order in which they came."""
    every = (outcome for outcomes in found.values() for outcome in outcomes)
    return list(dict.fromkeys(outcome.labels[name] for outcome in every if name in outcome.labels))


def _setups(found: Found) -> list[str]:
    """Ways of reading by size, then by name."""
    names = {outcome.setup for outcomes in found.values() for outcome in outcomes}
    return sorted(
        names, key=lambda name: (int(name.rpartition(" ")[2]), name != f"pot {name.rpartition(' ')[2]}", name)
    )


def hidden_tables(found: Found, gold: Found) -> list[Table]:
    """(2): answers by length and way of reading, with what is left of the score with the document alone, on the same
    questions; (3): saying that nothing is said."""
    columns = ["tokens", "way", "n", *_columns(found)]
    columns += [f"of gold, {name}" for name in found]
    contained_table = Table("Hidden among other paragraphs: answer contained", columns, labels=2)
    f1_table = Table("Hidden among other paragraphs: token F1", ["tokens", "way", "n", *_columns(found)], labels=2)
    columns = ["tokens", "way", "n", *(f"{name}, {what}" for what in ("recall", "precision") for name in found)]
    silent = Table('Hidden among other paragraphs: "does not say"', columns, labels=2)
    for length in sorted(_labels(found, "length")):
        for setup in _setups(found):
            both = chosen(found, lambda o, at=(length, setup): (o.labels["length"], o.setup) == at)
            asked = chosen(both, answerable)
            shares = [shown(share_of_gold(asked[name], gold.get(name, ()))) for name in found]
            first = (str(length), setup)
            contained_table.add(*first, _count(asked), *_compared(asked, mean_of(contained)), *shares)
            f1_table.add(*first, _count(asked), *_compared(asked, mean_of(f1)))
            cells = [shown(bootstrap(both[name], measure)) for measure in (recall, precision) for name in found]
            silent.add(*first, _count(both), *cells)
    return [contained_table, f1_table, silent]


def share_of_gold(hidden: Sequence[Outcome], gold: Sequence[Outcome]) -> tuple[float, float, float]:
    """Answers contained where the paragraph is hidden over answers contained where it stands alone, same questions."""
    alone = {_question(outcome): outcome for outcome in gold}
    pairs = [(outcome, alone[_question(outcome)]) for outcome in hidden if _question(outcome) in alone]

    def ratio(some: Sequence[tuple[Outcome, Outcome]]) -> float:
        below = sum(contained(other) for _, other in some)
        return sum(contained(outcome) for outcome, _ in some) / below if below else math.nan

    return bootstrap(pairs, ratio)


def _question(outcome: Outcome) -> str:
    """The part of a case's id that names the question: source, hash and kind are its end."""
    return " ".join(outcome.case.split(" ")[-3:])


def needle_table(found: Found) -> Table:
    """(4): by task, length and depth."""
    table = Table("Needles found", ["task", "tokens", "depth", "n", *_columns(found)], labels=2)
    for task in _labels(found, "task"):
        for length in sorted(_labels(found, "length")):
            for depth in sorted(_labels(found, "depth")):
                at = (task, length, depth)
                group = chosen(found, lambda o, at=at: tuple(o.labels[k] for k in ("task", "length", "depth")) == at)
                table.add(task, str(length), str(depth), _count(group), *_compared(group, mean_of(_score)))
    return table


def _score(outcome: Outcome) -> float:
    return outcome.score


def book_table(found: Found) -> Table:
    """(5): how many questions of the demo book are answered, by way of reading."""
    table = Table("The demo book's questions answered", ["way", "n", *found])
    for setup in dict.fromkeys(outcome.setup for outcomes in found.values() for outcome in outcomes):
        group = chosen(found, lambda outcome, setup=setup: outcome.setup == setup)
        table.add(setup, _count(group), *(f"{sum(o.score for o in group[name]):.0f}" for name in found))
    return table


def summary_table(found: Found) -> Table:
    """(6): ROUGE-L with the reference, times 100."""
    table = Table("Summaries of held-back documents", ["measure", "n", *_columns(found)])
    table.add("ROUGE-L", _count(found), *_compared(found, mean_of(lambda outcome: 100 * outcome.score), 1))
    table.add("words", _count(found), *_compared(found, mean_of(words), 0))
    return table


def log_table(found: Found) -> Table:
    """(7): how many of the faults in logs are listed, and how much of what is listed is one, by the logs' lines."""
    table = Table("Logs: what went wrong", ["lines", "measure", "n", *_columns(found)])
    for lines in _labels(found, "lines"):
        group = chosen(found, lambda outcome, lines=lines: outcome.labels["lines"] == lines)
        for name, measure in (("faults listed", _score), ("lines that are a fault", _right)):
            table.add(str(lines), name, _count(group), *_compared(group, mean_of(measure)))
    return table


def _right(outcome: Outcome) -> float:
    return right(outcome.answer, outcome.accepted)


def prose_table(found: Found) -> Table:
    """(8): perplexity per token; outcomes hold -log p summed over a passage as ``score`` and its tokens."""
    table = Table("Perplexity on held-back text", ["text", "n", *found, "ratio"])
    for kind in ("all", *_labels(found, "kind")):
        group = chosen(found, lambda outcome, kind=kind: kind in ("all", outcome.labels["kind"]))
        ratio = shown(bootstrap(_paired(group), _ratio), 3) if len(found) == 2 else NOTHING
        table.add(str(kind), _count(group), *(shown(bootstrap(own, perplexity)) for own in group.values()), ratio)
    return table


def perplexity(outcomes: Sequence[Outcome]) -> float:
    """exp of -log p per token over all passages."""
    return math.exp(sum(outcome.score for outcome in outcomes) / sum(outcome.tokens for outcome in outcomes))


def _paired(found: Found) -> list[tuple[Outcome, Outcome]]:
    before, after = found.values()
    known = {outcome.case: outcome for outcome in before}
    return [(known[outcome.case], outcome) for outcome in after if outcome.case in known]


def _ratio(pairs: Sequence[tuple[Outcome, Outcome]]) -> float:
    return perplexity([after for _, after in pairs]) / perplexity([before for before, _ in pairs])


def tables(found: Found) -> Iterable[Table]:
    """Every table that the outcomes give."""
    parts = {part: chosen(found, lambda o, part=part: o.labels["part"] == part) for part in _labels(found, "part")}
    makers: dict[str, Callable[[Found], Iterable[Table]]] = {
        "gold": lambda part: [gold_table(part)],
        "hidden": lambda part: hidden_tables(part, parts.get("gold", {})),
        "needles": lambda part: [needle_table(part)],
        "book": lambda part: [book_table(part)],
        "summaries": lambda part: [summary_table(part)],
        "logs": lambda part: [log_table(part)],
        "prose": lambda part: [prose_table(part)],
    }
    for part, make in makers.items():
        if part in parts:
            yield from make(parts[part])


def write_texts(path: Path, found: Found, documents: Mapping[str, str]) -> None:
    """Document, reference and every model's summary, one below the other, to be read by eye."""
    lines: list[str] = []
    summaries = chosen(found, lambda outcome: outcome.labels["part"] == "summaries")
    for case in dict.fromkeys(outcome.case for outcomes in summaries.values() for outcome in outcomes):
        lines += [f"## {case}", "", documents.get(case, ""), ""]
        for name, outcomes in summaries.items():
            for outcome in (outcome for outcome in outcomes if outcome.case == case):
                reference = [f"**reference**: {outcome.accepted[0]}", ""]
                lines += [*(reference if name == next(iter(summaries)) else []), f"**{name}**: {outcome.answer}", ""]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
