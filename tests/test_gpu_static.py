"""Answers from a cache whose shapes never change: the engine's own, whatever the cache held before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from benchmarks.gpu import static
from engine.generation import generate
from engine.model import Model
from engine.settings import GenerationSettings, PotSettings
from tests import tiny


def static_ids(model: Model, settings: PotSettings, tokens: int) -> tuple[list[int], list[int]]:
    """What is written from a static cache, and what the engine writes; without compiling."""
    pot = tiny.read(model, settings, tiny.document(tokens))
    question = tiny.random_ids(5, 3).tolist()
    engine = generate(model, pot, question, GenerationSettings(max_new_tokens=10, min_new_tokens=10)).token_ids
    ids = torch.tensor([[0] * pot.entries + question])
    config = GenerationConfig(max_new_tokens=10, min_new_tokens=10, do_sample=False, disable_compile=True)
    assert static.suits(model, pot, 15)
    before = tiny.contents(pot)
    with static.poured(model, pot) as cache, torch.no_grad():
        output = model.module.generate(
            ids, attention_mask=torch.ones_like(ids), past_key_values=cache, generation_config=config
        )
    assert tiny.same(before, tiny.contents(pot))
    return output[0, ids.shape[1] :].tolist(), engine


@pytest.mark.parametrize("name", ["llama", "llama-llama3", "qwen3", "phi3", "olmo2"])
def test_a_static_cache_gives_the_same_answers_one_pot_after_another(name: str) -> None:
    model = tiny.model(name)
    for tokens in (42, 20, 70):  # the cache is the same; what an earlier, fuller pot left in it must not be seen
        ours, engine = static_ids(model, PotSettings(capacity=64, distilled=24, method="cap"), tokens)
        assert ours == engine


@pytest.mark.parametrize(("name", "options"), [
    ("gemma2", {}), ("gpt-oss", {}), ("llama", {"reset": False}), ("llama", {"method": "swa"}),
    ("llama", {"method": "full"}), ("llama-dynamic", {"capacity": 600}),
])  # fmt: skip
def test_what_a_static_cache_cannot_hold_does_not_suit(name: str, options: dict[str, Any]) -> None:
    model = tiny.model(name)
    pot = tiny.read(model, PotSettings(**{"capacity": 64, **options}), tiny.document(30))
    assert not static.suits(model, pot, 520 if name == "llama-dynamic" else 5)


def test_no_more_is_written_than_fits() -> None:
    model = tiny.model("llama")
    pot = tiny.read(model, PotSettings(capacity=64), tiny.document(30))
    assert static.suits(model, pot, 64 - pot.entries)
    assert not static.suits(model, pot, 65 - pot.entries)
