"""HTML, EPUB and Word documents: text in reading order, hostile files refused."""

from __future__ import annotations

import gzip
import re
import zipfile
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_documents import CONTAINER, file_source, make_epub, stream_source, text_of

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.html import html_text

PAGE = """<!DOCTYPE html><html><head><title>The  Sea
</title><style>p {color: red}</style></head><body>
<nav><a href="/">Home</a></nav><h1>A storm</h1>
<p>The captain <b>looked</b> at&nbsp;the sea&shy;side,<br>and
   said   nothing.</p><script>alert("x")</script>
<ul><li>one</li><li><p>two</p></li></ul>
<table><tr><th>Name</th><th>Age</th></tr><tr><td>Ann</td><td>7</td></tr></table>
<pre>  kept
    as it is</pre><div>in<i>side</i> <span hidden>never</span>words</div><noscript>enable</noscript>
</body></html>"""
READ = """The Sea

A storm

The captain looked at the seaside,
and said nothing.

- one
- two

Name | Age
Ann | 7

  kept
    as it is

inside words
"""


def test_a_page_reads_as_a_reader_sees_it() -> None:
    source = stream_source([PAGE.encode()])
    assert text_of(source) == READ
    assert source.kind == "html"
    assert source.report().skipped == ["navigation (1 block)"]


@pytest.mark.parametrize(
    "head",
    [b"<html>", b"  <!-- a --><!-- b -->\n<HTML lang='x'>", b"<!DocType HTML>", b'<?xml version="1.0"?>\n<html>'],
)
def test_html_is_recognised(head: bytes) -> None:
    source = stream_source([head + b"<body><p>Hello</p></body></html>"])
    assert (source.kind, text_of(source)) == ("html", "Hello\n")


def test_html_by_suffix_option_and_compression(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>Frag<b>ment</b>")
    (tmp_path / "b.html.gz").write_bytes(gzip.compress(PAGE.encode()))
    assert text_of(file_source(tmp_path / "a.html")) == "Fragment\n"
    assert text_of(file_source(tmp_path / "b.html.gz")) == READ
    assert text_of(stream_source([b"<p>x"], input_type="html")) == "x\n"
    assert text_of(stream_source([PAGE.encode()], input_type="text")) == PAGE


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        ('<meta charset="windows-1251">', "cp1251"),
        ('<meta http-equiv="x" content="text/html; charset=euc-jp">', "euc_jp"),
        ("", "utf-8"),
        ("", "utf-16"),
        ('<meta charset="iso-8859-1">', "utf-8"),
        ('<meta charset="nonsense">', "utf-8"),
    ],
)
def test_html_encodings(declared: str, encoding: str) -> None:
    words = {"cp1251": "Все счастливые семьи", "euc_jp": "吾輩は猫である"}.get(encoding, "plain")
    page = f"<!doctype html><html><head>{declared}</head><body><p>{words}</p></body></html>"
    assert text_of(stream_source([page.encode(encoding)])) == words + "\n"


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("<td><p>Name</p></td><td><p>Age</p></td>", "Name | Age"),
        ("<td>\n <p>Ann</p>\n <p>Lee</p>\n</td>\n<td> <b>7</b> </td>", "Ann Lee | 7"),
        ("<th><div>a</div><ul><li>b</li><li>c</li></ul></th><td><div><div>d</div></div></td>", "a - b - c | d"),
        ("<td>a<br>b</td><td>c<pre>d</pre></td>", "a\nb | c d"),
        ("<td><h1>One</h1><p>Two</p></td>", "One\n\nTwo"),
        ("<td>a</td><td>b<table><tr><td>c</td></tr><tr><td>d</td></tr></table></td>", "a | b\nc\nd"),
    ],
)
def test_blocks_in_a_cell_stay_on_the_line_of_its_row(cells: str, words: str) -> None:
    assert html_text(f"<table><tr>{cells}</tr></table><p>end")[0].split("\n\nend")[0] == words


def test_cdata_sections_are_text_in_xhtml(tmp_path: Path) -> None:
    body = "<p>a <![CDATA[if x < y && <b>z</b>]]> b</p><script>//<![CDATA[\nx = '<p>';\n//]]></script><p>c</p>"
    assert text_of(file_source(make_epub(tmp_path / "a.epub", [body]))) == "a if x < y && <b>z</b> b\n\nc\n"
    assert html_text("<p>a</p><![CDATA[ never closed <p>b</p>", xml=True)[0].startswith("a")


