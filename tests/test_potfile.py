"""Pot files: what is saved is what is loaded, and what is not a sound pot of this model is never answered from."""

from __future__ import annotations

import errno
import io
import json
import stat
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from engine import potfile
from engine.errors import InfinipotError, PotDamaged, PotMismatch
from engine.generation import generate
from engine.model import Model
from engine.models import wrap
from engine.pot import Batch, Pot
from engine.potfile import PotMeta, load_pot, read_info, save_pot, verify_pot
from engine.reader import Reader
from engine.settings import GenerationSettings, PotSettings

META = PotMeta(sources=[{"name": "book.txt", "sha256": "ab"}], catalyst={"name": "cap-g"}, note="naïve — ok")
SUFFIX = [9, 17, 33, 5]


def made_pot(model: Model, tokens: int = 200) -> Pot:
    reader = Reader(model, PotSettings(capacity=64, distilled=24, block=16), [1, 2], [5, 6, 7])
    ids = tiny.random_ids(tokens)
    reader.feed(Batch(ids, torch.arange(tokens), torch.full_like(ids, 3)))
    return reader.finish()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pots") / "x.pot"
    save_pot(made_pot(tiny.model()), path, model=tiny.model(), meta=META)
    return path


@pytest.mark.parametrize("name", ["llama", "gemma2", "smollm3", "phi3-longrope"])
def test_a_loaded_pot_is_the_saved_pot_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = tiny.model(name)
    pot = made_pot(model)
    save_pot(pot, tmp_path / "x.pot", model=model, meta=META)
    loaded, meta = load_pot(tmp_path / "x.pot", model)
    assert meta == META
    assert (loaded.settings, loaded.protected, loaded.tokens_read, loaded.cycles, loaded.entries) == (
        pot.settings,
        pot.protected,
        pot.tokens_read,
        pot.cycles,
        pot.entries,
    )
    for index, store in pot.stores.items():
        for part in store.tensors:
            ours, theirs = getattr(store, part), getattr(loaded.stores[index], part)
            assert torch.equal(ours[:, : store.length], theirs[:, : store.length]), (index, part)


def test_answers_are_the_same_before_and_after(saved: Path) -> None:
    model = tiny.model()
    choice = GenerationSettings(max_new_tokens=12)
    before = generate(model, made_pot(model), SUFFIX, choice)
    after = generate(model, load_pot(saved, model)[0], SUFFIX, choice)
    assert before.token_ids == after.token_ids


def test_reading_goes_on_from_a_loaded_pot_as_if_it_had_never_stopped(saved: Path) -> None:
    from engine.ccd import Distiller, as_ids

    model = tiny.model()
    more = Batch.of(tiny.random_ids(90, seed=1).tolist())
    pots = [made_pot(model), load_pot(saved, model)[0]]
    for pot in pots:
        distiller = Distiller(model, pot, as_ids([5, 6, 7]))
        distiller.feed(more)
        distiller.flush()
    for ours, theirs in zip(pots[0].stores.values(), pots[1].stores.values(), strict=True):
        assert torch.equal(ours.key[:, : ours.length], theirs.key[:, : theirs.length])


def test_bfloat16_survives(tmp_path: Path) -> None:
    model = wrap(tiny.build("Llama", {}, torch.bfloat16), tiny.tokenizer(), "bf16")
    pot = made_pot(model)
    save_pot(pot, tmp_path / "x.pot", model=model, meta=META)
    loaded, _ = load_pot(tmp_path / "x.pot", model)
    assert loaded.stores[0].key.dtype == torch.bfloat16
    assert torch.equal(loaded.stores[0].key[:, : loaded.entries], pot.stores[0].key[:, : pot.entries])


def test_a_stream_gets_the_same_pot_as_a_file(saved: Path) -> None:
    stream = io.BytesIO()
    size = save_pot(made_pot(tiny.model()), stream, model=tiny.model(), meta=META)
    assert size == len(stream.getvalue()) == saved.stat().st_size
    piped = saved.with_name("piped.pot")
    piped.write_bytes(stream.getvalue())
    assert verify_pot(piped) == verify_pot(saved)


