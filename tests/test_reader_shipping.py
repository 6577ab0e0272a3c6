"""The reader as it is shipped: one file of the package, merged once into the default model, from one download."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import pytest
import tiny_reader
import torch
from cli_support import home, invoke  # noqa: F401
from safetensors.torch import load_file

from engine.adapter import FORMAT, adapter_info, merge_transform
from engine.convert import convert_gguf
from engine.derive import derive_folder
from engine.errors import ModelError
from engine.folders import MANIFEST, file_sha256
from infinipot_cli import artifact, health, models, pinned
from infinipot_cli.catalog import DEFAULT, PLAIN
from infinipot_cli.local import LocalWorkbench
from infinipot_cli.machine import Device, Machine
from infinipot_cli.options import DEFAULT_MODEL

ROOT = Path(__file__).parents[1]
MOST_BYTES = 12_000_000


@pytest.fixture
def cache(home, tmp_path, monkeypatch) -> Path:  # noqa: F811
    monkeypatch.setenv("INFINIPOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gguf(cache, tmp_path, monkeypatch) -> Path:
    """The stand-in's file, which no installed package has."""
    return tiny_reader.install(tmp_path / "pinned", monkeypatch, installed=False)


@pytest.fixture
def downloads(gguf, monkeypatch) -> list[Path]:
    """Where the stand-in was downloaded to, one entry for each time."""
    made: list[Path] = []

    def download(scratch: Path) -> Path:
        made.append(Path(shutil.copyfile(gguf, scratch / artifact.GGUF_NAME)))
        return made[-1]

    monkeypatch.setattr(artifact, "_download", download)
    monkeypatch.setattr(artifact, "ROOM", 1)
    return made


def weights(folder: Path | str) -> dict[str, torch.Tensor]:
    return load_file(Path(folder) / "model.safetensors")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_shipped_adapter_is_whole_small_and_says_what_it_is():
    path = Path(str(resources.files("infinipot_cli") / "adapters" / "reader.safetensors"))
    assert path == pinned.ADAPTERS / f"{DEFAULT.adapter}.safetensors"
    assert path.stat().st_size <= MOST_BYTES
    about = adapter_info(path)
    assert about["format"] == FORMAT
    assert {"base", "scale", "licence", "data", "wording", "training"} <= set(about)
    # Seven linear layers in each of thirty blocks, nothing else.
    assert len(json.loads(about["base"])) == len(merge_transform(path).waiting) == 7 * PLAIN.layers
    assert "*.safetensors binary" in (ROOT / ".gitattributes").read_text().splitlines()


def test_the_shipped_adapter_was_trained_with_the_wording_that_ask_uses():
    from training.layout import wording

    assert adapter_info(pinned.ADAPTERS / "reader.safetensors")["wording"] == wording()


def test_the_default_is_the_reader():
    assert DEFAULT_MODEL == DEFAULT.alias == "smollm2-135m-reader"
    assert (DEFAULT.adapter, PLAIN.adapter) == ("reader", None)
    assert DEFAULT.parameters == PLAIN.parameters


def test_kept_weights_are_the_plain_ones_plus_the_adapter(gguf, downloads):
    plain, merged = weights(models.resolve("smollm2-135m")), weights(models.resolve())
    factors = tiny_reader.factors(gguf)
    assert {name.removesuffix(".weight") for name in plain if "proj" in name} == set(factors)
    for name, weight in plain.items():
        a, b = factors.get(name.removesuffix(".weight"), (torch.zeros(1), torch.zeros(1)))
        wanted = weight.float() + tiny_reader.SCALE * b.float() @ a.float() if a.ndim == 2 else weight.float()
        torch.testing.assert_close(merged[name], wanted.half(), msg=name)
        assert torch.equal(merged[name], weight) is (a.ndim == 1), name


