"""Folders, several sources, names that are not there."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from ingest_documents import Pieces, make_pdf, text_of

from infinipot_cli.errors import InputError, UsageError
from infinipot_cli.ingest import IngestOptions, open_sources


def tree(root: Path, **files: str | bytes) -> Path:
    """Files of given contents; "__" stands for "/" and "_dot_" for "." in their names."""
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def names(root: Path, **options: object) -> tuple[list[str], list[str]]:
    """What is read of a folder, and what is said of the rest, without the folder's own name."""
    sources = open_sources([str(root)], IngestOptions(**options))  # type: ignore[arg-type]
    read = [source.name.removeprefix(f"{root}{os.sep}") for source in sources if text_of(source)]
    return read, [line.removeprefix(f"{root}{os.sep}") for line in sources.skipped]


def test_folders_are_read_sorted_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    tree(
        tmp_path,
        b="b",
        a__z="z",
        a__b__c="c",
        a_dot_txt="a",
        _dot_hidden="no",
        _dot_git__x="no",
        picture=b"\x89PNG\r\n\x1a\n\0\0",
        empty="",
    )
    make_pdf(tmp_path / "p.pdf", [["A page with some text on it."]])
    read, skipped = names(tmp_path)
    assert read == ["a/b/c", "a/z", "a.txt", "b", "p.pdf"]
    assert sorted(line.partition(":")[0] for line in skipped) == [".git", ".hidden", "empty", "picture"]
    assert "picture: is a PNG image, not text" in skipped


def test_gitignore_rules_nest(tmp_path: Path) -> None:
    tree(
        tmp_path,
        _dot_gitignore="*.log\n/build/\n!keep.log\n[bad\n",
        a_dot_log="x",
        keep_dot_log="x",
        build__x="x",
        src__build__y="x",
        src__a_dot_py="x",
        src__gen__b_dot_py="x",
        src___dot_gitignore="gen/\n!a.log\n",
        src__a_dot_log="x",
    )
    read, skipped = names(tmp_path)
    assert read == ["keep.log", "src/a.log", "src/a.py", "src/build/y"]
    assert "build: ignored by .gitignore" in skipped
    assert "src/gen: ignored by .gitignore" in skipped


def test_the_rules_of_the_repository_hold_in_its_folders(tmp_path: Path) -> None:
    tree(
        tmp_path, _dot_git__HEAD="x", _dot_gitignore="*.log\nout/\n", src__a_dot_log="x", src__b="x", out__c_dot_log="x"
    )
    assert names(tmp_path / "src")[0] == ["b"]
    assert names(tmp_path / "out")[0] == ["c.log"]  # named on purpose


def test_include_and_exclude(tmp_path: Path) -> None:
    tree(tmp_path, a_dot_py="x", b_dot_md="x", src__c_dot_py="x", src__old__d_dot_py="x")
    assert names(tmp_path, include=("*.py",))[0] == ["a.py", "src/c.py", "src/old/d.py"]
    assert names(tmp_path, include=("*.py",), exclude=("old/", "a.*"))[0] == ["src/c.py"]
    assert names(tmp_path, include=("src/**",))[0] == ["src/c.py", "src/old/d.py"]


def test_links_and_odd_files_do_no_harm(tmp_path: Path) -> None:
    tree(tmp_path, a="text", d__b="more")
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "none")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "same").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    read, skipped = names(tmp_path)
    assert read == ["a", "d/b"]
    assert sorted(skipped) == [
        "broken: a broken link",
        "d/up: a link to a folder",
        "pipe: not a regular file",
        "same: a file that is read under another name",
        "self: a broken link",
    ]


