"""Reading through gzip, bzip2, xz and zstd, a bounded amount at a time."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.sniffing import compression_of
from infinipot_cli.ingest.streams import CHUNK, ShortReader

_RATIO_FREE = 16 << 20
"""Output up to which expansion is not looked at: small files of zeros are no bombs."""
_MEMORY_LIMIT = 256 << 20
_ZSTD_WINDOW = 128 << 20
# One block of 4 bytes can stand for 128 KiB, and zstd's decoder gives all output of what it is fed: feed it little.
_ZSTD_FEED = 128


class _Member(Protocol):
    """The decoder of one member (gzip), stream (bzip2, xz) or frame (zstd)."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _GzipMember:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data


class _ZstdFrame:
    def __init__(self) -> None:
        import zstandard

        self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        self._waiting = b""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        # Bounded by what is fed, not by max_length.
        self._waiting += data
        output = b""
        while self._waiting and not output and not self._frame.eof:
            feed, self._waiting = self._waiting[:_ZSTD_FEED], self._waiting[_ZSTD_FEED:]
            output = self._frame.decompress(feed)
        return output

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data) + self._waiting


_MEMBERS: dict[str, Callable[[], Any]] = {
    "gzip": _GzipMember,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_MEMORY_LIMIT),
    "zstd": _ZstdFrame,
}


class ExpandingReader:
    """A short reader over the unpacked bytes of a compressed stream of any number of members.

    ``packed_bytes`` tells how many raw bytes were read so far, for the expansion ratio; ``warn`` is told of
    bytes that follow the compressed data. ``read1`` raises InputError when the data are cut off or damaged,
    or when they expand more than ``max_ratio`` times.
    """

    def __init__(
        self,
        stream: ShortReader,
        compression: str,
        max_ratio: float,
        packed_bytes: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._name = compression
        self._max_ratio = max_ratio
        self._packed_bytes = packed_bytes
        self._warn = warn
        self._member: _Member | None = _MEMBERS[compression]()
        self._unpacked = 0
        self._ready = memoryview(b"")

    def read1(self, size: int = CHUNK, /) -> bytes:
        """At most ``size`` unpacked bytes; ``b""`` at the end."""
        if not self._ready:
            self._ready = memoryview(self._next_output(size))
        data, self._ready = self._ready[:size], self._ready[size:]
        return bytes(data)

    def _next_output(self, size: int) -> bytes:
        data = b""
        while self._member is not None:
            output = self._decompress(self._member, data, size)
            if output:
                return self._counted(output)
            if self._member.eof:
                data = self._next_member(self._member.unused_data)
            elif not (data := self._stream.read1(CHUNK)):
                raise InputError(
                    f"the {self._name} data are cut off: the file or the stream ended too soon",
                    hint="fetch or make the file again",
                )
        return b""

    def close(self) -> None:
        """Close the packed stream."""
        self._stream.close()

    def _decompress(self, member: _Member, data: bytes, size: int) -> bytes:
        if member.eof:
            return b""
        try:
            return member.decompress(data, size)
        except (zlib.error, OSError, lzma.LZMAError, ValueError, EOFError) as error:
            raise self._damaged(error) from error
        except Exception as error:
            # zstandard's own error class cannot be named without importing it.
            if type(error).__name__ != "ZstdError":
                raise
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InputError:
        if "memory" in str(error).lower():
            return InputError(
                f"the {self._name} data need too much memory to unpack",
                hint="unpack them outside and pipe them in, for example: zstd -dc --long=31 FILE | …",
            )
        return InputError(f"the {self._name} data are damaged: {error}")

    def _counted(self, output: bytes) -> bytes:
        self._unpacked += len(output)
        packed = max(self._packed_bytes(), 1)
        if self._unpacked > _RATIO_FREE and self._unpacked > self._max_ratio * packed:
            raise InputError(
                f"expands more than {self._max_ratio:g} times ({packed:,} bytes to over "
                f"{self._unpacked:,}): this looks like a decompression bomb",
                hint="if it is not, unpack it outside and pipe it in",
            )
        return output

    def _next_member(self, data: bytes) -> bytes:
        """Begin the next member if there is one; give its first bytes back."""
        while True:
            data = data.lstrip(b"\x00")  # padding, as tapes and xz have it
            if compression_of(data) == self._name:
                self._member = _MEMBERS[self._name]()
                return data
            more = self._stream.read1(CHUNK) if len(data) < 16 else b""
            if not more:
                break
            data += more
        self._member = None
        if data:
            self._warn(f"bytes after the end of the {self._name} data were ignored")
        while self._stream.read1(CHUNK):  # so that the hash is that of the whole file
            pass
        return b""
