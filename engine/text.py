"""Text to token ids that know where they stand in the source."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch

from engine.pot import Batch

# A place is one number: which source, and which page or line of it.
_UNIT_BITS = 40
_UNIT_MASK = (1 << _UNIT_BITS) - 1


def pack_place(source: int, unit: int) -> int:
    """One int64 for page or line ``unit`` (1-based) of source number ``source`` (0-based)."""
    return source << _UNIT_BITS | unit


def unpack_place(place: int) -> tuple[int, int]:
    """(source, unit) of a packed place."""
    return place >> _UNIT_BITS, place & _UNIT_MASK


class Encoder:
    """Tokenises a document piece by piece.

    A tokenizer may treat the start of its input specially (a prefix space, say), so every piece is encoded behind
    an anchor character whose own tokens are dropped. Markup of the chat template that stands in a document is text
    there, never a control token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str, anchor: str = "\n", markup: bool = False) -> tuple[list[int], list[int]]:
        """Ids and the character offset in ``text`` where each begins. ``markup`` allows control tokens."""
        if not text:
            return [], []
        if not self.tokenizer.is_fast:
            return self._slow(text)
        ids, spans = self._fast(anchor + text, markup)
        cut = len(anchor)
        first = next((i for i, (_, end) in enumerate(spans) if end > cut), len(spans))
        if first < len(spans) and spans[first][0] < cut:  # the anchor melted into the text
            ids, spans = self._fast(text, markup)
            return ids, [start for start, _ in spans]
        return ids[first:], [max(start - cut, 0) for start, _ in spans[first:]]

    def batch(self, text: str, offset: int, place: int, lines: bool) -> Batch:
        """Tokens of one passage: ``offset`` and ``place`` are those of its first character.

        With ``lines``, the place counts on at every newline inside the passage.
        """
        ids, starts = self.encode(text)
        begins = torch.tensor(starts, dtype=torch.int64)
        places = torch.full_like(begins, place)
        if lines and starts:
            newlines = list(accumulate(character == "\n" for character in text))
            places += torch.tensor([newlines[start - 1] if start else 0 for start in starts], dtype=torch.int64)
        return Batch(torch.tensor(ids, dtype=torch.int64), begins + offset, places)

    def _fast(self, text: str, markup: bool) -> tuple[list[int], list[tuple[int, int]]]:
        encoded = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=not markup, verbose=False
        )
        return encoded["input_ids"], encoded["offset_mapping"]

    def _slow(self, text: str) -> tuple[list[int], list[int]]:
        """Tokenizers without offsets: line by line, so that a token is off by a line's length at most."""
        ids: list[int] = []
        starts: list[int] = []
        begin = 0
        for line in text.splitlines(keepends=True):
            part = self.tokenizer.encode(line, add_special_tokens=False)
            ids += part
            starts += [begin] * len(part)
            begin += len(line)
        return ids, starts
