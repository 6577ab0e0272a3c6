"""Token ids back to text, one by one, without loading the model they belong to."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.identity import tokenizer_fingerprint

_LETTER = "a"
_PROBE = "a cat and the dog sat in a house of wood"


class Vocabulary:
    """What the tokens of a fast tokenizer say. ``tokenizer`` is one of the library ``tokenizers``."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Decoders treat the first token in ways of their own (they drop its space, say): a letter goes before.
        self._anchor: list[int] = tokenizer.encode(_LETTER, add_special_tokens=False).ids[-1:]
        self._before = self._decoded(self._anchor)
        self._trims = self._leaves_out_spaces()
        self.text = lru_cache(maxsize=1 << 16)(self._text)

    def join(self, ids: Sequence[int]) -> str:
        """The text of tokens that followed one another. Bytes that make no whole character become one U+FFFD."""
        text = self._decoded([*self._anchor, *ids])
        text = text[len(self._before) :] if text.startswith(self._before) else self._decoded(ids)
        return re.sub("\ufffd+", "\ufffd", text)

    def lead(self, text: str) -> int:
        """Spaces at the beginning of a token's ``text`` that stand before its position in the source."""
        return len(text) - len(text.lstrip(" ")) if self._trims else 0

    def _text(self, token: int) -> str:
        return self.join([token])

    def _leaves_out_spaces(self) -> bool:
        """Whether a token's offset leaves out the space that the token begins with."""
        encoded = self._tokenizer.encode(_PROBE, add_special_tokens=False)
        said = zip(map(self._text, encoded.ids), encoded.offsets, strict=True)
        begins = [start for text, (start, _) in said if text.startswith(" ") and text.strip()]
        return bool(begins) and _PROBE[begins[-1]] != " "

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))


def load_vocabulary(folder: Path, fingerprint: str) -> Vocabulary | None:
    """The vocabulary of the model in ``folder``; None if it has no fast tokenizer of that fingerprint."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # tokenizers raises bare Exceptions
        return None
    if tokenizer_fingerprint(tokenizer) != fingerprint:
        tokenizer = _as_loaded(folder)
        if tokenizer is None or tokenizer_fingerprint(tokenizer) != fingerprint:
            return None
    return Vocabulary(tokenizer)


def _as_loaded(folder: Path) -> Any:
    """The tokenizer as transformers builds it, which may differ from the file's own; None if it cannot."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        from transformers import AutoTokenizer

        return getattr(AutoTokenizer.from_pretrained(folder, local_files_only=True), "backend_tokenizer", None)
    except Exception:  # a damaged or foreign tokenizer can raise anything, from any library
        return None