def html_read(data: bytes) -> tuple[str, str | None, list[str]]:
    source = stream_source([b"<!doctype html>" + data], input_type="html")
    return text_of(source), source.report().encoding, source.report().warnings


@pytest.mark.parametrize(
    ("head", "encoding", "words"),
    [
        ('<meta charset="iso-2022-jp">', "iso-2022-jp", "吾輩は猫である"),
        ('<!-- <meta charset="koi8-r"> --><meta charset="windows-1251">', "windows-1251", "Все счастливые семьи"),
        ('<meta charset="undefined">', "utf-8", "Größe"),
        ('<meta charset="idna">', "utf-8", "Größe"),
    ],
)
def test_the_declared_encoding_is_taken_if_there_is_such(head: str, encoding: str, words: str) -> None:
    assert html_read(f"{head}<p>{words}".encode(encoding)) == (words + "\n", encoding, [])


def test_a_byte_order_mark_wins_over_a_declaration() -> None:
    page = '<html><meta charset="windows-1251"><body><p>Größe'
    source = stream_source([page.encode("utf-8-sig")])
    assert (text_of(source), source.report().encoding) == ("Größe\n", "utf-8")


def test_damaged_bytes_of_markup_are_reported(tmp_path: Path) -> None:
    body = "<p>Größe, Äpfel, Öl und Übermut</p>".encode() + b"<p>bad \xff</p>"
    text, encoding, warnings = html_read(b'<meta charset="utf-8">' + body)
    assert text.endswith("bad \ufffd\n")
    assert (encoding, warnings) == ("utf-8", ["1 characters could not be decoded as utf-8"])
    path = make_epub(tmp_path / "a.epub", ["<p>Sound.</p>", "<p>Größe, Äpfel, Öl und Übermut, bad _</p>"])
    damaged = rewrite(path, tmp_path / "b.epub", "OEBPS/text/ch 1.xhtml", lambda data: data.replace(b"_", b"\xff"))
    source = file_source(damaged)
    assert "bad \ufffd" in text_of(source)
    assert source.report().warnings == ["chapter 2: 1 characters could not be decoded as utf-8"]


def test_hostile_html_is_survived() -> None:
    assert html_text("<div>" * 20_000 + "deep")[0] == "deep\n"
    assert html_text("<ul><li>" * 500 + "x<li><li>")[0] == "- x\n"
    with pytest.raises(InputError, match="no text"):
        list(stream_source([b"<html>" + b"<!--" * 1000]).passages())


@given(st.text(st.sampled_from("<>/!-a bp\"'=&;\n")))
@settings(max_examples=200, deadline=None)
def test_any_markup_gives_text(markup: str) -> None:
    text = html_text(markup)[0]
    assert text == "" or text.endswith("\n")
    assert text.strip() or not text


@pytest.mark.parametrize("markup", ["A<?v> B", 'A<?php include "x"; ?> B', 'A<p hidden>x</p><?dp n="16" ?> B'])
def test_processing_instructions_are_dropped(markup: str) -> None:
    assert html_text(markup)[0].split() == ["A", "B"]


def test_processing_instructions_in_a_chapter_are_dropped(tmp_path: Path) -> None:
    path = make_epub(tmp_path / "a.epub", ['<p>Before <?dp n="16" ?>and after.</p>'])
    assert text_of(file_source(path)) == "Before and after.\n"


def test_html_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infinipot_cli.ingest.html.MAX_MARKUP", 1000)
    with pytest.raises(InputError, match="more than 1,000 bytes"):
        list(stream_source([b"<html>" + b"x" * 2000]).passages())


def test_epub_chapters_are_places_in_spine_order(tmp_path: Path) -> None:
    chapters = ["<h1>One</h1><p>First.</p>", "<p><img src='x'/></p>", "<h1><a id='x'/>Three<i/></h1><p>Last.</p>"]
    path = make_epub(tmp_path / "a.epub", chapters)
    for source in (file_source(path), stream_source([path.read_bytes()])):
        assert (source.kind, source.unit, source.pages) == ("epub", "chapter", 3)
        passages = list(source.passages())
        assert [(p.place, p.text) for p in passages] == [(1, "One\n\nFirst.\n"), (3, "Three\n\nLast.\n")]
        assert source.report().skipped == ["chapter 2: no text"]
        assert source.report().bytes == path.stat().st_size


