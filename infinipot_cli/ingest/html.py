"""HTML to text: the words that a reader of the page would see, blocks on lines of their own."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.decoding import TextDecoder, bom_of, damage_note
from infinipot_cli.ingest.source import Extractor, Piece
from infinipot_cli.ingest.streams import CHUNK, PeekableStream
from infinipot_cli.ingest.types import SourceReport

MAX_MARKUP = 64 << 20
"""Most bytes of one HTML page: its tree takes about ten times as much memory."""

_DROPPED = frozenset(
    {
        "script",
        "style",
        "noscript",
        "template",
        "svg",
        "iframe",
        "object",
        "canvas",
        "audio",
        "video",
        "button",
        "select",
        "textarea",
        "datalist",
        "head",
    }
)
_BLOCKS = frozenset(
    {
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "dd",
        "details",
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hgroup",
        "hr",
        "html",
        "legend",
        "li",
        "main",
        "menu",
        "ol",
        "optgroup",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    }
)
_CELLS = frozenset({"td", "th"})
# These stand apart by an empty line.
_PARAGRAPHS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "pre"})
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_SELF_CLOSED = re.compile(r"<([A-Za-z][\w:.-]*)((?:\s[^<>]*?)?)/>")
_CHARSET = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]{0,100}?encoding=[\"']([\w.:-]+)", re.IGNORECASE
)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")
_INVISIBLE = str.maketrans("", "", "\u00ad\u200b\ufeff\x00")


class HtmlExtractor(Extractor):
    """One page of HTML. The whole page is held in memory, so its size is bounded."""

    kind = "html"

    def pieces(self, report: SourceReport) -> Iterator[Piece]:
        """The page's text, in one piece."""
        with self.feed.open() as stream:
            data = _read_bounded(stream)
        markup = decode_markup(data, self.options.encoding)
        report.encoding = markup.encoding
        if markup.replaced:
            report.warnings.append(damage_note(markup.replaced, markup.encoding))
        text, navigation = html_text(markup.text)
        if navigation:
            report.skipped.append(f"navigation ({navigation} {'block' if navigation == 1 else 'blocks'})")
        yield None, text


def _read_bounded(stream: PeekableStream) -> bytes:
    parts, have = [], 0
    while data := stream.read1(CHUNK):
        parts.append(data)
        have += len(data)
        if have > MAX_MARKUP:
            raise InputError(
                f"is an HTML page of more than {MAX_MARKUP:,} bytes",
                hint="--input-type text reads it as plain text, tags and all",
            )
    return b"".join(parts)


class Markup(NamedTuple):
    """Markup as text, its encoding, and how many characters could not be decoded."""

    text: str
    encoding: str
    replaced: int


def decode_markup(data: bytes, encoding: str | None) -> Markup:
    """Decode by the given encoding, a byte order mark's, the declared one, or a guess."""
    if encoding is None and bom_of(data) is None and (name := _declared(data)):
        try:
            return Markup(data.decode(name), name, 0)
        except (LookupError, UnicodeError):
            pass  # a wrong declaration: look for ourselves
    decoder = TextDecoder(encoding, data[:8192])
    text = decoder.feed(data) + decoder.finish()
    return Markup(text, decoder.encoding or "utf-8", decoder.replaced)


def _declared(data: bytes) -> str | None:
    """The encoding that the markup names, where it makes a difference."""
    # ASCII reads the same in all encodings, but for those that change their meaning by escapes.
    if data.isascii() and b"\x1b" not in data:
        return None
    declared = _CHARSET.search(_COMMENT.sub(b"", data[:4096]))
    if declared is None:
        return None
    name = (declared[1] or declared[2]).decode("ascii", "replace").lower()
    # What could be read so far is not UTF-16, whatever it calls itself.
    if name.startswith("utf-16"):
        return None
    # Pages that call themselves latin-1 are Windows-1252 in fact, says the HTML standard.
    return "cp1252" if name in ("iso-8859-1", "latin1", "ascii", "us-ascii") else name


def html_text(markup: str, xml: bool = False) -> tuple[str, int]:
    """The visible text of a page, its title first, and the number of navigation blocks left out.

    ``xml``: it is XHTML, where any element can be closed in its own tag. Lines hold no outer spaces, at most
    one empty line separates blocks; ``pre`` is kept as it is.
    """
    from selectolax.lexbor import LexborHTMLParser

    if xml or markup.lstrip("\ufeff \r\n\t").startswith("<?xml"):
        markup = _SELF_CLOSED.sub(_closed, _without_cdata(markup))
    tree = LexborHTMLParser(markup)
    writer = _Writer()
    title = tree.css_first("head title")
    if title is not None and (words := title.text().split()):
        writer.words(" ".join(words))
        writer.block(apart=True)
    if tree.body is not None:
        _walk(tree.body, writer)
    return writer.text(), writer.navigation


def _closed(match: re.Match[str]) -> str:
    """``<i/>`` is an empty element in XML, but an opened one in HTML."""
    name, attributes = match[1], match[2]
    return match[0] if name.lower() in _VOID else f"<{name}{attributes}></{name}>"


