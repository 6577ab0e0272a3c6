"""pot show: the text with what is held of it, as text, JSON and HTML; with the original, without it, with another."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tiny
from cli_support import home, invoke  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from ingest_documents import make_epub

from engine.vocabulary import Vocabulary, load_vocabulary
from infinipot_cli.errors import InputError
from infinipot_cli.ingest import IngestOptions, Passage, open_sources
from infinipot_cli.local import LocalWorkbench
from infinipot_cli.show.originals import find_originals, read_again
from infinipot_cli.show.pieces import Gap, Held, View, pieces_of
from infinipot_cli.show.plain import TextPage, Wrapper
from infinipot_cli.show.shades import COLORS, MARKS, palette_for, shade

LINES = [
    "the cat sat on the mat and the dog on the log\n",
    "naïve café: ₂ < 3 & \"four\" 😀 五六 <script>alert('x')</script>\n",
    "a question has an answer; the number is 12345\n",
]
TEXT = "".join(LINES) * 40


# --- pieces, against the text they were cut from -----------------------------------------------------------------


class Word(NamedTuple):
    """A token as the census gives it."""

    source: int
    position: int
    unit: int
    token: int
    held: tuple[int, ...] = (1,)


class Letters:
    """A vocabulary whose token n is ``texts[n]``; with ``trims``, positions leave out leading spaces."""

    def __init__(self, texts: list[str], trims: bool) -> None:
        self.texts, self.trims = texts, trims

    def text(self, token: int) -> str:
        return self.texts[token]

    def join(self, ids: list[int]) -> str:
        return "".join(map(self.text, ids))

    def lead(self, text: str) -> int:
        return len(text) - len(text.lstrip(" ")) if self.trims else 0


class Cut(NamedTuple):
    """A text, cut into tokens, some of them held; and into passages."""

    parts: list[str]
    kept: list[bool]
    trims: bool
    passages: list[Passage]

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def tokens(self) -> list[Word]:
        found, offset = [], 0
        for number, (part, kept) in enumerate(zip(self.parts, self.kept, strict=True)):
            lead = len(part) - len(part.lstrip(" ")) if self.trims else 0
            if kept:
                found.append(Word(0, offset + lead, 1 + self.text[: offset + lead].count("\n"), number))
            offset += len(part)
        return found


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    word = st.text(st.sampled_from("ab é五😀\n"), min_size=1, max_size=5)
    parts = draw(st.lists(st.builds(lambda s, w: " " * s + w.strip(" ") + ".", st.integers(0, 2), word), min_size=1))
    kept = draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    borders = draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    passages, text, offset = [], "", 0
    for part, border in zip(parts, borders, strict=True):
        text += part
        if border or part is parts[-1]:
            passages.append(Passage(text, 1 + "".join(parts)[:offset].count("\n"), offset))
            offset, text = offset + len(text), ""
    if text:
        passages.append(Passage(text, 1 + "".join(parts)[:offset].count("\n"), offset))
    return Cut(parts, kept, draw(st.booleans()), passages)


def pieces(cut: Cut, view: View | None = None, known: bool = True, source: bool = True) -> list[Held | Gap]:
    view = view or View()
    end = len(cut.text) if view.end is None else view.end
    low, high = view.units or (1, 10**9)
    tokens = [t for t in cut.tokens() if view.first <= t.position < end and low <= t.unit <= high]
    vocabulary = Letters(cut.parts, cut.trims) if known else None
    return list(pieces_of(tokens, vocabulary, view, len(cut.text), cut.passages if source else None, lines=True))


@given(cuts())
def test_with_the_original_nothing_is_lost_and_every_held_token_says_what_it_is(cut: Cut) -> None:
    found = pieces(cut)
    assert "".join(piece.text or "" for piece in found) == cut.text
    held = [piece for piece in found if isinstance(piece, Held)]
    assert [piece.text for piece in held] == [p for p, kept in zip(cut.parts, cut.kept, strict=True) if kept]
    for piece in found:
        assert cut.text[piece.offset :].startswith(piece.text or "")


@given(cuts())
def test_without_it_the_gaps_count_what_is_missing(cut: Cut) -> None:
    found = pieces(cut, source=False)
    assert [p.text for p in found if isinstance(p, Held)] == [
        p for p, kept in zip(cut.parts, cut.kept, strict=True) if kept
    ]
    sizes, run = [], 0
    for part, kept in zip([*cut.parts, ""], [*cut.kept, True], strict=True):
        if kept and run:
            sizes.append(run)
        run = 0 if kept else run + len(part)
    assert [p.size for p in found if isinstance(p, Gap)] == sizes


@given(cuts())
def test_without_a_tokenizer_the_original_still_gives_the_text(cut: Cut) -> None:
    found = pieces(cut, known=False)
    assert "".join(piece.text or "" for piece in found) == cut.text
    assert [p.offset for p in found if isinstance(p, Held)] == [t.position for t in cut.tokens()]


@given(cuts(), st.integers(0, 20), st.integers(1, 20))
def test_a_range_of_characters(cut: Cut, first: int, size: int) -> None:
    found = pieces(cut, View(first, first + size))
    assert "".join(piece.text or "" for piece in found) == cut.text[first : first + size]


@given(cuts(), st.integers(1, 6), st.integers(0, 3))
def test_a_range_of_lines(cut: Cut, line: int, more: int) -> None:
    found = pieces(cut, View(units=(line, line + more)))
    wanted = cut.text.split("\n")
    expected = "".join(f"{text}\n" for text in wanted[:-1][line - 1 : line + more])
    if line <= len(wanted) <= line + more:
        expected += wanted[-1]
    assert "".join(piece.text or "" for piece in found) == expected


def test_pages() -> None:
    passages = [Passage("one cat", 1, 0), Passage("two", 2, 7), Passage(" cats", 2, 10), Passage("three", 3, 15)]
    vocabulary = Letters([" cats", "three"], trims=False)
    tokens = [Word(0, 10, 2, 0), Word(0, 15, 3, 1)]

    def shown(view: View, source: bool = True) -> list[tuple[Any, int]]:
        low, high = view.units or (1, 9)
        held = [token for token in tokens if low <= token.unit <= high]
        found = pieces_of(held, vocabulary, view, 20, passages if source else None, lines=False)
        return [(piece.text if isinstance(piece, Held) else piece.text or piece.size, piece.unit) for piece in found]

    assert shown(View()) == [("one cat", 1), ("two", 2), (" cats", 2), ("three", 3)]
    assert shown(View(units=(2, 2))) == [("two", 2), (" cats", 2)]
    assert shown(View(units=(2, 3)), source=False) == [(" cats", 2), ("three", 3)]
    assert shown(View(), source=False) == [(10, 2), (" cats", 2), ("three", 3)]
    assert shown(View(units=(4, 4))) == []


def test_ids_stand_for_text_that_nothing_gives() -> None:
    tokens = [Word(0, 0, 1, 5), Word(0, 3, 1, 6), Word(0, 90, 1, 7)]
    found = list(pieces_of(tokens, None, View(), 200, None, lines=True))
    assert [p.text if isinstance(p, Held) else p.size for p in found] == ["‹5›", "‹6›", None, "‹7›", None]


# --- words of the tokenizer -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [tiny.tokenizer, tiny.spiece_tokenizer, lambda: tiny.spiece_tokenizer(legacy=True)])
def test_tokens_say_what_stands_at_their_offset(make: Any) -> None:
    from engine.text import Encoder

    tokenizer = make()
    vocabulary = Vocabulary(tokenizer.backend_tokenizer)
    text = "the cat, an answer\nand the end"
    ids, starts = Encoder(tokenizer).encode(text)
    for number, start in zip(ids, starts, strict=True):
        said = vocabulary.text(number)
        assert text[start - vocabulary.lead(said) :].startswith(said)
    assert vocabulary.join(ids) == text


def test_pieces_of_a_character_make_it_up_together() -> None:
    tokenizer = tiny.tokenizer()
    vocabulary = Vocabulary(tokenizer.backend_tokenizer)
    ids = tokenizer.encode("😀", add_special_tokens=False)
    assert len(ids) > 1
    assert vocabulary.join(ids) == "😀"
    assert vocabulary.text(ids[0]) == "\ufffd"


def test_only_the_tokenizer_of_the_pot_will_do(tmp_path: Path) -> None:
    tiny.tokenizer().save_pretrained(tmp_path)
    from engine.identity import tokenizer_fingerprint

    assert load_vocabulary(tmp_path, tokenizer_fingerprint(tiny.tokenizer())) is not None
    assert load_vocabulary(tmp_path, tokenizer_fingerprint(tiny.spiece_tokenizer())) is None
    (tmp_path / "tokenizer.json").write_text("{")
    assert load_vocabulary(tmp_path, tokenizer_fingerprint(tiny.tokenizer())) is None
    assert load_vocabulary(tmp_path / "nowhere", "") is None


# --- text ----------------------------------------------------------------------------------------------------------


def test_shades_rise_with_the_share() -> None:
    assert [shade(share) for share in (1 / 90, 0.1, 0.11, 1 / 3, 0.5, 2 / 3, 0.67, 1.0)] == [0, 0, 1, 1, 2, 2, 3, 3]


@given(st.text(st.sampled_from("ab五\n \t"), max_size=60), st.integers(8, 20), st.booleans())
def test_wrapping_only_breaks_lines(text: str, width: int, colored: bool) -> None:
    out: list[str] = []
    wrapper = Wrapper(out.append, COLORS if colored else MARKS, width)
    for start in range(0, len(text), 3):
        wrapper.feed(text[start : start + 3])
    wrapper.end()
    written = "".join(out)
    assert "".join(written.split()) == "".join(text.split())
    assert all(sum(2 if c == "五" else 1 for c in line.replace("\t", "")) <= width for line in written.split("\n"))


def rendered(palette: Any, *parts: Held | Gap, width: int | None = None, unit: str = "line") -> str:
    out: list[str] = []
    page = TextPage(out.append, palette, slots=4, width=width)
    page.source(None, unit)
    for part in parts:
        page.piece(part)
    page.end()
    return "".join(out)


def held(text: str, count: int, unit: int = 1) -> Held:
    return Held(text, 0, unit, (Word(0, 0, unit, 0, (count,)),))


def test_marks_stand_before_the_text_they_are_about() -> None:
    shown = rendered(MARKS, held("A", 1), held(" cat", 4), Gap(0, 1, 4, " sat"), held(" on", 4), Gap(0, 1, 1234))
    assert shown == "▒A █cat ·sat █on⋯1,234⋯\n"


def test_colours_end_where_the_text_does() -> None:
    shown = rendered(COLORS, held("A", 1), held(" cat\n", 4), Gap(0, 1, 4, "sat"))
    low, high = COLORS.shades[1], COLORS.shades[3]
    assert shown == f"{low}A\x1b[0m{high} cat\x1b[0m\n\x1b[2msat\x1b[0m\n"


def test_headings_for_pages_but_not_for_lines() -> None:
    parts = [held("one", 1, 1), held(" two", 1, 1), held("three", 1, 2)]
    assert rendered(MARKS, *parts, unit="page") == "-- page 1 --\n▒one two\n-- page 2 --\n▒three\n"
    assert rendered(MARKS, *parts) == "▒one twothree\n"


def test_an_encoding_without_the_marks_gets_others() -> None:
    assert palette_for(False, "utf-8") is MARKS
    assert palette_for(True, "ascii") is COLORS
    assert rendered(palette_for(False, "ascii"), held("A", 4), Gap(0, 1, 9)).encode("ascii") == b"{4}A...9...\n"


def test_text_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in rendered(MARKS, held("\x1b[2J", 4), Gap(0, 1, 4, "\x07\x9b"))


# --- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with book.txt and the pot that was read from it."""
    path = tmp_path_factory.mktemp("pots")
    (path / "book.txt").write_text(TEXT, encoding="utf-8")
    saved = invoke(
        *("pot", "save", path / "book.txt", "-o", path / "book.pot", "--model", folder, "--capacity", "256"),
        bench=LocalWorkbench(),
    )
    assert saved.code == 0, saved.stderr
    return path


