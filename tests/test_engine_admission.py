"""Models are admitted by proof: what the pot can reproduce is read, what it cannot is refused in words."""

from __future__ import annotations

import functools
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.models.llama import modeling_llama

from engine import models as engine_models
from engine.admission import prove
from engine.errors import ModelError
from engine.forward import forward
from engine.generation import generate
from engine.model import Model
from engine.models import load_model, wrap
from engine.reader import Reader
from engine.settings import GenerationSettings, PotSettings
from tests import tiny, tiny_gguf

IDS = tiny.random_ids(40)


@torch.inference_mode()
def stock_logits(module: Any) -> Tensor:
    return module(input_ids=IDS[None]).logits[0]


def fresh(prefix: str = "Llama", **options: Any) -> Any:
    return tiny.build(prefix, options)


def admit(module: Any) -> None:
    prove(wrap(module, tiny.tokenizer(), "odd-model"))


# -------------------------------------------------------------------------------------------------- admitted


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_every_architecture_is_admitted(name: str, dtype: torch.dtype) -> None:
    prove(tiny.model(name, dtype))


def test_the_probe_sees_windows_rotation_and_heads() -> None:
    layers = tiny.model("gemma3").layers
    assert [spec.window for spec in layers] == [tiny.WINDOW, None, tiny.WINDOW, None]
    assert len({spec.rotary for spec in layers}) == 2
    assert {(spec.query_heads, spec.kv_heads, spec.key_dim) for spec in layers} == {(4, 2, 8)}
    assert [spec.rotary is None for spec in tiny.model("smollm3").layers] == [False, True, False, True]
    assert [spec.rotary is None for spec in tiny.model("cohere2").layers] == [False, True, False, True]


def test_entry_bytes_are_the_pots() -> None:
    model = tiny.model("gemma3")
    pot = tiny.read(model, PotSettings(capacity=64), tiny.document(12))
    assert pot.nbytes == pot.entries * model.entry_bytes == 15 * 4 * 2 * (8 + 8) * 4


# --------------------------------------------------------------------------------------------------- refused


def test_a_model_without_rope_is_refused() -> None:
    config = transformers.GPT2Config(vocab_size=tiny.VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    with pytest.raises(ModelError, match="no rotary position embedding"):
        admit(transformers.GPT2LMHeadModel(config))


@pytest.mark.parametrize("prefix", ["Bloom", "FalconMamba"])
def test_a_model_without_the_attention_interface_is_refused(prefix: str) -> None:
    module = fresh(prefix, n_layer=2, n_head=4, state_size=4, time_step_rank=4)
    with pytest.raises(ModelError, match="attention interface"):
        admit(module)


@pytest.mark.parametrize("prefix", ["MiniCPM3", "DeepseekV2", "DeepseekV3"])
def test_a_cache_of_something_else_than_keys_is_refused(prefix: str) -> None:
    if not hasattr(transformers, f"{prefix}Config"):
        pytest.skip("this transformers has no such model")
    sizes = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1}
    module = fresh(prefix, **sizes, **experts, topk_group=1, num_key_value_heads=4)
    with pytest.raises(ModelError):
        admit(module)


@pytest.mark.parametrize("name", [name for name in ("gemma3n", "gemma4") if name in tiny.ARCHITECTURES])
def test_layers_that_share_the_keys_of_another_are_refused(name: str) -> None:
    prefix, options = tiny.ARCHITECTURES[name]
    with pytest.raises(ModelError):
        admit(tiny.build(prefix, {**options, "num_kv_shared_layers": 2}))


@pytest.mark.parametrize("prefix", ["FalconH1", "Lfm2", "Qwen3Next", "Jamba"])
def test_a_hybrid_with_other_states_than_keys_is_refused(prefix: str) -> None:
    if not hasattr(transformers, f"{prefix}Config"):
        pytest.skip("this transformers has no such model")
    options = {"layer_types": ["conv", "full_attention"]} if prefix == "Lfm2" else {}
    module = fresh(prefix, **options)
    with pytest.raises(ModelError):
        admit(module)