def test_hostile_epubs_are_refused(tmp_path: Path) -> None:
    laughs = '<!DOCTYPE package [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
    with pytest.raises(InputError, match="XML entities"):
        file_source(make_epub(tmp_path / "a.epub", ["<p>x</p>"], prolog=laughs))
    plain = '<!DOCTYPE package PUBLIC "+//ISBN//DTD OEB 1.2//EN" "http://example.org/oeb.dtd">'
    assert text_of(file_source(make_epub(tmp_path / "b.epub", ["<p>x</p>"], prolog=plain))) == "x\n"
    drm = CONTAINER.replace("<rootfiles>", "<rootfiles><CipherReference URI='OEBPS/text/ch%200.xhtml'/>")
    with pytest.raises(InputError, match="DRM"):
        list(
            file_source(
                make_epub(tmp_path / "c.epub", ["<p>x</p>"], extra={"META-INF/encryption.xml": drm.encode()})
            ).passages()
        )
    with pytest.raises(InputError, match="more than 1"):
        file_source(make_epub(tmp_path / "d.epub", ["<p>x</p>", "<p>y</p>"]), max_pages=1)


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.epub", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("OEBPS/text.xhtml", bytes(30 << 20))
    with pytest.raises(InputError, match="decompression bomb"):
        file_source(tmp_path / "bomb.epub", max_ratio=100)
    with pytest.raises(InputError, match="unpacks to"):
        file_source(tmp_path / "bomb.epub", max_bytes=1_000_000)


def test_other_zips_are_named(tmp_path: Path) -> None:
    for member, words in (("xl/workbook.xml", "Excel"), ("ppt/slides.xml", "PowerPoint"), ("a.txt", "zip archive")):
        with zipfile.ZipFile(tmp_path / "x", "w") as archive:
            archive.writestr(member, "<a/>")
        with pytest.raises(InputError, match=words):
            file_source(tmp_path / "x")
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:30])
    with pytest.raises(InputError, match="damaged"):
        file_source(tmp_path / "x")


def test_a_damaged_lzma_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.epub"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("META-INF/container.xml", CONTAINER)
    data = bytearray(path.read_bytes())
    start = data.index(b"META-INF/container.xml") + len("META-INF/container.xml")
    data[start + 4] = 0xFF  # the properties of the coder
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"container\.xml in it is damaged"):
        file_source(path)


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    document = docx.Document()
    document.add_heading("A letter", 1)
    document.add_paragraph("Dear reader,")
    table = document.add_table(2, 2)
    for row, values in zip(table.rows, (("Name", "Sum"), ("Ann", "7 pounds")), strict=True):
        for cell, value in zip(row.cells, values, strict=True):
            cell.text = value
    paragraph = document.add_paragraph("Yours\tfaithfully")
    paragraph.add_run("").add_break()
    word = nsdecls("w")
    for xml in (
        f"<w:ins {word}><w:r><w:t> inserted</w:t></w:r></w:ins>",
        f"<w:del {word}><w:r><w:delText>deleted</w:delText></w:r></w:del>",
    ):
        paragraph._p.append(parse_xml(xml))
    document.element.body.insert(
        2, parse_xml(f"<w:sdt {word}><w:sdtContent><w:p><w:r><w:t>controlled</w:t></w:r></w:p></w:sdtContent></w:sdt>")
    )
    document.add_paragraph("a point", style="List Bullet")
    document.sections[0].header.paragraphs[0].text = "Company"
    document.save(str(tmp_path / "letter.docx"))
    return tmp_path / "letter.docx"


def test_word_documents_read_in_document_order(letter: Path) -> None:
    for source in (file_source(letter), stream_source([letter.read_bytes()])):
        assert source.kind == "docx"
        assert text_of(source) == (
            "\nA letter\n\nDear reader,\ncontrolled\nName | Sum\nAnn | 7 pounds\n\n"
            "Yours\tfaithfully\n inserted\na point\n"
        )
        assert source.report().skipped == ["page headers"]


