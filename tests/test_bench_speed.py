"""bench speed: operations against a count by hand and torch's own, the order of runs, memory, the table, the file."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import warnings
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from cli_support import FakeReading, FakeSession, FakeWorkbench, home, invoke  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from engine import ccd, measure, snapshot, stopwatch
from engine.errors import ModelError
from engine.measure import Fill, Gauge, count, fills
from engine.settings import METHODS, PotSettings
from engine.stopwatch import Stopwatch
from infinipot_cli.bench import memory, speed
from infinipot_cli.bench.results import read_results
from infinipot_cli.bench.speed import Timing
from infinipot_cli.bench.speed_report import diagrams, make_table, summarise
from infinipot_cli.local import LocalWorkbench

# Tiny llama: hidden 32, MLP 48, 2 layers, 4 query heads and 2 KV heads of 8.
LLAMA_WEIGHTS = 2 * (32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 48)
FIELDS = {"reading": 6.0, "distilling": 2.0, "prompt": 1.0, "writing": 3.0}


def timing(method: str = "cap", length: int = 1000, repeat: int = 0, **more: Any) -> Timing:
    values: dict[str, Any] = {"tokens": length, "written": 13, "seconds": FIELDS, "memory_how": "by hand"}
    values |= {"memory_before": 1 << 20, "memory_peak": 3 << 20, "operations": 4_000, "matrix_rate": 1_000.0}
    return Timing(method, length, repeat, **(values | more))


# --- operations ---


@given(st.integers(0, 40), st.integers(0, 40), st.one_of(st.none(), st.integers(1, 50)))
def test_a_fill_sees_what_its_tokens_see(held: int, tokens: int, window: int | None) -> None:
    slots = range(held, held + tokens)
    assert Fill(held, tokens).seen(window) == sum(min(slot + 1, window or slot + 1) for slot in slots)


def test_operations_of_a_tiny_llama_by_hand() -> None:
    found = count(tiny.model("llama"), [Fill(0, 10), Fill(5, 3)], 16, output=True)
    seen = 55 + (6 + 7 + 8)
    assert found.weights == 13 * 2 * LLAMA_WEIGHTS
    assert found.attention == 2 * 4 * 2 * (8 + 8) * seen  # layers, query heads, multiply and add, key and value
    assert found.output == 13 * 2 * 32 * tiny.VOCABULARY
    assert found.total == found.weights + found.attention + found.output


def test_layers_with_a_window_see_no_more() -> None:
    model = tiny.model("gemma3")  # every other layer of four slides a window of 16
    found = count(model, [Fill(0, 40)], 64, output=False).attention
    seen = 2 * sum(range(1, 41)) + 2 * sum(min(i, tiny.WINDOW) for i in range(1, 41))
    assert found == 4 * 2 * (8 + 8) * seen
    unwindowed = count(model, [Fill(0, 10)], 16, output=False)
    assert unwindowed == count(model, [Fill(0, 10)], None, output=False)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "phi3", "smollm3", "olmo2"])
def test_operations_are_what_torch_counts(name: str) -> None:
    model, tokens = tiny.model(name), 12
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model.module.set_attn_implementation("eager")
        counter = FlopCounterMode(display=False)
        with counter:
            model.module(torch.arange(4, 4 + tokens)[None])
    counts = counter.get_flop_counts()
    rotary = sum(sum(found.values()) for module, found in counts.items() if module.endswith("rotary_emb"))
    found = count(model, [Fill(0, tokens)], None, output=True)
    # Eager attention multiplies every query with every key, those of the future too.
    everything = sum(2 * s.query_heads * (s.key_dim + s.value_dim) * tokens * tokens for s in model.layers)
    assert counter.get_total_flops() - rotary == found.weights + everything + found.output


def test_of_a_mixture_the_active_experts_count() -> None:
    model = tiny.model("gpt-oss")  # two of four experts, in four layers
    experts = 4 * 32 * 2 * 48 + 4 * 48 * 32
    router, attention = 4 * 32, 2 * 32 * 32 + 2 * 32 * 16
    assert sum(product.operations for product in measure.products(model)) == 4 * 2 * (attention + router + experts // 2)
    assert measure.matrix_rate(model, 3) > 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tokens", [20, 57, 58, 200])
def test_fills_are_how_a_pot_is_really_filled(method: str, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Fill] = []
    real = ccd.forward

    def spied(model: Any, pot: Any, ids: Any, *rest: Any) -> Any:
        seen.append(Fill(pot.entries, len(ids)))
        return real(model, pot, ids, *rest)

    monkeypatch.setattr(ccd, "forward", spied)
    monkeypatch.setattr(snapshot, "forward", spied)
    settings = PotSettings(capacity=64, distilled=24, method=method, block=7)
    tiny.read(tiny.model(), settings, tiny.document(tokens), prefix=3, catalyst=4)
    foretold = list(fills(settings, tokens, 3, 4))
    assert sum(fill.count for fill in seen) == sum(fill.count for fill in foretold)
    assert sum(fill.seen() for fill in seen) == sum(fill.seen() for fill in foretold)


def test_operations_go_by_the_method() -> None:
    gauge = Gauge(tiny.model())
    tokens = {name: gauge.operations(PotSettings(capacity=64, method=name), 500, 3, 4) for name in METHODS}
    assert tokens["nuc"] - tokens["recent"] == 503 * 2 * 32 * tiny.VOCABULARY  # novelty wants the output layer
    assert tokens["truncate"] < tokens["swa"] < tokens["recent"] < tokens["full"] == tokens["self-extend"]


def test_the_rate_is_operations_over_the_best_pass_but_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = iter([0.125, 3.0, 0.5, 0.25, 4.0])
    ticks = itertools.chain.from_iterable((10.0, 10.0 + seconds) for seconds in passes)
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(ticks))
    assert measure.matrix_rate(tiny.model(), 6) == 6 * 2 * LLAMA_WEIGHTS / 0.25


class Event:
    """A CUDA event that is reached when the test says so; ``now`` is in milliseconds."""

    now, reached = 0.0, False

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = Event.now

    def query(self) -> bool:
        return Event.reached

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


def test_on_cuda_time_is_the_streams_and_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("it waited"))
    watch = Stopwatch(torch.device("cuda"))
    for length in (250.0, 500.0):
        with watch.span():
            Event.now += length
        Event.now += 1000.0
    assert watch.seconds == 0.0  # the device has not come so far
    monkeypatch.setattr(Event, "reached", True)
    assert watch.seconds == watch.seconds == 0.75


def test_on_a_cpu_time_is_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([10.0, 10.5, 20.0, 20.25])
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: next(ticks))
    watch = Stopwatch(torch.device("cpu"))
    with watch.span():
        pass
    with pytest.raises(KeyError), watch.span():
        raise KeyError
    assert watch.seconds == 0.75


# --- the order of runs ---


class Watched(FakeWorkbench):
    """Fails when a method reads more than it can."""

    limits: dict[str, tuple[int, Exception]] = {}  # noqa: RUF012

    def load(self, *arguments: Any) -> FakeSession:
        session = super().load(*arguments)
        limits = self.limits

        class Limited(FakeReading):
            def read(self, text: str, **more: Any) -> None:
                super().read(text, **more)
                limit, error = limits.get(self.pot.settings.method, (1 << 60, MemoryError()))
                if self.pot.tokens_read > limit:
                    raise error

        def reading(settings: PotSettings, prefix: Any, catalyst: Any) -> FakeReading:
            session.bench.readings.append(Limited(session.bench, settings))
            return session.bench.readings[-1]

        session.reading = reading  # type: ignore[method-assign]
        return session


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which a second passes whenever it is looked at."""
    ticks = itertools.count()
    monkeypatch.setattr(speed, "clock", lambda: float(next(ticks)))
    # Half a second for every run, in a process that has loaded so much.
    monkeypatch.setattr(memory, "_give_back", lambda: None)


