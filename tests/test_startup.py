"""Start-up: what is loaded quickly is what would have been loaded, and what is left out can still be had."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine.direct import WEIGHTS, load_folder
from engine.folders import MANIFEST
from engine.models import _proof_key

ROOT = Path(__file__).parent.parent
ARCHITECTURES = ("llama", "llama-llama3", "qwen3", "gemma2", "phi3", "olmo2", "glm4", "cohere2", "mistral-window")
START = """
import sys
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.local import LocalWorkbench
from infinipot_cli.options import ModelOptions
session = LocalWorkbench().load(ModelOptions(model=sys.argv[1], device="cpu", offline=True), print)
reading = session.reading(PotSettings(capacity=64, distilled=20), [1], [5, 6])
reading.read("some words " * 60, offset=0, place=1, source=0, lines=False)
pot = reading.finish()
assert pot.cycles and session.generate(pot, [7], GenerationSettings(max_new_tokens=3), None, None).token_ids
loaded = [name for name in ("torch._dynamo", "sympy", "torch.distributed.tensor") if name in sys.modules]
import torch
assert not loaded, loaded
assert torch.distributed.is_available()
assert torch._dynamo.config.cache_size_limit > 0
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)) == 2
"""


def folder(name: str, path: Path, **options: object) -> Path:
    """A model folder as the converter leaves it."""
    module = tiny.build(*tiny.ARCHITECTURES[name][:1], tiny.ARCHITECTURES[name][1] | options)
    module.generation_config.max_new_tokens = 7
    module.save_pretrained(path)
    (path / MANIFEST).write_text("{}")
    return path


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / WEIGHTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_converted_folder_gives_the_model_that_transformers_gives(
    name: str, tied: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    path = folder(name, tmp_path, tie_word_embeddings=tied)
    ours, stock = load_folder(path, dtype), AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    assert ours is not None
    for kind in ("named_parameters", "named_buffers"):
        mine, theirs = (dict(getattr(one, kind)(remove_duplicate=False)) for one in (ours, stock))
        assert mine.keys() == theirs.keys()
        for key, tensor in theirs.items():
            assert mine[key].dtype == tensor.dtype
            assert torch.equal(mine[key], tensor)
    assert (ours.get_output_embeddings().weight is ours.get_input_embeddings().weight) is tied
    assert ours.config.to_dict() == stock.config.to_dict()
    assert ours.config._attn_implementation == stock.config._attn_implementation
    assert ours.generation_config.to_dict() == stock.generation_config.to_dict()
    assert not ours.training


def spoil(path: Path, how: str) -> None:
    stored = weights(path)
    first = next(iter(stored))
    if how == "no manifest":
        (path / MANIFEST).unlink()
    elif how == "shards":
        (path / "model.safetensors.index.json").write_text("{}")
    elif how == "an adapter":
        (path / "adapter_config.json").write_text("{}")
    elif how == "quantised":
        config = json.loads((path / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
        (path / "config.json").write_text(json.dumps(config))
    else:
        if how == "a weight too few":
            del stored[first]
        elif how == "a weight too many":
            stored["model.more.weight"] = torch.zeros(2)
        elif how == "another shape":
            stored[first] = stored[first][:-1].clone()
        elif how == "another name":
            stored[f"old.{first}"] = stored.pop(first)
        save_file(stored, path / WEIGHTS, {"format": "pt"})


@pytest.mark.parametrize(
    "how",
    [
        "no manifest",
        "shards",
        "an adapter",
        "quantised",
        "a weight too few",
        "a weight too many",
        "another shape",
        "another name",
    ],
)
def test_anything_unusual_is_left_to_transformers(how: str, tmp_path: Path) -> None:
    path = folder("llama", tmp_path)
    assert load_folder(path, torch.float32) is not None
    spoil(path, how)
    assert load_folder(path, torch.float32) is None


def test_a_proof_is_asked_for_without_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    expected = _proof_key(model)
    monkeypatch.setattr(model, "tokenizer", None)
    assert _proof_key(model) == expected
    assert _proof_key(tiny.model("llama", torch.bfloat16)) != expected
    assert _proof_key(tiny.model("qwen3")) != expected


def test_starting_loads_no_compiler_and_it_can_be_loaded_later(tmp_path: Path) -> None:
    path = tiny.saved(tmp_path / "model")
    shutil.copy(path / "config.json", path / MANIFEST)
    result = subprocess.run(
        [sys.executable, "-c", START, str(path)],
        capture_output=True, text=True, cwd=ROOT, timeout=120,
        env={"PATH": "", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
