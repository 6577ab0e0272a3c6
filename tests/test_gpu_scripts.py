"""What will run on a GPU, run at tiny size on the CPU: the arithmetic, the parts, the driver, and what they report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu import arithmetic, batch, cycles, decode, peers, plan, rates, reading, report, run
from benchmarks.gpu.arithmetic import Reading
from benchmarks.gpu.clock import Deadline
from benchmarks.gpu.lines import Ledger, latest, read
from benchmarks.gpu.models import build, noise
from benchmarks.gpu.shapes import SHAPES
from benchmarks.gpu.watch import Watch, pretend
from engine import measure
from engine.errors import ModelError
from engine.model import Model
from engine.reader import Reader
from engine.settings import PotSettings

CPU = torch.device("cpu")
TINY = SHAPES["tiny"]
#: Parameters in billions as each model's page has them.
PUBLISHED = {"llama-3.1-8b": 8.03, "llama-3.2-1b": 1.24, "llama-3.2-3b": 3.21, "qwen3-4b": 4.02}


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """What a rate is on this machine is not asked here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "SECONDS", 0.0)
        patch.setattr(rates, "COPY", {"cpu": 1 << 20})
        yield


@pytest.fixture(scope="module")
def model() -> Model:
    return build(TINY, CPU, torch.float32)


def on_meta(name: str) -> Any:
    """The whole model in its real shape, without a byte of weights."""
    shape = SHAPES[name]
    config = getattr(transformers, f"{shape.family}Config")(**shape.config())
    with torch.device("meta"):
        return getattr(transformers, f"{shape.family}ForCausalLM")(config)


@pytest.mark.parametrize("name", PUBLISHED)
def test_shapes_have_the_published_number_of_parameters(name: str) -> None:
    shape = SHAPES[name]
    assert arithmetic.parameters(shape) == shape.published
    assert sum(parameter.numel() for parameter in on_meta(name).parameters()) == shape.published
    assert round(shape.published / 1e9, 2) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen3-4b"])
def test_matrices_are_those_of_the_model(name: str) -> None:
    shape, module = SHAPES[name], on_meta(name)
    layer = {
        path.rpartition(".")[2]: one for path, one in module.model.layers[0].named_modules() if hasattr(one, "bias")
    }
    assert {path: tuple(one.weight.shape) for path, one in layer.items()} == arithmetic.layer_matrices(shape)
    linear = [one for one in module.model.modules() if isinstance(one, torch.nn.Linear)]
    assert arithmetic.matrix_weights(shape) == sum(one.weight.numel() for one in linear)
    assert arithmetic.table_weights(shape) == module.lm_head.weight.numel()