def bench_speed(*flags: str, workbench: FakeWorkbench | None = None, **more: Any) -> Any:
    usual = ("--text", "repeated", "--capacity", "256", "--write", "2")
    return invoke("bench", "speed", *usual, *flags, bench=workbench or Watched(), **more)


def test_methods_take_turns_and_short_documents_come_first(ticking: None) -> None:
    workbench = Watched()
    flags = ("--method", "cap,recent", "--lengths", "900,300", "--repeats", "2", "--json")
    content = bench_speed(*flags, workbench=workbench).json
    ran = [(run["method"], run["length"], run["repeat"]) for run in content["timings"]]
    assert ran == [(m, n, r) for n in (300, 900) for r in (0, 1) for m in ("cap", "recent")]
    read = [(reading.pot.settings.method, reading.pot.tokens_read) for reading in workbench.readings]
    assert [name for name, _ in read[:2]] == ["cap", "recent"]  # warming up, which does not count
    assert [name for name, _ in read[2:]] == [name for name, _, _ in ran]
    assert [abs(tokens - length) <= 4 for (_, tokens), (_, length, _) in zip(read[2:], ran, strict=True)] == [True] * 8
    # A rate before every round, on as many rows as a forward pass has tokens.
    assert [call for call in workbench.gauge.calls if call.startswith("rate")] == ["rate 512"] * 4
    assert all(run["floor"] == 10 * run["tokens"] / 1000 for run in content["timings"])


