"""Everything is kept: the model as its makers meant it, for comparison. Not bounded by the capacity."""

from __future__ import annotations

from engine.methods.method import Method, never

METHOD = Method(never)
