"""Text of any encoding and length: passages, decoding, memory, slow pipes."""

from __future__ import annotations

import codecs
import hashlib
import itertools
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ingest_documents import Pieces, check_passages, file_source, stream_source, text_of, trickle

from infinipot_cli.errors import InputError, UsageError
from infinipot_cli.ingest import IngestOptions, PeekableStream, is_pot, open_sources
from infinipot_cli.ingest.decoding import guess_encoding, wide_encoding

ENGLISH = "It was a dark night; the rain fell in torrents, and the lamps struggled.\n"
GERMAN = "Fußgänger überqueren die Straße, während schöne Mädchen fröhlich Äpfel essen.\n"
RUSSIAN = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\n"
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n"
SHORT = (
    "25 °C",
    "10 µm",
    "Él está aquí, señor Núñez",
    "«Été» à Paris",
    "£5 – see “Terms” §3",
    "A ½ cup",
    "×",
    "æøå ærø",
)
TOLD_APART = {
    "cp1250": "Łódź, Kraków i Gdańsk są miastami w Polsce, gdzie mieszka dużo ludzi.\n",
    "iso8859-2": "Łódź, Kraków i Gdańsk są miastami w Polsce, gdzie mieszka dużo ludzi.\n",
    "cp1254": "Türkiye'nin başkenti Ankara'dır, şehir güzeldir; İstanbul en kalabalık şehirdir.\n",
    "cp1257": "Rīga ir Latvijas galvaspilsēta, un tajā dzīvo daudz cilvēku.\n",
    "cp1251": RUSSIAN,
    "iso8859-5": RUSSIAN,
    "cp1253": "Καλημέρα κόσμε, τι κάνετε σήμερα; Η Ελλάδα είναι ωραία.\n",
    "cp1255": "שלום עולם, מה שלומכם היום\n",
    "cp1256": "مرحبا بالعالم كيف حالكم\n",
    "cp874": "สวัสดีชาวโลก ประเทศไทย\n",
    "gbk": "你好，世界。今天天气很好，我们去公园散步。\n",
    "big5": "你好，世界。今天天氣很好，我們去公園散步。\n",
    "euc_kr": "안녕하세요 세계 오늘 날씨가 좋습니다\n",
}
RARE = ("cp1006", "cp4", "cp7", "cp8", "mac", "kz", "ptcp", "hp")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-le")