def rewrite(path: Path, target: Path, member: str, change: object) -> Path:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info, change(data) if info.filename == member else data)  # type: ignore[operator]
    return target


def test_notes_follow_the_text(letter: Path, tmp_path: Path) -> None:
    word = nsdecls("w")
    notes = (
        f'<w:footnotes {word}><w:footnote w:id="0"><w:p/></w:footnote><w:footnote w:id="2"><w:p><w:r>'
        "<w:t>See the map.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    )
    relation = (
        b'<Relationship Id="rId99" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/'
        b'footnotes" Target="footnotes.xml"/></Relationships>'
    )
    path = rewrite(
        letter,
        tmp_path / "notes.docx",
        "word/_rels/document.xml.rels",
        lambda data: data.replace(b"</Relationships>", relation),
    )
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("word/footnotes.xml", notes)
    assert text_of(file_source(path)).endswith("a point\n[note 2] See the map.\n")


def test_equations_are_read_in_place(letter: Path, tmp_path: Path) -> None:
    math = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    equation = f"<m:oMath {math}><m:r><m:t>E=m</m:t></m:r><m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e></m:sSup></m:oMath>"
    document = docx.Document(str(letter))
    paragraph = document.add_paragraph("where ")
    paragraph._p.append(parse_xml(equation))
    paragraph.add_run(" holds")
    paragraph._p.addnext(parse_xml(f"<m:oMathPara {math}>{equation}</m:oMathPara>"))
    document.save(str(tmp_path / "x.docx"))
    assert text_of(file_source(tmp_path / "x.docx")).endswith("where E=mc holds\nE=mc\n")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("aFChunk", "inserted documents"),
        ("chart", "charts"),
        ("diagramData", "diagrams"),
        ("oleObject", "embedded objects"),
        ("package", "embedded objects"),
    ],
)
def test_what_a_word_document_holds_unread_is_said(letter: Path, tmp_path: Path, kind: str, words: str) -> None:
    relation = "".join(
        f'<Relationship Id="rId9{i}" Target="other{i}.bin" '
        f'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}"/>'
        for i in range(2)
    )
    path = rewrite(
        letter,
        tmp_path / "x.docx",
        "word/_rels/document.xml.rels",
        lambda data: data.replace(b"</Relationships>", relation.encode() + b"</Relationships>"),
    )
    declared = b'<Default Extension="bin" ContentType="application/octet-stream"/></Types>'
    path = rewrite(path, tmp_path / "y.docx", "[Content_Types].xml", lambda data: data.replace(b"</Types>", declared))
    with zipfile.ZipFile(path, "a") as archive:
        for i in range(2):
            archive.writestr(f"word/other{i}.bin", b"x")
    source = file_source(path)
    assert text_of(source).startswith("\nA letter")
    assert source.report().skipped == ["page headers", words]


def test_a_numbered_main_part_is_a_word_document(letter: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.docx"
    with zipfile.ZipFile(letter) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            data = old.read(info).replace(b"word/document.xml", b"word/document2.xml")
            new.writestr(info.filename.replace("document.xml", "document2.xml"), data)
    source = file_source(path)
    assert source.kind == "docx"
    assert text_of(source) == text_of(file_source(letter))


def test_an_empty_custom_part_is_ignored(letter: Path) -> None:
    with zipfile.ZipFile(letter, "a") as archive:
        archive.writestr("customXml/item9.xml", "")
    assert text_of(file_source(letter)).startswith("\nA letter")


def test_hostile_word_documents_are_refused(letter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def laugh(data: bytes) -> bytes:
        return re.sub(rb"(<w:document )", rb'<!DOCTYPE x [<!ENTITY a "ha">]>\1', data, count=1)

    with pytest.raises(InputError, match="XML entities"):
        file_source(rewrite(letter, tmp_path / "a.docx", "word/document.xml", laugh))
    for size, words in ((40, "not well-formed"), (-40, "no sound Word document")):
        broken = rewrite(letter, tmp_path / "b.docx", "word/document.xml", lambda data, size=size: data[:size])
        with pytest.raises(InputError, match=words):
            text_of(file_source(broken))
    monkeypatch.setattr("infinipot_cli.ingest.docx.MAX_XML", 1000)
    with pytest.raises(InputError, match="more than 1,000"):
        file_source(letter)
