"""Typeset the demo book: Markdown chapters in, one PDF out.

The chapters are plain Markdown and use four things only: a `# Title` line,
paragraphs, `*emphasis*` and `>` quotations. This script turns them into Typst
markup, puts the page design from `book.typ` in front, and compiles the lot
with the fonts that the `typst` package carries, so that the same sources give
the same bytes on every machine.

    python examples/make_book.py
"""

from __future__ import annotations

import argparse
import datetime
import re
from dataclasses import dataclass
from pathlib import Path

import typst
import yaml

HERE = Path(__file__).resolve().parent
BOOK = HERE / "the-weight-of-albert-noon"

_SPECIAL = re.compile(r"([\\#$*_`<>@~\[\]/+=-])")
_EMPHASIS = re.compile(r"\*([^*]+)\*")


@dataclass(frozen=True)
class Front:
    """What the title page and the PDF metadata say about the book."""

    title: str
    author: str
    subject: str
    date: datetime.date
    language: str
    epigraph: str
    epigraph_source: str
    notice: str


def read_front(path: Path) -> Front:
    """Read the YAML header and the copyright notice of `front.md`."""
    _, header, notice = path.read_text(encoding="utf-8").split("---\n", 2)
    meta = yaml.safe_load(header)
    return Front(
        title=meta["title"],
        author=meta["author"],
        subject=meta["subject"],
        date=meta["date"],
        language=meta["language"],
        epigraph=meta["epigraph"],
        epigraph_source=meta["epigraph_source"],
        notice=notice.strip(),
    )


def chapter_files(book: Path) -> list[Path]:
    """Return the chapter sources in reading order."""
    return sorted(book.glob("[0-9][0-9].md"))


def escape(text: str) -> str:
    """Escape the characters that Typst markup gives a meaning to."""
    return _SPECIAL.sub(r"\\\1", text)


def inline(text: str) -> str:
    """Turn the text of one paragraph, with `*emphasis*`, into Typst markup."""
    parts = _EMPHASIS.split(" ".join(text.split()))
    return "".join(f"#emph[{escape(part)}]" if index % 2 else escape(part) for index, part in enumerate(parts))


def quotation(block: str) -> str:
    """Turn a `>` block into a letter or notice, one paragraph to each part."""
    lines = [line.removeprefix(">").strip() for line in block.splitlines()]
    paragraphs = "\n".join(lines).split("\n\n")
    return "#document-block[\n" + "\n\n".join(inline(p) for p in paragraphs) + "\n]"


def convert(markdown: str) -> str:
    """Turn one chapter of Markdown into Typst markup."""
    out: list[str] = []
    for block in re.split(r"\n{2,}", markdown.strip()):
        if block.startswith("# "):
            out.append(f"#chapter[{inline(block[2:])}]")
        elif block.startswith(">"):
            out.append(quotation(block))
        elif block == "* * *":
            out.append("#ornament")
        else:
            out.append(inline(block))
    return "\n\n".join(out)


def quoted(text: str) -> str:
    """Return `text` as a Typst string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def front_matter(front: Front) -> str:
    """Return the Typst calls for set-up and the pages before chapter one."""
    lang, _, region = front.language.partition("-")
    day = front.date
    fields = {
        "title": quoted(front.title),
        "author": quoted(front.author),
        "subject": quoted(front.subject),
        "date": f"datetime(year: {day.year}, month: {day.month}, day: {day.day})",
        "lang": quoted(lang),
        "region": quoted(region),
    }
    settings = ", ".join(f"{name}: {value}" for name, value in fields.items())
    notice = "\n\n".join(inline(p) for p in front.notice.split("\n\n"))
    return "\n\n".join(
        [
            f"#show: book-setup.with({settings})",
            f"#title-page({fields['title']}, {fields['subject']}, {fields['author']})",
            f"#colophon[\n{notice}\n]",
            "#contents()",
            f"#epigraph[{inline(front.epigraph)}][{inline(front.epigraph_source)}]",
        ]
    )


def typst_source(book: Path) -> str:
    """Return the whole book as one Typst document."""
    design = (HERE / "book.typ").read_text(encoding="utf-8")
    chapters = [convert(path.read_text(encoding="utf-8")) for path in chapter_files(book)]
    return "\n\n".join([design, front_matter(read_front(book / "front.md")), *chapters]) + "\n"


def make_pdf(book: Path) -> bytes:
    """Compile the book, with the carried fonts and the date of the front matter."""
    date = read_front(book / "front.md").date
    noon = datetime.datetime(date.year, date.month, date.day, 12, tzinfo=datetime.UTC)
    pdf = typst.compile(
        typst_source(book).encode("utf-8"),
        format="pdf",
        ignore_system_fonts=True,
        timestamp=int(noon.timestamp()),
    )
    if not isinstance(pdf, bytes):
        raise TypeError("typst returned no single PDF")
    return pdf


def main() -> None:
    """Write the PDF next to this script, or where `--output` says."""
    parser = argparse.ArgumentParser(description="Typeset the demo book.")
    parser.add_argument("--output", type=Path, default=HERE / f"{BOOK.name}.pdf")
    output: Path = parser.parse_args().output
    output.write_bytes(make_pdf(BOOK))
    print(f"{output.name}: {output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
