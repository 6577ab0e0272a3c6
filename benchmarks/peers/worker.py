"""A peer's own process: ``python -m benchmarks.peers.worker PEER JOB.json`` in the interpreter that has the peer.

Events on stdout: loaded, then started and answered for each case. Running out of memory is an event too.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.common import Job, Peer, emit, own_stdout, peak_mib


def load(name: str, job: Job) -> Peer:
    """The peer of that name, loaded; imports nothing that the others need."""
    if name == "infinipot":
        from benchmarks.peers.pot import InfiniPot

        return InfiniPot(job)
    if name == "llama.cpp":
        from benchmarks.peers.llama_cpp_peer import LlamaCpp

        return LlamaCpp(job)
    from benchmarks.peers.stock import Full, Retrieval, SnapKV

    return {"full": Full, "snapkv": SnapKV, "bm25": Retrieval}[name](job)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; torch's allocator and llama.cpp have no type of their own for it."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or "allocate memory" in words or "failed to create llama_context" in words


def main() -> None:
    name, path = sys.argv[1:]
    events = own_stdout()
    job = Job.load(Path(path))
    try:
        peer = load(name, job)
        emit(events, "loaded", peak_mib=peak_mib(), versions=peer.versions())
        for case in job.cases:
            emit(events, "started", case=case.id)
            answer = peer.answer(case)
            emit(events, "answered", case=case.id, peak_mib=peak_mib(), **asdict(answer))
    except Exception as error:
        if not out_of_memory(error):
            raise
        emit(events, "memory", peak_mib=peak_mib(), message=str(error).splitlines()[0] if str(error) else "")


if __name__ == "__main__":
    main()
