"""Compressed text: every codec, several members, truncation, damage, bombs."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import random
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_documents import file_source, make_pdf, stream_source, text_of, trickle

from infinipot_cli.errors import InputError
from infinipot_cli.ingest import Source, open_sources

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
codecs = pytest.mark.parametrize("codec", COMPRESS)
TEXT = "".join(f"line {i}: {random.Random(i).random()}\n" for i in range(20_000))


@codecs
@given(sizes=st.lists(st.integers(1, 5000), max_size=6))
@settings(max_examples=15, deadline=None)
def test_compressed_text_reads_like_plain_text(codec: str, sizes: list[int]) -> None:
    data = COMPRESS[codec](TEXT[:200_000].encode())
    marks = [0, *itertools.accumulate(sizes), len(data)]
    source = stream_source([data[a:b] for a, b in itertools.pairwise(marks) if a < b])
    assert text_of(source) == TEXT[:200_000]
    report = source.report()
    assert (report.compression, report.kind, report.bytes, report.warnings) == (codec, "text", len(data), [])


@codecs
def test_several_members_are_one_text(codec: str) -> None:
    parts = [COMPRESS[codec](part.encode()) for part in ("one\n", "two\n", "three\n")]
    assert text_of(stream_source([b"".join(parts)])) == "one\ntwo\nthree\n"
    assert text_of(stream_source([parts[0] + b"\0" * 512 + parts[1] + b"\0" * 512])) == "one\ntwo\n"


@codecs
def test_what_follows_the_data_is_ignored_with_a_warning(codec: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(COMPRESS[codec](TEXT.encode()) + b"trailing rubbish" * 9999)
    source = file_source(tmp_path / "x")
    assert text_of(source) == TEXT
    assert "were ignored" in source.report().warnings[0]
    assert source.bytes_read == source.size


def collect(source: Source, texts: list[str]) -> None:
    for passage in source.passages():
        texts.append(passage.text)


@codecs
@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
def test_cut_off_data_give_what_they_hold_and_an_error(codec: str, share: float, tmp_path: Path) -> None:
    data = COMPRESS[codec](TEXT.encode())
    (tmp_path / "log").write_bytes(data[: int(len(data) * share)])
    for source in (file_source(tmp_path / "log"), stream_source([(tmp_path / "log").read_bytes()])):
        read: list[str] = []
        with pytest.raises(InputError, match="cut off"):
            collect(source, read)
        report, text = source.report(), "".join(read)
        assert TEXT.startswith(text)
        assert report.chars == len(text)
        assert not report.complete
        assert "cut off" in report.warnings[-1]
        assert codec in ("xz", "bzip2") or share < 0.5 or report.chars > 100_000


@codecs
def test_damaged_data_are_an_error(codec: str) -> None:
    data = bytearray(COMPRESS[codec](TEXT.encode()))
    data[len(data) // 2] ^= 0xFF
    data[len(data) // 2 + 1] ^= 0xFF
    with pytest.raises(InputError, match=r"damaged|cut off"):
        list(stream_source([bytes(data)], input_type="text").passages())


def test_two_layers_are_opened_and_no_more() -> None:
    once = gzip.compress(b"text inside")
    source = stream_source([lzma.compress(once)])
    assert text_of(source) == "text inside"
    assert source.report().compression == "xz, gzip"
    with pytest.raises(InputError, match="more than 2 times"):
        stream_source([bz2.compress(lzma.compress(once))])


def test_a_compressed_pdf_is_a_pdf(tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "a.pdf", [["A line of text that is long enough."]])
    (tmp_path / "a.pdf.gz").write_bytes(gzip.compress(path.read_bytes()))
    source = file_source(tmp_path / "a.pdf.gz")
    assert text_of(source) == "A line of text that is long enough.\n"
    assert (source.kind, source.report().compression) == ("pdf", "gzip")
    assert source.bytes_read == source.size


def zstd_bomb(size: int) -> bytes:
    out = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as writer:
        for _ in range(size >> 20):
            writer.write(b" " * (1 << 20))
    return out.getvalue()


@pytest.mark.parametrize(
    "bomb",
    [gzip.compress(b"\n" * (60 << 20), 9), bz2.compress(b" " * (60 << 20)), zstd_bomb(60 << 20)],
    ids=["gzip", "bzip2", "zstd"],
)
def test_bombs_are_stopped_in_little_memory(bomb: bytes) -> None:
    source = stream_source([bomb], max_ratio=500)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="decompression bomb"):
            for _ in source.passages():
                pass
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_small_files_of_zeros_are_no_bombs() -> None:
    assert len(text_of(stream_source([gzip.compress(b"a\n" * 5_000_000, 9)], max_ratio=100))) == 10_000_000


def test_a_window_too_large_for_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, write_content_size=0)
    data = zstandard.ZstdCompressor(compression_params=parameters).compressobj().compress(b"x" * 300_000)
    with pytest.raises(InputError, match="too much memory"):
        list(stream_source([data, b""]).passages())


def test_a_slow_compressed_pipe_is_read_as_it_comes() -> None:
    end = threading.Event()
    packer = zlib.compressobj(wbits=31)
    line = b"an event that repeats itself at every turn of the clock\n"
    pieces = [packer.compress(line * 20) + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(4)] + [packer.flush()]
    with os.fdopen(trickle(pieces, 0.002, end), "rb") as pipe:
        passages = next(open_sources(["-"], stdin=pipe)).passages()
        first = next(passages)
        end.set()
        assert (first.text + "".join(p.text for p in passages)).encode() == line * 80
