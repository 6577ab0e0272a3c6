"""benchmarks/heads.py: when an answer counts as kept, how heads agree, and which are picked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
import torch

from benchmarks import heads
from benchmarks.heads import Look, total
from engine.settings import PotSettings

ENTRIES, ANSWER = 400, slice(200, 204)


def looks(count: int, pointing: tuple[int, ...], heads: int = 24) -> list[Look]:
    """Heads that look here and there; those that ``pointing`` names look at the answer too."""
    chance = torch.Generator().manual_seed(0)
    answer = torch.zeros(ENTRIES, dtype=torch.bool)
    answer[ANSWER] = True
    made = []
    for _ in range(count):
        scores = torch.rand(heads, ENTRIES, generator=chance) * 0.1
        scores[:, :100] += 0.05  # what all like a little
        for head in pointing:
            scores[head, ANSWER] += 0.6
        made.append(Look(scores, answer))
    return made


def test_an_answer_is_kept_when_all_of_it_is() -> None:
    (look,) = looks(1, ())
    ranked = torch.zeros(ENTRIES)
    ranked[ANSWER] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    assert [look.keeps(ranked, count) for count in (3, 4)] == [False, True]


@pytest.mark.parametrize(("norm", "kept"), [(1.0, False), (4.0, True)])
def test_a_head_that_is_sure_outweighs_many_that_are_not(norm: float, kept: bool) -> None:
    (look,) = looks(1, (7,))
    assert look.keeps(total(PotSettings(norm=norm, pooling=7), look), 40) is kept


def test_heads_are_picked_on_one_half_and_tried_on_the_other() -> None:
    made = looks(6, (3, 11))
    tried, (rank,) = heads._by_hand(made, (2,), 7)
    assert [id(look) for look in tried] == [id(look) for look in made[1::2]]
    assert all(look.keeps(rank(look), 40) for look in tried)
    blind = [Look(look.scores.index_fill(0, torch.tensor([3, 11]), 0.0), look.answer) for look in tried]
    assert not any(look.keeps(rank(look), 40) for look in blind)


def test_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, data = tiny.saved(tmp_path / "tiny"), tmp_path / "made.jsonl"
    rows = []
    for number in range(6):
        text = f"In {1000 + number} the painter Aldo{number} moved to Port{number}. There the rain fell for days."
        ask = {"question": f"Where did Aldo{number} move?", "answer": f"Port{number}", "kind": "extractive"}
        asks = [ask | {"accepted": [ask["answer"]]}]
        rows.append({"source": "made", "group": f"g{number}", "task": "question", "document": text, "asks": asks})
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert heads.main(["--model", str(folder), "--dtype", "float32", "--data", str(data), "--tokens", "120"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "6 documents" in lines[-1]
    # What is left of 120 tokens when 128 may stay is all of them, however the heads agree.
    shares = [line.split()[-3:] for line in lines if line.startswith(("norm", "the best"))]
    assert len(shares) == len(heads.NORMS) * len(heads.POOLINGS) + len(heads.PICKED)
    assert {share for row in shares for share in row[1:]} == {"100.0"}
