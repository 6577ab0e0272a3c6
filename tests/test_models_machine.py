"""What a machine can hold: memory within a container's limits, and what is recommended for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infinipot_cli import catalog, machine
from infinipot_cli.catalog import CATALOG, DEFAULT, fast_enough, place, recommend
from infinipot_cli.machine import Device, Machine

GB = 10**9


def cpu(free: float) -> Device:
    return Device("cpu", "RAM", int(free * GB), int(free * GB), "float32", 4)


def gpu(free: float) -> Device:
    return Device("cuda:0", "a GPU", int(free * GB), int(free * GB), "bfloat16", 2)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    (tmp_path / "meminfo").write_text("MemTotal: 8000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\n")
    return tmp_path


@pytest.mark.skipif(machine.sys.platform != "linux", reason="reads what Linux tells")
class TestLinuxMemory:
    def test_available_memory_counts_not_free_memory(self, files):
        assert machine.memory() == (8000 * 1024, 4000 * 1024)

    @pytest.mark.parametrize(
        ("limit", "used", "expected"),
        [
            ("max", "5", (8000 * 1024, 4000 * 1024)),
            ("2048000", "1048000", (2048000, 1000000)),
            ("2048000", "9999999", (2048000, 0)),
            ("999999999999", "0", (8000 * 1024, 4000 * 1024)),
        ],
    )
    def test_a_containers_limit_is_kept(self, files, limit, used, expected):
        (files / "cgroup").mkdir()
        (files / "cgroup" / "memory.max").write_text(limit + "\n")
        (files / "cgroup" / "memory.current").write_text(used + "\n")
        assert machine.memory() == expected

    def test_a_system_that_tells_nothing_is_survived(self, files):
        (files / "meminfo").write_text("nonsense")
        total, free = machine.memory()
        assert 0 <= free <= total


def test_this_machine_has_a_processor_and_memory():
    here = machine.look()
    assert here.processors >= 1
    assert here.devices[-1].name == "cpu"
    assert 0 < here.devices[-1].free <= here.devices[-1].total


def test_torch_is_not_imported_where_no_gpu_shows(monkeypatch):
    monkeypatch.setattr(machine, "gpu_shows", lambda: False)
    monkeypatch.setitem(machine.sys.modules, "torch", None)
    assert machine.cuda_devices() == ()


def test_a_broken_torch_means_no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpu_shows", lambda: True)
    monkeypatch.setitem(machine.sys.modules, "torch", None)
    assert machine.cuda_devices() == ()


def test_memory_is_weights_and_pot_and_overhead():
    device = cpu(16)
    weights = 134_515_008 * 4
    entry = 2 * 30 * 3 * 64 * 4
    assert DEFAULT.entry_bytes(4) == entry
    assert DEFAULT.memory_needed(device, 2048) == weights + 2 * 2048 * entry + catalog.OVERHEAD["cpu"]


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        (Machine(2, (cpu(0.2),)), "smollm2-135m-reader"),
        (Machine(2, (cpu(2),)), "smollm2-135m-reader"),
        (Machine(2, (cpu(24),)), "qwen3-0.6b"),
        (Machine(64, (cpu(16),)), "smollm3-3b"),
        (Machine(8, (gpu(24), cpu(16))), "qwen3-8b"),
        (Machine(8, (gpu(8), cpu(8))), "smollm3-3b"),
        (Machine(8, (gpu(1), cpu(2))), "smollm2-135m-reader"),
    ],
)
def test_recommendations_for_typical_machines(here, expected):
    assert recommend(here, capacity=2048).alias == expected


@given(
    free=st.floats(0, 200),
    more=st.floats(0, 200),
    cores=st.integers(1, 256),
    capacity=st.integers(64, 1 << 20),
)
@settings(derandomize=True, deadline=None)
def test_more_memory_never_recommends_less_and_what_is_recommended_fits(free, more, cores, capacity):
    small, large = Machine(cores, (cpu(free),)), Machine(cores, (cpu(free + more),))
    best = recommend(small, capacity)
    assert recommend(large, capacity).parameters >= best.parameters
    if best is not DEFAULT:
        device = place(best, small, capacity)
        assert device is not None
        assert fast_enough(best, device, cores)
        assert best.memory_needed(device, capacity) <= device.free


def test_models_that_ask_for_a_licence_first_are_listed_but_not_recommended():
    gated = [entry for entry in CATALOG if entry.gated]
    assert gated
    for free in range(1, 100):
        assert recommend(Machine(64, (gpu(free), cpu(4)))) not in gated
