"""Pots in fewer bits: what is lost is bounded, what must not be lost is not, and nobody takes one file for another."""

from __future__ import annotations

import io
import json
import math
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import tiny
import torch
from cli_support import FakeSession, FakeWorkbench, Stream, home, invoke  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor

from benchmarks import pots, pots_plot
from benchmarks.pots_parts import FileTimes
from engine import identity
from engine.census import census_of_file, census_of_pot
from engine.errors import InfinipotError, PotDamaged, SettingsError
from engine.identity import tokenizer_fingerprint
from engine.model import Model
from engine.models import wrap
from engine.packing import PACKINGS, POT_DTYPES, Packing
from engine.pot import Batch, Pot
from engine.potfile import PotMeta, load_pot, read_info, save_pot, verify_pot
from engine.pour import pour
from engine.quantised import Quantised, dequantise, quantise
from engine.reader import Reader
from engine.settings import PotSettings
from infinipot_cli.bench import memory
from infinipot_cli.bench.harness import Outcome
from infinipot_cli.local import LocalSession
from infinipot_cli.memory import Fingerprints
from infinipot_cli.terminal import Terminal
from infinipot_cli.units import show_bytes

META = PotMeta(sources=[{"name": "book.txt"}], note="naïve")
AXES = {"key": 1, "value": 2}


def made_pot(model: Model, tokens: int = 150) -> Pot:
    reader = Reader(model, PotSettings(capacity=64, distilled=24, block=16), [1, 2], [5, 6, 7])
    ids = tiny.random_ids(tokens)
    reader.feed(Batch(ids, torch.arange(tokens), torch.full_like(ids, 3)))
    return reader.finish()


@pytest.fixture(scope="module")
def pot() -> Pot:
    return made_pot(tiny.model())


def saved(pot: Pot, path: Path, dtype: str, model: Model | None = None) -> Path:
    save_pot(pot, path, model=model or tiny.model(), meta=META, dtype=dtype)
    return path


# Numbers


