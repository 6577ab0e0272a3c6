"""Text to token ids that know where they stand in the source."""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import Any

import torch

from engine.places import pack_place as pack_place
from engine.places import unpack_place as unpack_place
from engine.pot import Batch
from engine.wellformed import well_formed


def _template_markup(tokenizer: Any) -> re.Pattern[str] | None:
    """Control tokens that the tokenizer does not declare special, though its chat template uses them."""
    template = str(getattr(tokenizer, "chat_template", None) or "")
    special = set(tokenizer.all_special_tokens)
    names = [name for name in tokenizer.get_added_vocab() if len(name) > 1 and not name.isspace()]
    found = sorted((name for name in names if name in template and name not in special), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, found))) if found else None


class Encoder:
    """Tokenises a document piece by piece.

    A tokenizer may treat the start of its input specially (a prefix space, say), so every piece is encoded behind
    an anchor character whose own tokens are dropped. Markup of the chat template that stands in a document is text
    there, never a control token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._markup = _template_markup(tokenizer) if tokenizer.is_fast else None

    def encode(self, text: str, anchor: str = "\n", markup: bool = False) -> tuple[list[int], list[int]]:
        """Ids and the character offset in ``text`` where each begins. ``markup`` allows control tokens."""
        if not text:
            return [], []
        text = well_formed(text)
        if not self.tokenizer.is_fast:
            return self._slow(text, markup)
        if not markup and self._markup is not None and self._markup.search(text):
            return self._broken(text, anchor)
        return self._anchored(text, anchor, markup)

    def encode_ahead(self, text: str) -> list[int]:
        """Ids of template text that a word will follow: white space at its end is cut as it is before a word."""
        text = well_formed(text)
        if not text or not self.tokenizer.is_fast:
            return self._slow(text, markup=True)[0]
        ids, spans = self._fast(f"{text}a", markup=True)
        kept = [i for i, (_, end) in zip(ids, spans, strict=True) if end <= len(text)]
        melted = any(start < len(text) < end for start, end in spans)
        return self._fast(text, markup=True)[0] if melted else kept

    def holds_markup(self, text: str) -> bool:
        """Whether control tokens stand in the text."""
        return any(token in text for token in self.tokenizer.get_added_vocab() if not token.isspace())

    def batch(self, text: str, offset: int, place: int, lines: bool, first: bool = False) -> Batch:
        """Tokens of one passage: ``offset`` and ``place`` are those of its first character.

        With ``lines``, the place counts on at every newline inside the passage. ``first`` says that nothing, not
        even a template, stands before it.
        """
        ids, starts = self.encode(text, anchor="" if first else "\n")
        begins = torch.tensor(starts, dtype=torch.int64)
        places = torch.full_like(begins, place)
        if lines and starts:
            newlines = list(accumulate(character == "\n" for character in text))
            places += torch.tensor([newlines[start - 1] if start else 0 for start in starts], dtype=torch.int64)
        return Batch(torch.tensor(ids, dtype=torch.int64), begins + offset, places)

    def _anchored(self, text: str, anchor: str, markup: bool) -> tuple[list[int], list[int]]:
        ids, spans = self._fast(anchor + text, markup)
        cut = len(anchor)
        first = next((i for i, (_, end) in enumerate(spans) if end > cut), len(spans))
        if first < len(spans) and spans[first][0] < cut:  # the anchor melted into the text
            ids, spans = self._fast(text, markup)
            return ids, [start for start, _ in spans]
        return ids[first:], [max(start - cut, 0) for start, _ in spans[first:]]

    def _broken(self, text: str, anchor: str) -> tuple[list[int], list[int]]:
        """Encode with every piece of template markup cut in two, so that it stays text."""
        assert self._markup is not None
        cuts = [0, *(match.start() + 1 for match in self._markup.finditer(text)), len(text)]
        ids: list[int] = []
        starts: list[int] = []
        for begin, end in pairwise(cuts):
            part, offsets = self._anchored(text[begin:end], "\n" if begin else anchor, markup=False)
            ids += part
            starts += [begin + offset for offset in offsets]
        return ids, starts

    def _fast(self, text: str, markup: bool) -> tuple[list[int], list[tuple[int, int]]]:
        encoded = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=not markup, verbose=False
        )
        return encoded["input_ids"], encoded["offset_mapping"]

    def _slow(self, text: str, markup: bool) -> tuple[list[int], list[int]]:
        """Tokenizers without offsets: line by line, so that a token is off by a line's length at most. Only what they
        declare special is kept out where ``markup`` is not allowed."""
        ids: list[int] = []
        starts: list[int] = []
        begin = 0
        for line in text.splitlines(keepends=True):
            part = self.tokenizer.encode(line, add_special_tokens=False, split_special_tokens=not markup)
            ids += part
            starts += [begin] * len(part)
            begin += len(line)
        return ids, starts
