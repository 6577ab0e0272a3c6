"""The file of results: one JSON object a line, written whole and at once. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: What a result holds only for: a figure of another device or release is another figure.
PLACE = ("device", "memory", "dtype", "torch", "transformers", "cuda")


class Ledger:
    """Results by key: what was asked (``about``), where, and what was found. Without a ``path`` only in memory."""

    def __init__(self, path: Path | None, where: Mapping[str, Any]) -> None:
        self._path = path
        self._where = dict(where)
        self.records: list[dict[str, Any]] = []
        if path is not None and path.exists():
            _mend(path)
            self.records = [record for record in _lines(path) if _place(record) == self._where]

    def known(self, part: str, about: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result of the same question in the same place, if one is there that came to its end."""
        key = _key(part, about)
        return next((one for one in reversed(self.records) if one["key"] == key and one.get("stopped") is None), None)

    def add(self, part: str, about: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
        """Note a result; it is in the file when this returns."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"key": _key(part, about), "part": part, "when": when, **self._where, **about, **found}
        self.records.append(record)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        return record


def read(path: Path) -> list[dict[str, Any]]:
    """All results of a file; of the same question the last one. Raises ValueError, OSError."""
    return latest(_lines(path))


def latest(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the same question in the same place the last result: one that was stopped may have been finished later."""
    return list({(one["key"], json.dumps(_place(one))): one for one in records}.values())


def _key(part: str, about: Mapping[str, Any]) -> str:
    return json.dumps([part, dict(sorted(about.items()))])


def _place(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in PLACE if name in record}


def _mend(path: Path) -> None:
    """Cut off a last line that a broken run did not finish."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The records; a last line that was not finished is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]
