"""The reader adapter: merged weights are W + scale * B A, other weights are refused; training sees what ask sees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import save_file

from engine.adapter import FORMAT, adapter_info, merge_transform, weight_print
from engine.convert import apply_transforms
from engine.errors import ModelError
from engine.model import Model
from engine.models import wrap
from engine.settings import PotSettings
from training import checkpoint
from training.layout import Branch, Tree, additive, pack, packs
from training.lora import add_lora, lora_state, set_lora_state, without_lora
from training.through_pot import PotTree, answer_logits, full_text_logits, pot_loss, read_into_pot, with_room
from training.train import pack_loss, read_loss

RANK, ALPHA = 4, 8.0


def fresh() -> Model:
    """A tiny model of its own (the shared ones must not be changed), its weights as they are kept: float16."""
    module = tiny.build(*tiny.ARCHITECTURES["llama"]).half().float()
    return wrap(module, tiny.tokenizer(), "llama")


def trained(model, seed: int = 1):
    """The model's layers wrapped, with factors that are not zero (bfloat16 values, as they are shipped)."""
    layers = add_lora(model.module, RANK, ALPHA)
    generator = torch.Generator().manual_seed(seed)
    state = {n: torch.randn(t.shape, generator=generator).mul(0.1).bfloat16() for n, t in lora_state(layers).items()}
    set_lora_state(layers, state)
    return layers, state


def write(path: Path, state, prints, **changes) -> Path:
    about = {"format": FORMAT, "scale": str(ALPHA / RANK), "base": json.dumps(prints)} | changes
    save_file(state, path, metadata={name: value for name, value in about.items() if value})
    return path


@pytest.fixture
def made(tmp_path):
    """(plain model, wrapped model, adapter file)."""
    plain, wrapped = fresh(), fresh()
    layers, state = trained(wrapped)
    base = {name: weight_print(layer.layer.weight) for name, layer in layers.items()}
    return plain, wrapped, write(tmp_path / "adapter.safetensors", state, base)


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.module(torch.arange(5, 45)[None]).logits


def test_merged_model_says_what_the_trained_one_said(made):
    plain, wrapped, path = made
    before = logits(plain)
    merge = merge_transform(path)
    apply_transforms(plain.module, [merge])
    merge.require_complete()
    torch.testing.assert_close(logits(plain), logits(wrapped), rtol=1e-4, atol=1e-4)
    assert (logits(plain) - before).abs().max() > 0.01


def test_merged_weight_is_the_formula(made):
    plain, wrapped, path = made
    name = "model.layers.1.mlp.down_proj"
    layer = wrapped.module.get_submodule(name)
    weight = plain.module.get_submodule(name).weight
    wanted = weight + ALPHA / RANK * layer.lora_b @ layer.lora_a
    torch.testing.assert_close(merge_transform(path)(f"{name}.weight", weight), wanted)


def test_other_parameters_pass_untouched(made):
    weight = torch.randn(7)
    assert merge_transform(made[2])("model.norm.weight", weight) is weight


def test_float16_copy_of_the_base_is_accepted(made):
    plain, _, path = made
    name = "model.layers.0.self_attn.q_proj"
    merge_transform(path)(f"{name}.weight", plain.module.get_submodule(name).weight.half().float())


def test_other_weights_are_refused(made):
    plain, _, path = made
    name = "model.layers.0.self_attn.q_proj"
    with pytest.raises(ModelError, match="other weights"):
        merge_transform(path)(f"{name}.weight", plain.module.get_submodule(name).weight + 0.01)


def test_other_shapes_are_refused(made):
    with pytest.raises(ModelError, match="does not fit"):
        merge_transform(made[2])("model.layers.0.self_attn.q_proj.weight", torch.zeros(3, 5))


def test_a_model_without_the_layers_is_refused(made):
    merge = merge_transform(made[2])
    merge("something.else.weight", torch.zeros(2, 2))
    with pytest.raises(ModelError, match=r"has no model\.layers\.0"):
        merge.require_complete()


