"""Where the bytes of one source come from: a file, opened anew for each reading, or a stream, read once."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, BinaryIO

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.decompression import ExpandingReader
from infinipot_cli.ingest.sniffing import HEAD, STREAM_HEAD, compression_of
from infinipot_cli.ingest.streams import CHUNK, MeteredReader, PeekableStream, spool
from infinipot_cli.ingest.types import IngestOptions

_MAX_LAYERS = 2


class Feed:
    """The unpacked bytes of a file or a stream, with a meter on the raw ones."""

    def __init__(self, path: Path | None, stream: BinaryIO | None, options: IngestOptions) -> None:
        """Give a stream for what can be read once only (stdin, a named pipe), else a path."""
        self._path = path
        self._stream = stream
        self._options = options
        self._opened: PeekableStream | None = None
        self._meter: MeteredReader | None = None
        self.compressions: list[str] = []
        self.warnings: list[str] = []
        self.spooled: IO[bytes] | None = None

    @property
    def is_plain_file(self) -> bool:
        """Whether the path can be given to a library that wants a file."""
        return self._stream is None and not self.compressions

    @property
    def bytes_read(self) -> int:
        """Raw bytes read so far in the current reading."""
        return self._meter.count if self._meter else 0

    @property
    def sha256(self) -> str:
        """Hash of the raw bytes read so far, hexadecimal."""
        return self._meter.sha256 if self._meter else ""

    @property
    def compression(self) -> str | None:
        """The compressions from the outside in, as in "gzip" or "xz, gzip"."""
        return ", ".join(self.compressions) or None

    @property
    def head_size(self) -> int:
        """How many bytes may be peeked without delaying a slow stream."""
        return STREAM_HEAD if self._stream else HEAD

    def open(self) -> PeekableStream:
        """The unpacked bytes from their beginning. Raises OSError, and InputError for a stream read before."""
        if self._opened is not None:  # opened to look at its head, and not read yet
            opened, self._opened = self._opened, None
            return opened
        if self._stream is not None and self._meter is not None:
            raise InputError("is a stream and was read already")
        raw: Any = self._stream if self._stream is not None else self._raw_file()
        # stdin belongs to the caller; a named pipe was opened for this feed.
        self._meter = MeteredReader(raw, keep_open=self._path is None)
        self.compressions, self.warnings = [], []
        return self._unpacked(PeekableStream(self._meter))

    def peek(self) -> bytes:
        """The first unpacked bytes; a later ``open`` gives them again."""
        stream = self.open()
        try:
            head = stream.peek(self.head_size)
        except BaseException:
            stream.close()
            raise
        if self._stream is not None:
            self._opened = stream
        else:
            stream.close()
        return head

    def as_file(self) -> Path:
        """The unpacked bytes as a file that can be read in any order: the path itself, or a temporary copy."""
        if self.is_plain_file:
            assert self._path is not None
            return self._path
        if self.spooled is None:
            with self.open() as stream:
                self.spooled = spool(stream, self._options.max_bytes)
        return Path(self.spooled.name)

    def measure(self) -> None:
        """Count and hash a plain file that a library will read by itself."""
        if self.is_plain_file:
            self._meter = MeteredReader(self._raw_file())
            try:
                while self._meter.read1(CHUNK):
                    pass
            finally:
                self._meter.close()

    def _raw_file(self) -> Any:
        assert self._path is not None
        return self._path.open("rb", buffering=0)

    def _unpacked(self, stream: PeekableStream) -> PeekableStream:
        """Put a reader before each layer of compression."""
        meter = self._meter
        assert meter is not None
        while name := compression_of(stream.peek(16)):
            if len(self.compressions) == _MAX_LAYERS:
                raise InputError(f"is compressed more than {_MAX_LAYERS} times over")
            self.compressions.append(name)
            stream = PeekableStream(
                ExpandingReader(stream, name, self._options.max_ratio, lambda: meter.count, self.warnings.append)
            )
        return stream
