"""LongBench's examples: from a folder, from the official data.zip, or from the hub; checked line by line."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from infinipot_cli import hub
from infinipot_cli.errors import InputError, reason

HUB_ID = "THUDM/LongBench"
ARCHIVE = "data.zip"
_SUFFIX = ".jsonl"


@dataclass(frozen=True)
class Example:
    """Line ``number`` of a task: ``words`` is its official length, 0 where the line does not say."""

    number: int
    id: str
    context: str
    question: str
    answers: tuple[str, ...]
    classes: tuple[str, ...]
    words: int


@dataclass(frozen=True)
class Data:
    """Where each task's lines are: ``open`` gives a new stream of them; ``name`` is what errors call them."""

    name: str
    members: dict[str, Callable[[], IO[bytes]]]

    def examples(self, task: str, only: int | None = None) -> Iterator[Example]:
        """The task's examples, in order, or that of one line. Raises InputError for a line that is none, and for a
        damaged file."""
        where = f"{self.name}: {task}{_SUFFIX}"
        with _readable(where), self.members[task]() as lines:
            for number, line in enumerate(lines, 1):
                if line.strip() and only in (None, number):
                    yield _example(line, number, f"{where}, line {number}")

    def require(self, tasks: Iterable[str]) -> None:
        """Raise InputError unless every one of ``tasks`` is here."""
        missing = [task for task in tasks if task not in self.members]
        if missing:
            there = ", ".join(sorted(self.members)) or "no task of LongBench"
            raise InputError(
                f"{self.name} holds no {missing[0]}{_SUFFIX}", hint=f"it holds {there}; choose with --tasks"
            )


def open_data(path: Path | None, known: Sequence[str], offline: bool) -> Data:
    """The examples in a folder (``TASK.jsonl`` in it or in its ``data``, or a ``data.zip``), in an archive, or,
    without a ``path``, of the hub. ``known`` names the tasks to look for.

    Raises InputError where there is nothing of the kind, or the hub does not give it.
    """
    if path is None:
        path = hub.fetch_dataset_file(HUB_ID, ARCHIVE, offline, hint=f"give a folder or {ARCHIVE} with --data")
    if path.is_dir():
        return _folder(path, known)
    if path.is_file():
        return _archive(path, known)
    raise InputError(f"{path}: no such folder or archive")


def _folder(path: Path, known: Sequence[str]) -> Data:
    for folder in (path, path / "data"):
        files = {name: folder / f"{name}{_SUFFIX}" for name in known}
        found = {name: _opener(file) for name, file in files.items() if file.is_file()}
        if found:
            return Data(str(folder), found)
    archive = path / ARCHIVE
    if archive.is_file():
        return _archive(archive, known)
    raise InputError(f"{path} holds no file of LongBench, such as {known[0]}{_SUFFIX}", hint=_hint())


def _opener(file: Path) -> Callable[[], IO[bytes]]:
    return lambda: file.open("rb")


def _archive(path: Path, known: Sequence[str]) -> Data:
    """The members of an archive, in whatever folder of it; the tasks that are not looked for stay packed."""
    with _readable(str(path)), zipfile.ZipFile(path) as archive:
        names = {PurePosixPath(name).stem: name for name in archive.namelist() if name.endswith(_SUFFIX)}
    found = {name: _member(path, names[name]) for name in known if name in names}
    if not found:
        raise InputError(f"{path} holds no file of LongBench, such as {known[0]}{_SUFFIX}", hint=_hint())
    return Data(str(path), found)


def _member(path: Path, name: str) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        # The member keeps the archive's file open as long as it needs it.
        with zipfile.ZipFile(path) as archive:
            return archive.open(name)

    return opened


def _hint() -> str:
    return f"{ARCHIVE} is at https://huggingface.co/datasets/{HUB_ID}; without --data it is fetched from there"


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """What goes wrong with a file inside is unreadable input."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{where} is damaged or cut off: {error}") from error
    except OSError as error:
        raise InputError(f"{where} cannot be read: {reason(error)}") from error


def _example(line: bytes, number: int, where: str) -> Example:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where} is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{where} is no JSON object")
    context, question = _text(values, "context", where), _text(values, "input", where)
    return Example(
        number=number,
        id=f"{values.get('_id', '')}#{_checksum(context + question)}",
        context=context,
        question=question,
        answers=_texts(values, "answers", where),
        classes=_texts(values, "all_classes", where) if values.get("all_classes") else (),
        words=values["length"] if isinstance(values.get("length"), int) else 0,
    )


def _checksum(text: str) -> str:
    """Part of an example's id, so that a line whose text was changed is another example."""
    return f"{zlib.crc32(text.encode('utf-8', 'replace')):08x}"


def _text(values: dict[str, Any], name: str, where: str) -> str:
    if not isinstance(values.get(name), str):
        raise InputError(f"{where}: {name!r} is missing, or no text")
    return str(values[name])


def _texts(values: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    items = values.get(name)
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise InputError(f"{where}: {name!r} is missing, or no list of texts")
    return tuple(items)