def test_both_methods_read_the_same_text(ticking: None) -> None:
    workbench = Watched()
    bench_speed("--method", "cap,recent", "--lengths", "700", "--repeats", "2", workbench=workbench)
    texts = {reading.pot.text for reading in workbench.readings[2:]}
    assert len(texts) == 1


def test_the_clock_runs_while_reading_only(ticking: None) -> None:
    run = bench_speed("--method", "cap", "--lengths", "2k", "--repeats", "1", "--json").json["timings"][0]
    # One tick per passage and one for finishing, less the half second that the fake says it distilled.
    assert run["seconds"]["reading"] % 1 == 0.5
    assert run["seconds"]["distilling"] == 0.5
    assert run["first_token"] == pytest.approx(run["seconds"]["reading"] + 0.5 + 0.1)


@pytest.mark.parametrize(
    ("error", "said"),
    [(MemoryError(), "out of memory"), (ModelError("a pot of that size does not fit"), "does not fit")],
)
def test_what_fails_is_said_and_not_tried_again(error: Exception, said: str, ticking: None) -> None:
    workbench = Watched()
    workbench.limits = {"full": (500, error)}
    flags = ("--method", "full,cap", "--lengths", "300,800,1000", "--repeats", "2", "--json")
    timings = bench_speed(*flags, workbench=workbench).json["timings"]
    failed = [run for run in timings if run["error"]]
    assert [(run["method"], run["length"], run["repeat"]) for run in failed] == [("full", 800, 0)]
    assert said in failed[0]["error"]
    assert [run["length"] for run in timings if run["method"] == "full"] == [300, 300, 800]
    assert [run["length"] for run in timings if run["method"] == "cap"] == [300, 300, 800, 800, 1000, 1000]


def test_other_errors_end_the_run(ticking: None) -> None:
    workbench = Watched()
    workbench.limits = {"cap": (500, KeyError("a fault"))}
    assert bench_speed("--lengths", "800", workbench=workbench).code == 1


def test_giving_up(ticking: None) -> None:
    flags = ("--method", "cap", "--lengths", "300,800,2k", "--repeats", "2", "--give-up", "0.01", "--json")
    timings = bench_speed(*flags).json["timings"]
    assert [run["length"] for run in timings] == [300, 300]


# --- memory ---


class NoDevice:
    def reset_peak(self) -> None: ...

    def peak_bytes(self) -> int | None:
        return None


def touched(size: int) -> mmap.mmap:
    """Memory that is really there, and is given back when closed."""
    block = mmap.mmap(-1, size)
    for start in range(0, size, mmap.PAGESIZE):
        block[start] = 1
    return block


