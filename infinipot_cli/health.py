"""What ``doctor`` looks at: one check per thing that a run needs or that decides how fast it is."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from engine.errors import ModelError
from engine.settings import PotSettings
from infinipot_cli import catalog, models
from infinipot_cli.cache import ELSEWHERE, cache_dir
from infinipot_cli.machine import Machine
from infinipot_cli.units import show_bytes

State = Literal["ok", "warn", "fail"]

PYTHON = (3, 11)
#: Oldest releases that work.
NEEDED = {"torch": (2, 11), "transformers": (5, 17)}
TIGHT_MEMORY = 1500 << 20
TIGHT_DISK = 1 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: "ok", "warn" (works, but), or "fail" (infinipot cannot work); ``hint`` says what to do."""

    name: str
    value: str
    state: State = "ok"
    hint: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(machine: Machine, config_dir: Path | None, capacity: int = PotSettings.capacity) -> Iterator[Check]:
    """All checks in the order to show them, one by one as they are done. Touches no network, writes nothing.

    ``config_dir`` is None where there is no home folder to have one in.
    """
    yield Check("infinipot", version("infinipot") or "not installed as a package")
    yield _python()
    yield from (_library(name, needed) for name, needed in NEEDED.items())
    yield _devices(machine)
    yield _flash_attention()
    yield _kernel(machine)
    yield from _memory(machine)
    yield from _cache()
    yield _config(config_dir)
    yield _model()
    yield _conversion()
    yield from _pdf()
    best = catalog.recommend(machine, capacity)
    yield Check("recommended model", f"{best.alias} ({best.origin}, {best.licence})")


def usable(checks: list[Check]) -> bool:
    """Whether infinipot can work here."""
    return all(check.state != "fail" for check in checks)


