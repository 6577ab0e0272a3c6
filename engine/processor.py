"""In which dtypes a model may run, and what the processor can do that decides between them. Imports no torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, get_args

#: Bytes of a number by the dtypes that a model may run in.
VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: What weights may be quantised to as they are loaded.
Quantized = Literal["8bit", "4bit"]
QUANTIZED: tuple[Quantized, ...] = get_args(Quantized)
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
