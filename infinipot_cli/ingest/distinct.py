"""Each file of a run once, whatever names it has."""

from __future__ import annotations

from collections.abc import Iterator

from infinipot_cli.ingest.opening import Sources
from infinipot_cli.ingest.source import Source


class Met:
    """The files that a run has come to."""

    def __init__(self) -> None:
        self._sources: dict[tuple[int, int], Source] = {}

    def again(self, source: Source) -> bool:
        """Note a source; True if it is a file that was come to before, and had text.

        One without any in a folder is passed over quietly; named outright it is an error, so it is read again.
        """
        try:
            status = source.path.stat() if source.path else None
        except OSError:  # it went away; opening it will say so
            status = None
        if status is None:
            return False
        before = self._sources.setdefault((status.st_dev, status.st_ino), source)
        return before is not source and not before.is_barren


class DistinctSources(Iterator[Source]):
    """``sources`` without the files that ``met`` knows; ``skipped`` gets a sentence for each of them too."""

    def __init__(self, sources: Sources, met: Met) -> None:
        self.skipped = sources.skipped
        self._sources = sources
        self._met = met

    def __next__(self) -> Source:
        source = next(self._sources)
        while self._met.again(source):
            self.skipped.append(f"{source.name}: a file that is read under another name")
            source = next(self._sources)
        return source