@pytest.mark.parametrize("changes", [{"format": "other"}, {"scale": None}, {"base": "{}"}, {"base": "nonsense"}])
def test_what_is_no_adapter_is_refused(made, tmp_path, changes):
    _, wrapped, path = made
    state = lora_state(wrapped_layers(wrapped))
    with pytest.raises(ModelError):
        merge_transform(write(tmp_path / "bad.safetensors", state, {}, **changes))
    assert adapter_info(path)["format"] == FORMAT


def wrapped_layers(model):
    return {name: part for name, part in model.module.named_modules() if hasattr(part, "lora_a")}


def test_damage_is_refused(made, tmp_path):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(made[2].read_bytes()[:-100])
    with pytest.raises(ModelError, match="cannot read"):
        merge_transform(path)


def test_the_plain_model_stands_behind_the_adapter(made):
    plain, wrapped, _ = made
    with without_lora(wrapped_layers(wrapped)):
        torch.testing.assert_close(logits(wrapped), logits(plain))


def test_questions_that_share_a_document_are_learnt_as_if_alone():
    model = fresh()
    shared = Tree([5, 6, 7, 8], [Branch([9, 10], [11, 3]), Branch([12], [13, 14, 3]), Branch([15, 16], [3])])
    other = Tree([], [Branch([20, 21], [22, 23, 3])])
    alone = [Tree([], [Branch(t.trunk + b.prompt, b.answer)]) for t in (shared, other) for b in t.branches]
    with torch.no_grad():
        together = pack_loss(model, [shared, other])
        apart = sum(pack_loss(model, [tree]) for tree in alone)
    torch.testing.assert_close(together, apart)


def test_a_document_read_without_gradients_has_the_same_loss():
    model = fresh()
    layers, _ = trained(model)
    tree = Tree(tiny.random_ids(90).tolist(), [Branch([9, 10], [11, 3]), Branch([12], [13, 14, 3])])
    loss = read_loss(model, tree)
    with torch.no_grad():
        torch.testing.assert_close(loss.detach(), pack_loss(model, [tree]), rtol=1e-4, atol=1e-4)
    loss.backward()
    assert all(layer.lora_b.grad is not None and layer.lora_b.grad.abs().sum() > 0 for layer in layers.values())


def test_only_answers_are_learnt():
    row = pack([Tree([5, 6], [Branch([7], [8, 3]), Branch([9], [3])])])
    assert row.targets.tolist() == [8, 3, 3]
    assert row.ids[row.predict].tolist() == [7, 8, 9]
    assert row.positions.tolist() == [0, 1, 2, 3, 4, 2, 3]


def test_packs_keep_order_and_size():
    trees = [Tree([0] * size) for size in (3, 4, 9, 2, 2)]
    assert [[len(tree) for tree in part] for part in packs(trees, 8)] == [[3, 4], [9], [2, 2]]


def test_state_comes_back_from_its_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "PART", 1000)
    for step in (1, 2):
        checkpoint.save_state(tmp_path, {"factors": torch.arange(1000.0) * step}, step)
    assert torch.equal(checkpoint.load_state(tmp_path)["factors"], torch.arange(1000.0) * 2)
    parts = sorted(tmp_path.glob("state-*"))
    assert len(parts) > 3
    assert all(part.name.startswith("state-000002") and part.stat().st_size <= 1000 for part in parts)
    parts[1].write_bytes(b"x" * 1000)
    with pytest.raises(RuntimeError, match="damaged"):
        checkpoint.load_state(tmp_path)


def long_tree(capacity: int) -> PotTree:
    ids = tiny.random_ids(120).tolist()
    branches = [Branch([9, 10, 11], [12, 3]), Branch([15, 16], [3])]
    return PotTree(ids, branches, 4, PotSettings(capacity=capacity, distilled=20, block=32))


