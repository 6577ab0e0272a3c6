"""A command line run in-process, on a fake engine whose "tokens" are words: no torch, no model, no waiting."""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.errors import PotDamaged, PotMismatch
from engine.settings import GenerationSettings, PotSettings
from infinipot_cli.main import run
from infinipot_cli.options import ModelOptions
from infinipot_cli.terminal import Terminal
from infinipot_cli.workbench import Facts

ENTRY_BYTES = 1024
COLOR_VARIABLES = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, and none of the user's settings."""
    folder = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("INFINIPOT_") or name in COLOR_VARIABLES]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder


class Words:
    """Text to ids and back: one id per word."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self._ids.setdefault(word, len(self._ids)) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        words = list(self._ids)
        return " ".join(words[number] for number in ids)


@dataclass
class FakePot:
    settings: PotSettings
    text: str = ""
    tokens_read: int = 0
    cycles: int = 0
    protected: int = 2
    made_with: str = "fake"

    @property
    def capacity(self) -> int:
        return self.settings.capacity

    @property
    def entries(self) -> int:
        return min(self.protected + self.tokens_read, self.capacity)

    @property
    def nbytes(self) -> int:
        return self.entries * ENTRY_BYTES


@dataclass
class FakeStats:
    tokens: int
    cycles: int
    entries: int
    capacity: int
    waiting: int = 0
    seconds_reading: float = 2.0
    seconds_distilling: float = 0.5


class FakeReading:
    def __init__(self, bench: FakeWorkbench, settings: PotSettings) -> None:
        self.bench = bench
        self.pot = FakePot(settings)
        self.passages: list[tuple[str, int, int, int, bool]] = []
        self.asides: list[str] = []

    @property
    def stats(self) -> FakeStats:
        pot = self.pot
        return FakeStats(pot.tokens_read, pot.cycles, pot.entries, pot.capacity)

    def read(self, text: str, *, offset: int, place: int, source: int, lines: bool) -> None:
        self.passages.append((text, offset, place, source, lines))
        self.pot.text += text
        self.pot.tokens_read += len(text.split())
        self.pot.cycles = self.pot.tokens_read // self.pot.capacity
        self.bench.on_read(text)

    def aside(self, text: str) -> None:
        self.asides.append(text)
        self.pot.text += text

    def finish(self) -> FakePot:
        return self.pot


@dataclass
class FakeGeneration:
    text: str
    raw: str
    token_ids: list[int]
    stop_reason: str
    prompt_tokens: int
    seconds_prompt: float = 0.1
    seconds_writing: float = 0.2


class FakeFraming:
    def __init__(self, words: Words, before: str, system: str | None, frame: str = "turn") -> None:
        self._words = words
        self._head, self._tail = ("", "") if frame == "bare" else ("<user>", "<answer>")
        self.prefix_ids = words.encode(f"{self._head} {system or ''} {before}")

    def suffix_ids(self, after: str) -> list[int]:
        return self._words.encode(f"{after} {self._tail}")

    def next_turn_ids(self, question: str) -> list[int]:
        return self._words.encode(f"<next> {question} <answer>")


@dataclass
class FakeGauge:
    """Ten operations a token, a thousand a second; notes the order in which it was asked."""

    calls: list[str] = field(default_factory=list)

    def operations(self, settings: PotSettings, tokens: int, protected: int, catalyst: int) -> int:
        return 10 * tokens

    def matrix_rate(self, rows: int) -> float:
        self.calls.append(f"rate {rows}")
        return 1000.0

    def wait(self) -> None:
        self.calls.append("wait")

    def reset_peak(self) -> None:
        self.calls.append("reset")

    def peak_bytes(self) -> int | None:
        return None


class FakeSession:
    entry_bytes = ENTRY_BYTES

    def __init__(self, bench: FakeWorkbench, name: str) -> None:
        self.bench = bench
        self.name = name

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "device": "cpu", "dtype": "float32", "kernel": "none"}

    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "weights": f"weights of {self.name}"}

    def gauge(self) -> FakeGauge:
        return self.bench.gauge

    def count(self, text: str) -> int:
        return len(text.split())

    def framing(self, before: str, system: str | None, frame: str = "turn") -> FakeFraming:
        return FakeFraming(self.bench.words, before, system, frame)

    def reading(self, settings: PotSettings, prefix_ids: Sequence[int], catalyst_ids: Sequence[int]) -> FakeReading:
        settings.check_room(len(prefix_ids), len(catalyst_ids))
        self.bench.catalysts.append(self.bench.words.decode(catalyst_ids))
        self.bench.readings.append(FakeReading(self.bench, settings))
        return self.bench.readings[-1]

    def generate(
        self,
        pot: FakePot,
        suffix_ids: Sequence[int],
        generation: GenerationSettings,
        on_text: Callable[[str], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> FakeGeneration:
        self.bench.asked.append(self.bench.words.decode(suffix_ids))
        self.bench.pots.append(pot.text)
        self.bench.generations.append(generation)
        said, reason = [], "stop"
        for piece in self.bench.answer(pot):
            said.append(piece)
            if on_text:
                on_text(piece)
            self.bench.on_token(piece)
            if should_stop and should_stop():
                reason = "interrupted"
                break
        text = "".join(said)
        ids = self.bench.words.encode(text) + ([] if reason == "interrupted" else self.bench.words.encode("<end>"))
        return FakeGeneration(text.strip(), text, ids, reason, len(suffix_ids))

    def extend(self, pot: FakePot, ids: Sequence[int], catalyst_ids: Sequence[int]) -> FakePot:
        return FakePot(pot.settings, pot.text + "\n" + self.bench.words.decode(ids), pot.tokens_read)

    def save(self, pot: FakePot, target: Any, meta: dict[str, Any], dtype: str = "raw") -> int:
        body = {"text": pot.text, "settings": pot.settings.to_dict(), "read": pot.tokens_read, "meta": meta}
        body |= {"made_with": self.name, "dtype": {"raw": "float32", "bf16": "bfloat16"}.get(dtype, dtype)}
        data = pot_bytes(body)
        if isinstance(target, Path):
            target.write_bytes(data)
        else:
            target.write(data)
        return len(data)

    def load(self, path: Path) -> tuple[FakePot, dict[str, Any]]:
        body = read_pot(path)
        if body["made_with"] != self.name:
            raise PotMismatch(f"this pot was made with {body['made_with']}", hint="use another --model")
        pot = FakePot(PotSettings.from_dict(body["settings"]), body["text"], body["read"], made_with=self.name)
        return pot, body["meta"]


class FakeCounter:
    name = "fake counter"
    exact = False

    def count(self, text: str) -> int:
        return len(text.split())


@dataclass
class FakeWorkbench:
    """Notes what the command line asked of the engine; ``on_read`` and ``on_token`` let a test step in."""

    words: Words = field(default_factory=Words)
    loaded: list[ModelOptions] = field(default_factory=list)
    readings: list[FakeReading] = field(default_factory=list)
    catalysts: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    pots: list[str] = field(default_factory=list)
    generations: list[GenerationSettings] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    here: tuple[str, ...] = ()
    gauge: FakeGauge = field(default_factory=FakeGauge)
    on_load: Callable[[], None] = lambda: None
    on_read: Callable[[str], None] = lambda text: None
    on_token: Callable[[str], None] = lambda piece: None
    answer: Callable[[FakePot], Sequence[str]] = lambda pot: (" The", " answer", ".")
    facts_of: Facts | None = None

    def load(self, options: ModelOptions, report: Callable[[str], None]) -> FakeSession:
        self.on_load()
        self.loaded.append(options)
        return FakeSession(self, options.model)

    def facts(self, options: ModelOptions) -> Facts:
        return self.facts_of or Facts(options.model, ENTRY_BYTES, 100.0)

    def counter(self, options: ModelOptions, own: bool, report: Callable[[str], None]) -> FakeCounter:
        return FakeCounter()

    def pot_info(self, path: Path) -> dict[str, Any]:
        body = read_pot(path, checked=False)
        settings = PotSettings.from_dict(body["settings"]).to_dict()
        return {
            "version": 1,
            "identity": {"name": body["made_with"]},
            "settings": settings,
            "meta": body["meta"],
            "dtype": body["dtype"],
            "tokens_read": body["read"],
            "cycles": 0,
            "entries": 7,
            "nbytes": 7 * ENTRY_BYTES,
        }

    def verify_pot(self, path: Path) -> dict[str, Any]:
        read_pot(path)
        return self.pot_info(path)

    def on_this_machine(self, model: str) -> bool:
        return model in self.here

    def remember_rate(self, options: ModelOptions, tokens_per_second: float) -> None:
        self.rates.append(tokens_per_second)


def pot_bytes(body: dict[str, Any]) -> bytes:
    """A fake pot that looks like one from outside: a length, a header that begins with metadata, a checksum."""
    text = json.dumps(body)
    header = json.dumps({"__metadata__": {"pot": text}}).encode()
    return len(header).to_bytes(8, "little") + header + zlib.crc32(header).to_bytes(4, "little")


def read_pot(path: Path, checked: bool = True) -> dict[str, Any]:
    data = Path(path).read_bytes()
    header = data[8:-4]
    if checked and zlib.crc32(header).to_bytes(4, "little") != data[-4:]:
        raise PotDamaged(f"{path} is damaged")
    return json.loads(json.loads(header)["__metadata__"]["pot"])


@dataclass
class Result:
    """What a command line did."""

    code: int
    stdout: str
    stderr: str
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class Stream(io.TextIOWrapper):
    """A text stream over memory, as stdout is one over a file."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="", write_through=True)

    @property
    def bytes(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()


def invoke(
    *arguments: str | Path,
    bench: FakeWorkbench | None = None,
    stdin: bytes | Any | None = None,
    tty: str = "",
    environ: dict[str, str] | None = None,
    encoding: str = "utf-8",
) -> Result:
    """Run ``infinipot arguments``. ``tty`` names the streams that are terminals: "in out err".

    Without ``stdin`` there is a terminal on it; give bytes for a pipe.
    """
    stdout, stderr = Stream(encoding), Stream()
    terminal = Terminal(
        io.BytesIO() if stdin is None else io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin,
        stdout,
        stderr,
        stdin_tty=stdin is None or "in" in tty.split(),
        stdout_tty="out" in tty.split(),
        stderr_tty="err" in tty.split(),
        **({} if environ is None else {"environ": environ}),
    )
    code = run([str(argument) for argument in arguments], terminal, bench or FakeWorkbench())
    return Result(code, stdout.bytes.decode("utf-8", "replace"), stderr.bytes.decode(), stdout.bytes)
