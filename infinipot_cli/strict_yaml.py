"""YAML files that people write: plain mappings, in which everything unexpected is an error that names its line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from engine.errors import first_line
from infinipot_cli.errors import UsageError


@dataclass(frozen=True)
class Item:
    """A value and the 1-based line it stands on. A mapping's values are items again."""

    value: Any
    line: int


@dataclass(frozen=True)
class StrictFile:
    """The mapping of one file, and the means to complain about it."""

    path: Path
    items: dict[str, Item]

    @classmethod
    def parse(cls, text: str, path: Path) -> StrictFile:
        """Parse ``text``; an empty file is an empty mapping. Raises UsageError with file and line."""
        try:
            loader = _Loader(text)
            node = loader.get_single_node()
            items = {} if node is None else _mapping(loader, node)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise fault(path, mark.line + 1 if mark else 1, error.problem or "not YAML") from error
        except (yaml.YAMLError, RecursionError) as error:
            raise UsageError(f"{path} is not YAML: {first_line(error)}") from error
        return cls(path, items)

    def only(self, allowed: Collection[str], items: dict[str, Item] | None = None, inside: str = "") -> None:
        """Raise UsageError at the first key that is not ``allowed``."""
        for key, item in (self.items if items is None else items).items():
            if key not in allowed:
                where = f" in {inside}" if inside else ""
                raise self.fault(item, f"unknown key {key!r}{where}", hint=f"known: {', '.join(sorted(allowed))}")

    def fault(self, item: Item, message: str, hint: str | None = None) -> UsageError:
        """The error to raise about ``item``."""
        return fault(self.path, item.line, message, hint)


def fault(path: Path, line: int, message: str, hint: str | None = None) -> UsageError:
    """An error about a line of a file."""
    return UsageError(f"{path}, line {line}: {message}", hint)


class _Loader(yaml.SafeLoader):
    """Safe YAML without anchors: a settings file needs none, and they can make a small file huge."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="aliases (*) are not supported", problem_mark=mark)
        return super().compose_node(parent, index)


def _mapping(loader: _Loader, node: yaml.Node) -> dict[str, Item]:
    if not isinstance(node, yaml.MappingNode):
        raise _marked(node, "expected `key: value` lines")
    items: dict[str, Item] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise _marked(key_node, f"a key must be text, not {key!r}")
        if key in items:
            raise _marked(key_node, f"{key!r} stands here twice")
        items[key] = Item(_value(loader, value_node), key_node.start_mark.line + 1)
    return items


def _value(loader: _Loader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node)
    return loader.construct_object(node, deep=True)


def _marked(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