def test_one_bad_file_does_not_stop_a_folder(tmp_path: Path) -> None:
    good = make_pdf(tmp_path / "good.pdf", [["A page with some text on it."]]).read_bytes()
    tree(tmp_path, a_dot_pdf=b"%PDF-1.4 broken", b_dot_txt="fine", c_dot_txt="  \n")
    (tmp_path / "d.gz").write_bytes(b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 40)
    sources = open_sources([str(tmp_path)])
    reports = {}
    for source in sources:
        list(source.passages())
        reports[Path(source.name).name] = source.report()
    assert reports["b.txt"].complete
    assert reports["good.pdf"].bytes == len(good)
    assert reports["c.txt"].warnings == ["there is no text in it"]
    assert "damaged" in reports["d.gz"].warnings[0]
    assert not reports["d.gz"].complete
    assert "a.pdf: is damaged" in sources.skipped[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_skipped_but_raise_when_named(tmp_path: Path) -> None:
    tree(tmp_path, a="text", b="secret", c__d="secret")
    (tmp_path / "b").chmod(0)
    (tmp_path / "c").chmod(0)
    try:
        read, skipped = names(tmp_path)
        assert read == ["a"]
        assert sorted(skipped) == ["b: cannot be read: Permission denied", "c: cannot be read: Permission denied"]
        for name in "bc":
            with pytest.raises(InputError, match="cannot be read: Permission denied"):
                list(open_sources([str(tmp_path / name)]))
    finally:
        (tmp_path / "c").chmod(0o700)


def read_all(folder: Path) -> None:
    for source in open_sources([str(folder)]):
        list(source.passages())


def test_nothing_readable_at_all_is_an_error(tmp_path: Path) -> None:
    tree(tmp_path, picture=b"\x89PNG\r\n\x1a\n\0\0", blank=" \n")
    with pytest.raises(InputError, match="nothing readable") as caught:
        read_all(tmp_path)
    assert "PNG" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["no-such-file", "", "nul\0name", "x" * 5000])
def test_names_that_are_not_there(name: str) -> None:
    with pytest.raises(InputError):
        list(open_sources([name]))


def test_several_sources_in_the_order_given(tmp_path: Path) -> None:
    tree(tmp_path, a="A", b__c="C")
    sources = open_sources([str(tmp_path / "b"), "-", str(tmp_path / "a")], stdin=Pieces([b"S"]))
    assert [text_of(source) for source in sources] == ["C", "S", "A"]
    with pytest.raises(UsageError):
        list(open_sources(["-", "-"], stdin=Pieces([b"S"])))
    with pytest.raises(InputError, match="closed"):
        list(open_sources(["-"]))
    with pytest.raises(UsageError, match="input type"):
        IngestOptions(input_type="word")


def test_a_file_of_several_names_is_read_once(tmp_path: Path) -> None:
    tree(tmp_path, a="A", d__b="B", d__blank=" \n")
    (tmp_path / "hard").hardlink_to(tmp_path / "a")
    sources = open_sources([str(tmp_path), str(tmp_path / "hard"), str(tmp_path / "d")])
    assert [text_of(source).strip() for source in sources] == ["A", "B", "", ""]
    assert sources.skipped == [
        f"{tmp_path / name}: a file that is read under another name" for name in ("hard", "hard", "d/b")
    ]


@pytest.mark.parametrize(
    ("order", "begins", "read"), [("-a", 0, ["text"]), ("a-", 0, ["text"]), ("-a", 2, ["xt", "text"])]
)
def test_a_file_that_is_stdin_too_is_read_once(tmp_path: Path, order: str, begins: int, read: list[str]) -> None:
    tree(tmp_path, a="text")
    with (tmp_path / "a").open("rb") as stdin:
        stdin.seek(begins)
        sources = open_sources([name if name == "-" else str(tmp_path / name) for name in order], stdin=stdin)
        assert [text_of(source) for source in sources] == read
    assert len(sources.skipped) == 2 - len(read)


def test_named_pipes_can_be_read_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=lambda: (tmp_path / "pipe").write_text("through a pipe"), daemon=True).start()
    source = next(open_sources([str(tmp_path / "pipe")]))
    assert text_of(source) == "through a pipe"
    assert (source.size, source.bytes_read) == (None, 14)