@given(st.integers(1, 400), st.integers(20, 90), st.integers(1, 9), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_operations_are_those_of_a_loop_over_tokens(
    tokens: int, capacity: int, kept: int, protected: int, catalyst: int, novelty: bool
) -> None:
    """Two for each weight and 4 D for each head and entry seen: token by token, with a pot that is emptied."""
    operations, held = 0, 0
    for _ in range(tokens):
        if held == capacity - catalyst:
            held = protected + kept
        held += 1
        weights = sum(rows * columns for rows, columns in arithmetic.layer_matrices(TINY).values()) * TINY.layers
        operations += 2 * weights + 4 * TINY.layers * TINY.heads * TINY.head_dim * held
        operations += 2 * TINY.vocabulary * TINY.hidden * novelty
    parts = Reading(tokens, capacity, kept, protected, catalyst, novelty)
    assert arithmetic.read_operations(TINY, parts) == operations


def test_operations_are_those_that_the_engine_counts(model: Model) -> None:
    for method, capacity in (("cap", 128), ("infinipot", 128), ("full", None)):
        settings = PotSettings(capacity=128, distilled=64, method=method)
        counted = measure.Gauge(model).operations(settings, 700, 5, 7)
        parts = Reading(705, capacity, 64, 5, 7 if capacity else 0, novelty=method == "infinipot")
        assert arithmetic.read_operations(TINY, parts) == counted


def test_bytes_are_those_of_the_tensors(model: Model) -> None:
    half = build(TINY, CPU, torch.bfloat16)
    assert arithmetic.entry_bytes(TINY) == half.entry_bytes
    pot = Reader(half, PotSettings(capacity=100), [1], [2]).pot
    assert arithmetic.pot_bytes(TINY, 100) == reading.pot_bytes(pot)
    weights = {id(one): one.nbytes for one in half.module.parameters()}
    looked_up = half.module.get_input_embeddings().weight.nbytes
    assert arithmetic.written_bytes(TINY) == sum(weights.values()) - looked_up
    assert arithmetic.written_bytes(TINY, 3) - arithmetic.written_bytes(TINY) == 3 * half.entry_bytes
    tied = SHAPES["llama-3.2-1b"]
    assert arithmetic.written_bytes(tied) == 2 * tied.published


def test_a_plan_is_the_floor_over_the_assumed_rates() -> None:
    shape, assumed = SHAPES["llama-3.1-8b"], plan.Rates(1e15, 3e12, 78 * 2**30)
    parts = Reading(1_000_000, 4096, 2048, 16, 32)
    one = plan.reading(shape, "", parts, 2048, assumed)
    assert one.floor == pytest.approx(1e6 * 2 * 6.98e9 / 1e15, rel=0.15)  # the weights; attention adds a little
    assert one.peak > 2 * shape.published + 4096 * 131072
    assert plan.decode(shape, "engine", 100, 4096, assumed).floor > 100 * 15.0e9 / 3e12
    race = plan.Race([1 << 15, 1 << 16, 1 << 17, 1 << 18], 2048, 4096, 2048, 1e9)
    furthest = {name: plan.peer(shape, name, race, assumed).what for name in ("transformers", "cap")}
    assert furthest == {"transformers": "transformers up to 131,072", "cap": "cap up to 262,144"}


def test_random_models_are_the_same_at_every_call_and_refused_like_any_other(model: Model) -> None:
    again = build(TINY, CPU, torch.float32)
    pairs = zip(model.module.parameters(), again.module.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    other = build(TINY, CPU, torch.float32, seed=1)
    assert not torch.equal(model.module.lm_head.weight, other.module.lm_head.weight)
    wrong = replace(TINY, rope={"rope_type": "llama3", "rope_theta": 1.0})
    with pytest.raises((ModelError, KeyError)):
        build(wrong, CPU, torch.float32)


def test_a_text_is_the_same_in_every_run_and_its_pieces_differ() -> None:
    one, same, next_one = noise(TINY, 0, 50), noise(TINY, 0, 50), noise(TINY, 50, 50)
    assert torch.equal(one.ids, same.ids)
    assert not torch.equal(one.ids, next_one.ids)
    assert next_one.position.tolist() == list(range(50, 100))


def test_reading_reads_all_and_says_where_it_stood(model: Model) -> None:
    wanted = reading.Wanted("tiny", 1500, 128, 64, 64)
    found = reading.measure(model, TINY, wanted, Deadline(None))
    assert (found["stopped"], found["read"]) == (None, 1500)
    assert found["cycles"] == reading.new_cycles(wanted)
    assert found["first_token"] > found["seconds"] > found["distilling"] > 0
    assert found["share"] == pytest.approx(found["operations"] / found["matrix_rate"] / found["seconds"])
    assert [mark["tokens"] for mark in found["marks"]] == [-(-1500 * i // 640) * 64 for i in range(1, 10)] + [1500]


def test_reading_stops_when_its_time_is_over(model: Model) -> None:
    found = reading.measure(model, TINY, reading.Wanted("tiny", 10**9, 128, 64, 64), Deadline(0.0))
    assert (found["stopped"], found["read"]) == ("time", 64)


class Clock:
    """Time as the test has it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("benchmarks.gpu.clock.time.monotonic", clock.monotonic)
    one, never = Deadline(10), Deadline(None)
    clock.now = 4.0
    assert (one.left, one.over, never.over) == (6.0, False, False)
    clock.now = 11.0
    assert (one.left, one.over, never.left) == (0.0, True, float("inf"))


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_compiled_step_writes_what_the_engine_writes() -> None:
    """Traced as for CUDA, and run by torch itself."""
    own = build(replace(TINY, layers=1), CPU, torch.float32)
    wanted = decode.Wanted("tiny", "grouped", 12, 128)
    pot = decode.full_pot(own, TINY, wanted)
    engine = decode.write(own, TINY, pot, replace(wanted, way="engine"), None)[0]
    config = decode.on_any_device("eager")
    first = decode.write(own, TINY, pot, wanted, config)[0]
    assert first == decode.write(own, TINY, pot, wanted, config)[0] == engine
    assert len(set(engine)) > 2


def test_batches_say_how_far_they_came(model: Model) -> None:
    for how in batch.HOWS:
        wanted = batch.Wanted("tiny", how, 3, 300, 128, 64, 63)
        whole = batch.measure(model, TINY, wanted, Deadline(None))
        cut = batch.measure(model, TINY, wanted, Deadline(0.0))
        assert (whole["stopped"], whole["read"]) == (None, 300)
        assert (cut["stopped"], cut["read"]) == ("time", 21)
        assert cut["operations"] == pytest.approx(whole["operations"] * 63 / 900)


# -- waiting ---------------------------------------------------------------------------------------------------------


def test_a_watch_finds_what_makes_the_host_wait() -> None:
    there, here = torch.empty(4, device="meta"), torch.ones(4)
    with Watch(there.device) as watch:
        int(there.sum())
        bool((there > 0).any())
        there.to("cpu")
        here.to("meta")
        there[here > 0] = 0.0
        int(here.sum())  # the host's own
        here.to("meta", non_blocking=True)
        there + 1
    kinds = sorted(wait.kind for wait in watch.seen.waits.elements())
    assert kinds.count("reads a value") == 2
    assert "copies meta to cpu" in kinds
    assert kinds.count("copies cpu to meta") >= 1
    with Watch(CPU) as watch:
        torch.ones(3).nonzero()
    assert [wait.kind for wait in watch.seen.waits] == ["has a shape that depends on values"]


@pytest.mark.parametrize("method", ["cap", "infinipot", "streaming", "h2o", "keydiff", "tova"])
def test_no_cycle_reads_a_value_off_the_device(method: str) -> None:
    """Tokens come from the host; nothing goes back to it, whatever the method."""
    own = build(TINY, CPU, torch.bfloat16)
    pretend(own)
    wanted = reading.Wanted("tiny", 0, 128, 64, 64, method)
    seen = cycles.watched(own, TINY, wanted, 2)
    assert {wait.kind for wait in seen.waits} <= {"copies cpu to meta"}
    assert seen.launches["distilling"] > 0


def test_places_and_phases_are_those_of_the_engine() -> None:
    found = cycles.pretended(replace(TINY, layers=3), reading.Wanted("tiny", 0, method="infinipot"), 2)
    assert {wait["where"].split(":")[0] for wait in found["waits"]} <= {
        "engine/pot.py",
        "engine/forward.py",
        "engine/ccd.py",
    }
    assert all(wait["line"] for wait in found["waits"])
    assert {"model", "attention", "distilling", "novelty"} <= set(found["launches"])
    more = cycles.pretended(replace(TINY, layers=6), reading.Wanted("tiny", 0, method="infinipot"), 2)
    assert more["launches"]["attention"] > 1.7 * found["launches"]["attention"]


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=12)


@given(spans)
def test_a_device_is_busy_whenever_something_runs(pairs: list[tuple[int, int]]) -> None:
    taken = {tick for start, length in pairs for tick in range(start, start + length)}
    made = [cycles.Span("kernel", float(start), float(start + length)) for start, length in pairs]
    assert cycles.busy(made) == len(taken)


def test_an_account_of_what_the_device_did() -> None:
    made = [cycles.Span("gemm", 0, 6), cycles.Span("gemm", 5, 8), cycles.Span("Memcpy DtoH (x)", 9, 10)]
    account = cycles.account(made, cycles=1)
    assert (account["span"], account["idle"], account["idle_share"]) == (10, 1, 0.1)
    assert account["transfers"] == {"Memcpy DtoH": 1}
    assert account["kernels"][0] == ["gemm", 0.9]


# -- the race ----------------------------------------------------------------------------------------------------------


def finished(seconds: float, error: str | None = None) -> dict[str, Any]:
    return {"error": error, "total": seconds, "first_token": seconds}


def test_a_race_goes_on_until_each_fails() -> None:
    seconds = {"transformers": 3.0, "cap": 1.0}

    def ask(peer: str, length: int) -> dict[str, Any]:
        out = peer == "transformers" and length == 4
        return finished(seconds[peer] * length, peers.MEMORY if out else None)

    race = peers.Race(["transformers", "kvpress", "cap"], [1, 2, 4, 8, 16], ask, limit=7.0)
    ran = [(peer, length, found["error"]) for peer, length, found in peers.run_all(race, Deadline(None))]
    assert ran == [
        ("transformers", 1, None), ("cap", 1, None), ("transformers", 2, None), ("cap", 2, None),
        ("transformers", 4, peers.MEMORY), ("cap", 4, None), ("cap", 8, None),
    ]  # fmt: skip


def test_a_race_ends_before_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("benchmarks.gpu.clock.time.monotonic", clock.monotonic)

    def ask(peer: str, length: int) -> dict[str, Any]:
        clock.now += length
        return finished(length)

    race = peers.Race(["cap"], [1, 2, 4, 8, 16], ask)
    ran = [(length, found["error"]) for _, length, found in peers.run_all(race, Deadline(14.0))]
    assert ran == [(1, None), (2, None), (4, None), (8, peers.TIME)]


def test_running_out_of_memory_is_a_result(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> peers.Parts:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setitem(peers.PEERS, "cap", fail)
    assert peers.measure(model, TINY, peers.Wanted("tiny", "cap", 64))["error"] == peers.MEMORY


# -- results, and everything together ----------------------------------------------------------------------------------


def test_results_outlive_a_broken_line_and_hold_for_their_place_alone(tmp_path: Path) -> None:
    path, where = tmp_path / "gpu.jsonl", {"device": "H100", "torch": "2"}
    ledger = Ledger(path, where)
    ledger.add("reading", {"shape": "tiny", "tokens": 5}, {"stopped": None, "seconds": 1.0})
    ledger.add("reading", {"shape": "tiny", "tokens": 9}, {"stopped": "time", "seconds": 2.0})
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key": "half')
    again = Ledger(path, where)
    assert (again.known("reading", {"tokens": 5, "shape": "tiny"}) or {})["seconds"] == 1.0
    assert again.known("reading", {"shape": "tiny", "tokens": 9}) is None
    assert again.known("decode", {"shape": "tiny", "tokens": 5}) is None
    for other in ({"device": "H200"}, {"dtype": "float16"}):
        assert Ledger(path, where | other).known("reading", {"shape": "tiny", "tokens": 5}) is None
    again.add("reading", {"shape": "tiny", "tokens": 9}, {"stopped": None, "seconds": 3.0})
    assert [one["seconds"] for one in read(path)] == [1.0, 3.0]
    assert latest(again.records) == read(path)


def test_runs_with_other_settings_are_another_race() -> None:
    one = {"part": "peers", "shape": "tiny", "device": "x", "capacity": 256, "method": "cap"}
    others = [one | {"capacity": 512}, one | {"torch": "2.12"}, one | {"device": "y"}]
    assert [len(group) for group in report._groups([one, *others, dict(one)])] == [2, 1, 1, 1]
    assert len(report._groups([one | {"part": "reading"}, one | {"part": "reading", "shape": "8b"}])) == 1


TRY = [
    "--parts", "cycles,reading,decode,batch,peers", "--shapes", "tiny", "--device", "cpu", "--tokens", "700",
    "--capacity", "128", "--block", "64", "--write", "8", "--documents", "2", "--tokens-each", "200", "--first", "128",
    "--last", "256", "--ways", "engine,static", "--backend", "eager", "--methods", "cap", "--cycles", "1",
    "--peers", "transformers,snapkv,cap",
]  # fmt: skip


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole driver at tiny size, with its results beside its picture."""
    folder = tmp_path_factory.mktemp("gpu")
    code = run.main([*TRY, "--out", str(folder / "gpu.jsonl"), "--plot", str(folder / "gpu.png")])
    assert code == 0
    return folder


def test_the_driver_measures_every_part(tried: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = read(tried / "gpu.jsonl")
    counts = {part: sum(one["part"] == part for one in records) for part in {one["part"] for one in records}}
    assert counts == {"cycles": 2, "reading": 1, "decode": 2, "batch": 2, "peers": 6}
    assert (tried / "gpu.png").read_bytes().startswith(b"\x89PNG")
    report.main([str(tried / "gpu.jsonl"), "--markdown"])
    said = capsys.readouterr().out
    for title in ("Reading", "Writing behind a full pot", "Several documents", "Cycles", "Peers: tiny"):
        assert f"**{title}**" in said
    assert "the paper" in said


def test_the_driver_measures_nothing_twice(tried: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (tried / "gpu.jsonl").read_bytes()
    monkeypatch.setattr(run, "build", lambda *_: pytest.fail("a model was built for what is known"))
    assert run.main([*TRY, "--out", str(tried / "gpu.jsonl")]) == 0
    assert (tried / "gpu.jsonl").read_bytes() == before


def test_a_part_that_fails_is_said_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no kernel\nand a long story")

    monkeypatch.setattr(reading, "measure", fail)
    options = ["--parts", "reading,batch", *TRY[2:], "--out", str(tmp_path / "gpu.jsonl")]
    assert run.main(options) == 1
    assert [one["part"] for one in read(tmp_path / "gpu.jsonl")] == ["batch", "batch"]
    assert "failed: RuntimeError: no kernel\n" in capsys.readouterr().err


def test_a_dry_run_measures_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run, "build", lambda *_: pytest.fail("a model was built"))
    assert run.main(["--dry-run"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in PUBLISHED)
    assert "minutes" in said.splitlines()[-1]


def test_unknown_names_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        run.main(["--parts", "reading,everything"])
    assert error.value.code == 2
    assert "everything" in capsys.readouterr().err


def test_targets_that_are_missed_are_marked() -> None:
    record = {
        "part": "reading", "shape": "x", "method": "cap", "read": 10, "stopped": "time", "first_token": 1.0,
        "tokens_per_second": 10.0, "matrix_rate": 5e14, "floor": 0.5, "share": 0.59, "distilling_share": 0.01,
        "peak": 20 * 2**30, "weights": 15 * 2**30, "pot": 2**30, "flat": 0.02,
    }  # fmt: skip
    (row,) = report.reading_table([record]).rows
    assert row[2] == "10 (out of time)"
    assert row[7:9] == ("59.0% !", "1.0%")
    assert row[10:] == ("4,096 !", "2.0% !")
    (row,) = report.reading_table([{**record, "share": 0.6, "flat": None, "peak": None}]).rows
    assert (row[7], row[10], row[11]) == ("60.0%", "–", "–")


def test_results_are_lines_of_json(tried: Path) -> None:
    for line in (tried / "gpu.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        assert {"key", "part", "when", "device", "torch", "transformers"} <= set(record)
