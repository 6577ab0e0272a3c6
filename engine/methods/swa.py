"""Sliding-window attention in every layer (Beltagy et al. 2020, "Longformer", section 3.1; Jiang et al. 2023,
"Mistral 7B", section 2: rolling buffer, pre-fill and chunking).

Every query sees itself and what came within the last |C| tokens, in reading and in the answer. As in Mistral's chunked
pre-fill, the pot is the window and a chunk: it fills up to |M| and falls back to the last |C| entries, so where the
chunks end changes nothing. Departure: the protected prefix, too, stays and is seen, as everywhere in this engine;
without a prefix the numbers are those of a stock model whose config sets the window.
"""

from __future__ import annotations

from engine.methods.method import Method
from engine.methods.recent import select

METHOD = Method(select, sees="window")
