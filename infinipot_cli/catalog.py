"""The models that infinipot knows by a short name: facts of their published configurations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.settings import PotSettings
from infinipot_cli.machine import Device, Machine

#: What a run needs beside weights and pot: interpreter, libraries, activations of one block, logits.
OVERHEAD = {"cpu": 700 << 20, "cuda": 1200 << 20}
#: Below this many tokens/s a model is not recommended, though it may fit.
SLOWEST = 40.0
#: Tokens/s that one processor reads, times parameters, by bytes of a value: speed is near inversely proportional to
#: size (docs/results.md has the default model's).
_RATE = {4: 200.0 * 135e6, 2: 400.0 * 135e6}


#: What a model is taught to answer where the document does not.
REFUSAL = "The document does not say."


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model. ``parameters`` counts tied weights once; ``context`` is the longest trained, in tokens.

    ``gated``: the hub gives it only to those who accepted its licence there. ``hub_id`` is None for a model that
    only exists here, made from another one and ``adapter``, a file of this package. ``focus``: from how many entries
    it answers questions best, by measurement (docs/decisions.md); None is not known, and all of the pot. ``doubt``: the
    least probability at which it shall answer ``REFUSAL``, likewise; None for a model that was not taught to.
    """

    alias: str
    hub_id: str | None
    licence: str
    parameters: int
    layers: int
    kv_heads: int
    head_size: int
    context: int
    gated: bool = False
    adapter: str | None = None
    focus: int | None = None
    doubt: float | None = None

    @property
    def origin(self) -> str:
        """What it is, for people: its hub id, or what it is made from."""
        return self.hub_id or f"{PLAIN.hub_id} with the {self.adapter} adapter"

    def weight_bytes(self, value_bytes: int) -> int:
        return self.parameters * value_bytes

    def entry_bytes(self, value_bytes: int) -> int:
        """Bytes of one pot entry: a key and a value in every layer and KV head."""
        return 2 * self.layers * self.kv_heads * self.head_size * value_bytes

    def memory_needed(self, device: Device, capacity: int) -> int:
        """Bytes to read and answer with ``capacity`` entries: answering pours the pot, so it counts twice."""
        pot = capacity * self.entry_bytes(device.value_bytes)
        return self.weight_bytes(device.value_bytes) + 2 * pot + OVERHEAD[device.name.partition(":")[0]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


APACHE = "Apache-2.0"
LLAMA = "Llama 3.2 licence"

PLAIN = ModelEntry("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct", APACHE, 134_515_008, 30, 3, 64, 8192)
#: The plain model taught to answer from what it reads (docs/reader.md).
DEFAULT = replace(PLAIN, alias="smollm2-135m-reader", hub_id=None, adapter="reader", focus=256, doubt=0.1)
#: Those that are made from the pinned artifact of ``infinipot_cli.artifact``.
PINNED = (DEFAULT, PLAIN)

CATALOG: tuple[ModelEntry, ...] = (
    DEFAULT,
    PLAIN,
    ModelEntry("smollm2-360m", "HuggingFaceTB/SmolLM2-360M-Instruct", APACHE, 361_821_120, 32, 5, 64, 8192),
    ModelEntry("qwen3-0.6b", "Qwen/Qwen3-0.6B", APACHE, 596_049_920, 28, 8, 128, 40960),
    ModelEntry("llama-3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", LLAMA, 1_235_814_400, 16, 8, 64, 131072, gated=True),
    ModelEntry("qwen3-1.7b", "Qwen/Qwen3-1.7B", APACHE, 1_720_574_976, 28, 8, 128, 40960),
    ModelEntry("granite-3.3-2b", "ibm-granite/granite-3.3-2b-instruct", APACHE, 2_533_539_840, 40, 8, 64, 131072),
    ModelEntry("smollm3-3b", "HuggingFaceTB/SmolLM3-3B", APACHE, 3_075_098_624, 36, 4, 128, 65536),
    ModelEntry(
        "llama-3.2-3b", "meta-llama/Llama-3.2-3B-Instruct", LLAMA, 3_212_749_824, 28, 8, 128, 131072, gated=True
    ),
    ModelEntry("qwen3-4b", "Qwen/Qwen3-4B", APACHE, 4_022_468_096, 36, 8, 128, 40960),
    ModelEntry("mistral-7b", "mistralai/Mistral-7B-Instruct-v0.3", APACHE, 7_248_023_552, 32, 8, 128, 32768),
    ModelEntry("qwen3-8b", "Qwen/Qwen3-8B", APACHE, 8_190_735_360, 36, 8, 128, 40960),
)


def find(name: str) -> ModelEntry | None:
    """The entry of an alias or hub id, in any case, or None."""
    wanted = name.casefold()
    return next((e for e in CATALOG if wanted in (e.alias.casefold(), (e.hub_id or e.alias).casefold())), None)


def place(entry: ModelEntry, machine: Machine, capacity: int) -> Device | None:
    """The first device whose free memory holds the model and its pot, or None."""
    return next((d for d in machine.devices if entry.memory_needed(d, capacity) <= d.free), None)


def reading_rate(entry: ModelEntry, processors: int, value_bytes: int) -> float:
    """About how many tokens/s the processors read."""
    return _RATE[value_bytes] * processors / entry.parameters


def fast_enough(entry: ModelEntry, device: Device, processors: int) -> bool:
    """Whether reading on ``device`` is fast enough to recommend; a GPU always is."""
    return device.name != "cpu" or reading_rate(entry, processors, device.value_bytes) >= SLOWEST


def recommend(machine: Machine, capacity: int = PotSettings.capacity) -> ModelEntry:
    """The largest model, free to use without asking, that this machine holds and reads with at a fair speed.

    The default model where nothing larger does.
    """
    best = DEFAULT
    for entry in CATALOG:
        device = place(entry, machine, capacity)
        suits = device is not None and fast_enough(entry, device, machine.processors)
        if suits and not entry.gated and entry.parameters > best.parameters:
            best = entry
    return best