def odd_attention(name: str, rotation: Callable[..., Any] | None, rows: Callable[[Any], Any]) -> type[nn.Module]:
    """An attention class in a module of its own: ``rotation`` stands beside it, ``rows`` changes its output."""
    home = types.ModuleType(name)
    if rotation is not None:
        home.apply_rotary_pos_emb = rotation  # type: ignore[attr-defined]
    sys.modules[name] = home

    class Odd(modeling_llama.LlamaAttention):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output, weights = super().forward(*args, **kwargs)
            return rows(output), weights

    Odd.__module__ = name
    return Odd


def with_attention(odd: type[nn.Module]) -> Any:
    module = fresh()
    for layer in module.model.layers:
        layer.self_attn.__class__ = odd
    return module


@pytest.fixture
def home() -> Any:
    name = "tests_odd_attention"
    yield name
    sys.modules.pop(name, None)


def test_an_attention_without_a_rotation_to_call_is_refused(home: str) -> None:
    with pytest.raises(ModelError, match="Odd has no rotation that the pot can call"):
        admit(with_attention(odd_attention(home, None, lambda rows: rows)))


def test_a_rotation_of_another_shape_is_refused(home: str) -> None:
    def rotation(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return q.flatten(1), k

    with pytest.raises(ModelError, match="rotates its keys in a way the pot cannot follow"):
        admit(with_attention(odd_attention(home, rotation, lambda rows: rows)))


@pytest.mark.parametrize("sabotage", ["backwards", "tenth", "none"])
def test_a_rotation_that_is_not_the_models_own_is_refused(home: str, sabotage: str) -> None:
    stock = modeling_llama.apply_rotary_pos_emb
    rotations = {
        "backwards": lambda q, k, cos, sin: stock(q, k, cos, -sin),
        "tenth": lambda q, k, cos, sin: stock(q, k, cos, sin * 1.1),
        "none": lambda q, k, cos, sin: (q, k),
    }
    with pytest.raises(ModelError, match=r"odd-model \(LlamaForCausalLM\) cannot be read with a pot: its") as caught:
        admit(with_attention(odd_attention(home, rotations[sabotage], lambda rows: rows)))
    assert caught.value.hint is not None


def test_attention_that_depends_on_how_much_is_read_at_once_is_refused(home: str) -> None:
    odd = odd_attention(home, modeling_llama.apply_rotary_pos_emb, lambda rows: rows - rows.mean(1, keepdim=True))
    with pytest.raises(ModelError, match="logits differ"):
        admit(with_attention(odd))


def test_cos_and_sin_that_depend_on_the_text_are_refused() -> None:
    module = fresh()
    rotary = module.model.rotary_emb
    stock = rotary.forward

    def forward(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = stock(x, position_ids)
        return cos * (1 + x.mean()), sin

    rotary.forward = forward
    with pytest.raises(ModelError):
        admit(module)


@pytest.mark.parametrize("change", [lambda x: x * 1.5, lambda x: x.tanh() * 3, lambda x: x - 1.0 * (x > 0)])
def test_logits_that_are_changed_in_an_unknown_way_are_refused(change: Callable[[Tensor], Tensor]) -> None:
    module = fresh()
    stock = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = stock(*args, **kwargs)
        output.logits = change(output.logits)
        return output

    module.forward = forward
    with pytest.raises(ModelError, match="logits differ from the stock model's"):
        admit(module)


def test_weights_that_are_not_numbers_are_refused() -> None:
    module = fresh()
    with torch.no_grad():
        module.model.layers[1].mlp.up_proj.weight[0, 0] = torch.nan
    with pytest.raises(ModelError):
        admit(module)


# --------------------------------------------------------------------------------------- everything put back


def patched_parts(module: Any) -> list[Any]:
    """All that a forward over the pot replaces for its time."""
    rotary = [child for name, child in module.named_modules() if name.endswith("rotary_emb")]
    configs = [child.config for child in module.modules() if hasattr(child, "config")]
    implementations = [config._attn_implementation for config in configs]
    return [child.__dict__.get("forward") for child in rotary] + implementations


def read_some(model: Model) -> None:
    pot = tiny.read(model, PotSettings(capacity=64, distilled=24, block=13), tiny.document(150))
    generate(model, pot, [5, 6, 7], GenerationSettings(max_new_tokens=3))


@pytest.mark.parametrize("name", [n for n in tiny.ARCHITECTURES if n not in tiny.ALL_WINDOWED])
def test_the_stock_model_is_the_same_before_and_after(name: str) -> None:
    model = tiny.model(name)
    before, parts = stock_logits(model.module), patched_parts(model.module)
    read_some(model)
    assert patched_parts(model.module) == parts
    assert torch.equal(stock_logits(model.module), before)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), torch.OutOfMemoryError("full")])
