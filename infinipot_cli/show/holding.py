"""What is shown: a pot's sources, each as pieces, and the facts about it that go above them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from infinipot_cli.ingest import IngestOptions
from infinipot_cli.show.originals import read_again
from infinipot_cli.show.pieces import Piece, Token, View, Vocabulary, pieces_of
from infinipot_cli.units import show_count


class Census(Protocol):
    """Every token that is held (``engine.census``)."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    windowed: tuple[int, ...]
    nowhere: int

    @property
    def slots(self) -> int: ...
    @property
    def sources(self) -> list[int]: ...

    def part(self, source: int, positions: tuple[int, int | None], units: tuple[int, int] | None) -> Census: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Token]: ...


@dataclass(frozen=True)
class Holding:
    """A pot to show. ``originals`` are the files that some of its sources (by number) were read from."""

    name: str
    info: dict[str, Any]
    census: Census
    vocabulary: Vocabulary | None
    head: int | None = None
    view: View = field(default_factory=View)
    originals: dict[int, Path] = field(default_factory=dict)
    options: IngestOptions = field(default_factory=IngestOptions)

    @property
    def sources(self) -> list[dict[str, Any]]:
        """What the pot says of its sources, by number; empty descriptions where it says nothing."""
        known = [source for source in self.info["meta"]["sources"] if isinstance(source, dict)]
        held = self.census.sources
        return [*known, *({} for _ in range(max(held, default=-1) + 1 - len(known)))]

    def source_name(self, number: int) -> str:
        return str(self.sources[number].get("name") or f"source {number}")

    def unit(self, number: int) -> str:
        """What a place in it counts: "page", "chapter" or "line"; lines need no headings, nor does the unknown."""
        return str(self.sources[number].get("unit") or "line")

    @property
    def has_text(self) -> bool:
        """Whether the text between the held tokens is there for some source."""
        return bool(self.originals)

    def pieces(self, number: int) -> Iterator[Piece]:
        """One source, as far as it is in view."""
        source, view = self.sources[number], self.view
        tokens = self.census.part(number, (view.first, view.end), view.units)
        passages, chars = None, source.get("chars")
        if number in self.originals:
            passages = read_again(self.originals[number], source, self.options)
            if source.get("complete", True):
                chars = None  # so that one which is longer now is read far enough to tell
        return pieces_of(tokens, self.vocabulary, view, chars, passages, self.unit(number) == "line")

    def summary(self) -> str:
        """One line: how much is held of how much, and by how many at most."""
        held = f"{len(self.census):,} of {show_count(self.info['tokens_read'], 'token')} held"
        return f"{held} ({self._slots()}, {self.info['entries']:,} entries each)"

    def _slots(self) -> str:
        """Which slots were counted."""
        layers, heads = self.census.layers, self.census.heads
        where = f"layer {layers[0]}" if len(layers) == 1 else show_count(len(layers), "layer")
        if self.head is not None:
            return f"{where}, KV head {self.head}"
        if len(set(heads)) > 1:
            return f"{where}, {show_count(sum(heads), 'KV head')}"
        return f"{where}{' ×' if len(layers) > 1 else ','} {show_count(heads[0], 'KV head')}"

    def notes(self) -> list[str]:
        """What a reader should know besides."""
        notes = []
        if windowed := [layer for layer in self.census.windowed if layer not in self.census.layers]:
            layers = show_count(len(windowed), "layer")
            notes.append(
                f"{layers} with a sliding window only hold the last tokens and are left out (--layer shows one)"
            )
        if self.vocabulary is None:
            name = self.info["identity"]["name"]
            what = "the ends of held words are guessed" if self.has_text else "token ids are shown instead of text"
            notes.append(f"the tokenizer of {name} is not on this machine: {what}")
        return notes

    def facts(self) -> dict[str, Any]:
        """The same for a program."""
        census = self.census
        texts = "tokenizer" if self.vocabulary else "source" if self.has_text else "ids"
        return {
            "pot": self.name,
            "model": self.info["identity"]["name"],
            "tokens_read": self.info["tokens_read"],
            "tokens_held": len(census),
            "entries": self.info["entries"],
            "dtype": self.info["dtype"],
            "nbytes": self.info["nbytes"],
            "head": self.head,
            "layers": list(census.layers),
            "heads": list(census.heads),
            "slots": census.slots,
            "windowed_layers": list(census.windowed),
            "entries_elsewhere": census.nowhere,
            "texts": texts,
            "sources": [
                {"name": self.source_name(number), "unit": source.get("unit"), "characters": source.get("chars")}
                for number, source in enumerate(self.sources)
            ],
        }
