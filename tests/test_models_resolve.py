"""From a name to a model: aliases, folders, GGUF files, hub ids, and where they are kept."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import tiny_gguf
import tiny_reader

from engine.errors import ModelError
from engine.folders import MANIFEST
from infinipot_cli import artifact, hub, models
from infinipot_cli import cache as cache_folder
from infinipot_cli.catalog import CATALOG, DEFAULT


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INFINIPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache"


@pytest.fixture
def stand_in(tmp_path, monkeypatch) -> Path:
    """A tiny GGUF file that the pins take for the default model's, and a tiny adapter for it."""
    return tiny_reader.install(tmp_path, monkeypatch)


def snapshot(tmp_path: Path, hub_id: str, *, shards: int = 1, missing: bool = False) -> Path:
    """A repository in the hub's cache."""
    folder = tmp_path / "hub" / ("models--" + hub_id.replace("/", "--"))
    commit = "c" * 40
    files = folder / "snapshots" / commit
    files.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    (files / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))
    names = [f"model-{n}.safetensors" for n in range(shards)] if shards > 1 else ["model.safetensors"]
    if shards > 1:
        (files / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict(enumerate(names))}))
    for name in names[: shards - missing]:
        (files / name).write_bytes(b"weights")
    return files


NAMES = {
    "smollm2-135m-reader": (None, "", "smollm2-135m-reader", "SmolLM2-135M-Reader"),
    "smollm2-135m": ("smollm2-135m", "SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M-Instruct"),
}


@pytest.mark.parametrize(("alias", "name"), [(alias, name) for alias, names in NAMES.items() for name in names])
def test_the_pinned_models_make_themselves(stand_in, cache, alias, name):
    lines: list[str] = []
    path = models.resolve(name, report=lines.append)
    assert path == str(cache / "models" / alias)
    assert (Path(path) / "model.safetensors").is_file()
    assert [line.split()[0] for line in lines] == ["Converting"]
    lines.clear()
    assert models.resolve(name, report=lines.append, offline=True) == path
    assert lines == []
    assert models.name_of(path) == "SmolLM2-135M-Instruct" + (" with reader" if alias.endswith("reader") else "")


def test_a_damaged_default_model_is_made_again_and_says_so(stand_in):
    path = Path(models.resolve())
    (path / "tokenizer.json").write_bytes(b"{}")
    assert models.default_flaw() == "tokenizer.json has another size"
    lines: list[str] = []
    models.resolve(report=lines.append)
    assert "tokenizer.json has another size" in lines[0]
    assert models.default_flaw(thorough=True) is None


def test_offline_without_the_default_model_says_what_to_do(monkeypatch):
    monkeypatch.setattr(artifact, "installed_gguf", lambda: None)
    with pytest.raises(ModelError, match="--offline") as caught:
        models.resolve(offline=True)
    assert "--from FILE" in caught.value.hint


def test_a_sound_model_in_a_cache_that_cannot_be_written_is_used(stand_in, monkeypatch):
    path = models.resolve()
    monkeypatch.setattr(Path, "mkdir", lambda *a, **k: pytest.fail("something was written"))
    monkeypatch.setattr("engine.folders.tempfile.mkdtemp", lambda *a, **k: pytest.fail("something was written"))
    assert models.resolve() == path


