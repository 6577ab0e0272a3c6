"""Every method through the command line: it answers, and neither dry run nor receipt says what is not so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from cli_support import home, invoke  # noqa: F401

from engine.settings import CONSTRAINED, METHODS
from infinipot_cli.local import LocalWorkbench

CAPACITY = 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"the cat {number} sat on the mat and the dog on the log\n" for number in range(30)))
    return path


def infinipot(folder: Path, *arguments: Any, capacity: bool = True) -> Any:
    flags = ("--capacity", CAPACITY) if capacity else ()
    result = invoke(*arguments, *flags, "--model", folder, "--device", "cpu", bench=LocalWorkbench())
    assert result.code == 0, result.stderr
    return result


@pytest.mark.parametrize("method", METHODS)
def test_receipt_and_dry_run_tell_the_truth(folder: Path, book: Path, method: str) -> None:
    arguments = ("ask", book, "who sat there?", "--method", method, "--json")
    happened = infinipot(folder, *arguments, "--max-tokens", "5").json
    foretold = infinipot(folder, *arguments, "--dry-run").json
    bounded, pot, read = method in CONSTRAINED, happened["pot"], happened["tokens"]["read"]
    assert read > 2 * CAPACITY
    assert pot["capacity"] == foretold["capacity"] == (CAPACITY if bounded else None)
    assert foretold["tokens"] == read == happened["sources"][0]["tokens"]
    assert foretold["cycles"] == pytest.approx(pot["cycles"], abs=1)
    if method in ("full", "self-extend"):
        assert pot["entries"] > read
        assert foretold["entries"] == pytest.approx(pot["entries"], abs=40)  # the template is a guess
    else:
        assert max(pot["entries"], foretold["entries"]) <= CAPACITY
    assert (foretold["peak_entries"] > read) == (not bounded)


def test_a_truncated_text_is_not_called_whole(folder: Path, book: Path) -> None:
    cut = infinipot(folder, "ask", book, "who?", "--method", "truncate", "--max-tokens", "3").stderr
    assert "0 cycles, keeps " in cut
    whole = infinipot(folder, "ask", book, "who?", "--method", "full", "--max-tokens", "3").stderr
    assert "entries (no bound)" in whole
    assert "kept" in whole
    assert "--capacity has no effect with --method full" in whole


def test_a_pot_without_bound_is_saved_asked_and_described(folder: Path, book: Path, tmp_path: Path) -> None:
    pot = tmp_path / "x.pot"
    infinipot(folder, "pot", "save", book, "-o", pot, "--method", "full", capacity=False)
    assert "(no bound)" in invoke("pot", "info", pot, bench=LocalWorkbench()).stdout
    asked = ("pot", "load", pot, "who?", "--max-tokens", "3", "--json")
    content = infinipot(folder, *asked, capacity=False).json
    assert content["pot"]["capacity"] is None
    assert content["settings"]["pot"]["method"] == "full"


def test_no_reset_reaches_the_engine_and_stays_with_the_pot(folder: Path, book: Path, tmp_path: Path) -> None:
    pot = tmp_path / "x.pot"
    infinipot(folder, "pot", "save", book, "-o", pot, "--no-reset")
    content = infinipot(folder, "pot", "load", pot, "who?", "--max-tokens", "3", "--json", capacity=False).json
    assert content["settings"]["pot"]["reset"] is False
    assert content["pot"]["cycles"] > 1