def test_a_model_made_from_the_plain_folder_is_the_one_made_from_the_source(gguf, tmp_path):
    about = {"name": "tiny"}
    adapter = pinned.ADAPTERS / "reader.safetensors"
    convert_gguf(gguf, tmp_path / "plain", about)
    convert_gguf(gguf, tmp_path / "direct", about, transforms=[merge_transform(adapter)])
    assert derive_folder(tmp_path / "plain", tmp_path / "derived", about, transforms=[merge_transform(adapter)])
    assert contents(tmp_path / "derived") == contents(tmp_path / "direct")
    modes = {path.stat().st_mode for path in (tmp_path / "derived").iterdir()}
    assert len(modes) == 1
    assert not derive_folder(tmp_path / "plain", tmp_path / "derived", about, transforms=[merge_transform(adapter)])


@pytest.mark.parametrize("order", [(DEFAULT, PLAIN), (PLAIN, DEFAULT)])
def test_both_models_come_from_one_download(downloads, order):
    first, second = (entry.alias for entry in order)
    models.pull(first)
    assert models.pull(second, offline=True).is_dir()
    assert len(downloads) == 1
    assert models.path_of(DEFAULT.alias) != models.path_of(PLAIN.alias)


def test_the_reader_is_made_from_a_plain_folder_without_its_source(downloads, cache):
    models.pull(PLAIN.alias)
    shutil.rmtree(cache / "downloads")
    lines: list[str] = []
    path = models.resolve(offline=True, report=lines.append)
    assert lines == ["Making smollm2-135m-reader from smollm2-135m (once, some seconds)…"]
    assert Path(path).is_dir()
    assert len(downloads) == 1


def test_a_damaged_plain_folder_is_not_built_upon(downloads):
    plain = models.pull(PLAIN.alias)
    sound = weights(models.pull())
    shutil.rmtree(models.default_path())
    data = bytearray((plain / "model.safetensors").read_bytes())
    data[-7] ^= 4
    (plain / "model.safetensors").write_bytes(data)
    again = weights(models.pull(offline=True))
    assert all(torch.equal(sound[name], weight) for name, weight in again.items())


def test_a_damaged_download_is_fetched_again(downloads, cache):
    models.pull()
    shutil.rmtree(models.default_path())
    (kept,) = (cache / "downloads").glob("*/*.gguf")
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    models.pull()
    assert len(downloads) == 2
    assert artifact.is_pinned(kept)


def test_a_new_adapter_makes_the_folder_again_without_a_download(downloads, gguf):
    old = models.pull()
    before, named = weights(old), json.loads((old / MANIFEST).read_text())["adapter_sha256"]
    assert named == file_sha256(pinned.ADAPTERS / "reader.safetensors")
    tiny_reader.write(pinned.ADAPTERS / "reader.safetensors", gguf, seed=1)
    assert models.default_flaw() == "it was made from another adapter sha256"
    with pytest.raises(ModelError, match="not ready: it was made from another adapter"):
        models.path_of()
    lines: list[str] = []
    new = models.resolve(offline=True, report=lines.append)
    assert "another adapter" in lines[0]
    assert any(not torch.equal(before[name], weight) for name, weight in weights(new).items())
    assert json.loads((Path(new) / MANIFEST).read_text())["adapter_sha256"] != named
    assert len(downloads) == 1
    assert models.default_flaw(thorough=True) is None


@pytest.mark.parametrize("first", [DEFAULT, PLAIN])
def test_an_adapter_for_other_weights_is_refused_and_leaves_nothing(downloads, gguf, first):
    path = tiny_reader.write(pinned.ADAPTERS / "reader.safetensors", gguf)
    about = adapter_info(path)
    wrong = json.dumps(dict.fromkeys(json.loads(about["base"]), "00000000"))
    tiny_reader.write(path, gguf, base=wrong)
    if first is PLAIN:
        models.pull(PLAIN.alias)
    with pytest.raises(ModelError, match="trained on other weights"):
        models.pull()
    assert not models.default_path().exists()
    assert [item.name for item in models.default_path().parent.iterdir() if ".tmp-" in item.name] == []


