"""Models of the Hugging Face hub: what its cache on this machine holds, and fetching one into it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import ModelError, first_line
from infinipot_cli.errors import InputError

#: Everything but weights in other formats.
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
#: The same weights a second time, in their makers' own layout.
DOUBLES = ["consolidated*", "original/*"]


def fetch(hub_id: str, bars: bool = False) -> Path:
    """Fetch a model into the hub's cache and return its folder; ``bars`` shows its client's own bars."""
    from huggingface_hub import errors, snapshot_download

    try:
        with _bars(bars):
            return Path(snapshot_download(hub_id, allow_patterns=HUB_FILES, ignore_patterns=DOUBLES))
    except errors.GatedRepoError as exc:
        raise ModelError(
            f"{hub_id} asks you to accept its licence first",
            f"accept it on https://huggingface.co/{hub_id}, then: hf auth login",
        ) from exc
    except errors.RepositoryNotFoundError as exc:
        raise ModelError(f"the hub has no model {hub_id}, or it is private") from exc
    except Exception as exc:
        # Its client raises those of whichever HTTP library it uses, and OSError for the disk.
        raise ModelError(f"{hub_id} could not be fetched: {first_line(exc)[:300]}", "is this machine online?") from exc


def fetch_dataset_file(hub_id: str, name: str, offline: bool, hint: str) -> Path:
    """One file of a dataset, from the hub's cache or, unless ``offline``, from the hub. Raises InputError."""
    from huggingface_hub import hf_hub_download

    try:
        with _bars(False):
            return Path(hf_hub_download(hub_id, name, repo_type="dataset", local_files_only=offline))
    except Exception as exc:
        # As above: whatever its HTTP library raises, and OSError for the disk.
        problem = "is not on this machine" if offline else f"could not be fetched: {first_line(exc)[:300]}"
        raise InputError(f"{name} of {hub_id} {problem}", hint) from exc


@contextmanager
def _bars(shown: bool) -> Iterator[None]:
    """The client's own bars, or none, for as long as a download takes."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    back = not are_progress_bars_disabled() and not shown
    if not shown:
        disable_progress_bars()
    try:
        yield
    finally:
        if back:
            enable_progress_bars()


def snapshot(hub_id: str) -> Path | None:
    """The folder of a hub model in the hub's cache, if all its weights are there too; None otherwise."""
    try:
        from huggingface_hub import try_to_load_from_cache

        config = try_to_load_from_cache(hub_id, "config.json")
    except (ImportError, ValueError, OSError):
        return None
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder is not None and _complete(folder) else None


def _complete(folder: Path) -> bool:
    """Whether every shard that the index names is there; a stopped download leaves some out."""
    index = folder / "model.safetensors.index.json"
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except FileNotFoundError:
        return (folder / "model.safetensors").is_file()
    except (OSError, ValueError, KeyError):
        return False
    return all((folder / shard).is_file() for shard in shards)


def cached_ids() -> list[str]:
    """The ids of all repositories in the hub's cache, sorted, models or not."""
    try:
        from huggingface_hub.constants import HF_HUB_CACHE

        folders = sorted(Path(HF_HUB_CACHE).glob("models--*--*"))
    except (ImportError, OSError):
        return []
    return [folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders]


def is_causal(snapshot: Path) -> bool:
    """Whether the configuration in a cached model folder is that of a causal language model."""
    try:
        return "ForCausalLM" in (snapshot / "config.json").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