def test_an_error_in_the_middle_puts_everything_back(name: str, error: BaseException) -> None:
    model = tiny.model(name)
    before, parts = stock_logits(model.module), patched_parts(model.module)

    def fail(*_: Any) -> None:
        raise error

    hook = model.base.layers[1].mlp.register_forward_hook(fail)
    pot = tiny.empty_pot(model, 64)
    try:
        with pytest.raises(type(error)):
            forward(model, pot, IDS)
    finally:
        hook.remove()
    assert patched_parts(model.module) == parts
    assert torch.equal(stock_logits(model.module), before)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), torch.OutOfMemoryError("full")])
def test_an_error_in_the_middle_leaves_a_pot_that_can_be_used(error: BaseException) -> None:
    model = tiny.model()
    pot = tiny.read(model, PotSettings(capacity=64, distilled=24), tiny.document(30))
    before = tiny.contents(pot)

    def fail(*_: Any) -> None:
        raise error

    hook = model.base.layers[1].self_attn.register_forward_pre_hook(fail)
    try:
        with pytest.raises(type(error)):
            forward(model, pot, tiny.random_ids(5), tiny.random_ids(3))
    finally:
        hook.remove()
    assert tiny.same(tiny.contents(pot), before)


def test_a_forward_that_another_library_has_replaced_is_put_back() -> None:
    module = fresh()
    rotary = module.model.rotary_emb
    calls: list[int] = []
    stock = rotary.forward

    @functools.wraps(stock)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return stock(*args, **kwargs)

    rotary.forward = hooked  # as accelerate does for models spread over devices
    read_some(wrap(module, tiny.tokenizer(), "hooked"))
    calls.clear()
    stock_logits(module)
    assert calls == [1]
    assert rotary.forward is hooked


def test_frequencies_that_grow_with_the_text_do_not_depend_on_what_was_read_before() -> None:
    options = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    model = wrap(fresh(**options, max_position_embeddings=32), tiny.tokenizer(), "dynamic")
    settings = PotSettings(capacity=64, distilled=24)
    first = tiny.contents(tiny.read(model, settings, tiny.document(40)))
    tiny.read(model, settings, tiny.document(200))
    assert tiny.same(tiny.contents(tiny.read(model, settings, tiny.document(40))), first)


# --------------------------------------------------------------------------------------------------- loading


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_folder_is_loaded(folder: Path) -> None:
    model = load_model(str(folder), device="cpu")
    assert torch.equal(stock_logits(model.module), stock_logits(tiny.module("llama")))
    assert (model.dtype, model.device.type, model.vocabulary) == (torch.float32, "cpu", tiny.VOCABULARY)
    assert (model.name, model.revision, model.context_length) == (str(folder), None, 512)
    assert model.tokenizer.chat_template == tiny.CHATML
    assert load_model(str(folder), device="cpu", name="short").name == "short"
    again = load_model(str(folder), device="cpu", dtype="bfloat16")
    assert again.dtype == torch.bfloat16
    assert again.identity.differences(model.identity) == []
    assert not any(weight.requires_grad for weight in model.module.parameters())


def test_other_weights_are_another_identity(folder: Path) -> None:
    model = load_model(str(folder), device="cpu")
    tiny.randomise([model.module.model.layers[0].mlp.up_proj.weight], seed=5)
    assert load_model(str(folder), device="cpu").identity.differences(model.identity) == ["weights"]


def test_a_home_folder_is_expanded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load_model("~/tiny-llama", device="cpu").architecture == "LlamaForCausalLM"