def test_the_header_is_read_without_torch(saved: Path) -> None:
    code = (
        "import sys; from engine.potfile import read_info, verify_pot; "
        f"info = read_info({str(saved)!r}); verify_pot({str(saved)!r}); "
        "assert info.meta.note == 'naïve — ok'; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


def test_a_pot_is_private(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 251 + ".pot")
    save_pot(made_pot(tiny.model()), target, model=tiny.model(), meta=META)
    assert [entry.name for entry in tmp_path.iterdir()] == [target.name]


def test_a_full_disk_leaves_the_old_pot_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.pot"
    target.write_bytes(b"the old one")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(potfile.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_pot(made_pot(tiny.model()), target, model=tiny.model(), meta=META)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.pot"]
    assert target.read_bytes() == b"the old one"


def refused(path: Path) -> InfinipotError | None:
    """The error that keeps this file from being answered from, by header, by checksums and by loading alike."""
    try:
        verify_pot(path)
    except PotDamaged as error:
        with pytest.raises(PotDamaged):
            load_pot(path, tiny.model())
        return error
    return None


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_flipped_bit_never_goes_unnoticed(saved: Path, data: st.DataObject) -> None:
    whole = bytearray(saved.read_bytes())
    header = 8 + int.from_bytes(whole[:8], "little")
    # Headers are small beside the tensors: half of the flips go there.
    place = data.draw(st.one_of(st.integers(0, header - 1), st.integers(0, len(whole) - 1)))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    broken = saved.with_name("flipped.pot")
    broken.write_bytes(whole)
    error = refused(broken)
    if error is None:
        # Padding blanks after the header are the only bytes without meaning.
        assert read_info(broken) == read_info(saved)
        assert place < header


@settings(max_examples=60, deadline=None, derandomize=True)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_pot_is_refused(saved: Path, share: float) -> None:
    whole = saved.read_bytes()
    broken = saved.with_name("cut.pot")
    broken.write_bytes(whole[: int(len(whole) * share)])
    assert refused(broken) is not None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(start=st.binary(max_size=64), length=st.integers(0, 2**64 - 1))
def test_noise_and_hostile_header_sizes_are_refused(saved: Path, start: bytes, length: int) -> None:
    for content in (start, length.to_bytes(8, "little") + saved.read_bytes()[8:], length.to_bytes(8, "little") + start):
        if content[:8] == saved.read_bytes()[:8] and len(content) > 100:
            continue
        broken = saved.with_name("noise.pot")
        broken.write_bytes(content)
        assert refused(broken) is not None


def rewritten(saved: Path, name: str, change: Any) -> Path:
    """The saved pot with its header changed by ``change(metadata, pot)`` and every header checksum made right again."""
    with safe_open(saved, framework="pt") as file:
        metadata = dict(file.metadata())
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    content = json.loads(metadata["pot"])
    change(metadata, content)
    metadata["pot"] = json.dumps(content)
    metadata["crc32"] = f"{zlib.crc32(metadata['pot'].encode()):08x}"
    path = saved.with_name(name)
    safetensors.torch.save_file(tensors, path, metadata)
    return path


def test_a_newer_version_is_refused_and_says_so(saved: Path) -> None:
    newer = rewritten(saved, "newer.pot", lambda metadata, _: metadata.update(format_version="3"))
    with pytest.raises(PotDamaged, match="version 3") as caught:
        read_info(newer)
    assert "upgrade" in (caught.value.hint or "")


def test_a_safetensors_file_of_something_else_is_no_pot(tmp_path: Path) -> None:
    safetensors.torch.save_file({"weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(PotDamaged, match="not a pot"):
        read_info(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        lambda _, pot: pot["settings"].update(capacity=10**12),
        lambda _, pot: pot["settings"].update(capacity=20, distilled=4),
        lambda _, pot: pot["settings"].update(method="magic"),
        lambda _, pot: pot.update(entries=3),
        lambda _, pot: pot.update(surprise=1),
        lambda _, pot: pot.pop("identity"),
        lambda _, pot: pot.update(tensors={}),
        lambda _, pot: pot.update(settings=[]),
    ],
)
def test_a_forged_header_is_an_error_never_an_answer(saved: Path, change: Any) -> None:
    with pytest.raises(InfinipotError):
        load_pot(rewritten(saved, "forged.pot", change), tiny.model())


def test_another_model_another_tokenizer_and_another_template_are_told_apart(saved: Path) -> None:
    others = {
        "weights": wrap(tiny.build("Llama", {}, seed=1), tiny.tokenizer(), "twin"),
        "template": tiny.with_tokenizer(tiny.STRIPPING),
        "tokenizer": wrap(tiny.module("llama"), tiny.spiece_tokenizer(), "llama"),
        "config": tiny.model("llama-llama3"),
        "architecture": tiny.model("qwen3"),
    }
    for part, other in others.items():
        with pytest.raises(PotMismatch, match=part):
            load_pot(saved, other)


def test_the_dtype_a_model_is_loaded_in_is_not_its_identity(saved: Path) -> None:
    twin = wrap(tiny.build("Llama", {}, torch.bfloat16), tiny.tokenizer(), "llama")
    assert twin.identity.weights == tiny.model().identity.weights


def test_a_missing_file_is_the_systems_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_info(tmp_path / "none.pot")
