"""From bytes to text, piece by piece: byte order marks, UTF-8, and a guess where that fails."""

from __future__ import annotations

import codecs
import re
import unicodedata
from itertools import islice

from infinipot_cli.errors import InputError

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 1 << 16
_SAMPLE_NON_ASCII = 500
"""Non-ASCII bytes that are enough to guess by: a slow stream need not wait for the whole sample."""
_CONTEXT = 256
_PROOF_SEQUENCES = 4
_PROOF_BYTES = 512
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_WIDE_SHARE = 8
"""UTF-16 of what UTF-8 could also be has a NUL in every second byte, or nearly."""
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_RUN = re.compile(rb"[\x80-\xff]+")
_MIXED_RUN = re.compile(rb"(?<=[A-Za-z])[\x80-\xff]+|[\x80-\xff]+(?=[A-Za-z])")
_CONTROLS = re.compile(rb"[\x80-\x9f]")
"""In the ISO 8859 pages these are controls, which no text has; elsewhere letters and quotation marks."""
_LATIN = frozenset({"cp1250", "cp1252", "cp1254", "cp1257", "cp1258", "iso8859-2", "iso8859-13", "iso8859-15"})
_OTHER_SCRIPTS = frozenset(
    {"cp1251", "koi8-r", "koi8-u", "iso8859-5"}  # Cyrillic
    | {"cp1253", "iso8859-7"}  # Greek
    | {"cp1255", "iso8859-8", "cp1256", "iso8859-6"}  # Hebrew and Arabic
    | {"cp874"}  # Thai
)
_MULTIBYTE_PAGES = frozenset(
    {"cp932", "shift_jis_2004", "euc_jp", "euc_jis_2004"}  # Japanese
    | {"cp949", "gb18030", "big5", "big5hkscs"}  # Korean and Chinese
)
_SUPERSETS = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
"""These can also decode what lies beyond the sample."""
_SURE = 0.04
"""Least confidence for anything but cp1252: below it a guess is as good as chance."""
_ASCII_BYTES = bytes(range(128))


def bom_of(head: bytes) -> str | None:
    """The encoding that a byte order mark names."""
    return next((encoding for mark, encoding in _BOMS if head.startswith(mark)), None)