def test_a_cache_that_cannot_be_written_has_a_hint(stand_in, monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(ModelError, match="cannot write") as caught:
        models.resolve()
    assert "INFINIPOT_CACHE" in caught.value.hint


def test_a_full_disk_has_a_hint(stand_in, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.convert.write_manifest", full)
    with pytest.raises(ModelError, match="the disk is full") as caught:
        models.resolve()
    assert "INFINIPOT_CACHE" in caught.value.hint


@pytest.mark.skipif(sys.platform == "win32", reason="homes differ there")
def test_without_a_home_folder_there_is_a_hint(monkeypatch):
    monkeypatch.delenv("INFINIPOT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(ModelError, match="no home folder") as caught:
        cache_folder.cache_dir()
    assert "INFINIPOT_CACHE" in caught.value.hint


def test_the_cache_folder_may_be_relative_or_below_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INFINIPOT_CACHE", "here")
    assert cache_folder.cache_dir() == tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INFINIPOT_CACHE", "~/there")
    assert cache_folder.cache_dir() == tmp_path / "there"


def test_a_gguf_file_is_converted_once_and_again_when_it_changes(tmp_path, monkeypatch):
    gguf = tiny_gguf.write(tmp_path / "my model.gguf")
    lines: list[str] = []
    path = models.resolve(str(gguf), report=lines.append)
    assert len(lines) == 1
    assert models.resolve(str(gguf), report=lines.append, offline=True) == path
    monkeypatch.chdir(tmp_path)
    assert models.resolve("my model.gguf", report=lines.append) == path
    assert len(lines) == 1
    weights = (Path(path) / "model.safetensors").read_bytes()
    tiny_gguf.write(gguf, seed=1)
    assert models.resolve(str(gguf), report=lines.append) == path
    assert "another source modified" in lines[1]
    assert (Path(path) / "model.safetensors").read_bytes() != weights


def test_gguf_files_of_one_name_do_not_share_a_folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    paths = {models.resolve(str(tiny_gguf.write(tmp_path / name / "m.gguf"))) for name in ("a", "b")}
    assert len(paths) == 2


def test_a_folder_with_one_gguf_file_means_that_file(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    tiny_gguf.write(folder / "m.gguf")
    assert (Path(models.resolve(str(folder))) / MANIFEST).is_file()
    tiny_gguf.write(folder / "n.gguf")
    with pytest.raises(ModelError, match="holds no model"):
        models.resolve(str(folder))


def test_a_model_folder_is_taken_as_it_is(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert models.resolve(str(tmp_path / "mine"), offline=True) == str(tmp_path / "mine")


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("smolm2-135m", "there is no model", "did you mean smollm2-135m?"),
        ("smollm2-135m-raeder", "there is no model", "did you mean smollm2-135m-reader?"),
        ("zzz", "there is no model", "infinipot models"),
        ("./nothing", "there is no file or folder", None),
        ("a/b/c", "there is no file or folder", None),
        ("nothing.gguf", "there is no file or folder", None),
        ("~/nothing/at/all", "there is no file or folder", None),
        ("~nosuch/x", "there is no file or folder ~nosuch/x", None),
        ("x y/z", "there is no model", "infinipot models"),
        ("-/-", "there is no model", "infinipot models"),
    ],
)
def test_a_name_that_is_nothing_is_explained(name, words, hint):
    with pytest.raises(ModelError, match=words) as caught:
        models.resolve(name)
    assert (hint is None and caught.value.hint is None) or hint in caught.value.hint


def test_a_text_file_is_no_model(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ModelError, match="neither a model folder"):
        models.resolve(str(tmp_path / "notes.txt"))


def test_aliases_become_hub_ids_and_hub_ids_stay(tmp_path):
    assert models.resolve("qwen3-4b") == "Qwen/Qwen3-4B"
    assert models.resolve("QWEN3-4B") == "Qwen/Qwen3-4B"
    assert models.resolve("someone/some.model-1") == "someone/some.model-1"
    with pytest.raises(ModelError, match="not in the local cache") as caught:
        models.resolve("qwen3-4b", offline=True)
    assert caught.value.hint == "infinipot models pull qwen3-4b, with fetching switched on"
    snapshot(tmp_path, "Qwen/Qwen3-4B")
    monkey_cache(tmp_path)
    assert models.resolve("qwen3-4b", offline=True) == "Qwen/Qwen3-4B"


def monkey_cache(tmp_path: Path) -> None:
    assert hub.snapshot("Qwen/Qwen3-4B") is not None, tmp_path


def test_a_hub_model_counts_as_cached_only_when_whole(tmp_path):
    assert hub.snapshot("a/b") is None
    snapshot(tmp_path, "a/b", shards=3, missing=True)
    snapshot(tmp_path, "c/d", shards=3)
    assert hub.snapshot("a/b") is None
    assert hub.snapshot("c/d") is not None


def test_local_models_are_listed_with_size_and_place(stand_in, tmp_path):
    models.resolve()
    gguf = tiny_gguf.write(tmp_path / "own.gguf")
    models.resolve(str(gguf))
    snapshot(tmp_path, "Qwen/Qwen3-4B")
    snapshot(tmp_path, "someone/model")
    found = {m.name: (m.where, m.bytes > 0) for m in models.list_local()}
    assert found == {
        "smollm2-135m-reader": ("local", True),
        str(gguf): ("local", True),
        "qwen3-4b": ("cached", True),
        "someone/model": ("cached", True),
    }


def test_an_empty_or_missing_cache_lists_nothing():
    assert models.list_local() == []


def test_path_of_fetches_nothing(stand_in, tmp_path):
    with pytest.raises(ModelError, match="not ready: it is not there") as caught:
        models.path_of()
    assert caught.value.hint == "infinipot models pull"
    assert str(models.path_of()) if models.pull() else False
    folder = snapshot(tmp_path, "Qwen/Qwen3-4B")
    assert models.path_of("qwen3-4b") == models.path_of("Qwen/Qwen3-4B") == folder
    with pytest.raises(ModelError, match="not on this machine"):
        models.path_of("qwen3-8b")
    with pytest.raises(ModelError, match="there is no model"):
        models.path_of("qwen9-8b")
    with pytest.raises(ModelError, match="there is no file or folder ~nosuch/x"):
        models.path_of("~nosuch/x")
    assert not models.is_local("~nosuch/x")


def test_pull_from_a_file_is_checked(stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(artifact, "installed_gguf", lambda: None)
    other = tiny_gguf.write(tmp_path / "other.gguf", seed=3)
    with pytest.raises(ModelError, match="not the default model"):
        models.pull(given=other, offline=True)
    assert models.pull(given=stand_in, offline=True) == models.default_path()
    with pytest.raises(ModelError, match="not the default model"):
        models.pull(given=other, offline=True)
    with pytest.raises(ModelError, match="there is no file"):
        models.pull(given=Path("~nosuch/x.whl"), offline=True)
    with pytest.raises(ModelError, match="--from is for the default model"):
        models.pull("qwen3-4b", given=stand_in)


def test_pulling_a_hub_model_explains_what_fails(monkeypatch):
    def offline(*_args, **_kwargs):
        raise ConnectionError("name resolution failed\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ModelError, match=r"Qwen/Qwen3-4B could not be fetched: name resolution failed$"):
        models.pull("qwen3-4b")
    with pytest.raises(ModelError, match="--offline"):
        models.pull("qwen3-4b", offline=True)


def test_pulling_a_hub_model_gives_its_folder(tmp_path, monkeypatch):
    seen = {}

    def download(hub_id, **options):
        seen.update(options, hub_id=hub_id)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    lines: list[str] = []
    assert models.pull("qwen3-4b", report=lines.append) == tmp_path
    assert seen["hub_id"] == "Qwen/Qwen3-4B"
    assert "*.bin" not in seen["allow_patterns"]
    assert lines == ["Downloading Qwen/Qwen3-4B from the Hugging Face hub…"]


def test_names_in_the_catalog_are_unique():
    names = [name.casefold() for entry in CATALOG for name in (entry.alias, entry.hub_id) if name]
    assert len(set(names)) == len(names)
    assert CATALOG[0] is DEFAULT
