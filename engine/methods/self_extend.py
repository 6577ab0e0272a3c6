"""Self-Extend: all tokens, far ones at grouped positions (Jin et al. 2024, "LLM maybe LongLM: Self-extend LLM context
window without tuning", section 3.2, equation 4 and Algorithm 1).

A key within the last ``window`` tokens is seen at its exact distance. For one farther away, query position i becomes
i // G + w − w // G and key position j becomes j // G, with G = ``group`` and w = ``window``. One softmax runs over
both (``engine.grouped``). Not bounded by the capacity. Departure: layers that slide a window of their own keep it.
"""

from __future__ import annotations

from engine.methods.method import Method, never

METHOD = Method(never, sees="groups")