def test_a_proven_model_is_not_proven_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs: list[str] = []
    monkeypatch.setattr(engine_models, "prove", lambda model: proofs.append(model.name))
    admitted: set[str] = set()
    for _ in range(2):
        load_model(str(folder), device="cpu", admitted=admitted)
    assert (len(proofs), len(admitted)) == (1, 1)
    load_model(str(folder), device="cpu", dtype="bfloat16", admitted=admitted)
    assert (len(proofs), len(admitted)) == (2, 2)


def test_a_refused_model_is_not_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Model) -> None:
        raise ModelError("no")

    monkeypatch.setattr(engine_models, "prove", refuse)
    admitted: set[str] = set()
    with pytest.raises(ModelError, match=r"^no$"):
        load_model(str(folder), device="cpu", admitted=admitted)
    assert not admitted


def test_a_gguf_file_is_loaded(tmp_path: Path) -> None:
    model = load_model(str(tiny_gguf.write(tmp_path / "tiny.gguf")), device="cpu")
    assert model.architecture == "LlamaForCausalLM"
    reader = Reader(model, PotSettings(capacity=64, distilled=24), [1], [4, 5])
    reader.read("the cat sat on the mat " * 20)
    assert reader.finish().cycles > 5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("/nowhere/model", "there is no model at /nowhere/model"),
        ("./nowhere", "there is no model at"),
        ("~/nowhere-at-all", "there is no model at"),
        ("nowhere.gguf", "there is no model at nowhere.gguf"),
        ("a/b/c", "there is no model at a/b/c"),
        ("nobody-here/no-model", "cannot load nobody-here/no-model"),
        ("", "cannot load|there is no model"),
    ],
)
def test_what_is_not_there_is_said(spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=message):
        load_model(spec, device="cpu", offline=True)


@pytest.mark.parametrize("name", ["notes.txt", "weights.safetensors", "tiny.gguf", "empty.gguf"])
def test_a_file_that_is_no_model_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"" if name == "empty.gguf" else b"GGUF or not, this is just some text\n" * 20)
    with pytest.raises(ModelError) as caught:
        load_model(str(path), device="cpu")
    assert name in str(caught.value)


def test_a_truncated_gguf_is_refused(tmp_path: Path) -> None:
    whole = tiny_gguf.write(tmp_path / "whole.gguf").read_bytes()
    for size in (3, 30, 1000, len(whole) // 2, len(whole) - 1000):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError):
            load_model(str(path), device="cpu")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    path.write_bytes(b"\x00\xff{]" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("harm", [Path.unlink, truncate, garble, empty])
def test_a_damaged_folder_is_refused(name: str, harm: Callable[[Path], None], copied: Path) -> None:
    harm(copied / name)
    if name == "tokenizer_config.json" and harm is Path.unlink:
        load_model(str(copied), device="cpu")  # the rest is enough
        return
    with pytest.raises(ModelError):
        load_model(str(copied), device="cpu")


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "no_such_model"},
        {"architectures": ["BertForMaskedLM"], "model_type": "bert"},
        {"num_hidden_layers": 3},
        {"hidden_size": 48},
        {"num_attention_heads": "four"},
        {"auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Model"}, "model_type": "evil"},
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_is_refused(change: dict[str, Any], copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, **change}))
    (copied / "evil.py").write_text("raise SystemExit('remote code was run')\n")
    with pytest.raises(ModelError):
        load_model(str(copied), device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": ""}, "unknown device"),
        ({"device": "cuda:99"}, "CUDA"),
        ({"device": "meta"}, "meta"),
        ({"device": "cpu", "dtype": "int8"}, "unknown dtype 'int8'"),
        ({"device": "cpu", "dtype": "float64"}, "unknown dtype"),
        ({"device": "cpu", "quantize": "3bit"}, "quantize must be 8bit or 4bit, not 3bit"),
    ],
    ids=str,
)
def test_unknown_options_are_refused(options: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(str(folder), **options)
    assert caught.value.hint is None or isinstance(caught.value.hint, str)


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused(copied: Path) -> None:
    fresh(vocab_size=64).save_pretrained(copied)
    with pytest.raises(ModelError):
        load_model(str(copied), device="cpu")