@pytest.mark.parametrize("sampled", [False, True])
def test_every_run_has_a_peak_of_its_own(sampled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if sampled:
        monkeypatch.setattr(memory, "_begin_anew", lambda: False)
    if memory._sample() is None or not (sampled or memory._begin_anew()):
        pytest.skip("this system does not say")
    size = 64 << 20
    with memory.watched(NoDevice()) as large:
        block = touched(size)
        if sampled:
            memory.threading.Event().wait(10 * memory.EVERY)  # let the sampler look
        block.close()
    with memory.watched(NoDevice()) as small:
        pass
    assert large.how == small.how == (memory.SAMPLED if sampled else memory.KERNEL)
    assert large.before is not None
    assert large.most is not None
    assert small.most is not None
    assert large.most - large.before > 0.9 * size
    assert small.most < large.most - 0.8 * size


def test_where_the_system_says_nothing(monkeypatch: pytest.MonkeyPatch, ticking: None) -> None:
    monkeypatch.setattr(memory, "_begin_anew", lambda: False)
    monkeypatch.setattr(memory, "_sample", lambda: None)
    with memory.watched(NoDevice()) as peak:
        pass
    assert (peak.before, peak.how) == (None, memory.PROCESS)
    monkeypatch.setattr(memory, "_process_peak", lambda: None)
    with memory.watched(NoDevice()) as peak:
        pass
    assert (peak.most, peak.how) == (None, memory.UNKNOWN)


def test_a_device_counts_its_own_memory(ticking: None) -> None:
    class Device:
        held, asked = 7, 0

        def reset_peak(self) -> None:
            self.asked += 1

        def peak_bytes(self) -> int:
            return self.held

    device = Device()
    with memory.watched(device) as peak:
        device.held = 11
    assert (peak.before, peak.most, peak.how, device.asked) == (7, 11, memory.CUDA, 1)


# --- what is made of it ---


def test_what_follows_from_a_timing() -> None:
    one = timing()
    assert (one.first_token, one.total, one.distilling_share) == (9.0, 12.0, 2 / 9)
    assert (one.reading_rate, one.writing_rate) == (1000 / 8, 12 / 3)
    assert (one.floor, one.times_floor) == (4.0, 2.0)
    assert timing(written=1).writing_rate is None


def test_means_and_spreads() -> None:
    slow = timing(repeat=1, seconds=FIELDS | {"reading": 8.0})
    rows = summarise([timing(), timing("full"), slow, timing(length=500)])
    assert [(row.length, row.method, row.runs) for row in rows] == [
        (500, "cap", 1),
        (1000, "cap", 2),
        (1000, "full", 1),
    ]
    spread = rows[1].measures["reading"]
    assert (spread.mean, spread.deviation) == (7.0, pytest.approx(2**0.5))


def test_the_table_says_what_failed() -> None:
    table = make_table("Speed", [timing(), timing("full", error="out of memory"), timing("snapkv", error="refused")])
    cells = {row[1]: list(row[2:]) for row in table.rows}
    assert cells["full"] == ["OOM"] + ["–"] * 9
    assert cells["snapkv"][0] == "refused"
    assert cells["cap"] == ["9.00", "6.00", "2.00", "1.00", "22.2 %", "125", "4.0", "3", "4.00", "2.00"]
    assert any("by hand" in note for note in table.notes)


def test_a_line_for_every_method_that_got_there() -> None:
    drawn = diagrams([timing(), timing(length=2000), timing("full"), timing("full", 2000, error="out of memory")])
    assert [diagram.y for diagram in drawn] == ["peak MiB", "s", "tokens/s", "s"]
    lines = drawn[0].lines
    assert {name: [point.x for point in points] for name, points in lines.items()} == {
        "cap": [1000, 2000],
        "full": [1000],
    }
    assert lines["cap"][0].y == 3.0


# --- the command ---


def test_nothing_is_taken_over_from_an_earlier_process(tmp_path: Path, ticking: None) -> None:
    out = tmp_path / "speed.jsonl"
    flags = ("--method", "cap", "--lengths", "300", "--repeats", "2", "--out", str(out))
    assert bench_speed(*flags).code == 0
    assert bench_speed(*flags).code == 0
    records = read_results(out)
    assert [record["record"] for record in records] == ["run", "outcome", "outcome"] * 2
    assert len({record["key"] for record in records if record["record"] == "outcome"}) == 4
    assert {record["times_floor"] > 0 for record in records if record["record"] == "outcome"} == {True}


def test_table_and_picture(tmp_path: Path, ticking: None) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "speed.png"
    result = bench_speed("--method", "cap,nuc", "--lengths", "300,600", "--repeats", "1", "--plot", str(plot))
    assert result.code == 0, result.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert [line.split()[:2] for line in result.stdout.splitlines()[2:6]] == [
        ["300", "cap"], ["300", "nuc"], ["600", "cap"], ["600", "nuc"]
    ]  # fmt: skip


def test_dry_run_loads_nothing() -> None:
    workbench = Watched()
    flags = ("--method", "cap,nuc", "--lengths", "1k,2k", "--repeats", "3", "--dry-run", "--json")
    content = bench_speed(*flags, workbench=workbench).json
    assert (content["runs"], content["tokens"], content["seconds"]) == (12, 18_000, 180.0)
    assert not workbench.loaded


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--lengths", "many"), 2, "--lengths"),
        (("--give-up", "0"), 2, "--give-up"),
        (("--method", "cap,magic"), 2, "magic"),
        (("--text", "nowhere.txt"), 3, "nowhere.txt"),
        (("--plot", "speed.xyz"), 2, "--plot"),
        (("--write", "300"), 2, "--write"),
        (("--prompt", "summary"), 2, "takes no question"),
    ],
)
def test_wrong_wishes(flags: tuple[str, ...], code: int, said: str) -> None:
    result = bench_speed(*flags)
    assert result.code == code
    assert said in result.stderr.replace("\n", " ")
    assert result.stdout == ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("model") / "tiny")


def test_a_real_model(folder: Path) -> None:
    flags = (
        "--model",
        str(folder),
        "--device",
        "cpu",
        "--method",
        "infinipot,full",
        "--lengths",
        "700",
        "--write",
        "5",
    )
    result = bench_speed(*flags, "--repeats", "1", "--json", workbench=LocalWorkbench())  # type: ignore[arg-type]
    assert result.code == 0, result.stderr
    pot, full = result.json["timings"]
    assert pot["written"] == full["written"] == 5
    assert pot["tokens"] == full["tokens"]
    assert abs(pot["tokens"] - 700) <= 4
    assert pot["cycles"] > 1
    assert full["cycles"] == 0
    assert pot["entries"] <= 256 < full["entries"]
    assert min(pot["seconds"].values()) > 0
    assert pot["operations"] > 0
    assert pot["memory_peak"] is None or pot["memory_peak"] > pot["memory_before"] // 2
