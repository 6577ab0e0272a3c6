"""Truncation in the middle, as LongBench does it (Bai et al. 2024, "LongBench", section 4.1 and its ``pred.py``).

Of a text that is longer than the room R, the first R // 2 and the last R // 2 tokens are read, the second half right
after the first; the model never sees what lies between. R is |M| less the protected prefix, and when question and
answer need room, it is less those too: then the tail of the shorter text is read anew (``engine.truncation``).
Departures: LongBench cuts the whole prompt, here instructions and question stay whole; it decodes the halves and
encodes them again, here the ids stay.
"""

from __future__ import annotations

from engine.methods.method import Method, never

METHOD = Method(never)
