"""A LongBench of a few lines, in the official layout."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infinipot_cli.bench.longbench.tasks import all_tasks

Line = dict[str, Any]


def line(task: str, number: int, **more: Any) -> Line:
    """One example; every task's answer is the word "answer" unless ``more`` says otherwise."""
    answers = {"passage_retrieval_en": ["Paragraph 7"], "passage_count": ["7"]}.get(task, ["answer"])
    return {
        "input": f"question {number} of {task}?",
        "context": f"Document {number} of {task}. " + "words and words. " * number,
        "answers": answers,
        "length": 6 + 3 * number,
        "dataset": task,
        "language": "en",
        "all_classes": ["answer", "other"] if task == "trec" else None,
        "_id": f"{task}{number:04}",
        **more,
    }


def lines(tasks: Sequence[str] | None = None, count: int = 3) -> dict[str, list[Line]]:
    """``count`` examples of every task."""
    return {task: [line(task, number) for number in range(count)] for task in tasks or all_tasks()}


def as_jsonl(examples: Sequence[Line]) -> str:
    return "".join(json.dumps(example, ensure_ascii=False) + "\n" for example in examples)


def write_folder(folder: Path, examples: Mapping[str, Sequence[Line]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for task, its in examples.items():
        (folder / f"{task}.jsonl").write_text(as_jsonl(its), encoding="utf-8")
    return folder


def write_zip(path: Path, examples: Mapping[str, Sequence[Line]]) -> Path:
    """As the official data.zip: a ``data`` folder, the harder half of LongBench-E beside it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for task, its in examples.items():
            archive.writestr(f"data/{task}.jsonl", as_jsonl(its))
            archive.writestr(f"data/{task}_e.jsonl", as_jsonl(its[:1]))
    return path
