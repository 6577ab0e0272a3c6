"""Shared by all tests: offline, one thread, Ctrl-C heard, hypothesis profiles."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hypothesis import HealthCheck, settings

from engine import processor

# The same numbers on every machine: "auto" is float32 here, whatever this processor can do.
processor.has_bfloat16.cache_clear()
processor.CPUINFO = processor.CPUINFO / "not-here"

# A shell starts what it puts in the background with Ctrl-C ignored; the tests of Ctrl-C, and what they start, must
# hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
# Few and always the same examples by default; HYPOTHESIS_PROFILE=ci or deep searches on.
settings.register_profile("default", max_examples=25, derandomize=True, database=None, **_COMMON)
settings.register_profile("ci", max_examples=200, **_COMMON)
settings.register_profile("deep", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
