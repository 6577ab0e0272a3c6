"""The most memory that one run of several takes: CUDA's own count, or the resident memory of this process.

A process's largest resident memory never falls, so a second run would inherit the first one's. Linux lets a process
begin a new peak; where it does not, resident memory is sampled; elsewhere only the peak of the whole process is to be
had, and ``how`` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_STATM = Path("/proc/self/statm")
# Seconds between two samples.
EVERY = 0.02

CUDA = "CUDA memory that tensors took at most"
KERNEL = "resident memory of the process at most, as the kernel counts it, begun anew for each run"
SAMPLED = f"resident memory of the process at most, sampled every {EVERY * 1000:.0f} ms"
PROCESS = "resident memory of the process at most since it began, so that no run shows less than those before it"
UNKNOWN = "memory is not measured on this system"


class Device(Protocol):
    """What counts its own memory, if it does (``workbench.Gauge``)."""

    def reset_peak(self) -> None: ...

    def peak_bytes(self) -> int | None: ...


@dataclass
class Peak:
    """``before`` and ``most`` in bytes: when the run began, and at most; None where the system does not say."""

    before: int | None = None
    most: int | None = None
    how: str = UNKNOWN


@contextlib.contextmanager
def watched(device: Device) -> Iterator[Peak]:
    """Measure what runs inside; the Peak is complete on leaving."""
    _give_back()
    device.reset_peak()
    held = device.peak_bytes()
    if held is not None:
        peak = Peak(before=held, how=CUDA)
        yield peak
        peak.most = device.peak_bytes()
    else:
        with _resident() as peak:
            yield peak


@contextlib.contextmanager
def _resident() -> Iterator[Peak]:
    if _begin_anew():
        peak = Peak(before=_status("VmRSS"), how=KERNEL)
        yield peak
        peak.most = _status("VmHWM")
    elif (now := _sample()) is not None:
        peak = Peak(before=now, how=SAMPLED)
        with _Sampler() as sampler:
            yield peak
        peak.most = max(now, sampler.most)
    else:
        peak = Peak(how=UNKNOWN)
        yield peak
        peak.most = _process_peak()
        peak.how = UNKNOWN if peak.most is None else PROCESS


class _Sampler:
    """A thread that looks at the resident memory now and then."""

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.most = max(self.most, _sample() or 0)

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            self.most = max(self.most, _sample() or 0)


def _give_back() -> None:
    """Return freed memory to the system, so that one run's leftovers do not count for the next."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def _begin_anew() -> bool:
    """Let the kernel begin a new peak; whether it did."""
    try:
        _CLEAR.write_text("5")
        return _status("VmHWM") is not None
    except OSError:
        return False


def _status(name: str) -> int | None:
    """A field of the process's status in bytes, None where there is none."""
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def _sample() -> int | None:
    """Resident memory now in bytes, None where the system does not say."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _process_peak() -> int | None:
    """Largest resident memory of the process so far in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
