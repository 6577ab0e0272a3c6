"""The Workbench that runs the real engine on this machine. Imports torch only when a model is loaded."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from engine.errors import ModelError
from engine.folders import expanded
from engine.packing import DEFAULT_DTYPE
from engine.processor import VALUE_BYTES, auto_dtype
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli import catalog, machine, memory, models
from infinipot_cli.counting import open_counter
from infinipot_cli.errors import InputError
from infinipot_cli.options import ModelOptions
from infinipot_cli.workbench import Counter, Facts, Frame, Report

if TYPE_CHECKING:
    from engine.framing import Framing
    from engine.generation import Generation
    from engine.measure import Gauge
    from engine.model import Model
    from engine.pot import Pot
    from engine.reader import Reader, ReadStats
    from engine.text import Encoder


class LocalWorkbench:
    """``infinipot_cli.workbench.Workbench`` over ``engine``."""

    def load(self, options: ModelOptions, report: Report) -> LocalSession:
        _hush()
        offline = is_offline(options)
        path = models.resolve(options.model, offline=offline, report=report)
        from engine.lean import without_compiler

        with without_compiler():
            from engine.models import load_model

            model = load_model(
                path,
                device=options.device,
                dtype=options.dtype,
                quantize=options.quantize,  # type: ignore[arg-type]
                offline=offline,
                revision=options.revision,
                name=lasting_name(options.model),
                admitted=memory.Proofs(),
            )
        model.fingerprints = memory.Fingerprints()
        return LocalSession(model)

    def facts(self, options: ModelOptions) -> Facts:
        entry, size = catalog.find(options.model), _value_bytes(options)
        entry_bytes = entry.entry_bytes(size) if entry else _entry_bytes(options.model, size)
        measured = memory.recall_rate(_rate_key(options))
        guess = None
        if entry is not None and not _on_cuda(options):
            guess = catalog.reading_rate(entry, machine.processor_count(), size)
        return Facts(lasting_name(options.model), entry_bytes, measured or guess, measured is not None)

    def counter(self, options: ModelOptions, own: bool, report: Report) -> Counter:
        return open_counter(options, own, is_offline(options), report)

    def pot_info(self, path: Path) -> dict[str, Any]:
        from engine.potfile import read_info

        with _readable(path):
            return read_info(path).to_dict()

    def verify_pot(self, path: Path) -> dict[str, Any]:
        from engine.potfile import verify_pot

        with _readable(path):
            return verify_pot(path).to_dict()

    def census(self, path: Path, layer: int | None, head: int | None) -> tuple[dict[str, Any], Any]:
        from engine.census import census_of_file

        with _readable(path):
            info, census = census_of_file(path, layer, head)
        return info.to_dict(), census

    def vocabulary(self, model: str, fingerprint: str) -> Any:
        from engine.vocabulary import load_vocabulary

        try:
            return load_vocabulary(models.path_of(model), fingerprint)
        except ModelError:
            return None

    def on_this_machine(self, model: str) -> bool:
        try:
            models.path_of(model)
        except ModelError:
            return False
        return True

    def remember_rate(self, options: ModelOptions, tokens_per_second: float) -> None:
        memory.remember_rate(_rate_key(options), tokens_per_second)


class LocalSession:
    """``infinipot_cli.workbench.Session`` over a loaded model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name = model.name
        self.entry_bytes = model.entry_bytes
        self._encoder: Encoder | None = None

    def describe(self) -> dict[str, Any]:
        model = self.model
        return {
            "name": model.name,
            "revision": model.revision,
            "architecture": model.architecture,
            "parameters": model.parameters,
            "device": str(model.device),
            "dtype": str(model.dtype).removeprefix("torch."),
            "kernel": model.kernel,
            "context_length": model.context_length,
            "entry_bytes": model.entry_bytes,
        }

    def gauge(self) -> Gauge:
        from engine.measure import Gauge

        return Gauge(self.model)

    def identity(self) -> dict[str, Any]:
        return self.model.identity.to_dict()

    def count(self, text: str) -> int:
        if self._encoder is None:
            from engine.text import Encoder

            self._encoder = Encoder(self.model.tokenizer)
        return len(self._encoder.encode(text)[0])

    def framing(self, before: str, system: str | None, frame: Frame = "turn") -> Framing:
        from engine.framing import Framing

        return Framing(self.model, before, system, frame)

    def reading(self, settings: PotSettings, prefix_ids: Sequence[int], catalyst_ids: Sequence[int]) -> LocalReading:
        from engine.reader import Reader
        from engine.text import Encoder

        return LocalReading(Reader(self.model, settings, prefix_ids, catalyst_ids), Encoder(self.model.tokenizer))

    def generate(
        self,
        pot: Pot,
        suffix_ids: Sequence[int],
        generation: GenerationSettings,
        on_text: Callable[[str], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> Generation:
        from engine.generation import generate

        return generate(self.model, pot, suffix_ids, generation, on_text, should_stop)

    def extend(self, pot: Pot, ids: Sequence[int], catalyst_ids: Sequence[int]) -> Pot:
        from engine.generation import extend

        return extend(self.model, pot, ids, catalyst_ids)

    def study(
        self,
        prefix_ids: Sequence[int],
        passages: Iterable[str],
        suffix_ids: Sequence[int],
        ways: Sequence[tuple[str, PotSettings, Sequence[int], str | None]],
        bins: int,
        report: Report,
    ) -> dict[str, Any]:
        from engine.analysis import Document
        from engine.study import Way, study

        document = Document(self.model, prefix_ids, passages)
        return study(document, suffix_ids, [Way(*way) for way in ways], bins, report)

    def save(self, pot: Pot, target: Path | BinaryIO, meta: dict[str, Any], dtype: str = DEFAULT_DTYPE) -> int:
        from engine.potfile import PotMeta, save_pot

        return save_pot(pot, target, model=self.model, meta=PotMeta(**meta), dtype=dtype)

    def load(self, path: Path) -> tuple[Pot, dict[str, Any]]:
        from engine.potfile import load_pot

        with _readable(path):
            pot, meta = load_pot(path, self.model)
        return pot, vars(meta)


class LocalReading:
    """A Reader that also takes text which stands in no source."""

    def __init__(self, reader: Reader, encoder: Encoder) -> None:
        self._reader = reader
        self._encoder = encoder

    @property
    def stats(self) -> ReadStats:
        return self._reader.stats

    def read(self, text: str, *, offset: int, place: int, source: int, lines: bool) -> None:
        self._reader.read(text, offset=offset, place=place, source=source, lines=lines)

    def aside(self, text: str) -> None:
        from engine.pot import Batch

        self._reader.feed(Batch.of(self._encoder.encode(text)[0]))

    def finish(self) -> Pot:
        return self._reader.finish()


def is_offline(options: ModelOptions) -> bool:
    """--offline, or the switch that the hub's own client heeds."""
    return options.offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def lasting_name(model: str) -> str:
    """The name under which a pot remembers its model: good from any folder."""
    entry = catalog.find(model)
    if entry:
        return entry.alias
    path = expanded(model)
    return str(path.absolute()) if path.exists() else model


def _hush() -> None:
    """Keep the libraries' own bars and warnings off stderr; the receipt says what matters."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A pot file that the system will not open is unreadable input."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _rate_key(options: ModelOptions) -> str:
    return f"{lasting_name(options.model)} {options.device} {options.dtype}"


def _on_cuda(options: ModelOptions) -> bool:
    return options.device != "cpu" and bool(machine.cuda_devices())


def _value_bytes(options: ModelOptions) -> int:
    """Bytes of one number of the pot, in the dtype that the model will run in."""
    dtype = auto_dtype(_on_cuda(options)) if options.dtype == "auto" else options.dtype
    return VALUE_BYTES.get(dtype, 2)


def _entry_bytes(model: str, value_bytes: int) -> int | None:
    """Bytes of a pot entry by the config of a model on this machine; None where it does not say."""
    try:
        config = json.loads((models.path_of(model) / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config", config)
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        return int(2 * config["num_hidden_layers"] * heads * size * value_bytes)
    except (ModelError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
