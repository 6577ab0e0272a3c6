"""What the processor can do that decides how to compute. Imports no torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16 = {"avx512_bf16", "amx_bf16"}


def auto_dtype(cuda: bool) -> str:
    """The dtype that ``--dtype auto`` means: bfloat16 where the hardware computes in it, else float32."""
    return "bfloat16" if cuda or has_bfloat16() else "float32"


@cache
def has_bfloat16() -> bool:
    """Whether the processor multiplies matrices in bfloat16 by instructions of its own; only Linux on x86 tells."""
    try:
        with CPUINFO.open(encoding="ascii", errors="replace") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return False
    return not _BFLOAT16.isdisjoint(flags.split())