def version(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python() -> Check:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < PYTHON:
        return Check("python", found, "fail", "infinipot needs Python 3.11 or newer")
    return Check("python", found)


def _import(name: str) -> tuple[Any, str | None]:
    """(module, None), or (None, why it does not load)."""
    try:
        return importlib.import_module(name), None
    except Exception as exc:
        # A library built for another machine fails in its own ways: ImportError, OSError, RuntimeError.
        words = (str(exc).strip().splitlines() or [""])[0]
        return None, f"{type(exc).__name__}: {words}"[:200]


def _library(name: str, needed: tuple[int, int]) -> Check:
    module, trouble = _import(name)
    wanted = f"{name}>={needed[0]}.{needed[1]}"
    if module is None:
        return Check(name, f"does not load: {trouble}", "fail", f'install it: pip install "{wanted}"')
    found = str(getattr(module, "__version__", version(name) or "unknown version"))
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers and (int(numbers[1]), int(numbers[2])) < needed:
        return Check(name, found, "fail", f'it is too old: pip install "{wanted}"')
    return Check(name, found)


def _devices(machine: Machine) -> Check:
    found = [f"{d.name} {d.kind}, {show_bytes(d.free)} of {show_bytes(d.total)} free" for d in machine.devices[:-1]]
    if found:
        return Check("CUDA", "; ".join(found))
    torch, trouble = _import("torch")
    if torch is None:
        return Check("CUDA", f"torch does not load: {trouble}", "fail")
    if getattr(torch.version, "cuda", None) is None:
        return Check("CUDA", "none: this torch is built for CPUs only")
    return Check("CUDA", f"none: torch is built for CUDA {torch.version.cuda}, but finds no device")


def _flash_attention() -> Check:
    found = [name for name in ("flash_attn_interface", "flash_attn") if importlib.util.find_spec(name) is not None]
    if not found:
        return Check("flash-attn", "not installed (optional)")
    module, trouble = _import(found[0])
    if module is None:
        hint = "infinipot works without it; build it anew for this torch, or remove it"
        return Check("flash-attn", f"installed, but does not load: {trouble}", "warn", hint)
    return Check("flash-attn", str(getattr(module, "__version__", "unknown version")))


def _kernel(machine: Machine) -> Check:
    attention, trouble = _import("engine.attention")
    if attention is None:
        return Check("attention kernel", f"none: {trouble}", "fail")
    import torch

    device, dtype = torch.device(machine.best.name), getattr(torch, machine.best.dtype)
    return Check("attention kernel", attention.kernel_name(device, dtype, softcap=False, sinks=False))


def _memory(machine: Machine) -> Iterator[Check]:
    cpu = machine.devices[-1]
    value = f"{show_bytes(cpu.free)} of {show_bytes(cpu.total)} free, {machine.processors} processors"
    tight = cpu.free < TIGHT_MEMORY and len(machine.devices) == 1
    hint = "close other programs: even the default model needs about 1.5 GB"
    yield Check("memory", value, "warn" if tight else "ok", hint if tight else None)


def _cache() -> Iterator[Check]:
    try:
        folder = cache_dir()
    except ModelError as exc:
        yield Check("cache folder", str(exc), "fail", exc.hint)
        return
    needed = _lacks_model()
    check = _folder("cache folder", folder, ELSEWHERE)
    # A cache that cannot be written is enough to read the model that is in it.
    yield Check(check.name, check.value, "fail", check.hint) if check.state == "warn" and needed else check
    yield _disk(folder)


def _lacks_model() -> bool:
    try:
        return models.default_flaw() is not None
    except ModelError:  # the check of the model says what is wrong
        return True


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(_existing(folder)).free
    tight = free < TIGHT_DISK
    hint = "a converted model needs about 0.5 GB, a large pot as much again"
    return Check("disk", f"{show_bytes(free)} free", "warn" if tight else "ok", hint if tight else None)


def _folder(name: str, folder: Path, hint: str) -> Check:
    there = _existing(folder)
    if os.access(there, os.W_OK | os.X_OK) and there.is_dir():
        return Check(name, str(folder) if there == folder else f"{folder} (made when needed)")
    return Check(name, f"{folder} cannot be written", "warn", hint)


def _existing(folder: Path) -> Path:
    return next((parent for parent in (folder, *folder.parents) if parent.exists()), Path("/"))


def _model() -> Check:
    try:
        found = models.default_flaw(thorough=True)
        path = models.default_path()
    except ModelError as exc:
        return Check("default model", str(exc), "fail", exc.hint)
    if found is None:
        return Check("default model", f"{catalog.DEFAULT.origin}, ready in {path}")
    if not path.exists():
        return Check("default model", "not here yet: fetched on first use", "ok", "infinipot models pull")
    return Check("default model", f"to be made again: {found}", "warn", "infinipot models pull")


def _conversion() -> Check:
    """What converts GGUF files, the default model's among them."""
    names = ("gguf", "accelerate")
    missing = [name for name in names if version(name) is None]
    if not missing:
        return Check("GGUF", ", ".join(f"{name} {version(name)}" for name in names))
    needed = models.is_local() is False
    hint = f"pip install {' '.join(missing)}"
    return Check("GGUF", f"no {' and no '.join(missing)} to convert models with", "fail" if needed else "warn", hint)


def _config(folder: Path | None) -> Check:
    if folder is None:
        return Check("config folder", "none: there is no home folder", "warn", "INFINIPOT_CONFIG names a file")
    return _folder("config folder", folder, "only `infinipot` settings and prompts of your own would live there")


def _pdf() -> Iterator[Check]:
    found = {name: version(name) for name in ("pypdf", "pypdfium2")}
    broken = {name: trouble for name in found if (trouble := _import(name)[1]) is not None}
    if broken:
        value = "; ".join(f"{name} does not load: {trouble}" for name, trouble in broken.items())
        yield Check("PDF", value, "warn", f"PDFs cannot be read: pip install {' '.join(broken)}")
    else:
        yield Check("PDF", ", ".join(f"{name} {number}" for name, number in found.items()))
