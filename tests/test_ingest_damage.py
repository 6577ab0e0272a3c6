"""Damaged documents of every kind: text or an InputError, never anything else."""

from __future__ import annotations

import bz2
import gzip
import random
from collections.abc import Callable
from pathlib import Path

import docx
import pytest
from ingest_documents import file_source, make_epub, make_pdf, text_of

from infinipot_cli.errors import InputError

LINES = [f"Line {i} of a page that tells a story." for i in range(20)]


def word(path: Path) -> Path:
    document = docx.Document()
    for line in LINES:
        document.add_paragraph(line)
    document.save(str(path))
    return path


def packed(path: Path, pack: Callable[[bytes], bytes]) -> Path:
    path.write_bytes(pack("\n".join(LINES * 50).encode()))
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "pdf": lambda path: make_pdf(path, [LINES] * 3, pageCompression=1),
    "epub": lambda path: make_epub(path, [f"<p>{line}</p>" for line in LINES]),
    "docx": word,
    "gzip": lambda path: packed(path, gzip.compress),
    "bzip2": lambda path: packed(path, bz2.compress),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_damage_is_survived(kind: str, tmp_path: Path) -> None:
    sound = MAKERS[kind](tmp_path / "sound").read_bytes()
    chance = random.Random(kind)
    texts, errors = 0, []
    for _ in range(25):
        data = bytearray(sound[: chance.choice((len(sound), chance.randrange(len(sound))))])
        for _ in range(chance.choice((0, 1, 5, 50))):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / "x").write_bytes(data)
        try:
            texts += bool(text_of(file_source(tmp_path / "x")))
        except InputError as error:
            errors.append(str(error))
    assert texts
    assert all(error.startswith(f"{tmp_path / 'x'}: ") for error in errors)