@st.composite
def numbers(draw: st.DrawFn) -> Tensor:
    """[H, n, D] of any size: channels of very different width, some of them constant, on an offset."""
    heads, length, channels = draw(st.tuples(st.integers(1, 3), st.integers(0, 21), st.integers(1, 9)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    width = 10.0 ** torch.randint(-8, 4, (1, 1, channels), generator=generator)
    offset = draw(st.sampled_from([0.0, 1.0, -300.0, 1e30]))
    x = torch.randn(heads, length, channels, generator=generator) * width + offset
    if draw(st.booleans()):
        x[..., 0] = offset
    return x


CHOICES = st.tuples(st.sampled_from([4, 8]), st.integers(1, 8), st.sampled_from([1, 2]))


def naive(x: Tensor, bits: int, group: int, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """(codes, scale, zero), number by number; a byte for every code."""
    lines = x.movedim(axis, -1)
    codes = torch.zeros_like(lines, dtype=torch.uint8)
    count = math.ceil(lines.shape[-1] / group)
    scale, zero = torch.zeros(*lines.shape[:-1], count), torch.zeros(*lines.shape[:-1], count)
    for i in range(lines.shape[0]):
        for j in range(lines.shape[1]):
            for g in range(count):
                part = lines[i, j, g * group : (g + 1) * group]
                low, high = part.min(), part.max()
                step = max(
                    (high / (2**bits - 1) - low / (2**bits - 1)), part.abs().max() / 32000, torch.tensor(2**-126)
                )
                rounded = step.bfloat16()
                if rounded.float() < step:
                    rounded = torch.nextafter(rounded, torch.tensor(math.inf).bfloat16())
                scale[i, j, g], zero[i, j, g] = rounded.float(), torch.round(low / rounded.float())
                code = torch.round(part / rounded.float()) - zero[i, j, g]
                codes[i, j, g * group : (g + 1) * group] = code.clamp(0, 2**bits - 1)
    return tuple(t.movedim(-1, axis) for t in (codes, scale, zero))  # type: ignore[return-value]


def unpacked(codes: Tensor, channels: int) -> Tensor:
    return torch.stack([codes & 15, codes >> 4], -1).flatten(-2)[..., :channels]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(x=numbers(), choice=CHOICES)
def test_quantising_is_what_it_is_number_by_number(x: Tensor, choice: tuple[int, int, int]) -> None:
    bits, group, axis = choice
    before = x.clone()
    parts = quantise(x, bits, group, axis)
    codes, scale, zero = naive(x, bits, group, axis)
    assert torch.equal(x, before)
    assert torch.equal(unpacked(parts.codes, x.shape[2]) if bits == 4 else parts.codes, codes)
    assert torch.equal(parts.scale.float(), scale)
    assert torch.equal(parts.zero.float(), zero)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(x=numbers(), choice=CHOICES)
def test_no_number_is_off_by_more_than_half_a_step(x: Tensor, choice: tuple[int, int, int]) -> None:
    bits, group, axis = choice
    parts = quantise(x, bits, group, axis)
    back = torch.full_like(x, math.nan)
    dequantise(parts, bits, group, axis, back)
    step = parts.scale.double().repeat_interleave(group, axis).narrow(axis, 0, x.shape[axis])
    rounding = x.abs().double() * 2**-22
    assert bool(((back.double() - x.double()).abs() <= step / 2 + rounding).all())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(x=numbers(), bits=st.sampled_from([4, 8]))
def test_a_step_is_as_fine_as_the_range_allows(x: Tensor, bits: int) -> None:
    if not x.shape[1]:
        return
    step = quantise(x, bits, x.shape[1], 1).scale.double()
    low, high = (t.double() for t in torch.aminmax(x, dim=1, keepdim=True))
    finest = torch.maximum((high - low) / (2**bits - 1), torch.maximum(-low, high) / 32_000)
    assert bool((step <= finest * (1 + 2**-7) + 2e-38).all())
    assert bool((step >= finest * (1 - 1e-5)).all())


def test_zeros_stay_zero_and_four_bits_take_half_of_eight() -> None:
    x = torch.randn(2, 40, 8)
    x[:, 3] = 0
    for bits, group, axis in ((4, 8, 1), (8, 16, 1), (4, 8, 2)):
        back = torch.empty_like(x)
        dequantise(quantise(x, bits, group, axis), bits, group, axis, back)
        assert not back[:, 3].any()
    assert quantise(x, 4, 8, 1).codes.nbytes * 2 == quantise(x, 8, 8, 1).codes.nbytes == x.numel()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_pot_that_is_not_finite_is_only_kept_as_it_is(bad: float, pot: Pot, tmp_path: Path) -> None:
    broken = pot.copy()
    broken.stores[1].value[0, 9, 2] = bad
    with pytest.raises(InfinipotError, match="not finite") as caught:
        saved(broken, tmp_path / "x.pot", "int8")
    assert "--pot-dtype raw" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []
    assert not load_pot(saved(broken, tmp_path / "x.pot", "raw"), tiny.model())[0].stores[1].value[0, 9, 2].isfinite()


# Pots


def expected(x: Tensor, part: str, dtype: str) -> Tensor:
    """What keys or values come back as."""
    if dtype in ("raw", "bf16"):
        return x if dtype == "raw" else x.bfloat16().to(x.dtype)
    packing = PACKINGS[dtype]
    back, rest = x.clone(), x[:, packing.front :]
    group = packing.key_group if part == "key" else packing.value_group
    if rest.shape[1]:
        codes, scale, zero = naive(rest.float(), packing.bits, group, AXES[part])
        scale, zero = (
            t.repeat_interleave(group, AXES[part]).narrow(AXES[part], 0, rest.shape[AXES[part]]) for t in (scale, zero)
        )
        back[:, packing.front :] = ((codes + zero) * scale).to(x.dtype)
    return back


@pytest.mark.parametrize("dtype", POT_DTYPES)
@pytest.mark.parametrize("name", ["llama", "gemma2", "phi3"])
def test_a_loaded_pot_is_the_saved_one_but_for_the_rounding_of_its_dtype(name: str, dtype: str, tmp_path: Path) -> None:
    model = tiny.model(name)
    pot = made_pot(model)
    loaded, meta = load_pot(saved(pot, tmp_path / "x.pot", dtype, model), model)
    assert meta == META
    assert (loaded.entries, loaded.taken, loaded.protected, loaded.nbytes) == (
        pot.entries,
        pot.taken,
        pot.protected,
        pot.nbytes,
    )
    assert loaded.last_hidden is not None
    assert torch.equal(loaded.last_hidden, pot.last_hidden)
    for index, store in pot.stores.items():
        assert loaded.stores[index].length == store.length
        for part in store.tensors:
            ours, theirs = (getattr(each, part)[:, : store.length] for each in (store, loaded.stores[index]))
            wanted = expected(ours, part, dtype) if part in AXES else ours
            assert theirs.dtype == ours.dtype
            assert torch.equal(theirs, wanted), (index, part)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_a_pot_shorter_than_what_is_kept_exactly_loses_nothing(tokens: int, dtype: str, tmp_path: Path) -> None:
    pot = made_pot(tiny.model(), tokens)
    front = PACKINGS[dtype].front
    loaded, _ = load_pot(saved(pot, tmp_path / "x.pot", dtype), tiny.model())
    for index, store in pot.stores.items():
        short = slice(0, min(store.length, front))
        assert torch.equal(loaded.stores[index].key[:, short], store.key[:, short])
        assert loaded.stores[index].length == store.length == 2 + tokens


def test_bfloat16_models_float32_ones_and_pots_of_each_other(tmp_path: Path) -> None:
    half = wrap(tiny.build("Llama", {}, torch.bfloat16), tiny.tokenizer(), "llama")
    pot = made_pot(half)
    for dtype in POT_DTYPES:
        path = saved(pot, tmp_path / f"{dtype}.pot", dtype, half)
        ours, theirs = load_pot(path, half)[0], load_pot(path, tiny.model())[0]
        assert (ours.stores[0].key.dtype, theirs.stores[0].key.dtype) == (torch.bfloat16, torch.float32)
        assert torch.equal(ours.stores[0].key[:, :9], theirs.stores[0].key[:, :9].bfloat16())
    raw, rounded = tmp_path / "raw.pot", tmp_path / "bf16.pot"
    assert raw.read_bytes() == rounded.read_bytes()


@torch.inference_mode()
def logits(pot: Pot) -> Tensor:
    ids = torch.tensor([[9, 17, 33, 5]])
    places = torch.arange(pot.entries, pot.entries + ids.shape[1])[None]
    return tiny.model().module(ids, position_ids=places, past_key_values=pour(tiny.model(), pot)).logits[0]


def test_fewer_bits_change_what_the_model_says_a_little_more(pot: Pot, tmp_path: Path) -> None:
    before = logits(pot)
    off = {}
    for dtype in POT_DTYPES:
        after = logits(load_pot(saved(pot, tmp_path / f"{dtype}.pot", dtype), tiny.model())[0])
        off[dtype] = float((after - before).std() / before.std())
    assert off["raw"] == 0 < off["bf16"] < off["int8"] < off["int4"]
    assert off["int8"] < 0.02
    assert off["int4"] < 0.3


@pytest.mark.parametrize("dtype", POT_DTYPES)
def test_the_census_of_a_file_is_that_of_the_pot(dtype: str, pot: Pot, tmp_path: Path) -> None:
    _, census = census_of_file(saved(pot, tmp_path / "x.pot", dtype))
    assert list(census) == list(census_of_pot(pot))
    assert (census.heads, census.nowhere) == (census_of_pot(pot).heads, census_of_pot(pot).nowhere)


def test_heads_that_hold_different_tokens_keep_them(tmp_path: Path) -> None:
    pot = made_pot(tiny.model())
    pot.stores[0].token[1, 5] += 1
    pot.stores[1].place[0, 5] = (3 << 40) + 7  # wider than four bytes
    loaded, _ = load_pot(saved(pot, tmp_path / "x.pot", "int4"), tiny.model())
    for index, store in pot.stores.items():
        for part in ("token", "place", "position", "novelty"):
            ours, theirs = (getattr(each, part)[:, : store.length] for each in (store, loaded.stores[index]))
            assert torch.equal(ours, theirs)
    assert list(census_of_file(tmp_path / "x.pot")[1]) == list(census_of_pot(pot))


# Files


def test_the_header_says_what_the_file_holds(pot: Pot, tmp_path: Path) -> None:
    sizes = {}
    for dtype in POT_DTYPES:
        path = saved(pot, tmp_path / f"{dtype}.pot", dtype)
        info = verify_pot(path)
        assert info == read_info(path)
        packed = dtype in PACKINGS
        named = {"raw": "float32", "bf16": "bfloat16"}.get(dtype, dtype)
        assert (info.version, info.dtype, info.packing) == (1 + packed, named, PACKINGS.get(dtype))
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        numbers = [t for name, t in tensors.items() if ".key" in name or ".value" in name]
        assert info.nbytes == sum(tensor.nbytes for tensor in numbers)
        sizes[dtype] = info.nbytes
    assert sizes["raw"] == pot.nbytes == 2 * sizes["bf16"]
    assert sizes["int4"] < sizes["int8"] < sizes["bf16"]


def test_a_pot_that_is_not_packed_is_of_the_first_version(pot: Pot, tmp_path: Path) -> None:
    """The first readers refuse any version but 1, and any name in the header that they do not know."""
    known = {
        "identity", "settings", "meta", "dtype", "protected", "tokens_read", "cycles", "taken", "entries", "nbytes",
        "tensors",
    }  # fmt: skip
    for dtype, version in (("raw", "1"), ("bf16", "1"), ("int8", "2"), ("int4", "2")):
        with safe_open(saved(pot, tmp_path / "x.pot", dtype), framework="np") as file:
            metadata = file.metadata()
        assert metadata["format_version"] == version
        assert (set(json.loads(metadata["pot"])) == known) is (version == "1")


def test_a_pot_of_the_first_version_still_loads(pot: Pot, tmp_path: Path) -> None:
    """As infinipot 0.1 wrote it, with safetensors' own writer."""
    model = tiny.model()
    tensors = {
        f"layers.{index}.{part}": getattr(store, part)[:, : store.length].contiguous()
        for index, store in pot.stores.items()
        for part in store.tensors
    }
    assert pot.last_hidden is not None
    tensors["last_hidden"] = pot.last_hidden.clone()
    content = {
        "identity": model.identity.to_dict(),
        "settings": pot.settings.to_dict(),
        "meta": asdict(META),
        "dtype": "float32",
        "protected": pot.protected,
        "tokens_read": pot.tokens_read,
        "cycles": pot.cycles,
        "taken": pot.taken,
        "entries": pot.entries,
        "nbytes": pot.nbytes,
        "tensors": {
            name: {"shape": list(t.shape), "dtype": str(t.dtype), "crc32": f"{zlib.crc32(t.numpy().tobytes()):08x}"}
            for name, t in tensors.items()
        },
    }
    text = json.dumps(content)
    metadata = {"format": "infinipot-pot", "format_version": "1", "pot": text}
    safetensors.torch.save_file(
        tensors, tmp_path / "old.pot", {**metadata, "crc32": f"{zlib.crc32(text.encode()):08x}"}
    )
    old, new = tmp_path / "old.pot", saved(pot, tmp_path / "new.pot", "raw")
    assert verify_pot(old) == verify_pot(new)
    loaded, _ = load_pot(old, model)
    assert torch.equal(loaded.stores[1].value[:, : pot.entries], pot.stores[1].value[:, : pot.entries])


@pytest.mark.parametrize("dtype", POT_DTYPES)
def test_a_stream_gets_the_same_pot_as_a_file(dtype: str, pot: Pot, tmp_path: Path) -> None:
    stream = io.BytesIO()
    size = save_pot(pot, stream, model=tiny.model(), meta=META, dtype=dtype)
    assert stream.getvalue() == saved(pot, tmp_path / "x.pot", dtype).read_bytes()
    assert size == len(stream.getvalue())


def refused(path: Path) -> bool:
    """Whether neither checking nor loading takes the file for a sound pot."""
    try:
        verify_pot(path)
    except PotDamaged:
        with pytest.raises(PotDamaged):
            load_pot(path, tiny.model())
        return True
    return False


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_flipped_bit_never_goes_unnoticed(
    data: st.DataObject, pot: Pot, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = saved(pot, tmp_path_factory.mktemp("flip") / "x.pot", "int4")
    info, whole = read_info(path), bytearray(path.read_bytes())
    header = 8 + int.from_bytes(whole[:8], "little")
    place = data.draw(st.one_of(st.integers(0, header - 1), st.integers(header, len(whole) - 1)))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    if not refused(path):
        # Blanks behind the header have no meaning.
        assert place < header
        assert read_info(path) == info


def forged(source: Path, target: Path, change: Any) -> Path:
    """The pot with its header changed by ``change(metadata, content)``, and the header's checksum made right again."""
    with safe_open(source, framework="pt") as file:
        metadata, tensors = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    content = json.loads(metadata["pot"])
    change(metadata, content)
    metadata["pot"] = json.dumps(content)
    metadata["crc32"] = f"{zlib.crc32(metadata['pot'].encode()):08x}"
    safetensors.torch.save_file(tensors, target, metadata)
    return target


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata, _: metadata.update(format_version="1"),
        lambda _, pot: pot.pop("packing"),
        lambda _, pot: pot.update(packing={}),
        lambda _, pot: pot["packing"].update(bits=8),
        lambda _, pot: pot["packing"].update(bits=3),
        lambda _, pot: pot["packing"].update(key_group=7),
        lambda _, pot: pot["packing"].update(value_group=0),
        lambda _, pot: pot["packing"].update(front=5),
        lambda _, pot: pot["packing"].update(front=-1),
        lambda _, pot: pot["packing"].update(front=10**12),
        lambda _, pot: pot["packing"].update(surprise=1),
        lambda _, pot: pot["tensors"]["layers.0.key"].update(dtype="torch.int64"),
        lambda _, pot: pot["tensors"]["layers.0.key_scale"].update(dtype="torch.int16"),
        lambda _, pot: pot["tensors"]["layers.0.token"].update(shape=[7]),
        lambda _, pot: pot["tensors"]["layers.1.token"].update(dtype="torch.float32"),
        lambda _, pot: pot["tensors"]["layers.1.novelty"].update(dtype="torch.int32"),
        lambda _, pot: pot["tensors"]["layers.1.value_front"].update(dtype="torch.int32"),
        lambda _, pot: pot["tensors"]["layers.0.value"]["shape"].reverse(),
    ],
)
def test_a_forged_header_is_an_error_never_an_answer(change: Any, pot: Pot, tmp_path: Path) -> None:
    path = forged(saved(pot, tmp_path / "x.pot", "int4"), tmp_path / "forged.pot", change)
    with pytest.raises(PotDamaged):
        load_pot(path, tiny.model())


def test_an_unknown_dtype_is_refused_before_anything_is_written(pot: Pot, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="raw, bf16, int8, int4"):
        saved(pot, tmp_path / "x.pot", "int2")
    assert list(tmp_path.iterdir()) == []


def test_a_pot_is_never_in_memory_twice(tmp_path: Path) -> None:
    """Neither saving nor loading takes more than the pot itself and a layer's worth beside it."""

    class Here:
        def reset_peak(self) -> None: ...

        def peak_bytes(self) -> None: ...

    many = {"num_hidden_layers": 8, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 4096}
    model = wrap(tiny.build("Llama", many), tiny.tokenizer(), "large")
    pot = Pot(model.layers, PotSettings(capacity=4000), model.device, model.dtype)
    for store in pot.stores.values():
        store.key.normal_()
        store.value.normal_()
        store.length = store.next = 3000
    rises = {}
    for dtype in ("raw", "int8"):
        with memory.watched(Here()) as saving:
            saved(pot, tmp_path / f"{dtype}.pot", dtype, model)
        rises[dtype] = saving
    size = pot.nbytes
    del pot, store
    for dtype, saving in rises.items():
        with memory.watched(Here()) as loading:
            load_pot(tmp_path / f"{dtype}.pot", model)
        if loading.how != memory.KERNEL:
            pytest.skip("the system does not count the peak")
        assert saving.before is not None
        assert saving.most is not None
        assert loading.before is not None
        assert loading.most is not None
        assert saving.most - saving.before < 0.3 * size, dtype
        assert loading.most - loading.before < 1.4 * size, dtype


# What loading waits for


def test_a_tokenizer_that_was_seen_before_is_not_sorted_again(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:  # noqa: F811
    tokenizer = tiny.tokenizer()
    plain = tokenizer_fingerprint(tokenizer)
    assert tokenizer_fingerprint(tokenizer, Fingerprints()) == plain
    assert list(Fingerprints().values()) == [plain]
    monkeypatch.setattr(identity.json, "dumps", None)
    assert tokenizer_fingerprint(tokenizer, Fingerprints()) == plain


def test_what_was_noted_of_tokenizers_is_never_taken_for_another_or_for_nonsense(home: Path) -> None:  # noqa: F811
    first, other = tiny.tokenizer(), tiny.spiece_tokenizer()
    known = Fingerprints()
    found = [tokenizer_fingerprint(tokenizer, known) for tokenizer in (first, other)]
    assert found == [tokenizer_fingerprint(first), tokenizer_fingerprint(other)]
    for key in list(known):
        known[key] = "no fingerprint"
    assert len(Fingerprints()) == 0
    assert tokenizer_fingerprint(first, Fingerprints()) == found[0]
    del known[next(iter(known))]
    assert len(known) == 1


# The benchmark


def test_the_benchmark_puts_every_dtype_beside_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = tmp_path / "questions.jsonl"
    rows = [
        {"document": "The inspector is Garside. " * 20, "question": q, "accepted": ["Garside"]}
        for q in ("Who?", "Whom?")
    ]
    questions.write_text("\n".join(map(json.dumps, rows)))
    arguments = [
        "--parts",
        "document,needles",
        "--needles",
        "1",
        "--length",
        "400",
        "--repeats",
        "1",
        "--out",
        str(tmp_path / "o"),
    ]
    arguments += ["--questions", str(questions), "--capacity", "320", "--pot-dtypes", "int4,raw"]
    session = LocalSession(tiny.model())
    monkeypatch.setattr(pots.LocalWorkbench, "load", lambda *_: session)
    stdout, stderr = Stream(), Stream()
    pots.run(Terminal(None, stdout, stderr, False, False, False), pots.options_of(arguments))
    lines = [line.split() for line in stdout.bytes.decode().splitlines()]
    files = {line[0]: line for line in lines if line and line[0] in ("raw", "int4")}
    assert files["raw"][3] == "1.00" > files["int4"][3]
    answers = {tuple(line[:2]): line for line in lines if line and line[0] in ("document", "needles")}
    assert set(answers) == {(part, dtype) for part in ("document", "needles") for dtype in ("raw", "int4")}
    assert [answers["document", dtype][2] for dtype in ("raw", "int4")] == ["2", "2"]
    assert answers["document", "raw"][3] == "100%"
    assert float(answers["document", "raw"][-1]) == 0 < float(answers["document", "int4"][-1])
    asked = (tmp_path / "o").read_text().count('"record": "outcome"')
    broken = '"error": "out of memory"'.join((tmp_path / "o").read_text().rsplit('"error": null', 1))
    (tmp_path / "o").write_text(broken)
    before = stderr.bytes.count(b"reading for")
    pots.run(Terminal(None, Stream(), stderr, False, False, False), pots.options_of(arguments))
    # What is in the file is not asked again, but for what ran out of memory; the first pot is read once more, to be
    # timed.
    assert stderr.bytes.count(b"reading for") == before + 2
    assert (tmp_path / "o").read_text().count('"record": "outcome"') == asked + 3


def test_the_picture_has_every_dtype_and_the_mean_divergence_of_each_part(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    times = [FileTimes(dtype, size, size, 0.1, 0.2, 0.3, 0.01, None, None) for dtype, size in (("raw", 8), ("int4", 2))]
    moved = {
        ("pages", "raw"): [0, 0],
        ("pages", "int4"): [0.1, 0.3],
        ("document", "raw"): [0],
        ("document", "int4"): [1],
    }
    outcomes = [
        Outcome(f"{part}{number}", dtype, "", 0.0, labels={"part": part, "kl": kl})
        for (part, dtype), own in moved.items()
        for number, kl in enumerate(own)
    ]
    assert pots_plot.divergence(outcomes, "pages", "int4") == pytest.approx(0.2)
    path = tmp_path / "pots.png"
    pots_plot.draw(path, times, outcomes)
    assert path.read_bytes().startswith(b"\x89PNG")


# The command line


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("one two three")
    return path


def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The dtypes that pots were saved in, as they come."""
    asked: list[str] = []
    save = FakeSession.save

    def noting(self: FakeSession, pot: Any, target: Any, meta: dict[str, Any], dtype: str = "raw") -> int:
        asked.append(dtype)
        return save(self, pot, target, meta, dtype)

    monkeypatch.setattr(FakeSession, "save", noting)
    return asked


def test_flag_variable_and_file_say_the_dtype(
    book: Path,
    tmp_path: Path,
    home: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asked_for(monkeypatch)
    config = home / "config" / "infinipot" / "config.yaml"
    config.parent.mkdir(parents=True)
    save = ("pot", "save", book, "--force", "-o", tmp_path / "x.pot")
    assert invoke(*save).code == 0
    config.write_text("pot-dtype: int8\n")
    assert invoke(*save).code == 0
    monkeypatch.setenv("INFINIPOT_POT_DTYPE", "bf16")
    assert invoke(*save).code == 0
    assert invoke(*save, "--pot-dtype", "int4").code == 0
    assert invoke("pot", "save", book, "--pot-dtype", "int4").code == 0
    assert asked == ["raw", "int8", "bf16", "int4", "int4"]


def test_a_wrong_dtype_is_found_before_a_model_is_loaded(book: Path, tmp_path: Path) -> None:
    bench = FakeWorkbench()
    result = invoke("pot", "save", book, "-o", tmp_path / "x.pot", "--pot-dtype", "int2", bench=bench)
    assert (result.code, bench.loaded) == (2, [])
    assert "error: pot dtype must be one of raw, bf16, int8, int4" in result.stderr


def test_receipt_and_info_say_the_dtype_of_the_file(book: Path, tmp_path: Path) -> None:
    for dtype, name in (("raw", "float32"), ("bf16", "bfloat16"), ("int4", "int4")):
        path = tmp_path / f"{dtype}.pot"
        result = invoke("pot", "save", book, "-o", path, "--pot-dtype", dtype)
        assert f"{path} ({show_bytes(path.stat().st_size)}, {name})" in result.stderr
        assert f"keys and values in {name}, 7.0 KiB" in invoke("pot", "info", path).stdout
        assert invoke("pot", "info", path, "--json").json["dtype"] == name
        loaded = invoke("pot", "load", path, "Who?", "--json").json
        assert loaded["pot"]["file_dtype"] == name
        assert ("saved in" in invoke("pot", "load", path, "Who?").stderr) is (dtype != "raw")
    content = invoke("pot", "save", book, "-o", tmp_path / "y.pot", "--pot-dtype", "int8", "--json").json
    assert content["pot"]["file_dtype"] == "int8"


def test_info_says_how_numbers_are_packed(tmp_path: Path, pot: Pot) -> None:
    from infinipot_cli.local import LocalWorkbench

    path = saved(pot, tmp_path / "x.pot", "int4")
    text = invoke("pot", "info", path, bench=LocalWorkbench()).stdout
    packing = PACKINGS["int4"]
    assert "format version 2" in text
    assert "keys and values in int4" in text
    assert f"{packing.key_group} entries of a key's channel" in text
    assert invoke("pot", "info", path, "--json", bench=LocalWorkbench()).json["packing"] == asdict(packing)


@pytest.mark.parametrize("sizes", [(2, 8, 8, 0), (4, 0, 8, 0), (4, 8, 8, -1), (8, 8, True, 0), (8, 8.0, 8, 0)])
def test_there_are_only_sensible_packings(sizes: tuple[Any, ...]) -> None:
    with pytest.raises(SettingsError):
        Packing(*sizes)


def test_quantised_parts_have_the_shapes_that_the_format_says() -> None:
    parts = quantise(torch.randn(2, 10, 5), 4, 4, 1)
    assert isinstance(parts, Quantised)
    assert [t.shape for t in (parts.codes, parts.scale, parts.zero)] == [(2, 10, 3), (2, 3, 5), (2, 3, 5)]
    parts = quantise(torch.randn(2, 10, 5), 8, 4, 2)
    assert [t.shape for t in (parts.codes, parts.scale, parts.zero)] == [(2, 10, 5), (2, 10, 2), (2, 10, 2)]
