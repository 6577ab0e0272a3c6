"""Question files: documents, questions and accepted answers, as JSON lines or YAML.

Every line (of ``.jsonl``) or list item (of ``.yaml``) is a mapping. Its document is ``document`` (the text; also
``context``), or ``file`` (a path, beside the question file; anything that `ask` reads), or the one of --document. Its
questions are ``question`` with ``accepted`` (a list, or one text; also ``answers``), or ``asks``, a list of such
mappings. ``answerable: false`` accepts the ways of saying that the document does not say. ``kind`` sorts questions,
``group`` (also ``title``) keeps documents about one thing from hiding each other. Anything else is left alone, and so
are rows with another ``task`` than ``question``, which still lend their paragraphs to ``hidden``.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

from infinipot_cli.bench.harness import Case
from infinipot_cli.errors import InputError, UsageError
from infinipot_cli.ingest import IngestOptions, open_sources

#: The label ``task`` of their cases.
QUESTIONS = "questions"
#: What a model may say where the document does not.
SAYS_NOT = ("does not say", "not say", "not mentioned", "not stated", "does not mention")
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
# Paragraphs that are tried for the last gap before the wanted length.
_TRIES = 20


@dataclass(frozen=True)
class Document:
    """A document in pieces; ``name`` is made of its text, ``group`` of what it is about."""

    name: str
    group: str
    pieces: tuple[str, ...]

    @property
    def paragraphs(self) -> list[str]:
        """Its text between blank lines."""
        parts = (part.strip() for part in _PARAGRAPH.split("".join(self.pieces)))
        return [part for part in parts if part]


@dataclass(frozen=True)
class Ask:
    """One question to one document."""

    document: Document
    question: str
    accepted: tuple[str, ...]
    kind: str
    answerable: bool = True


@dataclass(frozen=True)
class Questions:
    """What a question file holds; ``documents`` are all of them, asked about or not."""

    asks: Sequence[Ask]
    documents: Sequence[Document]


def load_questions(path: Path, document: Path | None, options: IngestOptions) -> Questions:
    """Read a question file; ``document`` is what rows without one ask about.

    Raises InputError for files that cannot be read, UsageError with the row for what is no question.
    """
    return _Loader(path, document, options).load()


class _Loader:
    def __init__(self, path: Path, document: Path | None, options: IngestOptions) -> None:
        self._path, self._document, self._options = path, document, options
        self._documents: dict[str, Document] = {}
        self._files: dict[Path, Document] = {}

    def load(self) -> Questions:
        asks = [ask for row, where in _rows(self._path) for ask in self._asks(row, where)]
        if not asks:
            raise UsageError(f"{self._path} holds no questions")
        return Questions(asks, list(self._documents.values()))

    def _asks(self, row: Any, where: str) -> Iterator[Ask]:
        if not isinstance(row, Mapping):
            raise UsageError(f"{where} is no mapping of names to values")
        if row.get("task", "question") != "question":
            if isinstance(text := row.get("document", row.get("context")), str) and text.strip():
                self._inline(text, row)
            return
        document = self._document_of(row, where)
        several = row.get("asks", [row])
        if not isinstance(several, list) or not all(isinstance(ask, Mapping) for ask in several):
            raise UsageError(f"{where}: asks must be a list of questions")
        for ask in several:
            kind = str(ask.get("kind") or row.get("kind") or "")
            yield Ask(document, *_question(ask, where), kind, ask.get("answerable") is not False)

    def _document_of(self, row: Mapping[str, Any], where: str) -> Document:
        text = row.get("document", row.get("context"))
        if isinstance(text, str) and text.strip():
            return self._inline(text, row)
        named = row.get("file")
        if isinstance(named, str) and named:
            return self._file(self._path.parent / named)
        if self._document is None:
            raise UsageError(
                f"{where} has no document", hint="name the one that such rows ask about with --document FILE"
            )
        return self._file(self._document)

    def _inline(self, text: str, row: Mapping[str, Any]) -> Document:
        name = _digest([text])
        group = str(row.get("group") or row.get("title") or name)
        return self._documents.setdefault(name, Document(name, group, (text,)))

    def _file(self, path: Path) -> Document:
        if path not in self._files:
            if not path.is_file():
                raise InputError(f"{path}: there is no such file")
            passages = (passage for source in open_sources([str(path)], self._options) for passage in source.passages())
            pieces = tuple(passage.text for passage in passages)
            name = _digest(pieces)
            self._files[path] = self._documents.setdefault(name, Document(name, name, pieces))
        return self._files[path]


def _rows(path: Path) -> Iterator[tuple[Any, str]]:
    """Every row, and where it stands."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text") from error
    if path.suffix.lower() in (".yaml", ".yml"):
        yield from _yaml_rows(text, path)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line), f"{path}:{number}"
            except ValueError as error:
                raise UsageError(f"{path}:{number} is no JSON: {error}") from error


def _yaml_rows(text: str, path: Path) -> Iterator[tuple[Any, str]]:
    try:
        rows = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(rows, list):
        raise UsageError(f"{path} is no list of questions")
    for number, row in enumerate(rows, 1):
        yield row, f"{path}, question {number}"


