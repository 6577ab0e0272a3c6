"""What a run will cost, by arithmetic alone: no model, no torch."""

from __future__ import annotations

from engine.settings import PotSettings


def cycles(tokens: int, settings: PotSettings, protected: int, catalyst: int) -> int:
    """Distillations that reading ``tokens`` document tokens takes.

    The first fill holds |M| - protected - |P| tokens, every later one |M| - protected - |C| - |P|.
    """
    first = settings.capacity - protected - catalyst
    if tokens <= first:
        return 0
    return -(-(tokens - first) // (first - settings.kept))


def entries(tokens: int, settings: PotSettings, protected: int, catalyst: int) -> int:
    """Entries per KV head after reading ``tokens`` document tokens."""
    first = settings.capacity - protected - catalyst
    if tokens <= first:
        return protected + tokens
    step = first - settings.kept
    last = (tokens - first) % step or step
    return protected + settings.kept + last


def capacity_for(pot_bytes: int, entry_bytes: int) -> int:
    """The capacity whose keys and values take at most ``pot_bytes``."""
    return pot_bytes // entry_bytes