lines = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co"), include_characters="\n\t "), max_size=300)
texts = st.lists(st.tuples(lines, st.integers(1, 60)), min_size=1, max_size=6).map(
    lambda parts: "Beginning.\n" + "".join((line + "\n" * (n % 2)) * n for line, n in parts)
)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    marks = [0, *sorted(min(mark, len(data)) for mark in at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(marks) if a < b]


@given(texts, st.sampled_from(ENCODINGS), st.lists(st.integers(0, 30_000), max_size=12))
@settings(max_examples=120, deadline=None)
def test_passages_do_not_depend_on_how_the_bytes_arrive(text: str, encoding: str, at: list[int]) -> None:
    text = text.lstrip("\ufeff")
    data = text.encode(encoding)
    given = encoding if encoding in ("utf-16-le", "utf-16-be", "utf-32-le") else None
    whole, pieces = (stream_source(parts, encoding=given) for parts in ([data], cut(data, at)))
    passages = list(whole.passages())
    assert passages == list(pieces.passages())
    assert check_passages(whole, passages) == text.replace("\r\n", "\n")
    assert whole.report() == pieces.report()
    assert whole.report().sha256 == hashlib.sha256(data).hexdigest()


@given(st.binary(min_size=1, max_size=3000), st.lists(st.integers(0, 9000), max_size=8), st.integers(0, 3))
@example(b"\xc3\xa9" * 3 + b"\xe9" * 40, [1, 2, 3], 0)
@example(b"\r", [0], 3)
@settings(max_examples=150, deadline=None)
def test_any_bytes_at_all_give_the_same_in_any_pieces(data: bytes, at: list[int], before: int) -> None:
    data = ENGLISH.encode() * 20 * before + data
    outcomes = []
    for parts in ([data], cut(data, at)):
        source = stream_source(parts, input_type="text")
        try:
            outcomes.append((list(source.passages()), source.report()))
        except InputError as error:
            outcomes.append((str(error), source.report()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GERMAN, "cp1252"),
        (GERMAN, "utf-8"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (GERMAN, "utf-16-le"),
        (RUSSIAN, "utf-16-be"),
        (GERMAN, "utf-32-le"),
    ],
)
def test_encodings_are_recognised(text: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes((ENGLISH * 100 + text * 200).encode(encoding))
    source = file_source(path)
    assert text_of(source) == ENGLISH * 100 + text * 200
    assert source.report().encoding
    assert not source.report().warnings


@pytest.mark.parametrize("encoding", TOLD_APART)
def test_scripts_and_their_encodings_are_told_apart(encoding: str) -> None:
    text = TOLD_APART[encoding]
    assert text_of(stream_source([text.encode(encoding)])) == text


@pytest.mark.parametrize("text", SHORT)
def test_a_few_signs_in_western_text_are_no_other_script(text: str) -> None:
    assert text_of(stream_source([text.encode("cp1252")])) == text


@given(st.lists(st.tuples(st.sampled_from(["a", "of ", "25 ", "x\n", "C "]), st.integers(0x80, 0xFF)), min_size=1))
@settings(max_examples=150, deadline=None)
def test_bytes_that_stand_alone_are_latin_letters(parts: list[tuple[str, int]]) -> None:
    guess = guess_encoding(b"".join(word.encode() + bytes([byte]) for word, byte in parts))
    assert guess in {"cp1250", "cp1252", "cp1254", "cp1257", "cp1258", "iso8859-2", "iso8859-13", "iso8859-15"}


@given(st.binary(min_size=1, max_size=200).filter(lambda data: not data.isascii()))
@settings(max_examples=150, deadline=None)
def test_no_guess_is_rare_or_takes_letters_for_controls(data: bytes) -> None:
    guess = guess_encoding(data)
    assert not guess.startswith(RARE)
    assert not (guess.startswith("iso8859") and any(0x80 <= byte <= 0x9F for byte in data))


def test_a_bad_byte_late_in_an_ascii_text_is_still_recognised() -> None:
    # Nothing but ASCII was handed on before, so nothing was wrong before.
    text = ENGLISH * 3000 + GERMAN * 50
    source = stream_source([text.encode("cp1252")])
    assert text_of(source) == text


def test_bad_bytes_in_utf8_are_replaced_and_counted() -> None:
    source = stream_source([(GERMAN * 50).encode() + b"bad \xff\xfe here\n" + GERMAN.encode()])
    assert "bad \ufffd\ufffd here" in text_of(source)
    assert source.report().encoding == "utf-8"
    assert "2 characters could not be decoded" in source.report().warnings[0]


def test_a_given_encoding_wins() -> None:
    source = stream_source([GERMAN.encode("cp437")], encoding="cp437")
    assert text_of(source) == GERMAN
    assert text_of(stream_source([codecs.BOM_UTF8 + b"plain"], encoding="utf-8")) == "plain"
    for wrong in ("klingon", "rot13", "base64"):
        with pytest.raises(UsageError, match="unknown encoding"):
            IngestOptions(encoding=wrong)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "idna"])
def test_data_that_ends_a_decoder_is_an_error(encoding: str) -> None:
    source = stream_source([GERMAN.encode("utf-16-le")], encoding=encoding)
    with pytest.raises(InputError, match=f"^stdin: cannot be read as {encoding}: [^\n]+$"):
        text_of(source)


@pytest.mark.parametrize("before", [ENGLISH, GERMAN])
def test_a_mark_within_the_text_is_kept_however_it_is_read(before: str) -> None:
    text = before + "\ufeff" + GERMAN * 20
    guessed = stream_source([text.encode()])
    assert text_of(guessed) == text
    assert text_of(stream_source([text.encode()], encoding=guessed.report().encoding)) == text


def test_windows_line_ends_become_newlines_and_nuls_are_dropped() -> None:
    source = stream_source([ENGLISH.encode() * 200, b"one\r", b"\ntwo\r\n\x00\x00three\rfour"])
    assert text_of(source).endswith("one\ntwo\nthree\rfour")
    assert source.report().warnings == ["2 NUL characters were dropped"]


def test_cuts_after_newlines_else_before_spaces_else_at_the_limit() -> None:
    passages = list(stream_source([("word " * 2000).encode()]).passages())
    assert all(passage.text.startswith(" word") for passage in passages[1:])
    assert [len(p.text) for p in stream_source([b"x" * 9000]).passages()] == [4096, 4096, 808]
    assert all(p.text.endswith("\n") for p in stream_source([ENGLISH.encode() * 300]).passages())


def test_a_slow_pipe_is_read_as_it_comes() -> None:
    end = threading.Event()
    line = b"2026-01-01 ERROR something went wrong somewhere\n"
    reader = trickle([line] * 100, 0.002, end)
    with os.fdopen(reader, "rb") as pipe:
        passages = next(open_sources(["-"], stdin=pipe)).passages()
        first, second = next(passages), next(passages)  # the writer is still open
        assert first.place == 1
        assert second.place == 1 + first.text.count("\n")
        end.set()
        assert first.text + second.text + "".join(p.text for p in passages) == line.decode() * 100


