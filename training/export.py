"""Make one small file of a trained adapter, ready to be merged when the model is converted.

    python training/export.py [--run training/runs/first] [--out training/out/reader.safetensors]

bfloat16 factors with metadata: the base weights' checksums, rank, scale, what it was trained on, licences, wording.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.adapter import FORMAT, weight_print
from engine.models import load_model
from infinipot_cli.models import resolve
from training.corpus import rows
from training.layout import wording

MOST_BYTES = 12_000_000
LICENCE = (
    "Apache-2.0, as far as this project can grant it; learnt from texts under CC BY-SA, CC BY, MIT, Apache-2.0, other "
    "terms and none stated: see data, and docs/reader.md"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("training/runs/first"))
    parser.add_argument("--data", type=Path, nargs="+", default=[Path("training/data/training.jsonl")])
    parser.add_argument("--out", type=Path, default=Path("training/out/reader.safetensors"))
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    tensors, trained = _checkpoint(options.run / "adapter.safetensors")
    about = {
        "format": FORMAT,
        "scale": str(float(trained["alpha"]) / int(trained["rank"])),
        "base": json.dumps(base_prints(options.model, tensors), sort_keys=True),
        "base_model": options.model,
        "data": json.dumps(_data(options.data), sort_keys=True),
        "licence": LICENCE,
        "wording": trained.pop("wording", None) or wording(),
        "training": json.dumps(trained, sort_keys=True),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}, options.out, metadata=about)
    size = options.out.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"error: {options.out} has {size:,} bytes, more than {MOST_BYTES:,}")
    print(f"{options.out}: {size:,} bytes, {len(tensors)} tensors")


def _checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def base_prints(model: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Layer name -> checksum of the plain model's weight, for every layer that an adapter changes."""
    module = load_model(resolve(model), device="cpu", dtype="float32", offline=True).module
    names = sorted({name.rpartition(".")[0] for name in tensors})
    return {name: weight_print(module.get_submodule(name).weight) for name in names}


def _data(paths: Sequence[Path]) -> dict[str, dict[str, int | str]]:
    """Documents and licence of each source in the training sets."""
    counts: Counter[str] = Counter()
    licences: dict[str, str] = {}
    for row in (row for path in paths for row in rows(path)):
        name = row["source"].partition("/")[0] if row["source"].startswith("t0/") else row["source"]
        counts[name] += 1
        licences[name] = row["licence"] if name != "t0" else "MIT, Apache-2.0, CC BY 4.0 (per row)"
    return {name: {"documents": count, "licence": licences[name]} for name, count in counts.items()}


if __name__ == "__main__":
    main()
