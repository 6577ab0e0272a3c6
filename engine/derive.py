"""Make one model folder from another: the same tokenizer and configuration, changed weights."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.convert import Report, WeightTransform, make_model, require_complete
from engine.errors import ModelError
from engine.folders import MANIFEST, not_stored

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = ".safetensors"


def derive_folder(
    base: Path,
    target: Path,
    about: Mapping[str, Any],
    *,
    transforms: Sequence[WeightTransform],
    report: Report | None = None,
) -> bool:
    """Make ``target`` from the converted folder ``base``, unless a sound one of the same kind is there; True if made.

    ``about`` and ``transforms`` are those of ``engine.convert.convert_gguf``, and so is the result, byte for byte,
    if ``base`` is what it makes without transforms and the transforms look at a weight as float16 only.
    Raises ModelError: an unreadable folder, weights that are not those of the transforms, disk full, not writable.
    """

    def make(folder: Path, scratch: Path, say: Report) -> None:
        say(f"Making {target.name} from {base.name} (once, some seconds)…")
        for item in sorted(base.iterdir()):
            if item.suffix == WEIGHTS:
                _change_weights(item, folder / item.name, transforms)
            elif item.is_file() and item.name != MANIFEST:
                shutil.copyfile(item, folder / item.name)
        require_complete(transforms)

    return make_model(target, about, make, report)


def _change_weights(source: Path, target: Path, transforms: Sequence[WeightTransform]) -> None:
    """Rewrite one file of float16 weights; its metadata stay. Raises ModelError, OSError."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file

    try:
        with safe_open(source, framework="pt") as file:
            changed = {name: _changed(name, file.get_tensor(name), transforms) for name in file.keys()}  # noqa: SIM118
            about = file.metadata()
        save_file(changed, target, metadata=about)
    except SafetensorError as error:
        raise not_stored(error) from error
    # The writer makes weights readable by their owner only, unlike everything else here.
    target.chmod(source.stat().st_mode)


def _changed(name: str, weight: Tensor, transforms: Sequence[WeightTransform]) -> Tensor:
    """One weight after all transforms, in its own dtype. Raises ModelError where it does not fit into that."""
    changed = weight.float()
    for transform in transforms:
        changed = transform(name, changed)
    changed = changed.to(weight.dtype)
    if changed.shape != weight.shape or not bool(changed.isfinite().all()):
        raise ModelError(f"the changed weight {name} cannot be kept")
    return changed.contiguous()
