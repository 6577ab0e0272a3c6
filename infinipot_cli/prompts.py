"""Prompts: catalysts and tasks, read from YAML files, strictly. Data only: nothing in them is run.

A catalyst is what the text is asked while it is distilled; a task is the user turn around document and question.
A prompt is looked for by path, then in the user's folder, then among the built-in ones.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.wellformed import well_formed
from infinipot_cli.errors import UsageError
from infinipot_cli.folders import user_prompts
from infinipot_cli.strict_yaml import Item, StrictFile

_HERE = Path(__file__).resolve().parent
_CATALYST_KEYS = ("kind", "name", "description", "text", "from")
_TASK_KEYS = ("kind", "name", "description", "catalyst", "system", "prompt", "defaults", "variants")
_DEFAULTS_KEYS = ("max_new_tokens", "temperature", "focus", "no_repeat", "avoid", "whole_sentences", "lines_once")
_VARIANT_KEYS = ("question", "max_new_tokens")


@dataclass(frozen=True)
class Catalyst:
    """``text`` follows the document when the pot is distilled; None stands for the question itself (CaP-Q)."""

    name: str
    description: str
    path: Path
    text: str | None


@dataclass(frozen=True)
class Variant:
    """One form of a task: what its {question} is, and how long the answer may be."""

    question: str
    max_new_tokens: int | None


@dataclass(frozen=True)
class Task:
    """One user turn: ``before``, the document, ``after`` with the question in it."""

    name: str
    description: str
    path: Path
    catalyst: str
    before: str
    after: tuple[str, ...]
    system: str | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    focus: int | None = None
    no_repeat: int = 0
    avoid: tuple[str, ...] = ()
    whole_sentences: bool = False
    lines_once: bool = False
    variants: Mapping[str, Variant] = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether the user's question has a place in it."""
        return len(self.after) == 2 and not self.variants

    def turn(self, question: str = "") -> str:
        """What follows the document. Braces in ``question`` mean nothing."""
        return question.join(self.after)


Prompt = Catalyst | Task


def builtin_folder() -> Path:
    """The prompts that came with infinipot: in the installed package, else in the source tree."""
    installed = _HERE / "prompts"
    return installed if installed.is_dir() else _HERE.parent / "prompts"


def find_prompt(name: str, environ: Mapping[str, str]) -> Path:
    """The file of a prompt, by path or name. Raises UsageError if there is none."""
    if name.endswith((".yaml", ".yml")) or "/" in name or "\\" in name:
        path = Path(name)
        if not _is_file(path):
            raise UsageError(f"there is no prompt file {name}")
        return path
    for folder in (user_prompts(environ), builtin_folder()):
        if _is_file(path := folder / f"{name}.yaml"):
            return path
    raise UsageError(f"there is no prompt {name!r}", hint="`infinipot prompts list` shows them")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def load_catalyst(name: str, environ: Mapping[str, str]) -> Catalyst:
    """The catalyst of that name or path. Raises UsageError, with the line where the file is wrong."""
    prompt = load_prompt(find_prompt(name, environ))
    if not isinstance(prompt, Catalyst):
        raise UsageError(f"{name} is a task, not a catalyst", hint="`infinipot prompts list` shows which is which")
    return prompt


def load_task(name: str, environ: Mapping[str, str]) -> Task:
    """The task of that name or path. Raises UsageError, with the line where the file is wrong."""
    prompt = load_prompt(find_prompt(name, environ))
    if not isinstance(prompt, Task):
        raise UsageError(f"{name} is a catalyst, not a task", hint="`infinipot prompts list` shows which is which")
    return prompt


def all_prompts(environ: Mapping[str, str]) -> Iterator[Prompt]:
    """Every prompt that a name reaches, tasks first; the user's own hide built-in ones of the same name."""
    found: dict[str, Path] = {}
    for folder in (builtin_folder(), user_prompts(environ)):
        found |= {path.stem: path for path in folder.glob("*.yaml")}
    prompts = [load_prompt(found[name]) for name in sorted(found)]
    yield from sorted(prompts, key=lambda prompt: isinstance(prompt, Catalyst))


