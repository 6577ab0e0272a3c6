"""EPUB: the chapters of its spine, in reading order."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree import ElementTree

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.archives import open_zip, read_member, refuse_dtd
from infinipot_cli.ingest.decoding import damage_note
from infinipot_cli.ingest.html import decode_markup, html_text
from infinipot_cli.ingest.source import PagedExtractor, Piece
from infinipot_cli.ingest.types import SourceReport

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_TEXT_TYPES = ("application/xhtml+xml", "text/html", "application/xml", "text/xml", "application/x-dtbook+xml")


class EpubExtractor(PagedExtractor):
    """The places are the positions in the spine, which is what readers call chapters or sections."""

    kind = "epub"
    unit = "chapter"

    def prepare(self) -> None:
        """Read the table of the spine."""
        with open_zip(self.feed.as_file(), self.options) as archive:
            self.pages = len(_spine(archive))
        if self.pages > self.options.max_pages:
            raise InputError(f"has {self.pages:,} chapters, more than {self.options.max_pages:,}")

    def pieces(self, report: SourceReport) -> Iterator[Piece]:
        """Chapter by chapter."""
        self.feed.measure()
        with open_zip(self.feed.as_file(), self.options) as archive:
            spine = _spine(archive)
            protected = _protected(archive)
            for number, name in enumerate(spine, 1):
                if name in protected:
                    raise InputError("is protected by DRM", hint="only its owner's reading program can open it")
                yield number, self._chapter(archive, number, name, report)
                self.pages_read = number

    def _chapter(self, archive: zipfile.ZipFile, number: int, name: str, report: SourceReport) -> str:
        if not name:
            report.skipped.append(f"chapter {number}: not a text")
            return ""
        markup = decode_markup(read_member(archive, name), self.options.encoding)
        report.encoding = report.encoding or markup.encoding
        if markup.replaced:
            report.warnings.append(f"chapter {number}: {damage_note(markup.replaced, markup.encoding)}")
        text, _ = html_text(markup.text, xml=True)
        if not text:
            report.skipped.append(f"chapter {number}: no text")
        return text


def _xml(archive: zipfile.ZipFile, name: str) -> ElementTree.Element:
    data = read_member(archive, name)
    refuse_dtd(data, name)
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise InputError(f"{name} in it is not well-formed XML: {error}") from error


def _spine(archive: zipfile.ZipFile) -> list[str]:
    """The member names of the spine in order; "" where an item is no text."""
    rootfile = _xml(archive, _CONTAINER).find(".//{*}rootfile")
    package_name = rootfile.get("full-path") if rootfile is not None else None
    if not package_name:
        raise InputError("is no sound EPUB: its container names no package")
    package = _xml(archive, package_name)
    folder = posixpath.dirname(package_name)
    manifest = {item.get("id"): item for item in package.iterfind(".//{*}manifest/{*}item")}
    names = []
    for reference in package.iterfind(".//{*}spine/{*}itemref"):
        item = manifest.get(reference.get("idref"))
        is_text = item is not None and item.get("media-type") in _TEXT_TYPES
        path = unquote((item.get("href") or "").partition("#")[0]) if item is not None and is_text else ""
        names.append(posixpath.normpath(posixpath.join(folder, path)) if path else "")
    if not any(names):
        raise InputError("is no sound EPUB: its package lists no chapters")
    return names


def _protected(archive: zipfile.ZipFile) -> set[str]:
    """The members that are encrypted. (Fonts often are, and do no harm.)"""
    if _ENCRYPTION not in archive.namelist():
        return set()
    references = _xml(archive, _ENCRYPTION).iterfind(".//{*}CipherReference")
    return {posixpath.normpath(unquote(reference.get("URI") or "")) for reference in references}