def test_memory_does_not_grow_with_the_stream() -> None:
    block = (ENGLISH * 400).encode()

    def peak(megabytes: int) -> int:
        source = stream_source(itertools.repeat(block, megabytes * 1_000_000 // len(block)))
        tracemalloc.start()
        try:
            chars = sum(len(passage.text) for passage in source.passages())
            assert chars == source.report().bytes > megabytes * 990_000
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small = peak(1)
    assert peak(50) < small + 200_000
    assert small < 3_000_000


def test_binary_is_refused_by_name(tmp_path: Path) -> None:
    for data, words in (
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "a PNG image"),
        (b"\x7fELF" + bytes(500), "ELF"),
        (os.urandom(64) + bytes(64) + b"\x00\xd8\x00" * 99, "binary data"),
        (b"{\\rtf1 Hello}", "an RTF document"),
    ):
        path = tmp_path / "x"
        path.write_bytes(data)
        with pytest.raises(InputError, match=words) as caught:
            file_source(path)
        assert str(path) in str(caught.value)
        assert caught.value.hint


def test_nul_later_in_a_pipe_is_refused_when_it_comes() -> None:
    source = stream_source([ENGLISH.encode() * 60, b"\x00\x01"])
    passages = source.passages()
    assert next(passages).text.startswith("It was")
    with pytest.raises(InputError, match="binary"):
        list(passages)


@pytest.mark.parametrize("data", [b"", b" \n\t\n", codecs.BOM_UTF8])
def test_nothing_in_it_is_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    for source in (file_source(tmp_path / "x"), stream_source([data])):
        with pytest.raises(InputError, match="no text"):
            list(source.passages())
        assert not source.report().complete


def test_a_file_can_be_read_twice_and_a_stream_once(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(ENGLISH * 100)
    source = file_source(tmp_path / "x")
    assert text_of(source) == text_of(source)
    assert source.bytes_read == source.size == source.report().bytes
    assert source.report().complete
    stream = stream_source([b"once"])
    assert text_of(stream) == "once"
    with pytest.raises(InputError, match="read already"):
        list(stream.passages())


def test_reports_are_partial_while_reading_goes_on(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(ENGLISH * 10_000)
    source = file_source(tmp_path / "x")
    passages = source.passages()
    first = next(passages)
    report = source.report().to_dict()
    assert report["chars"] == len(first.text)
    assert 0 < report["bytes"] < (source.size or 0)
    assert not report["complete"]


def test_peeking_loses_nothing() -> None:
    stream = PeekableStream(Pieces([b"ab", b"cdef", b"g"]))
    assert stream.peek(3) == b"abc"
    assert stream.peek(1) == b"a"
    assert stream.read(2) == b"ab"
    assert stream.peek(99) == b"cdefg"
    assert stream.read1(3) == b"cde"
    assert stream.read() == b"fg"
    assert stream.read(5) == stream.peek(5) == b""


def test_a_peeked_stream_goes_on_as_a_source() -> None:
    stream = PeekableStream(Pieces([b"some te", b"xt"]))
    assert not is_pot(stream.peek(64))
    assert text_of(next(open_sources(["-"], stdin=stream))) == "some text"


def test_pots_are_told_from_documents(tmp_path: Path) -> None:
    header = b'{"__metadata__":{"format":"infinipot-pot"}}'
    data = len(header).to_bytes(8, "little") + header + bytes(100)
    (tmp_path / "x.pot").write_bytes(data)
    (tmp_path / "x.txt").write_text('{"__metadata__": 1}')
    assert is_pot(tmp_path / "x.pot")
    assert is_pot(data[:40])
    assert not is_pot(tmp_path / "x.txt")
    assert not is_pot(tmp_path)
    assert not is_pot(tmp_path / "none")
    assert not is_pot((1 << 40).to_bytes(8, "little") + header)
    with pytest.raises(InputError, match="is a pot"):
        file_source(tmp_path / "x.pot")


def test_importing_ingestion_imports_no_format_library() -> None:
    code = (
        "import sys, infinipot_cli.ingest; print([m for m in ('pypdf', 'pypdfium2', 'selectolax', 'docx', "
        "'chardet', 'zstandard', 'pathspec', 'typer', 'rich', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text", ["The boat is\0 red, and it is Anna's.", "café\0 au lait, café noir", "\0plain words at last"]
)
def test_a_nul_or_two_do_not_make_utf_16(text: str) -> None:
    assert wide_encoding(text.encode()) is None
    assert wide_encoding(text.replace("\0", "").encode("utf-16-le")) == "utf-16-le"
