"""What this machine can hold: processors, main memory, CUDA memory. Imports torch only where a GPU shows."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.processor import VALUE_BYTES, auto_dtype

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Device:
    """A place for a model: ``total`` and ``free`` in bytes, ``value_bytes`` per weight in its dtype."""

    name: str
    kind: str
    total: int
    free: int
    dtype: str
    value_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices in the order in which ``--device auto`` prefers them; the CPU is always the last."""

    processors: int
    devices: tuple[Device, ...]

    @property
    def best(self) -> Device:
        return self.devices[0]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def look() -> Machine:
    """Measure this machine now. Never raises: what cannot be measured counts as nothing."""
    total, free = memory()
    dtype = auto_dtype(cuda=False)
    cpu = Device("cpu", "RAM", total, free, dtype, VALUE_BYTES[dtype])
    return Machine(processor_count(), (*cuda_devices(), cpu))


def processor_count() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> tuple[int, int]:
    """(total, available) bytes of main memory, within the limits of a container."""
    total, free = _system_memory()
    limit, used = _container_memory()
    if limit is not None and limit < total:
        return limit, max(0, min(free, limit - used))
    return total, free


def _system_memory() -> tuple[int, int]:
    if sys.platform == "win32":
        return _windows_memory()
    try:
        lines = (line.split() for line in MEMINFO.read_text(encoding="ascii").splitlines())
        fields = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
        return fields["MemTotal"], fields["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        pass
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0, 0
    # Nothing portable tells what is available; half is a cautious guess.
    return total, total // 2


def _windows_memory() -> tuple[int, int]:
    class Status(ctypes.Structure):
        _fields_ = [
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "free", "a", "b", "c", "d", "e")),
        ]

    status = Status(length=ctypes.sizeof(Status))
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):  # type: ignore[attr-defined]
        return 0, 0
    return status.total, status.free


def _container_memory() -> tuple[int | None, int]:
    """(limit, used) bytes of the control group (version 2, then 1), or (None, 0) without a limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return int((CGROUP / limit).read_text()), int((CGROUP / used).read_text())
        except (OSError, ValueError):
            continue
    return None, 0


def gpu_shows() -> bool:
    """Whether anything hints at an NVIDIA GPU; spares importing torch (seconds) where nothing does."""
    nodes = (*Path("/dev").glob("nvidia[0-9]*"), Path("/dev/dxg"))
    return any(node.exists() for node in nodes) or shutil.which("nvidia-smi") is not None


def cuda_devices() -> tuple[Device, ...]:
    """The CUDA devices that torch can use, the one with most free memory first."""
    if not gpu_shows():
        return ()
    try:
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        found = [_cuda_device(torch, index) for index in range(count)]
    except Exception:
        # A broken driver or torch is what doctor reports; here it only means that there is no GPU to use.
        return ()
    return tuple(sorted(found, key=lambda device: -device.free))


def _cuda_device(torch: Any, index: int) -> Device:
    free, total = torch.cuda.mem_get_info(index)
    dtype = auto_dtype(cuda=True)
    return Device(f"cuda:{index}", torch.cuda.get_device_name(index), total, free, dtype, VALUE_BYTES[dtype])
