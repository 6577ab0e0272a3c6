"""``infinipot doctor``: every check, what breaks it, and the exit code."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from infinipot_cli import health, machine, models
from infinipot_cli.commands.doctor import doctor
from infinipot_cli.machine import Device, Machine
from infinipot_cli.terminal import Terminal
from infinipot_cli.wiring import App

CPU = Device("cpu", "RAM", 16 * 10**9, 8 * 10**9, "float32", 4)
GPU = Device("cuda:0", "Some GPU", 24 * 10**9, 20 * 10**9, "bfloat16", 2)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("INFINIPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("INFINIPOT_CONFIG", str(tmp_path / "config" / "config.yaml"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("")
    monkeypatch.setattr(machine, "look", lambda: Machine(4, (CPU,)))


def run(*arguments: str) -> tuple[int, str]:
    """(exit code, stdout)."""
    root = typer.Typer()
    root.command()(doctor)
    terminal = Terminal(None, io.StringIO(), io.StringIO())
    code = 0
    try:
        code = root(list(arguments), obj=App(terminal, None), standalone_mode=False) or 0
    except typer.Exit as stop:
        code = stop.exit_code
    assert terminal.stderr.getvalue() == ""
    return code, terminal.stdout.getvalue()


def checks(*arguments: str) -> dict[str, dict[str, str]]:
    code, out = run("--json", *arguments)
    report = json.loads(out)
    assert report["usable"] is (code == 0)
    return {check["name"]: check for check in report["checks"]}


def unimportable(monkeypatch, name: str, error: Exception) -> None:
    real = health.importlib.import_module

    def load(wanted: str):
        if wanted == name:
            raise error
        return real(wanted)

    monkeypatch.setattr(health.importlib, "import_module", load)


def test_a_sound_installation_passes_and_names_everything():
    code, out = run()
    assert code == 0, out
    for word in (
        "python", "torch", "transformers", "CUDA", "flash-attn", "attention kernel", "memory", "cache folder",
        "disk", "config folder", "default model", "GGUF", "PDF", "recommended model",
    ):  # fmt: skip
        assert f"{word}:" in out
    assert "FAILS" not in out


def test_it_writes_nothing(tmp_path):
    run()
    assert not (tmp_path / "cache").exists()


def test_a_model_that_is_not_here_yet_is_no_failure_and_a_damaged_one_is_named():
    assert checks()["default model"]["value"].startswith("not here yet")
    models.default_path().mkdir(parents=True)
    found = checks()["default model"]
    assert found["state"] == "warn"
    assert found["hint"] == "infinipot models pull"


@pytest.mark.parametrize("name", ["torch", "transformers"])
@pytest.mark.parametrize("error", [ImportError("no"), OSError("libcudart.so: cannot open"), RuntimeError("x")])
def test_a_library_that_does_not_load_fails(monkeypatch, name, error):
    unimportable(monkeypatch, name, error)
    code, out = run()
    assert code == 1
    assert "FAILS" in out
    assert f'pip install "{name}>=' in out


def test_a_library_that_is_too_old_fails(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="4.57.1"))
    code, out = run()
    assert code == 1
    assert "too old" in out


@pytest.mark.parametrize("error", [ImportError("undefined symbol: _ZN3c10"), OSError("libtorch.so: cannot open")])
def test_a_broken_flash_attention_is_a_warning(monkeypatch, error):
    real = health.importlib.util.find_spec
    monkeypatch.setattr(health.importlib.util, "find_spec", lambda name: name if name == "flash_attn" else real(name))
    unimportable(monkeypatch, "flash_attn", error)
    found = checks()["flash-attn"]
    assert found["state"] == "warn"
    assert str(error) in found["value"]


def test_a_working_flash_attention_is_named(monkeypatch):
    module = SimpleNamespace(__version__="2.8.3", __spec__=object())
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    assert checks()["flash-attn"]["value"] == "2.8.3"


def test_a_broken_pdf_library_is_a_warning(monkeypatch):
    unimportable(monkeypatch, "pypdfium2", OSError("bad ELF"))
    found = checks()["PDF"]
    assert found["state"] == "warn"
    assert "pip install pypdfium2" in found["hint"]


def test_cuda_devices_are_named_and_decide_the_recommendation(monkeypatch):
    monkeypatch.setattr(machine, "look", lambda: Machine(4, (GPU, CPU)))
    found = checks()
    assert found["CUDA"]["value"].startswith("cuda:0 Some GPU, 18.6 GiB of 22.4 GiB free")
    assert found["recommended model"]["value"].startswith("qwen3-8b")


def test_a_cache_that_cannot_be_written_fails_only_without_a_model(monkeypatch, tmp_path):
    real = os.access
    monkeypatch.setattr(health.os, "access", lambda path, mode: Path(path) != tmp_path and real(path, mode))
    found = checks()["cache folder"]
    assert found["state"] == "fail"
    assert "INFINIPOT_CACHE" in found["hint"]
    monkeypatch.setattr(models, "default_flaw", lambda **_: None)
    assert checks()["cache folder"]["state"] == "warn"


def test_without_a_home_folder_it_says_what_to_set(monkeypatch):
    def homeless(*_args, **_kwargs):
        raise RuntimeError("no home")

    monkeypatch.setenv("INFINIPOT_CACHE", "")
    monkeypatch.setattr("platformdirs.user_cache_dir", homeless)
    monkeypatch.setattr("infinipot_cli.commands.doctor.config_file", homeless)
    found = checks()
    assert found["cache folder"]["state"] == "fail"
    assert found["config folder"]["state"] == "warn"


def test_little_memory_or_disk_is_a_warning(monkeypatch):
    small = Device("cpu", "RAM", 2 * 10**9, 10**9, "float32", 4)
    monkeypatch.setattr(machine, "look", lambda: Machine(1, (small,)))
    monkeypatch.setattr(health.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    found = checks()
    assert (found["memory"]["state"], found["disk"]["state"]) == ("warn", "warn")


def test_what_converts_models_is_missed_only_where_it_is_needed(monkeypatch):
    real = health.version
    monkeypatch.setattr(health, "version", lambda name: None if name == "accelerate" else real(name))
    assert checks()["GGUF"]["state"] == "fail"
    monkeypatch.setattr(models, "is_local", lambda *_: True)
    found = checks()["GGUF"]
    assert found["state"] == "warn"
    assert found["hint"] == "pip install accelerate"
