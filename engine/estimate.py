"""What a run will cost, by arithmetic alone: no model, no torch."""

from __future__ import annotations

from engine.settings import HOLDS_ALL, PotSettings


def cycles(tokens: int, settings: PotSettings, protected: int, catalyst: int) -> int:
    """Distillations that reading ``tokens`` document tokens takes.

    The first fill holds |M| - protected - |P| tokens, every later one |M| - protected - |C| - |P|; |P| is 0 for a
    method that looks at no catalyst.
    """
    catalyst = settings.catalyst_room(catalyst)
    first = settings.capacity - protected - catalyst
    if settings.method == "snapkv":
        return int(tokens > first)
    if tokens <= first or not _cycles(settings):
        return 0
    return -(-(tokens - first) // (first - settings.kept))


def entries(tokens: int, settings: PotSettings, protected: int, catalyst: int) -> int:
    """Entries per KV head after reading ``tokens`` document tokens."""
    catalyst = settings.catalyst_room(catalyst)
    first = settings.capacity - protected - catalyst
    if tokens <= first or settings.method in HOLDS_ALL:
        return protected + tokens
    if settings.method == "snapkv":
        return protected + first
    if settings.method == "truncate":
        return protected + first // 2 * 2
    step = first - settings.kept
    last = (tokens - first) % step or step
    return protected + settings.kept + last


def peak(tokens: int, settings: PotSettings, protected: int, catalyst: int) -> int:
    """The most entries per KV head at any moment of reading, the catalyst's included."""
    if settings.bounded:
        return min(protected + tokens + settings.catalyst_room(catalyst), settings.capacity)
    return protected + tokens + settings.catalyst_room(catalyst)


def passed(tokens: int, settings: PotSettings, protected: int) -> int:
    """Document tokens that go through the model; the others are left out unread."""
    return entries(tokens, settings, protected, 0) - protected if settings.method == "truncate" else tokens


def _cycles(settings: PotSettings) -> bool:
    """Whether the method distils a full pot, again and again."""
    return settings.bounded and settings.method != "truncate"


def capacity_for(pot_bytes: int, entry_bytes: int) -> int:
    """The capacity whose keys and values take at most ``pot_bytes``."""
    return pot_bytes // entry_bytes