@pytest.fixture(scope="module")
def entries(made: Path, folder: Path) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """(position, token) -> the (layer, head) slots that hold it, straight from the loaded pot."""
    from engine.models import load_model
    from engine.potfile import load_pot

    pot, _ = load_pot(made / "book.pot", load_model(str(folder)))
    found: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    for index, store in pot.stores.items():
        for head in range(store.spec.kv_heads):
            for slot in range(store.length):
                if store.position[head, slot] >= 0:
                    found[int(store.position[head, slot]), int(store.token[head, slot])].add((index, head))
    return found


def show(made: Path, *arguments: Any, code: int = 0, **more: Any) -> Any:
    result = invoke("pot", "show", made / "book.pot", *arguments, bench=LocalWorkbench(), **more)
    assert result.code == code, result.stderr
    return result


def test_json_says_of_every_token_who_holds_it(made: Path, entries: Any) -> None:
    facts, *items = show(made, "--json").json_lines
    tokens = {(item["offset"], item["token"]): item for item in items if "token" in item}
    assert tokens.keys() == entries.keys()
    for key, slots in entries.items():
        item = tokens[key]
        assert item["held"] == len(slots)
        assert item["share"] == round(len(slots) / 4, 4)
        assert item["layers"] == [sum(layer == number for layer, _ in slots) for number in (0, 1)]
        assert item["place"] == 1 + TEXT[: key[0]].count("\n")
    assert facts["tokens_held"] == len(entries)
    assert (facts["slots"], facts["layers"], facts["heads"], facts["texts"]) == (4, [0, 1], [2, 2], "tokenizer")
    assert facts["sources"][0]["characters"] == len(TEXT)


