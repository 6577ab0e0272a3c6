"""Average the factors of two adapters trained one from the other.

    python training/average.py training/runs/reader training/runs/pot --share 0.5 --out training/runs/averaged

Reads FOLDER/adapter.safetensors of both and writes OUT/adapter.safetensors: (1 - share) * first + share * second. The
change between them is small, so the average of the factors is near the average of the changes they make.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from training.checkpoint import save_adapter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--share", type=float, default=0.5, help="of the second")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    first, about = _read(options.first)
    second, later = _read(options.second)
    if first.keys() != second.keys() or any(about[name] != later[name] for name in ("rank", "alpha", "wording")):
        raise SystemExit("error: the adapters differ in layers, rank, alpha or wording")
    options.out.mkdir(parents=True, exist_ok=True)
    kept = {name: about[name] for name in ("rank", "alpha", "wording")}
    mean = {"of": [_past(about), _past(later)], "share": options.share}
    save_adapter(
        options.out / "adapter.safetensors", averaged(first, second, options.share), kept | {"mean": json.dumps(mean)}
    )


def averaged(first: dict[str, Tensor], second: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """(1 - share) * first + share * second, by name, in float32."""
    return {name: (1 - share) * tensor.float() + share * second[name].float() for name, tensor in first.items()}


def _past(about: dict[str, str]) -> dict[str, Any]:
    """What an adapter's metadata say of its training, the means that it is itself made of included."""
    past: dict[str, Any] = {name: about[name] for name in sorted(about) if name not in ("mean", "wording")}
    return past | ({"mean": json.loads(about["mean"])} if "mean" in about else {})


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(folder / "adapter.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


if __name__ == "__main__":
    main()
