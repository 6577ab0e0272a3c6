"""Word documents: paragraphs, tables and notes, in document order."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import Any

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.archives import MAX_XML, open_zip, read_member, refuse_dtd
from infinipot_cli.ingest.source import Extractor, Piece
from infinipot_cli.ingest.types import SourceReport

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_TEXT = (_W + "t", _M + "t")
_EQUATIONS = (_M + "oMathPara", _M + "oMath")
_SIGNS = {_W + "tab": "\t", _W + "br": "\n", _W + "cr": "\n", _W + "noBreakHyphen": "-"}
# Deleted text, and the second copy that drawings carry for old programs.
_PASSED_OVER = frozenset((_W + "del", _W + "moveFrom", _W + "pPr", _W + "rPr", _FALLBACK))
_NOTES = ("footnotes", "endnotes")
# By the last word of a relationship's type.
_UNREAD = {
    "header": "page headers",
    "footer": "page footers",
    "comments": "comments",
    "image": "images",
    "chart": "charts",
    "chartEx": "charts",
    "diagramData": "diagrams",
    "aFChunk": "inserted documents",
    "oleObject": "embedded objects",
    "package": "embedded objects",
}


class DocxExtractor(Extractor):
    """Word documents, tracked insertions, text boxes, equations, content controls and notes included."""

    kind = "docx"

    def prepare(self) -> None:
        """Check the archive's bounds."""
        with open_zip(self.feed.as_file(), self.options) as archive:
            _check_parts(archive)

    def pieces(self, report: SourceReport) -> Iterator[Piece]:
        """Block by block."""
        self.feed.measure()
        self.prepare()
        document = self._open()
        for block in _blocks(document.element.body):
            yield None, block
        for relation in document.part.rels.values():
            if not relation.is_external and relation.reltype.rpartition("/")[2] in _NOTES:
                yield from ((None, note) for note in _notes(relation.target_part))
        _note_unread(document, report)

    def _open(self) -> Any:
        import docx

        try:
            document = docx.Document(str(self.feed.as_file()))
            if document.element.body is None:
                raise ValueError("it has no body")
        except Exception as error:  # on hostile files the library fails in any way at all
            raise InputError(f"is no sound Word document: {error}") from error
        return document


def _check_parts(archive: zipfile.ZipFile) -> None:
    """The library parses every XML part into a tree: bound their size and refuse DTDs first."""
    for member in archive.infolist():
        if member.filename.endswith((".xml", ".rels")):
            data = read_member(archive, member.filename, MAX_XML)
            if data.strip():  # custom parts can be empty, and then do no harm
                refuse_dtd(data, member.filename)


def _blocks(parent: Any) -> Iterator[str]:
    """The paragraphs, tables and equations within an element as lines, whatever wraps them."""
    for child in parent.iterchildren():
        if child.tag == _W + "p":
            yield _paragraph(child)
        elif child.tag == _W + "tbl":
            yield from _table(child)
        elif child.tag in _EQUATIONS:
            yield "".join(_inline(child)) + "\n"
        elif isinstance(child.tag, str) and child.tag not in _PASSED_OVER:
            yield from _blocks(child)


def _paragraph(element: Any) -> str:
    text = "".join(_inline(element)).strip("\n")
    properties = element.find(_W + "pPr")
    if properties is not None and text:
        if properties.find(_W + "numPr") is not None:
            return f"- {text}\n"
        style = properties.find(_W + "pStyle")
        if style is not None and style.get(_W + "val", "").startswith(("Heading", "Title")):
            return f"\n{text}\n\n"
    return text + "\n"


def _inline(element: Any) -> Iterator[str]:
    """The text of a paragraph, text boxes and equations within it included, without recursion into what was deleted."""
    stack = list(reversed(element))
    while stack:
        node = stack.pop()
        if node.tag in _TEXT:
            yield node.text or ""
        elif node.tag in _SIGNS:
            yield _SIGNS[node.tag]
        elif node.tag == _W + "txbxContent":
            yield "\n" + "".join(_blocks(node))
        elif isinstance(node.tag, str) and node.tag not in _PASSED_OVER:
            stack.extend(reversed(node))


def _table(table: Any) -> Iterator[str]:
    """A line for each row, its cells separated by bars; tables within cells are flattened into them."""
    for row in table.iter(_W + "tr"):
        if next(row.iterancestors(_W + "tbl")) is not table:
            continue
        cells = [
            " ".join(" ".join(_blocks(cell)).split())
            for cell in row.iter(_W + "tc")
            if next(cell.iterancestors(_W + "tr")) is row
        ]
        if any(cells):
            yield " | ".join(cells) + "\n"
    yield "\n"


def _notes(part: Any) -> Iterator[str]:
    """Foot- or endnotes; the first two are separators and hold no text."""
    from docx.oxml import parse_xml

    try:
        notes = parse_xml(part.blob)
    except SyntaxError as error:  # which lxml's errors are
        raise InputError(f"its notes are damaged: {error}") from error
    for note in notes:
        text = "".join(_blocks(note)).strip()
        if text:
            yield f"[note {note.get(_W + 'id')}] {text}\n"


def _note_unread(document: Any, report: SourceReport) -> None:
    """Say what of the document was not read."""
    kinds = [relation.reltype.rpartition("/")[2] for relation in document.part.rels.values()]
    unread = [words for kind, words in _UNREAD.items() if kind in kinds]
    report.skipped.extend(dict.fromkeys(unread))