def _question(ask: Mapping[str, Any], where: str) -> tuple[str, tuple[str, ...]]:
    """(question, accepted answers)."""
    question = ask.get("question")
    if not isinstance(question, str) or not question.strip():
        raise UsageError(f"{where} has no question")
    accepted = ask.get("accepted", ask.get("answers", []))
    several = accepted if isinstance(accepted, list) else [] if accepted is None else [accepted]
    answers = tuple(str(answer) for answer in several)
    if ask.get("answerable") is False:
        return question, answers or SAYS_NOT
    if not any(answer.strip() for answer in answers):
        raise UsageError(f"{where}: the question {question!r} has no accepted answers")
    return question, answers


def _digest(pieces: Iterable[str]) -> str:
    return hashlib.sha256("".join(pieces).encode("utf-8", "replace")).hexdigest()[:12]


def pick(asks: Sequence[Ask], count: int | None, kinds: Sequence[str], seed: int) -> list[Ask]:
    """``count`` questions by chance (None: all), of as many documents as there are, those of a document together.

    Of ``kinds`` if some are named. Raises UsageError where there are none.
    """
    groups: dict[str, list[Ask]] = {}
    for ask in asks:
        if not kinds or ask.kind in kinds:
            groups.setdefault(ask.document.name, []).append(ask)
    if not groups:
        known = ", ".join(sorted({ask.kind for ask in asks if ask.kind})) or "none is named"
        raise UsageError(f"there is no question of the kind {', '.join(kinds)}", hint=f"kinds in the file: {known}")
    if count is None:
        return [ask for group in groups.values() for ask in group]
    chance = random.Random(f"{seed} questions")
    shuffled = [chance.sample(group, len(group)) for group in chance.sample(list(groups.values()), len(groups))]
    # The first question of every document, then the second, and so on.
    turns = [ask for turn in zip_longest(*shuffled) for ask in turn if ask is not None][:count]
    order = {name: place for place, name in enumerate(dict.fromkeys(ask.document.name for ask in turns))}
    return sorted(turns, key=lambda ask: order[ask.document.name])


def hidden(
    document: Document, documents: Sequence[Document], tokens: int, count: Callable[[str], int], seed: int
) -> Iterator[str]:
    """The document's paragraphs, in their order, at random places among paragraphs of other groups' documents.

    In all up to ``tokens`` tokens, or the document alone where that is longer. The same for the same arguments.
    Raises UsageError where there is nothing else to hide it in.
    """
    chance = random.Random(f"{seed} {document.name}")
    own = document.paragraphs
    filler = list(_filler(document, documents, tokens - sum(count(part) + 1 for part in own), count, chance))
    places = sorted(chance.randrange(len(filler) + 1) for _ in own)
    for place in range(len(filler) + 1):
        while places and places[0] == place:
            places.pop(0)
            yield f"{own.pop(0)}\n\n"
        if place < len(filler):
            yield f"{filler[place]}\n\n"


def _filler(
    document: Document, documents: Sequence[Document], room: int, count: Callable[[str], int], chance: random.Random
) -> Iterator[str]:
    """Paragraphs of other documents worth up to ``room`` tokens, none twice before all were there once."""
    others = [part for other in documents if other.group != document.group for part in other.paragraphs]
    if not others:
        raise UsageError("--fill takes paragraphs of other documents, and the questions are all about one")
    failed = 0
    while failed < _TRIES:
        for part in chance.sample(others, len(others)):
            size = count(part) + 1  # and the blank line behind it
            if size <= room:
                room -= size
                yield part
            else:
                failed += 1
                if failed == _TRIES:
                    return


def make_cases(
    asks: Sequence[Ask],
    documents: Sequence[Document],
    fill: int | None,
    count: Callable[[str], int],
    most: int,
    seed: int,
) -> list[Case]:
    """A case for each question, its document alone or hidden in ``fill`` tokens; ``most`` bounds answers' tokens."""
    among = _digest(sorted(document.name for document in documents))
    return [_case(ask, documents, among, fill, count, most, seed) for ask in asks]


def _case(
    ask: Ask,
    documents: Sequence[Document],
    among: str,
    fill: int | None,
    count: Callable[[str], int],
    most: int,
    seed: int,
) -> Case:
    """``among`` names the ``documents`` that lend their paragraphs."""
    document = ask.document
    where = document.name if fill is None else f"{document.name} in {fill} tokens of {among}, seed {seed}"

    def text() -> Iterable[str]:
        return document.pieces if fill is None else hidden(document, documents, fill, count, seed)

    length = sum(map(len, document.pieces)) // 4
    return Case(
        id=f"{_digest([ask.question, *ask.accepted])} {where}",
        document=text,
        question=ask.question,
        accepted=ask.accepted,
        labels={
            "task": QUESTIONS,
            "kind": ask.kind,
            "answerable": int(ask.answerable),
            "document": document.name,
            "fill": fill or 0,
            "seed": seed,
        },
        text=where,
        max_new_tokens=most,
        tokens=max(length, fill or 0),
    )
