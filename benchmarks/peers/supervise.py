"""Run a worker within limits: its events, and how it ended."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import psutil  # type: ignore[import-untyped]

from benchmarks.peers.common import MIB

POLL_SECONDS = 0.05


@dataclass
class Run:
    """The events in the order they came, each with ``seconds`` since the start, and how the process ended.

    ``ended``: ok, time, memory or failed. ``peak_mib`` is the largest resident memory that was seen from outside.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    ended: str = "ok"
    message: str = ""
    peak_mib: float = 0.0

    @property
    def phase(self) -> str:
        """What the process was doing last."""
        last = self.events[-1]["event"] if self.events else ""
        return {"": "loading", "started": "reading or answering"}.get(last, "between documents")


def supervise(command: Sequence[str], environment: Mapping[str, str], seconds: float, memory_mib: float) -> Run:
    """Run ``command`` until it ends, has been silent for ``seconds``, or holds more than ``memory_mib`` MiB.

    Every event starts the clock anew, so the limit is one of loading or of one document.
    """
    run = Run()
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, text=True
        )
        assert process.stdout is not None
        lines: queue.Queue[str | None] = queue.Queue()
        reading = threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True)
        reading.start()
        try:
            _watch(run, process, lines, began, seconds, memory_mib)
        finally:
            process.kill()
            process.wait()
            reading.join()
            process.stdout.close()
        if run.ended == "ok" and process.returncode != 0:
            run.ended, run.message = "failed", _last_line(complaints) or f"exit status {process.returncode}"
    return run


def _watch(
    run: Run,
    process: subprocess.Popen[str],
    lines: queue.Queue[str | None],
    began: float,
    seconds: float,
    memory_mib: float,
) -> None:
    quiet_since = began
    while True:
        try:
            line = lines.get(timeout=POLL_SECONDS)
        except queue.Empty:
            line = ""
        if line is None:
            process.wait()
            return
        if line:
            quiet_since = time.perf_counter()
            event = {**json.loads(line), "seconds": quiet_since - began}
            run.events.append(event)
            run.peak_mib = max(run.peak_mib, event.get("peak_mib", 0.0))
            if event["event"] == "memory":
                run.ended, run.message = "memory", event["message"]
                return
        run.peak_mib = max(run.peak_mib, _resident_mib(process.pid))
        if run.peak_mib > memory_mib:
            run.ended, run.message = "memory", f"more than {memory_mib:,.0f} MiB while {run.phase}"
            return
        if time.perf_counter() - quiet_since > seconds:
            run.ended, run.message = "time", f"more than {seconds:g} s while {run.phase}"
            return


def _pass_on(source: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in source:
        lines.put(line)
    lines.put(None)


def _resident_mib(pid: int) -> float:
    try:
        return float(psutil.Process(pid).memory_info().rss) / MIB
    except psutil.Error:
        return 0.0


def _last_line(complaints: IO[str]) -> str:
    complaints.seek(0)
    lines = [line.strip() for line in complaints if line.strip()]
    return lines[-1][:300] if lines else ""
