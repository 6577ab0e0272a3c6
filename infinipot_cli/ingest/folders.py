"""Finding the files of a folder that are worth reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.types import IngestOptions

_IGNORE_FILE = ".gitignore"
_IGNORE_BYTES = 1 << 20


class FolderWalk:
    """The files of one folder and those below it, sorted, hidden and ignored ones left out.

    ``skipped`` gets a sentence for each file or folder left out, but for those that ``include`` and
    ``exclude`` rule out: there the user knows. Links to folders are not followed, so there are no loops.
    """

    def __init__(self, root: Path, options: IngestOptions) -> None:
        self.skipped: list[str] = []
        self._root = root
        self._include = _spec(options.include)
        self._exclude = _spec(options.exclude)

    def files(self) -> Iterator[Path]:
        """Paths that begin with the folder's own. Raises InputError if the folder itself cannot be listed."""
        try:
            entries = _listed(self._root)
        except OSError as error:
            raise InputError(f"{self._root}: cannot be read: {error.strerror}") from error
        rules = _outer_rules(self._root.resolve()) + _rules_in(self._root)
        pending = [(entry, rules) for entry in entries]
        while pending:
            entry, rules = pending.pop()
            if self._is_left_out(entry, rules):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.extend(self._below(entry, rules))
            elif self._is_wanted(entry):
                yield Path(entry.path)

    def _below(self, entry: os.DirEntry[str], rules: _Rules) -> list[tuple[os.DirEntry[str], _Rules]]:
        path = Path(entry.path)
        try:
            entries = _listed(path)
        except OSError as error:
            self.skipped.append(f"{path}: cannot be read: {error.strerror}")
            return []
        inner = rules + _rules_in(path)
        return [(below, inner) for below in entries]

    def _is_left_out(self, entry: os.DirEntry[str], rules: _Rules) -> bool:
        """Whether a file or folder is excluded, hidden or ignored."""
        is_folder = entry.is_dir(follow_symlinks=False)
        inside = Path(entry.path).relative_to(self._root).as_posix() + "/" * is_folder
        if self._exclude is not None and self._exclude.match_file(inside):
            return True
        if not is_folder and self._include is not None and not self._include.match_file(inside):
            return True
        if entry.name.startswith("."):
            self.skipped.append(f"{entry.path}: hidden")
            return True
        if _is_ignored(Path(entry.path), is_folder, rules):
            self.skipped.append(f"{entry.path}: ignored by {_IGNORE_FILE}")
            return True
        return False

    def _is_wanted(self, entry: os.DirEntry[str]) -> bool:
        """Whether an entry is a regular file with something in it."""
        try:
            status = entry.stat()
            reason = (
                "a link to a folder"
                if entry.is_dir()
                else "not a regular file"
                if not entry.is_file()
                else "empty"
                if status.st_size == 0
                else ""
            )
        except OSError as error:
            reason = "a broken link" if entry.is_symlink() else f"cannot be read: {error.strerror}"
        if reason:
            self.skipped.append(f"{entry.path}: {reason}")
        return not reason


_Rules = tuple[tuple[Path, Any], ...]
"""The folders that have ignore files, from the outside in, with their rules."""


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, last name first, as a stack wants them."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name, reverse=True)


def _spec(patterns: tuple[str, ...] | list[str]) -> Any:
    """Patterns as in .gitignore; None if there are none. Lines that are no pattern are passed over, as git does."""
    if not patterns:
        return None
    from pathspec import GitIgnoreSpec

    valid = []
    for pattern in patterns:
        try:
            GitIgnoreSpec.from_lines([pattern])
        except ValueError:
            continue
        valid.append(pattern)
    return GitIgnoreSpec.from_lines(valid)


def _rules_in(folder: Path) -> _Rules:
    try:
        with (folder / _IGNORE_FILE).open("rb") as file:
            lines = file.read(_IGNORE_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    spec = _spec(lines)
    return () if spec is None else ((folder, spec),)


def _outer_rules(root: Path) -> _Rules:
    """The rules of the folders around, up to that of the repository, unless they ignore this very folder."""
    around: list[Path] = []
    for folder in root.parents if not (root / ".git").exists() else ():
        around.insert(0, folder)
        if (folder / ".git").exists():
            break
    else:
        return ()
    rules: _Rules = ()
    for folder in around:
        rules += _rules_in(folder)
    named_on_purpose = any(_is_ignored(path, True, rules) for path in (root, *root.parents) if path not in around)
    return () if named_on_purpose else rules


def _is_ignored(path: Path, is_folder: bool, rules: _Rules) -> bool:
    """Whether the innermost rule that says anything of a path says to ignore it."""
    for folder, spec in reversed(rules):
        target = path if path.is_relative_to(folder) else Path(os.path.abspath(path))  # noqa: PTH100
        if not target.is_relative_to(folder):
            continue
        inside = PurePosixPath(target.relative_to(folder).as_posix())
        verdict = spec.check_file(f"{inside}{'/' * is_folder}").include
        if verdict is not None:
            return bool(verdict)
    return False
