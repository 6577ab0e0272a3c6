"""Checkpoints: an adapter that can travel, and the whole state of a run in parts small enough to travel too."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

PART = 15 << 20  # bytes of one file


def save_adapter(path: Path, factors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """bfloat16 factors with metadata, in one atomic move."""
    small = {name: tensor.to(torch.bfloat16) for name, tensor in factors.items()}
    _replace(path, lambda scratch: save_file(small, scratch, metadata={k: str(v) for k, v in about.items()}))


def save_state(folder: Path, state: Mapping[str, Any], step: int) -> None:
    """Write ``state-STEP.NN`` files, then name them in ``state.json``, then drop the older ones.

    Whenever this is broken off, ``state.json`` names whole parts.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    data = buffer.getvalue()
    names = []
    for start in range(0, len(data), PART):
        names.append(f"state-{step:06}.{len(names):02}")
        (folder / names[-1]).write_bytes(data[start : start + PART])
    index = {"parts": names, "sha256": hashlib.sha256(data).hexdigest(), "step": step}
    _replace(folder / "state.json", lambda scratch: scratch.write_text(json.dumps(index), encoding="utf-8"))
    for old in folder.glob("state-*.*"):
        if old.name not in names:
            old.unlink()


def load_state(folder: Path) -> dict[str, Any] | None:
    """The last state of a run, None if there is none. Raises RuntimeError if its parts are damaged."""
    index = folder / "state.json"
    if not index.exists():
        return None
    named = json.loads(index.read_text(encoding="utf-8"))
    data = b"".join((folder / name).read_bytes() for name in named["parts"])
    if hashlib.sha256(data).hexdigest() != named["sha256"]:
        raise RuntimeError(f"the checkpoint in {folder} is damaged")
    state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return state


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    scratch = path.with_name(f".{path.name}")
    write(scratch)
    scratch.replace(path)
