"""Numbers for people: sizes, durations, counts; and sizes as people write them."""

from __future__ import annotations

import re

from infinipot_cli.errors import UsageError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str, flag: str) -> int:
    """Bytes of a size such as 512M, 1.5G or 1048576 (powers of 1024). Raises UsageError."""
    match = _SIZE.fullmatch(text)
    size = int(float(match[1]) * 1024 ** _POWERS[match[2].lower()]) if match else 0
    if size < 1:
        raise UsageError(f"{flag} must be a size such as 512M or 2G, not {text!r}")
    return size


def show_bytes(count: int) -> str:
    """12,345,678 -> 11.8 MiB."""
    size, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{count} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"


def show_seconds(seconds: float) -> str:
    """0.3 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def show_count(count: int, one: str, many: str | None = None) -> str:
    """1 page, 1,234 pages."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def share(part: float, whole: float) -> str:
    """A percentage, 0 % of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"