def load_prompt(path: Path) -> Prompt:
    """Read one prompt file. Raises UsageError with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    reader = _Reader(StrictFile.parse(text, path))
    kind = reader.text("kind")
    if kind == "catalyst":
        return reader.catalyst()
    if kind == "task":
        return reader.task()
    raise reader.file.fault(reader.file.items["kind"], f"kind must be catalyst or task, not {kind!r}")


class _Reader:
    """Takes a prompt out of a strict file."""

    def __init__(self, file: StrictFile) -> None:
        self.file = file

    def catalyst(self) -> Catalyst:
        items = self.file.items
        self.file.only(_CATALYST_KEYS)
        if ("text" in items) == ("from" in items):
            raise UsageError(f"{self.file.path}: a catalyst has either `text` or `from: question`")
        if "from" in items and items["from"].value != "question":
            raise self.file.fault(items["from"], "from can only be `question`")
        text = self.text("text") if "text" in items else None
        return Catalyst(self._name(), self.text("description"), self.file.path, text)

    def task(self) -> Task:
        self.file.only(_TASK_KEYS)
        before, after = self._template(self.file.items.get("prompt"))
        defaults = self._mapping("defaults", _DEFAULTS_KEYS)
        task = Task(
            name=self._name(),
            description=self.text("description"),
            path=self.file.path,
            catalyst=self.text("catalyst"),
            before=before,
            after=after,
            system=self.text("system") if "system" in self.file.items else None,
            max_new_tokens=self._count("max_new_tokens", defaults.get("max_new_tokens")),
            temperature=self._temperature(defaults.get("temperature")),
            focus=self._count("focus", defaults.get("focus")),
            no_repeat=self._count("no_repeat", defaults.get("no_repeat")) or 0,
            avoid=self._phrases("avoid", defaults.get("avoid")),
            whole_sentences=self._truth("whole_sentences", defaults.get("whole_sentences")),
            lines_once=self._truth("lines_once", defaults.get("lines_once")),
            variants={name: self._variant(name, item) for name, item in self._mapping("variants").items()},
        )
        if task.variants and len(after) == 1:
            raise self.file.fault(self.file.items["prompt"], "a task with variants needs {question} for them")
        return task

    def text(self, key: str) -> str:
        return self._text(key, self.file.items.get(key))

    def _text(self, key: str, item: Item | None) -> str:
        if item is None:
            raise UsageError(f"{self.file.path}: `{key}` is missing")
        if not isinstance(item.value, str) or not item.value:
            raise self.file.fault(item, f"{key} must be text")
        self._require_whole_characters(key, item, item.value)
        return item.value

    def _name(self) -> str:
        name = self.text("name")
        if name != self.file.path.stem:
            raise self.file.fault(self.file.items["name"], f"name must be that of the file, {self.file.path.stem!r}")
        return name

    def _mapping(self, key: str, allowed: tuple[str, ...] | None = None) -> dict[str, Item]:
        item = self.file.items.get(key)
        if item is None:
            return {}
        if not isinstance(item.value, dict):
            raise self.file.fault(item, f"{key} must be a mapping")
        if allowed is not None:
            self.file.only(allowed, item.value, inside=key)
        return item.value

    def _variant(self, name: str, item: Item) -> Variant:
        if not isinstance(item.value, dict):
            raise self.file.fault(item, f"{name} must be a mapping")
        self.file.only(_VARIANT_KEYS, item.value, inside=name)
        question, most = item.value.get("question"), item.value.get("max_new_tokens")
        return Variant(self._text("question", question), self._count("max_new_tokens", most))

    def _count(self, name: str, item: Item | None) -> int | None:
        if item is None:
            return None
        if type(item.value) is not int or item.value < 1:
            raise self.file.fault(item, f"{name} must be a whole number above 0")
        return item.value

    def _truth(self, name: str, item: Item | None) -> bool:
        if item is None:
            return False
        if not isinstance(item.value, bool):
            raise self.file.fault(item, f"{name} must be true or false")
        return item.value

    def _phrases(self, name: str, item: Item | None) -> tuple[str, ...]:
        if item is None:
            return ()
        if not isinstance(item.value, list) or not all(isinstance(part, str) and part.strip() for part in item.value):
            raise self.file.fault(item, f"{name} must be a list of phrases")
        self._require_whole_characters(name, item, "".join(item.value))
        return tuple(item.value)

    def _require_whole_characters(self, name: str, item: Item, text: str) -> None:
        if well_formed(text) != text:
            raise self.file.fault(item, f"{name} holds half of a surrogate pair", hint="write the character itself")

    def _temperature(self, item: Item | None) -> float | None:
        if item is None:
            return None
        if type(item.value) not in (int, float) or not 0 <= item.value < float("inf"):
            raise self.file.fault(item, "temperature must be a number, 0 or more")
        return float(item.value)

    def _template(self, item: Item | None) -> tuple[str, tuple[str, ...]]:
        """(text before the document, the texts around the question after it) of a prompt."""
        text = self._text("prompt", item)
        assert item is not None
        parts, names = [""], []
        for literal, name, spec, conversion in self._pieces(text, item):
            parts[-1] += literal
            if name is None:
                continue
            if name not in ("document", "question") or spec or conversion:
                raise self.file.fault(
                    item,
                    f"only {{document}} and {{question}} are known, not {{{name}}}",
                    hint="write {{ and }} for braces",
                )
            names.append(name)
            parts.append("")
        if names not in (["document"], ["document", "question"]):
            raise self.file.fault(item, "prompt must hold {document} once, and {question} at most once after it")
        return parts[0], tuple(parts[1:])

    def _pieces(self, text: str, item: Item) -> list[tuple[str, str | None, Any, Any]]:
        try:
            return list(string.Formatter().parse(text))
        except ValueError as error:
            raise self.file.fault(item, f"prompt: {error}", hint="write {{ and }} for braces") from error