def test_json_with_the_original_has_every_character_once(made: Path) -> None:
    _, *items = show(made, "--json", "--source", made / "book.txt").json_lines
    at, seen = 0, -1
    for item in items:
        if item["offset"] == seen and "token" in item:  # another piece of the same character
            continue
        assert item["offset"] == at
        assert TEXT[at:].startswith(item["text"])
        seen, at = at, at + len(item["text"])
    assert at == len(TEXT)
    assert any("missing" in item for item in items)


def test_json_without_it_counts_what_is_missing(made: Path) -> None:
    with_text = show(made, "--json", "--source", made / "book.txt").json_lines[1:]
    without = show(made, "--json").json_lines[1:]
    missing = sum(item["missing"] for item in with_text if "missing" in item)
    assert sum(item["missing"] for item in without if "missing" in item) == missing > 0


def test_one_layer_and_one_head(made: Path, entries: Any) -> None:
    facts, *items = show(made, "--json", "--layer", "1", "--head", "0").json_lines
    found = {(item["offset"], item["token"]) for item in items if "token" in item}
    assert found == {key for key, slots in entries.items() if (1, 0) in slots}
    assert (facts["slots"], facts["layers"], facts["head"]) == (1, [1], 0)
    for flags, complaint in ((("--layer", "2"), "no layer 2"), (("--head", "7"), "no KV head 7")):
        assert complaint in show(made, *flags, code=2).stderr


