"""The file of a benchmark's results: a header line per run, a line per outcome, resumable.

Every line is one JSON object whose first field is ``record``: ``run`` (what the run was: benchmark, seed, model,
wording, setups, version, machine) or ``outcome``, which names its run. A line is written whole and at once, so a run
that is broken off leaves at most one damaged line, the last; the next run drops it. Results of other settings, models
or versions may stand in the same file: they are never taken for this run's own, and the next run says that they are
there. Nor is one taken that ran out of memory: it is tried again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from infinipot_cli import machine, version
from infinipot_cli.errors import InputError, UsageError, not_written

_OPENING = b'{"record": "'
_LIBRARIES = ("torch", "transformers", "tokenizers")


def digest(value: Any) -> str:
    """Sixteen hexadecimal digits for plain values, the same in every process."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def circumstances() -> dict[str, Any]:
    """Version and machine of a run: what its times, and at the edges its answers, depend on."""
    return {
        "version": version(),
        "libraries": {name: _version_of(name) for name in _LIBRARIES},
        "python": platform.python_version(),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "processors": machine.processor_count(),
            "memory": machine.memory()[0],
            "devices": [device.name for device in machine.cuda_devices()],
        },
    }


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's own name where the system tells it."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def require_out(path: Path | None) -> None:
    """Find out before a model is loaded whether ``path`` can be a file of results. Raises UsageError."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"--out {path} is a folder", hint="name a file in it")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.absolute().parent} for {path.name}")


class Results:
    """Outcomes of this run and of those before it in the same file. Use as a context manager.

    ``run`` names this run, by everything in its header but the time; ``scope`` is what sets outcomes of this benchmark
    and version apart from others. Without a ``path`` nothing is kept.
    """

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        self.header = {**header, **circumstances()}
        self.run = digest(self.header)
        self.scope = [header["bench"], header["seed"], header["about"], self.header["version"]]
        self._path = path
        self._file: IO[bytes] | None = None
        self._known: dict[str, dict[str, Any]] = {}
        self._runs: set[str] = set()

    @property
    def keys(self) -> set[str]:
        """The keys of all outcomes that the file holds, but for those with an error."""
        return set(self._known)

    def __enter__(self) -> Results:
        if self._path is not None:
            try:
                # One handle reads, cuts and appends: nothing is opened that would empty the file.
                self._file = self._path.open("a+b")
                self._load(self._file)
            except OSError as error:
                raise not_written(self._path, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def known(self, key: str) -> dict[str, Any] | None:
        """The outcome of that key, if the file holds it and it has no error."""
        return self._known.get(key)

    def add(self, outcome: Mapping[str, Any]) -> None:
        """Write an outcome, behind the header if it is the run's first; flushed before this returns."""
        if self._file is None:
            return
        if self.run not in self._runs:
            self._runs.add(self.run)
            started = datetime.now(UTC).isoformat(timespec="seconds")
            self._write({"record": "run", "run": self.run, "started": started, **self.header})
        self._write({"record": "outcome", "bench": self.header["bench"], **outcome})

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self._file is not None
        line = json.dumps(record, ensure_ascii=False, default=list).encode("utf-8", "replace")
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            raise not_written(self._path, error) from error

    def _load(self, file: IO[bytes]) -> None:
        """Take in what the file holds, and cut off a last line that was not finished."""
        file.seek(0)
        whole = 0
        for number, line in enumerate(file, 1):
            record = _record(line)
            if record is None:
                self._cut(file, whole, line, number)
                return
            whole += len(line)
            if record["record"] == "run":
                self._runs.add(record["run"])
            elif not record.get("error"):  # memory that ran out may be there now
                outcome = {name: value for name, value in record.items() if name not in ("record", "bench")}
                self._known[outcome["key"]] = outcome

    def _cut(self, file: IO[bytes], whole: int, line: bytes, number: int) -> None:
        """Drop the damaged last line; anything else that is no record means that the file is somebody else's."""
        begun = line[: len(_OPENING)] == _OPENING[: len(line)]
        if not begun or whole + len(line) < os.fstat(file.fileno()).st_size:
            raise UsageError(
                f"{self._path}:{number} is no line of benchmark results, so nothing was written to it",
                hint="name another file with --out",
            )
        file.truncate(whole)


def _record(line: bytes) -> dict[str, Any] | None:
    """The record on a whole line, or None."""
    if not line.startswith(_OPENING) or not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    needed = {"run": ("run",), "outcome": ("key", "case", "setup", "accepted")}.get(record["record"])
    return record if needed is not None and all(name in record for name in needed) else None


def read_results(path: Path) -> list[dict[str, Any]]:
    """The records of a file of results, a damaged last line left out. Raises InputError or UsageError."""
    try:
        with path.open("rb") as file:
            lines = file.readlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    records = [_record(line) for line in lines]
    if records and records[-1] is None:
        records.pop()
    if None in records:
        raise UsageError(f"{path}:{records.index(None) + 1} is no line of benchmark results")
    return [record for record in records if record is not None]
