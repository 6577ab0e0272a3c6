"""The receipt: what a run says it did. Lines on stderr for people, one object for ``--json`` (docs/json.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from infinipot_cli.terminal import one_line
from infinipot_cli.units import share, show_bytes, show_count, show_seconds

#: Skipped files that the receipt for people names.
SHOWN = 10


@dataclass
class Receipt:
    """Everything that a run can say about itself, filled in as it goes."""

    command: str
    question: str | None = None
    answer: str | None = None
    stop_reason: str | None = None
    interrupted: bool = False
    model: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    pot: dict[str, Any] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The object of ``--json``; what does not apply to the command is left out."""
        known = {name: value for name, value in vars(self).items() if value not in (None, {}, [])}
        timings = {name: round(seconds, 3) for name, seconds in self.timings.items()}
        return known | {"interrupted": self.interrupted, "timings": timings, "warnings": self.warnings}

    def lines(self) -> list[str]:
        """The receipt for people."""
        rows = [*self._source_rows(), *self._pot_rows(), *self._model_rows(), *self._time_rows()]
        return [f"{label:<8} {one_line(text)}" for label, text in rows]

    def _source_rows(self) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        for source in self.sources:
            rows.append(("read" if not rows else "", _source_line(source)))
            rows += [("", f"  skipped: {text}") for text in source.get("skipped", [])]
            rows += [("", f"  note: {text}") for text in source.get("warnings", [])]
        rows += [("skipped" if not index else "", text) for index, text in enumerate(self.skipped[:SHOWN])]
        if len(self.skipped) > SHOWN:
            rows.append(("", f"and {len(self.skipped) - SHOWN:,} more (--json lists them all)"))
        if self.interrupted:
            rows.append(("", "reading was interrupted: the rest was not read"))
        return rows

    def _pot_rows(self) -> list[tuple[str, str]]:
        pot = self.pot
        if not pot:
            return []
        parts = [
            show_fill(pot["entries"], pot["capacity"]),
            show_bytes(pot["bytes"]),
            show_count(pot["cycles"], "cycle"),
        ]
        if pot["cycles"] or self.tokens["kept"] < self.tokens["read"]:
            parts.append(f"keeps {_kept(self.tokens)} of {show_count(self.tokens['read'], 'token')}")
        else:
            parts.append(f"all {show_count(self.tokens['read'], 'token')} kept")
        if "file" not in pot and pot.get("file_dtype", self.model.get("dtype")) != self.model.get("dtype"):
            parts.append(f"saved in {pot['file_dtype']}")
        rows = [("pot", ", ".join(parts))]
        if "file" in pot:
            rows.append(("saved", f"{pot['file']} ({show_bytes(pot['file_bytes'])}, {pot['file_dtype']})"))
        return rows

    def _model_rows(self) -> list[tuple[str, str]]:
        model = self.model
        return [("model", f"{model['name']} on {model['device']}, {model['dtype']}")] if model else []

    def _time_rows(self) -> list[tuple[str, str]]:
        seconds, parts = self.timings, []
        if "loading" in seconds:
            parts.append(f"loading {show_seconds(seconds['loading'])}")
        if reading := seconds.get("reading"):
            speed = f"{self.tokens['read'] / reading:,.0f} tokens/s" if reading else ""
            parts.append(f"reading {show_seconds(reading)} ({speed})")
        if "answering" in seconds:
            written = show_count(self.tokens["answer"], "token")
            cut = ", cut off there" if self.stop_reason == "length" else ""
            parts.append(f"answering {show_seconds(seconds['answering'])} ({written}{cut})")
        return [("time", ", ".join(parts))] if parts else []


def show_fill(entries: int, capacity: int | None) -> str:
    """How full a pot is; ``capacity`` is None where nothing bounds it."""
    if capacity is None:
        return f"{show_count(entries, 'entry', 'entries')} (no bound)"
    return f"{entries:,} of {capacity:,} entries ({share(entries, capacity)})"


def _kept(tokens: dict[str, int]) -> str:
    return share(tokens.get("kept", 0), tokens.get("read", 0))


def _source_line(source: dict[str, Any]) -> str:
    parts = [str(source.get("name"))]
    if source.get("pages"):
        parts.append(show_count(source["pages"], source.get("unit", "page")))
    elif source.get("bytes"):
        parts.append(show_bytes(source["bytes"]))
    if source.get("tokens") is not None:
        parts.append(show_count(source["tokens"], "token"))
    if not source.get("complete", True):
        parts.append("not read to the end")
    return ", ".join(parts)
