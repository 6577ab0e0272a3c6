"""Reading documents: files, folders and streams of any format and size become passages of text.

    for source in open_sources(["book.pdf", "notes/"], IngestOptions()):
        for passage in source.passages():
            ...
        receipt.append(source.report())

Everything streams. The libraries for the formats are imported when a document needs them.
"""

from infinipot_cli.ingest.opening import Met, Sources, open_sources
from infinipot_cli.ingest.sniffing import is_pot
from infinipot_cli.ingest.source import Source
from infinipot_cli.ingest.streams import PeekableStream
from infinipot_cli.ingest.types import KINDS, MAX_PASSAGE, IngestOptions, Passage, SourceReport

__all__ = [
    "KINDS",
    "MAX_PASSAGE",
    "IngestOptions",
    "Met",
    "Passage",
    "PeekableStream",
    "Source",
    "SourceReport",
    "Sources",
    "is_pot",
    "open_sources",
]
