"""Several documents read in step: each keeps what it keeps alone."""

from __future__ import annotations

import pytest
import torch

from benchmarks.gpu.documents import Documents, together
from engine.settings import PotSettings
from tests import tiny


@pytest.mark.parametrize("method", ["cap", "infinipot", "streaming"])
@pytest.mark.parametrize("scope", ["head", "pot"])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_documents_read_together_keep_what_each_keeps_alone(name: str, scope: str, method: str) -> None:
    model = tiny.model(name)
    settings = PotSettings(capacity=64, distilled=24, block=16, method=method, scope=scope)
    prefix, catalyst = tiny.random_ids(3, 101), tiny.random_ids(4, 102)
    texts = [tiny.document(200, seed) for seed in range(3)]
    all_of_them = Documents(model, settings, 3, prefix, catalyst)
    all_of_them.feed(together(texts))
    all_of_them.flush()
    for number, text in enumerate(texts):
        alone = tiny.read(model, settings, text, 3, 4)
        assert alone.cycles == all_of_them.pot.cycles > 3
        for index, store in alone.stores.items():
            heads, used = store.spec.kv_heads, slice(0, store.length)
            theirs = all_of_them.pot.stores[index]
            rows = slice(number * heads, (number + 1) * heads)
            assert theirs.length == store.length
            assert torch.equal(theirs.position[rows, used], store.position[:, used])
            assert torch.equal(theirs.token[rows, used], store.token[:, used])
            assert torch.allclose(theirs.key[rows, used], store.key[:, used], atol=1e-4)
            assert torch.allclose(theirs.novelty[rows, used], store.novelty[:, used], atol=1e-3)