def test_the_text_with_the_original_is_the_text(made: Path) -> None:
    shown = show(made, "-q", "--source", made / "book.txt").stdout
    for mark in "░▒▓█·":
        shown = shown.replace(mark, "")
    assert shown == TEXT
    assert show(made, "-q", "--source", made).stdout  # its folder


def test_a_legend_and_no_colour_in_a_pipe(made: Path) -> None:
    shown = show(made).stdout
    assert "of the 4 heads hold it" in shown
    assert "(2 layers × 2 KV heads" in shown
    assert "\x1b" not in shown
    assert "⋯" in shown


def test_colour_on_a_terminal_unless_it_is_unwanted(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    plain = {"TERM": "xterm", "NO_COLOR": "1"}
    shown = show(made, tty="out", environ={"TERM": "xterm"}).stdout
    assert COLORS.shades[3] in shown
    assert "\x1b" not in show(made, tty="out", environ=plain).stdout
    assert "\x1b" in show(made, "--color", "always", environ=plain).stdout
    body = show(made, "-q", "--source", made / "book.txt", tty="out", environ=plain).stdout
    assert max(map(len, body.splitlines())) <= 30 + 2  # the widest letters take two cells, and others none


def test_a_page_is_a_line_where_there_are_none(made: Path) -> None:
    shown = show(made, "-q", "--source", made / "book.txt", "--page", "4-5").stdout
    assert "".join(c for c in shown if c not in "░▒▓█·") == "".join(LINES[:2])
    assert show(made, "-q", "--source", made / "book.txt", "--from", "4", "--to", "7").stdout.strip("░▒▓█·\n") == "cat"
    for flags in (("--page", "0"), ("--page", "5-4"), ("--page", "x"), ("--from", "5", "--to", "5")):
        show(made, *flags, code=2)


class Checker(HTMLParser):
    """Every element is closed in order; notes text, marks, and anything that reaches out."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.marks: list[dict[str, str | None]] = []
        self.text = ""
        self.scripts = 0
        self.reaches: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "mark":
            self.marks.append(dict(attrs))
        self.scripts += tag == "script"
        self.reaches += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "action")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "main" in self.open:
            self.text += data


def checked(path: Path) -> Checker:
    checker = Checker()
    checker.feed(path.read_text(encoding="utf-8"))
    checker.close()
    assert checker.open == []
    return checker


def test_html_is_well_formed_safe_and_complete(made: Path, entries: Any, tmp_path: Path) -> None:
    target = tmp_path / "x.html"
    result = show(made, "--source", made / "book.txt", "--html", target)
    assert (result.stdout, target.stat().st_mode & 0o777) == ("", 0o600)
    page = checked(target)
    assert page.text.strip() == TEXT.strip()
    assert (page.scripts, page.reaches) == (1, [])
    assert "alert('x')" not in target.read_text()
    assert len(page.marks) == len({position for position, _ in entries})
    by_offset: dict[int, set[Any]] = defaultdict(set)
    for (position, _), slots in entries.items():
        by_offset[position] |= slots
    for mark in page.marks:
        counts = [int(digit) for digit in mark["data-h"] or ""]
        assert 0 < sum(counts) <= len(by_offset[int(mark["data-o"] or -1)])


def test_html_without_the_original_and_to_stdout(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.html"
    show(made, "--html", target)
    assert "⋯" in checked(target).text
    assert show(made, "--html", "-").stdout == target.read_text()
    before = target.read_text()
    assert "exists" in show(made, "--html", target, code=2).stderr
    assert show(made, "--html", target, "--force").code == 0
    assert target.read_text() == before
    show(made, "--html", target, "--json", code=2)


def test_another_original_is_refused(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "book.txt"
    other.write_text(TEXT.replace("cat", "cow"))
    result = show(made, "--source", other, code=3)
    assert f"error: {other} is not what this pot was read from" in result.stderr
    assert "book.txt (SHA-256" in result.stderr
    assert result.stdout == ""
    assert "cannot be read" in show(made, "--source", tmp_path / "nowhere.txt", code=3).stderr
    assert "holds none" in show(made, "--source", tmp_path, code=3).stderr


def test_of_a_source_that_was_read_in_part_that_part_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("read\nread\nnot read\n")
    source = {"name": "log.txt", "kind": "text", "bytes": 10, "chars": 10, "complete": False}
    source["sha256"] = hashlib.sha256(b"read\nread\n").hexdigest()
    assert find_originals([str(path)], [source], IngestOptions()) == {0: path}
    passages = read_again(path, source, IngestOptions())
    found = pieces_of([], None, View(), 10, passages, lines=True)
    assert "".join(piece.text or "" for piece in found) == "read\nread\n"
    path.write_text("rea")
    with pytest.raises(InputError, match="is not what"):
        find_originals([str(path)], [source], IngestOptions())


def test_an_epub_of_many_encodings_is_read_again_as_it_was(tmp_path: Path) -> None:
    path = make_epub(tmp_path / "a.epub", ["<p>One é</p>", "<p>Two</p>"])
    rest = "<?xml version='1.0' encoding='{0}'?><html><body><p>Größe: größer</p></body></html>"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "b.epub", "w") as new:
        for info in old.infolist():
            new.writestr(
                info, rest.format("utf-16").encode("utf-16") if info.filename.endswith("1.xhtml") else old.read(info)
            )
    source = next(open_sources([str(tmp_path / "b.epub")], IngestOptions()))
    passages = list(source.passages())
    assert "Größe" in passages[1].text
    assert list(read_again(tmp_path / "b.epub", source.report().to_dict(), IngestOptions())) == passages


def test_other_options_than_those_it_was_read_with_are_noticed(made: Path, tmp_path: Path) -> None:
    result = show(made, "--source", made / "book.txt", "--encoding", "latin-1", code=3)
    assert "characters now" in result.stderr
    target = tmp_path / "x.html"
    show(made, "--source", made / "book.txt", "--encoding", "latin-1", "--html", target, code=3)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_pot(made: Path, tmp_path: Path) -> None:
    data = bytearray((made / "book.pot").read_bytes())
    length = int.from_bytes(data[:8], "little")
    begin, _ = json.loads(data[8 : 8 + length])["layers.1.position"]["data_offsets"]
    data[8 + length + begin + 9] ^= 1
    (tmp_path / "book.pot").write_bytes(data)
    result = show(tmp_path, "--html", tmp_path / "x.html", code=5)
    assert "layers.1.position does not match its checksum" in result.stderr
    assert not (tmp_path / "x.html").exists()
    (tmp_path / "book.pot").write_bytes(data[:200])
    show(tmp_path, code=5)


def test_a_pot_from_a_pipe(made: Path) -> None:
    result = invoke("pot", "show", "-", "-q", stdin=(made / "book.pot").read_bytes(), bench=LocalWorkbench())
    assert result.stdout == show(made, "-q").stdout


def test_without_the_tokenizer(made: Path, folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    try:
        shown = show(made).stdout
        assert "is not on this machine: token ids are shown" in shown
        assert "‹" in shown
        with_text = show(made, "-q", "--source", made / "book.txt").stdout
        assert "".join(c for c in with_text if c not in "░▒▓█·") == TEXT
        shutil.copytree(moved, folder)
        named = show(made, "-q", "--tokenizer", moved).stdout
        assert named == show(made, "-q").stdout
        assert "‹" not in named
        assert "not the one" in show(made, "--tokenizer", made, code=2).stderr
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(moved, folder)


def test_several_sources_are_told_apart(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat\n")
    (tmp_path / "b.txt").write_text("the dog sat\n")
    pot = tmp_path / "book.pot"
    names = (tmp_path / "a.txt", tmp_path / "b.txt")
    saved = invoke("pot", "save", *names, "-o", pot, "--model", folder, bench=LocalWorkbench())
    assert saved.code == 0, saved.stderr
    shown = show(tmp_path, "-q", "--source", names[1]).stdout
    assert shown == f"=== {names[0]} ===\n█the cat sat\n=== {names[1]} ===\n█the dog sat\n"
    assert {item["source"] for item in show(tmp_path, "--json").json_lines[1:]} == {0, 1}


def test_it_loads_no_torch(made: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from infinipot_cli.main import main\n"
        "try: main()\nexcept SystemExit: sys.stderr.write(str('torch' in sys.modules))"
    )
    command = [sys.executable, "-c", code, "pot", "show", str(made / "book.pot"), "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent)
    assert done.stderr == "False"