def wide_encoding(head: bytes) -> str | None:
    """The UTF-16 or UTF-32 that bytes with NULs and without a mark are written in; None if they are not.

    Bytes that are plain UTF-8 but for a NUL here and there are not, whatever they would also read as.
    """
    if head.count(0) < len(head) / _WIDE_SHARE and _is_utf8(head.replace(b"\x00", b"")):
        return None
    for encoding in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        try:
            # Not final: the head can end inside a character.
            text = codecs.getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            continue
        if text and _reads_as_text(text):
            return encoding
    return None


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _reads_as_text(text: str) -> bool:
    """Whether decoded text is plausible: no NUL, no unassigned characters, and some spaces or ASCII letters."""
    odd = sum(unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs") and char not in "\t\n\r\f" for char in text)
    plain = sum(char in " \n\r\t" or (char.isascii() and char.isalnum()) for char in text)
    return "\x00" not in text and odd <= len(text) * 0.01 and plain >= len(text) * 0.01


def guess_encoding(sample: bytes) -> str:
    """The likeliest encoding of bytes that are not valid UTF-8; "utf-8" when they are so but for some damage."""
    valid = _MULTIBYTE.findall(sample)
    stray = len(sample.translate(None, _ASCII_BYTES)) - sum(map(len, valid))
    if len(valid) > stray:
        return "utf-8"
    import chardet

    newline = sample.rfind(b"\n", len(sample) // 2)
    sample = sample[: newline + 1] or sample
    allowed = _plausible_pages(sample)
    best, best_score = "cp1252", (0.0, False)
    for guess in chardet.detect_all(sample, ignore_threshold=True):
        name = _codec_name(guess["encoding"])
        # Of guesses as good as each other the commonest page is taken.
        score = (round(guess["confidence"], 2), name == "cp1252")
        if name in allowed and guess["confidence"] >= _SURE and score > best_score:
            best, best_score = name, score
    return best


def _plausible_pages(sample: bytes) -> frozenset[str]:
    """The encodings that a guess may name: no rare ones, and none that the places of the bytes speak against.

    Where no two bytes beyond ASCII stand together the script is Latin, and also, in encodings of one byte for a
    character, where most of them are in words with ASCII letters.
    """
    runs = _RUN.findall(sample)
    pages = _LATIN
    if any(len(run) > 1 for run in runs):
        pages |= _MULTIBYTE_PAGES
        if len(_MIXED_RUN.findall(sample)) * 2 < len(runs):
            pages |= _OTHER_SCRIPTS
    if _CONTROLS.search(sample):
        pages = frozenset(name for name in pages if not name.startswith("iso8859"))
    return pages


def _codec_name(guess: str | None) -> str:
    """The name of the codec for a guess, or of its superset; "" for none."""
    try:
        name = codecs.lookup(guess or "").name
    except LookupError:
        return ""
    return _SUPERSETS.get(name, name)


def _undecodable(encoding: str | None, error: UnicodeError) -> InputError:
    """For data that ends a decoder, such as UTF-16 without the mark that tells the byte order."""
    marked = encoding in ("utf-16", "utf-32")
    hint = f"without a byte order mark, --encoding {encoding}-le or {encoding}-be reads it" if marked else None
    return InputError(f"cannot be read as {encoding}: {error}", hint=hint)


def damage_note(replaced: int, encoding: str | None) -> str:
    """A sentence about characters that were replaced."""
    return f"{replaced:,} characters could not be decoded as {encoding}"


class TextDecoder:
    """Decodes a stream of bytes; what it gives does not depend on how the bytes are cut.

    Without a given ``encoding`` or a byte order mark in ``head`` it is UTF-8. The first bad byte, if nothing
    beyond ASCII was handed on before, makes it guess from the bytes around; later bad bytes become U+FFFD and
    are counted in ``replaced``. Text is held back only from the first non-ASCII byte until a few valid
    sequences, or 512 bytes, have shown that it is UTF-8.
    """

    def __init__(self, encoding: str | None, head: bytes) -> None:
        self.encoding: str | None = None
        self.replaced = 0
        self._held = b""
        self._context = b""
        self._guessing = False
        self._at_start = True
        self._decoder: codecs.IncrementalDecoder | None = None
        known = encoding or bom_of(head) or (wide_encoding(head) if b"\x00" in head else None)
        if known is not None:
            self._settle(known)

    def feed(self, data: bytes) -> str:
        """Decode the next bytes, of any number."""
        return self._decoded(data) if self._decoder else self._undecided(data, False)

    def finish(self) -> str:
        """Decode what is left at the end of the stream."""
        text = "" if self._decoder else self._undecided(b"", True)
        if self._decoder is None:
            self.encoding = "utf-8"
            return text
        return text + self._decoded(b"", True)

    def _settle(self, encoding: str) -> None:
        self.encoding = codecs.lookup(encoding).name
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def _decoded(self, data: bytes, final: bool = False) -> str:
        assert self._decoder is not None
        try:
            text = self._decoder.decode(data, final)
        except UnicodeError as error:  # a few codecs cannot replace what they cannot decode
            raise _undecodable(self.encoding, error) from error
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix("\ufeff")
        self.replaced += text.count("\ufffd")
        return text

    def _undecided(self, data: bytes, final: bool) -> str:
        """ASCII passes; what follows the first other byte is held until it is clear what it is."""
        passed = b""
        if not self._held:
            found = _NOT_ASCII.search(data)
            passed, data = (data[: found.start()], data[found.start() :]) if found else (data, b"")
            self._context = (self._context + passed)[-_CONTEXT:]
            self._at_start = self._at_start and not passed
        self._held += data
        encoding = self._verdict(final) if self._held else None
        if encoding is None:
            return passed.decode("ascii")
        self._settle(encoding)
        held, self._held = self._held, b""
        return passed.decode("ascii") + self._decoded(held)

    def _verdict(self, final: bool) -> str | None:
        """The encoding of the held bytes, None while more are needed. Sees only a prefix of fixed length."""
        if not self._guessing:
            probe = self._held[:_PROOF_BYTES]
            try:
                codecs.getincrementaldecoder("utf-8")().decode(probe, final and len(probe) == len(self._held))
            except UnicodeDecodeError as error:
                if len(_MULTIBYTE.findall(probe[: error.start])) >= _PROOF_SEQUENCES:
                    return "utf-8"
                self._guessing = True
            else:
                proven = len(_MULTIBYTE.findall(probe)) >= _PROOF_SEQUENCES
                return "utf-8" if final or proven or len(probe) == _PROOF_BYTES else None
        sample = self._held[:_SAMPLE]
        if len(sample.translate(None, _ASCII_BYTES)) >= _SAMPLE_NON_ASCII:
            ends = (match.end() for match in _NOT_ASCII.finditer(sample))
            sample = sample[: next(islice(ends, _SAMPLE_NON_ASCII - 1, None))]
        elif len(sample) < _SAMPLE and not final:
            return None
        return guess_encoding(self._context + sample)
