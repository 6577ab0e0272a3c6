"""Converting a GGUF file: the same model afterwards, whole or not at all, made once."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_gguf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine import convert, folders
from engine.convert import convert_gguf, expected_manifest, read_gguf
from engine.errors import ModelError
from engine.folders import MANIFEST, flaw, make_once

ABOUT = {"name": "tiny", "source_sha256": "0" * 64}
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> Path:
    return tiny_gguf.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def converted(gguf, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("cache") / "models" / "tiny"
    assert convert_gguf(gguf, target, ABOUT)
    return target


@pytest.fixture
def copy(converted, tmp_path) -> Path:
    """A converted folder that a test may spoil."""
    return Path(shutil.copytree(converted, tmp_path / "models" / "tiny"))


def sound(target: Path) -> bool:
    return flaw(target, expected_manifest(ABOUT)) is None


def left_behind(target: Path) -> list[str]:
    return [item.name for item in target.parent.iterdir() if item.name not in (target.name, f".{target.name}.lock")]


def generate(model, ids: torch.Tensor) -> list[int]:
    return model.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=2)[0].tolist()


def test_the_converted_model_is_the_same_up_to_float16(gguf, converted):
    before, _ = read_gguf(gguf, True)
    after = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32, local_files_only=True)
    for (name, old), (_, new) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        assert torch.equal(old.half().float(), new), name
    ids = torch.tensor([[1, 40, 41, 42, 77]])
    assert generate(before, ids) == generate(after, ids)


def test_it_is_an_ordinary_folder(converted):
    config = json.loads((converted / "config.json").read_text())
    assert config["dtype"] == "float16"
    assert "quantization_config" not in config
    assert "transformers_version" not in config
    generation = json.loads((converted / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"], generation["pad_token_id"]) == (1, 2, 2)
    modes = {path.name: path.stat().st_mode for path in converted.iterdir()}
    assert len(set(modes.values())) == 1, modes


@given(text=st.text())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_tokenizer_gives_any_text_back(converted, text):
    tokenizer = tokenizer_of(converted)
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not any(token in text for token in tiny_gguf.SPECIAL):
        assert tokenizer.decode(ids) == text.encode(errors="replace").decode()


@functools.cache
def tokenizer_of(folder: Path):
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def test_special_tokens_are_single_and_the_template_renders(converted):
    tokenizer = tokenizer_of(converted)
    assert [tokenizer.encode(token) for token in tiny_gguf.SPECIAL] == [[0], [1], [2]]
    assert tokenizer.eos_token == "<|im_end|>"
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert rendered == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_blanks_before_a_number_are_cut_as_the_smollm_vocabulary_wants(converted):
    tokenizer = tokenizer_of(converted)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("\n 12")) == ["ĊĠ", "1", "2"]


def test_another_pre_tokenizer_is_left_alone(tmp_path):
    tiny_gguf.write(tmp_path / "other.gguf", pre="gpt-2")
    _, tokenizer = read_gguf(tmp_path / "other.gguf", False)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("\n 12")) == ["Ċ", "Ġ", "1", "2"]


def test_a_transform_changes_weights_before_they_are_rounded(gguf, tmp_path):
    seen = []

    def double(name: str, weight: torch.Tensor) -> torch.Tensor:
        seen.append((name, weight.dtype))
        return weight * 2 if name.endswith("up_proj.weight") else weight

    before, _ = read_gguf(gguf, True)
    convert_gguf(gguf, tmp_path / "tiny", ABOUT, transforms=[double])
    after = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny", dtype=torch.float32, local_files_only=True)
    old, new = dict(before.named_parameters()), dict(after.named_parameters())
    up = "model.layers.1.mlp.up_proj.weight"
    assert torch.equal((old[up] * 2).half().float(), new[up])
    assert torch.equal(old["model.norm.weight"], new["model.norm.weight"])
    assert {dtype for _, dtype in seen} == {torch.float32}
    assert len(seen) == len(old)


def test_nothing_is_printed_and_transformers_is_left_as_it_was(gguf, tmp_path, capfd):
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    lines: list[str] = []
    convert_gguf(gguf, tmp_path / "tiny", ABOUT, report=lines.append)
    assert capfd.readouterr() == ("", "")
    assert (logging.is_progress_bar_enabled(), logging.get_verbosity()) == (bars, level)
    assert len(lines) == 1
    assert "tiny.gguf" in lines[0]


def test_a_sound_folder_is_used_again_and_the_source_not_even_fetched(converted):
    def never(scratch: Path) -> Path:
        raise AssertionError("fetched again")

    assert convert_gguf(never, converted, ABOUT) is False


SPOIL = {
    "flipped bit": lambda folder: flip(folder / "model.safetensors"),
    "truncated": lambda folder: os.truncate(folder / "model.safetensors", 100),
    "file missing": lambda folder: (folder / "tokenizer.json").unlink(),
    "other text, same size": lambda folder: replace(folder / "config.json", b"llama", b"gemma"),
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "manifest is no JSON": lambda folder: (folder / MANIFEST).write_bytes(b"\xff{"),
    "manifest is a list": lambda folder: (folder / MANIFEST).write_text("[]"),
    "manifest without files": lambda folder: (folder / MANIFEST).write_text('{"format": 1, "files": {"a": {}}}'),
    "older converter": lambda folder: replace(folder / MANIFEST, b'"converter": 1', b'"converter": 0'),
    "other source": lambda folder: replace(folder / MANIFEST, b'"0000', b'"1000'),
}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-7] ^= 4
    path.write_bytes(data)


def replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


@pytest.mark.parametrize("damage", SPOIL)
def test_a_damaged_folder_is_noticed(copy, damage):
    assert sound(copy)
    SPOIL[damage](copy)
    assert not sound(copy)


def test_a_damaged_folder_is_made_again(gguf, copy):
    flip(copy / "model.safetensors")
    assert convert_gguf(gguf, copy, ABOUT) is True
    assert sound(copy)
    assert flaw(copy, expected_manifest(ABOUT), thorough=True) is None
    assert left_behind(copy) == []


def test_large_folders_are_read_only_when_thorough(copy, monkeypatch):
    monkeypatch.setattr(folders, "QUICK_BYTES", 0)
    flip(copy / "model.safetensors")
    assert flaw(copy, {}) is None
    assert flaw(copy, {}, thorough=True) == "model.safetensors is damaged"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a GGUF model"),
        (b"GGUF", "not a GGUF model"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 64, "not a GGUF model"),
        (b"#!/bin/sh\n" * 20, "not a GGUF model"),
    ],
)
def test_a_file_that_is_no_gguf_is_refused_and_leaves_nothing(tmp_path, content, words):
    source, target = tmp_path / "bad.gguf", tmp_path / "models" / "bad"
    source.write_bytes(content)
    with pytest.raises(ModelError, match=words):
        convert_gguf(source, target, ABOUT)
    assert not target.exists()
    assert left_behind(target) == []


def test_weights_beyond_float16_are_refused(tmp_path):
    source = tiny_gguf.write(tmp_path / "huge.gguf", poison=1e6)
    with pytest.raises(ModelError, match="float16"):
        convert_gguf(source, tmp_path / "out" / "huge", ABOUT)
    assert left_behind(tmp_path / "out" / "huge") == []


@pytest.mark.parametrize("template", ["{{ messages[5].nothing.at_all }}", "a question", "{% broken"])
def test_a_chat_template_that_does_not_work_is_refused(tmp_path, template):
    source = tiny_gguf.write(tmp_path / "t.gguf", template=template)
    with pytest.raises(ModelError, match="chat template"):
        convert_gguf(source, tmp_path / "out" / "t", ABOUT)


def full(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def safetensors_full(*_args, **_kwargs):
    from safetensors import SafetensorError

    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("place", "failing"),
    [
        ("transformers.modeling_utils.safe_save_file", safetensors_full),
        ("engine.folders.sync", full),
        ("engine.convert.write_manifest", full),
        ("engine.folders.tempfile.mkdtemp", full),
        ("engine.convert.shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0)),
    ],
)
def test_a_full_disk_is_explained_and_leaves_nothing(gguf, tmp_path, monkeypatch, place, failing):
    target = tmp_path / "models" / "tiny"
    monkeypatch.setattr(place, failing)
    with pytest.raises(ModelError, match="the disk is full"):
        convert_gguf(gguf, target, ABOUT)
    assert not target.exists()
    assert left_behind(target) == []


def test_a_full_disk_spares_the_old_folder(gguf, copy, monkeypatch):
    flip(copy / "model.safetensors")
    monkeypatch.setattr(convert, "write_manifest", full)
    with pytest.raises(ModelError):
        convert_gguf(gguf, copy, ABOUT)
    assert (copy / "model.safetensors").exists()


def test_ctrl_c_leaves_nothing(gguf, tmp_path, monkeypatch):
    def interrupt(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(convert, "save", interrupt)
    target = tmp_path / "models" / "tiny"
    with pytest.raises(KeyboardInterrupt):
        convert_gguf(gguf, target, ABOUT)
    assert left_behind(target) == []


def test_a_cache_that_cannot_be_made_is_explained(gguf, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelError, match=r"cannot store the model|cannot write"):
        convert_gguf(gguf, tmp_path / "file" / "models" / "tiny", ABOUT)


def test_a_read_only_cache_is_explained(tmp_path, monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(ModelError, match="cannot write to the cache folder"):
        make_once(tmp_path / "a" / "b", lambda folder, scratch: None, lambda: False)


def test_what_a_killed_process_left_is_swept(tmp_path):
    target = tmp_path / "tiny"
    (tmp_path / ".tiny.tmp-dead" / "new").mkdir(parents=True)
    (tmp_path / ".tiny.tmp-dead" / "new" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".tiny.lock").write_text("held by nobody")
    assert make_once(target, lambda folder, scratch: (folder / "a").write_text("x"), target.exists)
    assert left_behind(target) == []


SLOW = """
import sys, time
from pathlib import Path
from engine.folders import make_once
target, log = Path(sys.argv[1]), Path(sys.argv[2])
def make(folder, scratch):
    with log.open("a") as stream:
        stream.write("made\\n")
    (folder / "half").write_text("1")
    time.sleep(float(sys.argv[3]))
    (folder / "whole").write_text("2")
