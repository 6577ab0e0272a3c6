"""PDF: text, running lines, scans, encryption, damage, limits."""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest_documents import file_source, make_pdf, stream_source, text_of
from pypdf import PdfReader, PdfWriter

from infinipot_cli.errors import InputError
from infinipot_cli.ingest.pdf_text import PageCleaner
from infinipot_cli.ingest.running_lines import RunningLines, sample_pages

BODY = ["The captain looked at the sea and said nothing at all.", "Nobody on the deck dared to ask him why."]
WORDS = ["anchor", "beacon", "cable", "dinghy", "ensign", "foresail", "galley", "halyard", "inlet", "jetty"]


def book(pages: int) -> list[list[str]]:
    """Pages with a header that alternates between left and right, a page number, and text of their own."""
    return [
        [
            "A Sea Story" if page % 2 else "Chapter of storms",
            f"The {WORDS[page % 10]} of day {page}.",
            *BODY,
            f"The {WORDS[page * 3 % 10]} was gone.",
            f"- {page} -",
        ]
        for page in range(1, pages + 1)
    ]


def test_pages_are_places(tmp_path: Path) -> None:
    source = file_source(make_pdf(tmp_path / "a.pdf", [[*BODY, f"This is page {i}."] for i in (1, 2)]))
    assert (source.kind, source.unit, source.pages, source.pages_read) == ("pdf", "page", 2, 0)
    passages = list(source.passages())
    assert [p.place for p in passages] == [1, 2]
    assert passages[1].text == "\n".join([*BODY, "This is page 2.", ""])
    assert source.pages_read == 2
    assert source.bytes_read == source.size
    assert source.report().to_dict()["pages"] == 2


def test_a_pdf_may_come_by_pipe(tmp_path: Path) -> None:
    data = make_pdf(tmp_path / "a.pdf", [BODY]).read_bytes()
    source = stream_source([data[:100], data[100:]])
    assert text_of(source) == "\n".join(BODY) + "\n"
    assert source.report().bytes == len(data)
    with pytest.raises(InputError, match="more than 500 bytes"):
        stream_source([data], max_bytes=500)


def test_running_headers_and_page_numbers_are_dropped(tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "book.pdf", book(60))
    source = file_source(path)
    text = text_of(source)
    assert "A Sea Story" not in text
    assert "Chapter of storms" not in text
    assert "- 7 -" not in text
    assert all(f"The {WORDS[page % 10]} of day {page}." in text for page in range(1, 61))
    assert source.report().skipped == ["running headers and footers (120 lines)"]
    kept = file_source(path, keep_headers=True)
    assert text_of(kept).count("A Sea Story") == 30
    assert kept.report().skipped == []


def test_what_repeats_by_chance_is_no_running_line() -> None:
    tables = [
        (page, f"{page * 37 % 100} {page}\n12 {page * 11 % 50}\ntext {page}x{page}\n7\n{page % 3}\n")
        for page in range(1, 20)
    ]
    lines = RunningLines(tables)
    assert [lines.strip(*page) for page in tables] == [text for _, text in tables]
    bills = [
        (page, f"Invoice No. {page * 37 % 91}\n{WORDS[page]}\nof {page} things\nThank you\nTotal: {page * page} EUR")
        for page in range(1, 9)
    ]
    lines = RunningLines(bills)
    assert [lines.strip(*bill) for bill in bills] == [text.replace("Thank you\n", "") for _, text in bills]
    few = [(1, "Same\nx"), (2, "Same\ny")]
    assert RunningLines(few).strip(*few[0]) == "Same\nx"


@given(
    st.integers(0, 300),
    st.integers(1900, 2100),
    st.sampled_from(["{page} of 40", "Report {year}, page {page}", "{year}/{page}"]),
)
def test_numbers_that_count_with_the_pages_run_and_others_stay_as_they_are(first: int, year: int, form: str) -> None:
    head = [form.format(page=first + page, year=year) for page in range(8)]
    texts = [(page, f"{head[page]}\n{WORDS[page]}\nmiddle {page * 7}\n{WORDS[-page]}\nend") for page in range(8)]
    lines = RunningLines(texts)
    assert [lines.strip(*text) for text in texts] == [
        f"{WORDS[page]}\nmiddle {page * 7}\n{WORDS[-page]}" for page in range(8)
    ]


def test_a_page_may_be_one_long_word() -> None:
    cleaner = PageCleaner()
    cleaner.learn("a" * 20_000)
    assert cleaner.clean("a" * 20_000 + "\ufffeb") == "a" * 20_000 + "b\n"


def test_samples_spread_over_the_book_in_pairs() -> None:
    assert sample_pages(7) == list(range(7))
    for pages in (41, 42, 100, 50_000):
        sample = sample_pages(pages)
        assert len(sample) <= 40
        assert (sample[0], sample[-1]) == (0, pages - 1)
        assert {index % 2 for index in sample} == {0, 1}


def test_page_text_is_cleaned() -> None:
    cleaner = PageCleaner()
    cleaner.learn("the well-known story")
    assert cleaner.clean("the well\ufffeknown cap\ufffetain of state\ufffeof-the-art CIFAR\ufffe100\r\n") == (
        "the well-known captain of state-of-the-art CIFAR-100\n"
    )
    assert cleaner.clean("o\ufb03ce \ufb01sh\x00 \x02x²\u00ad\r\ny  \r\n\r\n") == "office fish x²y\n"
    assert cleaner.clean("\r\n \r\n") == ""


