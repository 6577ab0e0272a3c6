"""Byte streams: short reads that never wait for more than there is, peeking, counting and hashing, spooling."""

from __future__ import annotations

import hashlib
import io
import select
import tempfile
from collections.abc import Callable
from typing import IO, Any, Protocol

from infinipot_cli.errors import InputError

CHUNK = 1 << 16
"""Most bytes of one read."""


class ShortReader(Protocol):
    """Anything that gives some bytes at a time: at most ``size``, at least one, ``b""`` at the end."""

    def read1(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


def read_some(stream: Any, size: int = CHUNK) -> bytes:
    """Some bytes of a binary stream as soon as there are any; ``b""`` only at the end."""
    read = stream.read1 if hasattr(stream, "read1") else stream.read
    while (data := read(size)) is None:  # a descriptor that another program made non-blocking
        select.select([stream], [], [])
    return bytes(data)


class MeteredReader:
    """Counts and hashes the bytes that pass."""

    def __init__(self, stream: Any, keep_open: bool = False) -> None:
        """``keep_open``: the stream belongs to somebody else."""
        self._stream = stream
        self._keep_open = keep_open
        self._hash = hashlib.sha256()
        self.count = 0

    def read1(self, size: int = CHUNK, /) -> bytes:
        """At most ``size`` bytes, ``b""`` at the end."""
        data = read_some(self._stream, size)
        self.count += len(data)
        self._hash.update(data)
        return data

    @property
    def sha256(self) -> str:
        """The hexadecimal hash of what has passed."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close the stream beneath."""
        if not self._keep_open:
            self._stream.close()


class PeekableStream(io.BufferedIOBase):
    """A binary stream whose beginning can be looked at without losing it; it need not be seekable."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self._ahead = b""
        self._ended = False
        self._failure: InputError | None = None

    def peek(self, size: int) -> bytes:
        """The next bytes, exactly ``size`` unless the stream ends before; the next read gives them again.

        Damaged data end the peek early; the error is raised by the read that comes to them.
        """
        parts, have = [self._ahead], len(self._ahead)
        try:
            while have < size and (data := self._more(CHUNK)):
                parts.append(data)
                have += len(data)
        except InputError as error:
            self._failure = error
        self._ahead = b"".join(parts)
        return self._ahead[:size]

    def read1(self, size: int = -1, /) -> bytes:
        """Some bytes as soon as there are any, at most ``size``."""
        size = CHUNK if size < 0 else size
        if not self._ahead:
            return self._more(size) if size else b""
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data

    def read(self, size: int | None = -1, /) -> bytes:
        """Exactly ``size`` bytes unless the stream ends before; everything when it is negative or None."""
        want = float("inf") if size is None or size < 0 else size
        parts, have = [], 0
        while have < want and (data := self.read1(int(min(CHUNK, want - have)))):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def readable(self) -> bool:
        """Always True."""
        return True

    def fileno(self) -> int:
        """The descriptor beneath; raises OSError where there is none."""
        return int(self._stream.fileno())

    def close(self) -> None:
        """Close the stream beneath as well."""
        if not self.closed:
            self._stream.close()
        super().close()

    def _more(self, size: int) -> bytes:
        if self._failure is not None:
            raise self._failure
        # Asking a terminal again after its end would wait for a second Ctrl-D.
        data = b"" if self._ended else read_some(self._stream, max(size, 1))
        self._ended = not data
        return data


def spool(stream: ShortReader, max_bytes: int, on_bytes: Callable[[int], None] | None = None) -> IO[bytes]:
    """The rest of ``stream`` in a temporary file that goes away when closed.

    ``on_bytes`` is told how many bytes were written so far. Raises InputError past ``max_bytes`` or when the
    disk is full.
    """
    target = tempfile.NamedTemporaryFile(prefix="infinipot-")  # noqa: SIM115 (handed on)
    written = 0
    try:
        while data := stream.read1(CHUNK):
            written += len(data)
            if written > max_bytes:
                raise InputError(
                    f"is more than {max_bytes:,} bytes",
                    hint="this format cannot be streamed; unpack it to a file and name that",
                )
            target.write(data)
            if on_bytes:
                on_bytes(written)
        target.flush()
    except OSError as error:
        target.close()
        raise InputError(f"cannot be kept in a temporary file: {error.strerror or error}") from error
    except BaseException:
        target.close()
        raise
    return target
