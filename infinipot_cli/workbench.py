"""The one seam between the command line and the engine.

Commands are given a Workbench and work with what it hands out; tests give them another one, without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from engine.packing import DEFAULT_DTYPE
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.options import ModelOptions

Report = Callable[[str], None]
Frame = Literal["turn", "prompt", "bare"]


@dataclass(frozen=True)
class Facts:
    """What is known of a model without loading it: bytes of one pot entry, and tokens it reads per second here."""

    name: str
    entry_bytes: int | None
    tokens_per_second: float | None
    measured: bool = False


class Counter(Protocol):
    """Counts tokens; ``exact`` says whether the model itself will count the same."""

    name: str
    exact: bool

    def count(self, text: str) -> int: ...


class Framing(Protocol):
    """Where document, question and answer stand in the model's conversation (``engine.framing``)."""

    prefix_ids: list[int]

    def suffix_ids(self, after: str) -> list[int]: ...

    def next_turn_ids(self, question: str) -> list[int]: ...


class Stats(Protocol):
    """How far a reading is (``engine.reader.ReadStats``)."""

    @property
    def tokens(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def cycles(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def capacity(self) -> int | None:
        """None where the method holds everything it reads."""

    @property
    def seconds_reading(self) -> float: ...
    @property
    def seconds_distilling(self) -> float: ...


class Pot(Protocol):
    """A pot, as far as the command line looks into it (``engine.pot``)."""

    tokens_read: int
    cycles: int
    protected: int

    @property
    def settings(self) -> PotSettings: ...
    @property
    def entries(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


class Reading(Protocol):
    """A reading under way."""

    @property
    def stats(self) -> Stats: ...

    def read(self, text: str, *, offset: int, place: int, source: int, lines: bool) -> None: ...

    def aside(self, text: str) -> None:
        """Read text that stands in no source, such as a line between two files."""

    def finish(self) -> Pot: ...


class Generation(Protocol):
    """An answer (``engine.generation.Generation``)."""

    @property
    def text(self) -> str: ...
    @property
    def raw(self) -> str: ...
    @property
    def token_ids(self) -> list[int]: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def seconds_prompt(self) -> float: ...
    @property
    def seconds_writing(self) -> float: ...


class Gauge(Protocol):
    """What only the engine can measure (``engine.measure``)."""

    def operations(self, settings: PotSettings, tokens: int, protected: int, catalyst: int) -> int:
        """The model's own operations in reading that many tokens."""

    def matrix_rate(self, rows: int) -> float:
        """Operations per second of the model's own matrices on ``rows`` tokens."""

    def wait(self) -> None:
        """Return when the device has done all that it was asked to."""

    def reset_peak(self) -> None:
        """Begin a new peak of the device's own memory, if it counts any."""

    def peak_bytes(self) -> int | None:
        """Most bytes of the device's own memory in use since then; None where it has none."""


class Session(Protocol):
    """A loaded model, ready to read and answer."""

    name: str
    entry_bytes: int

    def describe(self) -> dict[str, Any]:
        """Name, device, dtype and so on, for the receipt."""

    def gauge(self) -> Gauge: ...

    def identity(self) -> dict[str, Any]:
        """Name and revision, and the fingerprints that tell this model from any other."""

    def count(self, text: str) -> int:
        """Tokens of a passage, as a reading counts them."""

    def framing(self, before: str, system: str | None, frame: Frame = "turn") -> Framing:
        """``frame``: what stands around the task's own words (``engine.framing.Frame``)."""

    def reading(self, settings: PotSettings, prefix_ids: Sequence[int], catalyst_ids: Sequence[int]) -> Reading: ...

    def generate(
        self,
        pot: Any,
        suffix_ids: Sequence[int],
        generation: GenerationSettings,
        on_text: Callable[[str], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> Generation: ...

    def extend(self, pot: Any, ids: Sequence[int], catalyst_ids: Sequence[int]) -> Any:
        """A new pot that has also read ``ids``."""

    def study(
        self,
        prefix_ids: Sequence[int],
        passages: Iterable[str],
        suffix_ids: Sequence[int],
        ways: Sequence[tuple[str, PotSettings, Sequence[int], str | None]],
        bins: int,
        report: Report,
    ) -> dict[str, Any]:
        """What each way of reading keeps, beside reading with everything in memory, as plain numbers (docs/json.md).

        A way is its name, its settings, its catalyst, and the name of an earlier one that it is compared with.
        """

    def save(self, pot: Any, target: Path | BinaryIO, meta: dict[str, Any], dtype: str = DEFAULT_DTYPE) -> int:
        """Write a pot, its numbers in one of ``engine.packing.POT_DTYPES``; returns the bytes written."""

    def load(self, path: Path) -> tuple[Any, dict[str, Any]]:
        """A pot from a file, verified, and what its maker noted."""


class Workbench(Protocol):
    """Hands out models, counters and facts about pot files."""

    def load(self, options: ModelOptions, report: Report) -> Session:
        """Load a model, fetching the default one first where it is missing. Raises ModelError."""

    def facts(self, options: ModelOptions) -> Facts: ...

    def counter(self, options: ModelOptions, own: bool, report: Report) -> Counter:
        """A token counter; ``own`` asks for the model's own tokenizer."""

    def pot_info(self, path: Path) -> dict[str, Any]:
        """What a pot file says of itself; nothing is loaded. Raises PotDamaged."""

    def verify_pot(self, path: Path) -> dict[str, Any]:
        """The same, after every checksum was checked."""

    def census(self, path: Path, layer: int | None, head: int | None) -> tuple[dict[str, Any], Any]:
        """What a pot file says of itself, and every token it holds (``infinipot_cli.show.holding.Census``).

        No model is loaded. Raises PotDamaged, and SettingsError for a layer or KV head that it does not have.
        """

    def vocabulary(self, model: str, fingerprint: str) -> Any:
        """Token ids to text (``infinipot_cli.show.pieces.Vocabulary``), None if that tokenizer is not here."""

    def on_this_machine(self, model: str) -> bool:
        """Whether a model of that name can be loaded without fetching it."""

    def remember_rate(self, options: ModelOptions, tokens_per_second: float) -> None:
        """Note how fast a model read, for estimates to come."""