def _without_cdata(markup: str) -> str:
    """CDATA sections as the plain text they stand for: to an HTML parser they are comments."""
    before, *sections = markup.split("<![CDATA[")
    parts = [before]
    for section in sections:
        words, end, after = section.partition("]]>")
        parts.append(html.escape(words, quote=False) + after if end else "<![CDATA[" + section)
    return "".join(parts)


class _Writer:
    """Collects words and line breaks, with white space as a browser lays it out."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._breaks = 0
        self._space = False
        self._begun = False
        self._item = False
        # For each table and cell that is open, the innermost last: whether blocks in it stay on one line.
        self._one_line: list[bool] = []
        self.navigation = 0

    def words(self, text: str) -> None:
        text = _SPACES.sub(" ", text.translate(_INVISIBLE))
        if not text:
            return
        if text == " ":
            self._space = self._space or (self._begun and not self._breaks)
            return
        self._space = self._space or text[0] == " "
        self._lines_out()
        self._parts.append(text.strip(" "))
        self._space = text[-1] == " "
        self._begun = True

    def verbatim(self, text: str) -> None:
        """Text of a ``pre``: its spaces and line breaks count."""
        text = text.translate(_INVISIBLE).replace("\r\n", "\n")
        if text:
            self._lines_out()
            self._parts.append(text)
            self._begun, self._space = True, False

    def cell(self) -> None:
        """A bar between two cells of a row."""
        self._space = False
        self._lines_out()
        self._parts.append(" | ")

    def enter(self, one_line: bool) -> None:
        """A table or a cell begins; ``one_line``: the blocks within are parted by spaces."""
        self._one_line.append(one_line)

    def leave(self) -> None:
        """The innermost table or cell ends."""
        self._one_line.pop()

    def item(self) -> None:
        """A dash before the next words, if any come before the item ends."""
        self._item = True

    def block(self, apart: bool = False, ends: bool = False) -> None:
        """End the line, at the beginning or end of a block; ``apart`` leaves an empty one."""
        self._item = self._item and not ends
        if self._one_line and self._one_line[-1]:
            self._space = self._begun and not self._breaks
            return
        if self._begun and not self._item:
            self._breaks = max(self._breaks, 2 if apart else 1)
        self._space = False

    def line(self) -> None:
        """A ``br``."""
        self._breaks = min(self._breaks + 1, 2)
        self._space = False

    def text(self) -> str:
        lines = "".join(self._parts).rstrip()
        return lines + "\n" if lines else ""

    def _lines_out(self) -> None:
        if self._breaks and self._begun:
            self._parts.append("\n" * self._breaks)
        if self._space and self._parts and not self._parts[-1].endswith(("\n", " ", "\t")):
            self._parts.append(" ")
        if self._item:
            self._parts.append("- ")
        self._breaks, self._item, self._space = 0, False, False


def _walk(root: Any, writer: _Writer) -> None:
    """Visit the tree without recursion: pages can be nested thousands deep."""
    node, preformatted = root, 0
    while True:
        entered = _enter(node, writer, preformatted > 0)
        if entered and node.child is not None:
            preformatted += node.tag == "pre"
            node = node.child
            continue
        if entered:
            _leave(node, writer)
        while node.next is None or node.mem_id == root.mem_id:
            if node.mem_id == root.mem_id:
                return
            node = node.parent
            preformatted -= node.tag == "pre"
            _leave(node, writer)
            if node.mem_id == root.mem_id:
                return
        node = node.next


def _enter(node: Any, writer: _Writer, preformatted: bool) -> bool:
    """Write what a node begins with; False when it is to be passed over with all that is in it."""
    tag = node.tag  # None: a processing instruction, such as <?php … ?>
    if tag == "-text":
        text = node.text_content or ""
        (writer.verbatim if preformatted else writer.words)(text)
        return False
    if tag is None or tag in _DROPPED or tag.startswith(("-", "!", "_")):
        return False
    attributes = node.attributes
    if tag == "nav" or attributes.get("role") == "navigation":
        writer.navigation += 1
        return False
    if "hidden" in attributes:
        return False
    if tag == "br":
        writer.line()
    elif tag in _PARAGRAPHS or tag in _BLOCKS:
        writer.block(apart=tag in _PARAGRAPHS)
        if tag == "li":
            writer.item()
    elif tag in _CELLS and _has_cell_beside(node, "prev"):
        writer.cell()
    if tag == "table":
        writer.enter(one_line=False)
    elif tag in _CELLS:
        # Alone in its row it lays out a page, and no table.
        writer.enter(one_line=_has_cell_beside(node, "prev") or _has_cell_beside(node, "next"))
    return True


def _leave(node: Any, writer: _Writer) -> None:
    if node.tag == "table" or node.tag in _CELLS:
        writer.leave()
    if node.tag in _PARAGRAPHS or node.tag in _BLOCKS:
        writer.block(apart=node.tag in _PARAGRAPHS, ends=True)


def _has_cell_beside(node: Any, direction: str) -> bool:
    """Whether the row has a cell on that side: "prev" or "next"."""
    beside = getattr(node, direction)
    while beside is not None and beside.tag not in _CELLS:
        beside = getattr(beside, direction)
    return beside is not None