@pytest.mark.parametrize("first", [DEFAULT, PLAIN])
def test_an_adapter_for_a_larger_model_is_refused(downloads, gguf, first, monkeypatch):
    factors = tiny_reader.factors(gguf)
    name, (a, b) = next(iter(factors.items()))
    more = {**factors, name.replace("layers.0", "layers.9"): (a.clone(), b.clone())}
    prints = dict.fromkeys(more, "00000000") | tiny_reader.prints(gguf)
    monkeypatch.setattr(tiny_reader, "factors", lambda gguf, seed=0: more)
    tiny_reader.write(pinned.ADAPTERS / "reader.safetensors", gguf, base=json.dumps(prints))
    if first is PLAIN:
        models.pull(PLAIN.alias)
    with pytest.raises(ModelError, match=r"this model has no model\.layers\.9"):
        models.pull()
    assert not models.default_path().exists()


def test_without_its_adapter_file_the_plain_model_still_works(downloads):
    (pinned.ADAPTERS / "reader.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks reader\.safetensors") as caught:
        models.resolve()
    assert "--model smollm2-135m" in caught.value.hint
    assert Path(models.resolve("smollm2-135m")).is_dir()
    assert models.is_local() is False
    assert [model.name for model in models.list_local()] == ["smollm2-135m"]
    here = Machine(4, (Device("cpu", "RAM", 16 * 10**9, 8 * 10**9, "float32", 4),))
    checks = {check.name: check for check in health.examine(here, None)}
    assert checks["default model"].state == "fail"
    assert "reader.safetensors" in checks["default model"].value


SMALL = ("--capacity", "384", "--max-tokens", "4", "--device", "cpu")


@pytest.fixture
def plain_pot(downloads, tmp_path) -> Path:
    """A pot that the plain model made; both models are here."""
    models.pull(), models.pull(PLAIN.alias)
    (tmp_path / "notes.txt").write_text("the cat sat on the mat\n" * 40)
    path = tmp_path / "plain.pot"
    arguments = ("pot", "save", tmp_path / "notes.txt", "-o", path, "--model", "smollm2-135m", *SMALL[:2], *SMALL[4:])
    result = invoke(*arguments, bench=LocalWorkbench())
    assert result.code == 0, result.stderr
    return path


def test_a_pot_remembers_which_of_the_two_made_it(plain_pot):
    result = invoke("pot", "load", plain_pot, "Who?", "--json", *SMALL[2:], bench=LocalWorkbench())
    assert result.code == 0, result.stderr
    assert result.json["model"]["name"] == "smollm2-135m"


def test_a_pot_of_the_plain_model_is_refused_by_the_reader(plain_pot):
    arguments = ("pot", "load", plain_pot, "Who?", "--model", "smollm2-135m-reader", *SMALL[2:])
    result = invoke(*arguments, bench=LocalWorkbench())
    assert result.code == 6
    assert result.stdout == ""
    assert "made with smollm2-135m, not with smollm2-135m-reader (they differ in weights)" in result.stderr
    assert "--model smollm2-135m" in result.stderr


def test_a_pot_of_an_older_reader_is_refused_by_a_newer_one(downloads, gguf, tmp_path):
    models.pull()
    (tmp_path / "notes.txt").write_text("the cat sat on the mat\n" * 40)
    path = tmp_path / "old.pot"
    saving = ("pot", "save", tmp_path / "notes.txt", "-o", path, *SMALL[:2], *SMALL[4:])
    assert invoke(*saving, bench=LocalWorkbench()).code == 0
    tiny_reader.write(pinned.ADAPTERS / "reader.safetensors", gguf, seed=1)
    models.pull()
    result = invoke("pot", "load", path, "Who?", *SMALL[2:], bench=LocalWorkbench())
    assert result.code == 6
    assert "made with another version of smollm2-135m-reader (they differ in weights)" in result.stderr
    assert "make the pot again" in result.stderr
    assert invoke(*saving, "--force", bench=LocalWorkbench()).code == 0
    assert invoke("pot", "load", path, "Who?", *SMALL[2:], bench=LocalWorkbench()).code == 0