def test_scans_are_told_from_texts(tmp_path: Path) -> None:
    scan = file_source(make_pdf(tmp_path / "scan.pdf", [["[image]"]] * 9 + [BODY]))
    with pytest.raises(InputError, match="9 of its 10 pages hold no text") as caught:
        list(scan.passages())
    assert "ocrmypdf" in (caught.value.hint or "")
    partly = file_source(
        make_pdf(tmp_path / "partly.pdf", [BODY, ["[image]"], ["[image]"], [], BODY, ["[image]", "7"]])
    )
    assert text_of(partly).count("captain") == 2
    assert partly.report().skipped == [
        "pages 2-3: no text, an image",
        "page 4: no text",
        "page 6: almost no text, an image",
    ]


def test_a_short_text_is_no_scan(tmp_path: Path) -> None:
    assert text_of(file_source(make_pdf(tmp_path / "a.pdf", [["Hello"]]))) == "Hello\n"


def lock(path: Path, target: Path, user: str, owner: str, algorithm: str) -> Path:
    writer = PdfWriter(clone_from=PdfReader(path))
    writer.encrypt(user, owner, algorithm=algorithm)
    writer.write(target)
    return target


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_passwords(tmp_path: Path, algorithm: str) -> None:
    plain = make_pdf(tmp_path / "a.pdf", [BODY])
    locked = lock(plain, tmp_path / "locked.pdf", "sesame", "boss", algorithm)
    for password in ("sesame", "boss"):
        assert text_of(file_source(locked, password=password)) == "\n".join(BODY) + "\n"
    with pytest.raises(InputError, match="needs a password") as caught:
        file_source(locked)
    assert "--password" in (caught.value.hint or "")
    with pytest.raises(InputError, match="password given is wrong"):
        file_source(locked, password="simsim")
    owner_locked = lock(plain, tmp_path / "owner.pdf", "", "boss", algorithm)
    assert text_of(file_source(owner_locked)) == "\n".join(BODY) + "\n"
    assert text_of(file_source(plain, password="not needed")) == "\n".join(BODY) + "\n"


def test_damaged_files_are_clear_errors(tmp_path: Path) -> None:
    data = make_pdf(tmp_path / "a.pdf", [BODY] * 20).read_bytes()
    for name, broken in (("head", data[:300]), ("rubbish", b"%PDF-1.7\n" + bytes(range(256)) * 20)):
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(InputError, match="damaged"):
            list(file_source(tmp_path / name).passages())


def test_a_cut_off_file_is_read_with_a_warning(tmp_path: Path) -> None:
    data = make_pdf(tmp_path / "a.pdf", [BODY] * 20).read_bytes()
    (tmp_path / "cut.pdf").write_bytes(data[: data.rindex(b"xref")])
    source = file_source(tmp_path / "cut.pdf")
    assert text_of(source).count("captain") == 20
    assert "cut off" in source.report().warnings[0]


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_pdf(tmp_path / "a.pdf", [BODY] * 3)
    with pytest.raises(InputError, match="has 3 pages, more than 2"):
        file_source(path, max_pages=2)
    monkeypatch.setattr("infinipot_cli.ingest.pdf_backends.MAX_PAGE_CHARS", 50)
    with pytest.raises(InputError, match=r"page 1 holds 9. characters"):
        list(file_source(path).passages())


def one_stream(path: Path, filters: str, packed: bytes) -> Path:
    """A PDF of one page whose description is packed by hand."""
    page = (
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F"
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>"
    )
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        page.encode(),
        b"<</Length %d/Filter%s>>stream\n%s\nendstream" % (len(packed), filters.encode(), packed),
    ]
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % entry for entry in enumerate(objects, 1))
    path.write_bytes(b"%PDF-1.4\n" + body + b"trailer<</Size 5/Root 1 0 R>>\nstartxref\n0\n%%EOF")
    return path


@pytest.mark.parametrize(
    ("filters", "pack"),
    [
        ("/FlateDecode", zlib.compress),
        ("[/FlateDecode/FlateDecode]", lambda data: zlib.compress(zlib.compress(data))),
        ("[/ASCII85Decode /FlateDecode]", lambda data: base64.a85encode(zlib.compress(data)) + b"~>"),
        ("[/AHx/Fl]", lambda data: zlib.compress(data).hex().encode() + b">"),
    ],
)
def test_bombs_are_refused_before_pdfium_sees_them(
    tmp_path: Path, filters: str, pack: Callable[[bytes], bytes]
) -> None:
    words = b"BT /F 12 Tf 100 700 Td (a line of words, long enough) Tj ET "
    assert "long enough" in text_of(file_source(one_stream(tmp_path / "a.pdf", filters, pack(words * 3))))
    bomb = one_stream(tmp_path / "bomb.pdf", filters, pack(b"q " * (9 << 20)))
    with pytest.raises(InputError, match="decompression bomb"):
        file_source(bomb)
    hidden = bomb.read_bytes().replace(b"/Filter", b"/X/Image" + b" " * 3000 + b"/Filter", 1)
    (tmp_path / "hidden.pdf").write_bytes(hidden)
    with pytest.raises(InputError, match="decompression bomb"):
        file_source(tmp_path / "hidden.pdf")


def test_several_threads_may_read(tmp_path: Path) -> None:
    paths = [
        make_pdf(tmp_path / f"{i}.pdf", [[*BODY, f"Book {i}, page {page}."] for page in range(9)]) for i in range(4)
    ]
    texts: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda i=i, path=path: texts.__setitem__(i, text_of(file_source(path))))
        for i, path in enumerate(paths)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"Book {i}, page 8." in texts[i] for i in range(4))
