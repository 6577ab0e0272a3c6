"""What earlier runs found out: which models passed their proof, and how fast each reads here.

One small JSON file in the cache folder. It spares work, so whatever is wrong with it or its folder is ignored.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, MutableMapping, MutableSet
from pathlib import Path
from typing import Any

from infinipot_cli.cache import cache_dir
from infinipot_cli.errors import InfinipotError

FILE = "memory.json"
_MOST_PROOFS = 200
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def recall_rate(key: str) -> float | None:
    """Tokens per second that were measured last under ``key``."""
    rate = _part("rates", dict).get(key)
    return float(rate) if isinstance(rate, (int, float)) and rate > 0 else None


def remember_rate(key: str, tokens_per_second: float) -> None:
    """Note a measured speed."""
    _store("rates", _part("rates", dict) | {key: round(tokens_per_second, 1)})


class Proofs(MutableSet[str]):
    """Fingerprints of models admitted before, kept between runs."""

    def __init__(self) -> None:
        self._known = {str(key): None for key in _part("proofs", list)}  # in the order of their coming

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, value: str) -> None:
        self._known[value] = None
        _store("proofs", list(self._known)[-_MOST_PROOFS:])

    def discard(self, value: str) -> None:
        self._known.pop(value, None)
        _store("proofs", list(self._known))


class Fingerprints(MutableMapping[str, str]):
    """Fingerprints of tokenizers, by the hash of what each says of itself, kept between runs."""

    def __init__(self) -> None:
        part = _part("fingerprints", dict)
        self._known = {key: value for key, value in part.items() if _FINGERPRINT.fullmatch(str(value))}

    def __getitem__(self, key: str) -> str:
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __setitem__(self, key: str, value: str) -> None:
        self._known[key] = value
        _store("fingerprints", dict(list(self._known.items())[-_MOST_PROOFS:]))

    def __delitem__(self, key: str) -> None:
        del self._known[key]
        _store("fingerprints", self._known)


def _load() -> dict[str, Any]:
    try:
        content = json.loads((cache_dir() / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, InfinipotError):
        return {}
    return content if isinstance(content, dict) else {}


def _part(name: str, kind: type) -> Any:
    part = _load().get(name)
    return part if isinstance(part, kind) else kind()


def _store(name: str, value: Any) -> None:
    content = json.dumps(_load() | {name: value}, indent=1)
    try:
        path = cache_dir() / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".memory.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
        Path(temporary).replace(path)
    except (OSError, InfinipotError):
        pass
