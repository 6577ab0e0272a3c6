"""The demo book and its questions: the PDF is sound and the answers are in it."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pdfium = pytest.importorskip("pypdfium2")
pypdf = pytest.importorskip("pypdf")
yaml = pytest.importorskip("yaml")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PDF = EXAMPLES / "the-weight-of-albert-noon.pdf"
KINDS = {"who", "when", "where", "how much", "why", "what"}

_LINE_END_HYPHEN = re.compile("[\x02\xad\ufffe]\\s*")
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


def normalise(text: str) -> str:
    """Join words split at line ends, straighten quotes, squeeze spaces, fold case."""
    joined = _LINE_END_HYPHEN.sub("", text)
    return " ".join(joined.translate(_QUOTES).split()).casefold()


def page_texts(path: Path | bytes) -> list[str]:
    """Return the text of every page, normalised."""
    document = pdfium.PdfDocument(path)
    try:
        return [normalise(page.get_textpage().get_text_bounded()) for page in document]
    finally:
        document.close()


def pages_of(question: dict[str, Any]) -> list[int]:
    """Return the page numbers of a question, one or several, as a list."""
    page = question["page"]
    return page if isinstance(page, list) else [page]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return page_texts(PDF)


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, list)
    return loaded


def test_size_and_page_count(texts: list[str]) -> None:
    assert 90 <= len(texts) <= 110
    assert PDF.stat().st_size < 1_500_000


def test_every_page_has_text(texts: list[str]) -> None:
    assert [number for number, text in enumerate(texts, 1) if not text] == []


def test_line_end_hyphens_and_ligatures_read_as_words(texts: list[str]) -> None:
    book = " ".join(texts)
    assert "the damp, the harbour commissioners, a pebble, and me" in book
    assert "difficult to talk to" in book
    assert not re.search("[\ufb00-\ufb06]", book)


def test_metadata_and_page_labels() -> None:
    document = pdfium.PdfDocument(PDF)
    metadata = document.get_metadata_dict()
    assert metadata["Title"] == "The Weight of Albert Noon"
    assert metadata["Author"]
    assert [document.get_page_label(index) for index in (0, 39)] == ["1", "40"]
    assert len(list(document.get_toc())) == 18
    document.close()


def test_fonts_are_embedded() -> None:
    seen = set()
    for page in pypdf.PdfReader(PDF).pages:
        for reference in page["/Resources"].get("/Font", {}).values():
            font = reference.get_object()
            if "/DescendantFonts" in font:
                font = font["/DescendantFonts"][0].get_object()
            descriptor = font["/FontDescriptor"].get_object()
            assert any(f"/FontFile{suffix}" in descriptor for suffix in ("", "2", "3"))
            seen.add(font["/BaseFont"])
    assert seen


def test_questions_follow_the_schema(questions: list[dict[str, Any]]) -> None:
    assert len(questions) == 40
    assert len({q["id"] for q in questions}) == 40
    assert len({normalise(q["question"]) for q in questions}) == 40
    assert {q["kind"] for q in questions} == KINDS
    assert sum(not q["answerable"] for q in questions) == 5
    assert sum(q["answerable"] and q["hops"] == 2 for q in questions) >= 8
    for q in questions:
        assert q["hops"] in (1, 2)
        assert bool(q["answers"]) == q["answerable"] == ("page" in q), q["id"]
        if q["answerable"]:
            assert len(pages_of(q)) == q["hops"], q["id"]
            limit = 12 if q["kind"] == "why" else 6
            assert len(q["answers"][0].split()) <= limit, q["id"]


def test_answers_stand_on_their_pages(questions: list[dict[str, Any]], texts: list[str]) -> None:
    for q in questions:
        if not q["answerable"]:
            continue
        shown = [texts[page - 1] for page in pages_of(q)]
        answers = [normalise(answer) for answer in q["answers"]]
        assert any(answer in text for answer in answers for text in shown), q["id"]


def test_questions_are_spread_over_the_book(questions: list[dict[str, Any]], texts: list[str]) -> None:
    fifths = Counter((pages_of(q)[0] - 1) * 5 // len(texts) for q in questions if q["answerable"])
    assert all(fifths[fifth] >= 4 for fifth in range(5)), fifths


def test_pdf_is_what_the_sources_give(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    typst = pytest.importorskip("typst")
    document = pdfium.PdfDocument(PDF)
    made_with = document.get_metadata_dict()["Creator"]
    document.close()
    if made_with != f"Typst {typst.__version__}":
        pytest.skip(f"the PDF was made with {made_with}")
    spec = importlib.util.spec_from_file_location("make_book", EXAMPLES / "make_book.py")
    assert spec
    assert spec.loader
    make_book = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "make_book", make_book)
    spec.loader.exec_module(make_book)
    assert page_texts(make_book.make_pdf(make_book.BOOK)) == texts