def test_a_pot_that_holds_everything_answers_like_the_full_text():
    model = fresh()
    tree = long_tree(200)
    with torch.no_grad():
        pots = [read_into_pot(model, tree, branch) for branch in tree.branches]
        from_pot = torch.cat([answer_logits(model, *pair) for pair in zip(pots, tree.branches, strict=True)])
        row = pack([tree])
        mask = additive(row.mask, model.dtype)[None, None]
        at_once = model.base(row.ids[None], position_ids=row.positions[None], attention_mask=mask, use_cache=False)
        wanted = model.logits(at_once.last_hidden_state[0][row.predict])
    torch.testing.assert_close(full_text_logits(model, tree), wanted, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(from_pot, wanted, rtol=1e-3, atol=1e-3)


def test_distilled_reading_teaches_every_layer():
    model = fresh()
    layers, _ = trained(model)
    tree = long_tree(64)
    pot = read_into_pot(model, tree, tree.branches[0])
    held = pot.entries
    assert pot.cycles > 0
    assert held < len(tree.trunk)
    assert with_room(model, pot, tree.branches[0]).entries <= held == pot.entries
    pot_loss(model, tree, 0.5).backward()
    assert all(layer.lora_b.grad is not None and layer.lora_b.grad.abs().sum() > 0 for layer in layers.values())


def test_an_answer_can_be_learnt_from_the_entries_in_focus_and_without_a_teacher():
    model = fresh()
    layers, _ = trained(model)
    tree = replace(long_tree(100), focus=24, taught=False)
    pot = read_into_pot(model, tree, tree.branches[0])
    assert with_room(model, pot, tree.branches[0], tree.focus).entries == pot.protected + 24 < pot.entries
    loss = pot_loss(model, tree, 0.5)
    assert float(loss.detach()) == pytest.approx(untaught_loss(model, tree, tree.branches), rel=1e-4)
    loss.backward()
    assert all(layer.lora_b.grad is not None and layer.lora_b.grad.abs().sum() > 0 for layer in layers.values())


def untaught_loss(model: Model, tree: PotTree, branches: Sequence[Branch]) -> float:
    """What ``pot_loss`` is without a teacher, where ``branches`` hold the answers that are learnt."""
    loss = 0.0
    for asked, learnt in zip(tree.branches, branches, strict=True):
        pot = with_room(model, read_into_pot(model, tree, asked), asked, tree.focus)
        with torch.no_grad():
            predicted = answer_logits(model, pot, learnt).log_softmax(-1)
        loss -= sum(float(predicted[i, token]) for i, token in enumerate(learnt.answer)) / len(learnt.answer) ** 0.5
    return loss


def test_where_the_pot_has_lost_the_answer_it_is_taught_to_say_so():
    model = fresh()
    trained(model)
    words = [f"{number}x" for number in range(10, 60)]
    trunk = model.tokenizer.encode(" ".join(words), add_special_tokens=False)
    tree = PotTree(trunk, [Branch([9, 10, 11], [])], 0, PotSettings(capacity=len(trunk) + 40), [7], 60, taught=False)
    pot = with_room(model, read_into_pot(model, tree, tree.branches[0]), tree.branches[0], tree.focus)
    held = model.tokenizer.decode(pot.distilled_stores[0].token[0, : pot.entries].tolist()).split()
    kept, gone = (next(word for word in words if (word in held) is here) for here in (True, False))
    refusal = [*model.tokenizer.encode("not said"), 3]
    answers = {word: [*model.tokenizer.encode(word), 3] for word in (kept, gone, "99x")}
    asked = [Branch([9, 10, 11], answer) for answer in answers.values()]
    learnt = [replace(branch, answer=refusal) if branch.answer == answers[gone] else branch for branch in asked]
    for refuses, branches in ((None, asked), (refusal, learnt)):
        lesson = replace(tree, branches=asked, refusal=refuses)
        loss = float(pot_loss(model, lesson, 0.5).detach())
        assert loss == pytest.approx(untaught_loss(model, lesson, branches), rel=1e-4)


def test_without_gradients_the_merged_weights_give_what_the_factors_give():
    model = fresh()
    layers, _ = trained(model)
    layer = next(iter(layers.values()))
    rows = torch.randn(5, layer.layer.in_features)
    for step in range(2):
        with torch.no_grad():
            merged = layer(rows)
        torch.testing.assert_close(merged, layer(rows).detach(), msg=f"after {step} steps")
        with torch.no_grad():
            layer.lora_b += 0.3
