"""Text that tokenizers take."""

from __future__ import annotations

import re

_SURROGATES = re.compile("[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """``text`` with U+FFFD for each half surrogate pair, which tokenizers refuse: one character for one.

    Halves come from bytes in no encoding (file names, what is typed) and from some decoders.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text
