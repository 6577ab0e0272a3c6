"""Folders that are made once: whole or not there, checked by a manifest, safe when two processes make one.

A folder is built beside its final place under a lock that the operating system drops when its holder dies
(so no lock is ever stale), synced, and renamed. Its manifest holds size, CRC-32 and SHA-256 of every file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import ModelError

MANIFEST = "infinipot-model.json"
FORMAT = 1
CHUNK = 1 << 20
#: Up to this many bytes every check reads all content (CRC-32 runs at some GB/s); above, only sizes.
QUICK_BYTES = 2 << 30
LOCK_SECONDS = 3600.0


def expanded(path: str | Path) -> Path:
    """``path`` with ~ replaced. Raises ModelError where it names the home folder of nobody."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ModelError(f"there is no file or folder {path}") from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_crc32(path: Path) -> int:
    """CRC-32 of a file's content. Raises OSError."""
    total = 0
    with path.open("rb") as stream:
        while block := stream.read(CHUNK):
            total = zlib.crc32(block, total)
    return total


def describe_file(path: Path) -> dict[str, int | str]:
    """What a manifest holds about one file: ``size`` in bytes, ``crc32``, ``sha256``."""
    return {"size": path.stat().st_size, "crc32": file_crc32(path), "sha256": file_sha256(path)}


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Describe every file in ``folder`` and what it was made from (``about``); syncs all of it to disk."""
    names = sorted(item.name for item in folder.iterdir())
    files = {name: describe_file(folder / name) for name in names}
    manifest = {"format": FORMAT, **about, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for name in [*names, MANIFEST]:
        sync(folder / name)
    sync(folder)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a made folder, or None where there is none that can be read."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def flaw(folder: Path, expected: Mapping[str, Any], *, thorough: bool = False) -> str | None:
    """Why ``folder`` cannot be used as it is (a phrase), or None where it is sound.

    ``expected`` are manifest fields that must be equal. ``thorough`` compares SHA-256 instead of CRC-32 and
    reads all content whatever its size.
    """
    if not folder.is_dir():
        return "it is not there"
    manifest = read_manifest(folder)
    if manifest is None or manifest.get("format") != FORMAT or not isinstance(manifest.get("files"), dict):
        return "its manifest is missing or unreadable"
    for key, value in expected.items():
        if manifest.get(key) != value:
            return f"it was made from another {key.replace('_', ' ')}"
    return _file_flaw(folder, manifest["files"], thorough)


def _file_flaw(folder: Path, files: Mapping[str, Any], thorough: bool) -> str | None:
    try:
        for name, facts in files.items():
            if (folder / name).stat().st_size != facts["size"]:
                return f"{name} has another size"
        read_all = thorough or sum(facts["size"] for facts in files.values()) <= QUICK_BYTES
        for name, facts in files.items() if read_all else ():
            same = (
                file_sha256(folder / name) == facts["sha256"]
                if thorough
                else file_crc32(folder / name) == facts["crc32"]
            )
            if not same:
                return f"{name} is damaged"
    except (OSError, KeyError, TypeError) as exc:
        return f"it cannot be read ({exc})"
    return None


def make_once(
    target: Path,
    make: Callable[[Path, Path], None],
    usable: Callable[[], bool],
    *,
    waiting: Callable[[], None] | None = None,
    timeout: float = LOCK_SECONDS,
) -> bool:
    """Have ``make`` fill a temporary folder that then becomes ``target``, unless ``usable()``; True if made.

    ``make(folder, scratch)`` may put what it needs on the way into ``scratch``, which is thrown away.
    One process at a time: another waits (``waiting`` is called once, before it does) and then finds
    ``usable()`` true. On any error, Ctrl-C included, nothing is left behind. Raises ModelError.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target, waiting, timeout):
            if usable():
                return False
            _sweep(target)
            _build(target, make)
            return True
    except OSError as exc:
        raise storage_error(exc, target.parent) from exc


def _locked(target: Path, waiting: Callable[[], None] | None, timeout: float) -> Any:
    from filelock import FileLock, Timeout

    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        return lock.acquire(timeout=0)
    except NotImplementedError:
        # A file system without locks: two processes may then do the work twice, and the last rename wins.
        return contextlib.nullcontext()
    except Timeout:
        if waiting is not None:
            waiting()
    try:
        return lock.acquire(timeout=timeout, poll_interval=0.1)
    except Timeout:
        raise ModelError(f"another process has been making {target} for over {timeout / 60:.0f} minutes") from None


def _prefix(target: Path) -> str:
    return f".{target.name}.tmp-"


def _sweep(target: Path) -> None:
    """Remove what a killed process left; the lock is held, so nobody is writing there."""
    for item in target.parent.glob(f"{_prefix(target)}*"):
        shutil.rmtree(item, ignore_errors=True)


def _build(target: Path, make: Callable[[Path, Path], None]) -> None:
    work = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    try:
        folder, scratch = work / "new", work / "scratch"
        folder.mkdir()
        scratch.mkdir()
        make(folder, scratch)
        # A folder that is not empty cannot be renamed over: move the damaged one into the work folder first.
        if target.exists():
            target.rename(work / "old")
        folder.rename(target)
        sync(target.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def sync(path: Path) -> None:
    """fsync a file or folder; folders cannot be opened for it everywhere, and then need not be."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def not_stored(exc: Exception) -> OSError:
    """The OSError behind an error of safetensors' writer, which hides the system's error number in its text."""
    full = "os error 28" in str(exc) or "os error 112" in str(exc)
    return OSError(errno.ENOSPC if full else errno.EIO, str(exc))


def storage_error(exc: OSError, folder: Path) -> ModelError:
    """The ModelError for a failed write under ``folder``: disk full, not writable, or else."""
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(f"the disk is full: no room for the model in {folder}")
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ModelError(f"cannot write to the cache folder {folder}: {exc.strerror}")
    return ModelError(f"cannot store the model in {folder}: {exc}")