made = make_once(target, make, (target / "whole").exists, waiting=lambda: print("waiting", flush=True))
print("made" if made else "used", sorted(p.name for p in target.iterdir()), flush=True)
"""


def start(target: Path, log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SLOW, str(target), str(log), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def await_file(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_of_two_processes_one_makes_it_and_the_other_waits(tmp_path):
    target, log = tmp_path / "m" / "tiny", tmp_path / "log"
    first = start(target, log, 1.0)
    await_file(log)
    second = start(target, log, 0)
    assert first.communicate(timeout=30)[0] == "made ['half', 'whole']\n"
    assert second.communicate(timeout=30)[0] == "waiting\nused ['half', 'whole']\n"
    assert log.read_text() == "made\n"


def test_a_killed_holder_of_the_lock_is_no_obstacle(tmp_path):
    target, log = tmp_path / "m" / "tiny", tmp_path / "log"
    first = start(target, log, 60)
    await_file(log)
    first.kill()
    first.wait()
    assert not target.exists()
    second = start(target, log, 0)
    assert second.communicate(timeout=30)[0] == "made ['half', 'whole']\n"
    assert left_behind(target) == []


def test_waiting_ends(tmp_path):
    target, log = tmp_path / "m" / "tiny", tmp_path / "log"
    first = start(target, log, 60)
    try:
        await_file(log)
        with pytest.raises(ModelError, match="another process"):
            make_once(target, lambda folder, scratch: None, lambda: False, timeout=0.2)
    finally:
        first.kill()
        first.communicate()
