"""A stand-in for the default model: a tiny GGUF file that the pins accept, and a tiny adapter made for its weights."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import tiny_gguf
import torch
from safetensors.torch import save_file

from engine.adapter import FORMAT, weight_print
from engine.convert import read_gguf
from engine.folders import file_sha256
from infinipot_cli import artifact, pinned

RANK, SCALE = 2, 2.0
Factors = dict[str, tuple[torch.Tensor, torch.Tensor]]


@functools.cache
def base(gguf: Path) -> dict[str, torch.Tensor]:
    """The file's linear weights by layer name, float32."""
    model, _ = read_gguf(gguf, True)
    named = model.named_parameters()
    return {n.removesuffix(".weight"): w.detach().clone() for n, w in named if "proj" in n}


def factors(gguf: Path, seed: int = 0) -> Factors:
    """(A [rank, in], B [out, rank]) for every layer, bfloat16 as they are shipped."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).mul(0.2).bfloat16()

    return {name: (draw(RANK, w.shape[1]), draw(w.shape[0], RANK)) for name, w in base(gguf).items()}


def prints(gguf: Path) -> dict[str, str]:
    """The checksum of every weight that the adapter changes."""
    return {name: weight_print(weight) for name, weight in base(gguf).items()}


def write(path: Path, gguf: Path, seed: int = 0, **about: str) -> Path:
    """An adapter file for the weights of ``gguf``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{n}.lora_{part}": t for n, pair in factors(gguf, seed).items() for part, t in zip("ab", pair, strict=True)
    }
    metadata = {"format": FORMAT, "scale": str(SCALE), "base": json.dumps(prints(gguf)), **about}
    save_file(tensors, path, metadata=metadata)
    return path


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, installed: bool = True) -> Path:
    """Make the pins and the shipped adapter be tiny ones in ``folder``; the GGUF file.

    With ``installed`` it is found as the installed package's, else only ``given`` finds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    gguf = tiny_gguf.write(folder / "standin.gguf")
    monkeypatch.setattr(artifact, "GGUF_BYTES", gguf.stat().st_size)
    monkeypatch.setattr(artifact, "GGUF_SHA256", file_sha256(gguf))
    found: Any = gguf if installed else None
    monkeypatch.setattr(artifact, "installed_gguf", lambda: found)
    monkeypatch.setattr(pinned, "ADAPTERS", folder / "adapters")
    write(folder / "adapters" / "reader.safetensors", gguf)
    return gguf
