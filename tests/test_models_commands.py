"""``infinipot models``: the list, pull and path, as a user sees them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_gguf
import tiny_reader
import typer

from engine.errors import ModelError
from infinipot_cli import artifact, machine
from infinipot_cli.catalog import CATALOG
from infinipot_cli.commands import models as command
from infinipot_cli.machine import Device, Machine
from infinipot_cli.terminal import Terminal
from infinipot_cli.wiring import App

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty cache, an empty hub, and a machine with 8 GB."""
    monkeypatch.setenv("INFINIPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("INFINIPOT_CONFIG", str(tmp_path / "config.yaml"))
    (tmp_path / "config.yaml").write_text("")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    here = Machine(4, (Device("cpu", "RAM", 16 * 10**9, 8 * 10**9, "float32", 4),))
    monkeypatch.setattr(machine, "look", lambda: here)


@pytest.fixture
def stand_in(tmp_path, monkeypatch) -> Path:
    return tiny_reader.install(tmp_path, monkeypatch, installed=False)


def run(*arguments: str) -> tuple[str, str]:
    """(stdout, stderr) of ``infinipot models …``; errors come as exceptions."""
    root = typer.Typer()
    root.add_typer(command.app, name="models")
    root.callback()(lambda: None)
    terminal = Terminal(None, io.StringIO(), io.StringIO())
    root(["models", *arguments], obj=App(terminal, None), standalone_mode=False)
    return terminal.stdout.getvalue(), terminal.stderr.getvalue()


def test_alone_it_lists_as_list_does():
    out, err = run()
    assert (out, err) == run("list")
    lines = out.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "LICENCE", "WHERE", "FITS"]
    assert [line.split()[0] for line in lines[1:]] == [entry.alias for entry in CATALOG]
    assert "Recommended on this machine: --model qwen3-0.6b (Apache-2.0)" in err


def test_the_list_says_what_fits_and_what_is_here(stand_in):
    rows = {row["name"]: row for row in json.loads(run("--json")[0])["models"]}
    assert {rows[name]["where"] for name in ("smollm2-135m", "smollm2-135m-reader")} == {"hub"}
    assert rows["smollm2-135m"]["fits"] is rows["smollm2-135m-reader"]["fits"] is True
    assert rows["qwen3-8b"]["fits"] is False
    assert rows["qwen3-8b"]["memory_needed"] > 30e9
    assert sum(row["recommended"] for row in rows.values()) == 1
    assert [name for name, row in rows.items() if row["default"]] == ["smollm2-135m-reader"]
    run("pull", "--from", str(stand_in))
    rows = {row["name"]: row for row in json.loads(run("list", "--json")[0])["models"]}
    assert rows["smollm2-135m-reader"]["where"] == "local"
    assert Path(rows["smollm2-135m-reader"]["path"]).is_dir()
    assert rows["smollm2-135m"]["path"] is None


def test_a_larger_pot_leaves_less_room_for_the_model():
    def fitting(*options: str) -> list[str]:
        return [row["name"] for row in json.loads(run("list", "--json", *options)[0])["models"] if row["fits"]]

    assert set(fitting("--capacity", "65536")) < set(fitting())


def test_models_of_ones_own_are_listed_by_their_path(tmp_path):
    from infinipot_cli import models

    gguf = tiny_gguf.write(tmp_path / "own.gguf")
    models.resolve(str(gguf))
    out, _ = run()
    assert out.splitlines()[-1].startswith(str(gguf))
    assert out.splitlines()[-1].endswith("not known")
    assert run("path", str(gguf))[0].strip() == models.resolve(str(gguf))


def test_pull_then_path(stand_in):
    out, err = run("pull", "--from", str(stand_in))
    assert out == ""
    assert err.startswith("Converting SmolLM2-135M-Instruct.Q4_1.gguf")
    assert "Ready: " in err
    out, err = run("path")
    assert err == ""
    assert (Path(out.removesuffix("\n")) / "model.safetensors").is_file()
    assert run("path", "smollm2-135m-reader")[0] == out
    assert json.loads(run("path", "--json")[0]) == {"path": out.strip()}
    assert run("pull", "--quiet") == ("", "")
    assert json.loads(run("pull", "--json", "--quiet")[0])["path"] == out.strip()


def test_path_of_what_is_not_here_is_an_error_with_a_hint():
    with pytest.raises(ModelError) as caught:
        run("path")
    assert caught.value.hint == "infinipot models pull"
    with pytest.raises(ModelError, match="smollm2-135m is not ready") as caught:
        run("path", "smollm2-135m")
    assert caught.value.hint == "infinipot models pull smollm2-135m"
    with pytest.raises(ModelError) as caught:
        run("path", "qwen3-4b")
    assert caught.value.hint == "infinipot models pull qwen3-4b"


def test_pull_offline_says_so(monkeypatch):
    monkeypatch.setattr(artifact, "installed_gguf", lambda: None)
    with pytest.raises(ModelError, match="--offline"):
        run("pull", "--offline")


def test_listing_imports_neither_torch_nor_transformers(tmp_path):
    code = (
        "import sys, io, typer\n"
        "from infinipot_cli import machine\n"
        "machine.gpu_shows = lambda: False\n"
        "from infinipot_cli.commands import models\n"
        "from infinipot_cli.terminal import Terminal\n"
        "from infinipot_cli.wiring import App\n"
        "root = typer.Typer(); root.add_typer(models.app, name='models'); root.callback()(lambda: None)\n"
        "root(['models', 'list'], obj=App(Terminal(None, sys.stdout, sys.stderr), None), standalone_mode=False)\n"
        "heavy = {'torch', 'transformers', 'gguf'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
