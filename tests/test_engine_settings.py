"""Options are checked when they are made, and the message says what is wrong."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import estimate
from engine.errors import InfinipotError, SettingsError
from engine.settings import METHODS, POOLINGS, POOLS, REDUCTIONS, SCOPES, GenerationSettings, PotSettings

BAD_POT = [
    ({"capacity": 15}, "capacity must be at least 16, not 15"),
    ({"capacity": -1}, "capacity must be at least 16"),
    ({"capacity": 64.0}, "capacity must be a whole number"),
    ({"capacity": "64"}, "capacity must be a whole number"),
    ({"capacity": True}, "capacity must be a whole number"),
    ({"distilled": 0}, "distilled must lie between 1 and capacity - 1, not 0"),
    ({"capacity": 64, "distilled": 64}, "distilled must lie between 1 and capacity - 1, not 64"),
    ({"distilled": 3.5}, "distilled must be a whole number"),
    ({"distilled": True}, "distilled must be a whole number"),
    ({"alpha": -0.01}, "alpha must lie in 0..1"),
    ({"alpha": 1.01}, "alpha must lie in 0..1"),
    ({"alpha": math.nan}, "alpha must lie in 0..1, not nan"),
    ({"alpha": math.inf}, "alpha must lie in 0..1"),
    ({"alpha": "half"}, "alpha"),
    ({"method": "magic"}, f"method must be one of {', '.join(METHODS)}, not 'magic'"),
    ({"method": None}, "method must be one of"),
    ({"reduce": "median"}, "reduce must be one of sum, mean, max, not 'median'"),
    ({"scope": "model"}, "scope must be one of head, layer, pot, not 'model'"),
    ({"pool": "min"}, "pool must be one of max, mean, not 'min'"),
    ({"norm": 0.5}, "norm must lie in 1..32, not 0.5"),
    ({"norm": 33}, "norm must lie in 1..32, not 33"),
    ({"norm": "4"}, "norm must be a number, not '4'"),
    ({"pooling": 2}, "pooling must be one of"),
    ({"pooling": 0}, "pooling must be one of"),
    ({"decay": 0.0}, "decay must lie in"),
    ({"decay": 1.1}, "decay must lie in"),
    ({"decay": math.nan}, "decay must lie in"),
    ({"decay": "slow"}, "decay"),
    ({"recent": -1}, "recent must lie between 0 and distilled"),
    ({"capacity": 64, "distilled": 8, "recent": 9}, "recent must lie between 0 and distilled, not 9"),
    ({"block": 0}, "block must be at least 1, not 0"),
    ({"block": 1.5}, "block must be a whole number"),
    ({"reset": 1}, "reset must be true or false, not 1"),
    ({"group": 0}, "group must be at least 1, not 0"),
    ({"window": 2.5}, "window must be a whole number"),
]
BAD_GENERATION = [
    ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, not 0"),
    ({"max_new_tokens": 1.5}, "max_new_tokens"),
    ({"max_new_tokens": True}, "max_new_tokens"),
    ({"focus": 0}, "focus must be at least 1, not 0"),
    ({"no_repeat": -1}, "no_repeat must be 0 or more, not -1"),
    ({"temperature": -0.1}, "temperature must be 0 or more, not -0.1"),
    ({"temperature": math.nan}, "temperature must be 0 or more"),
    ({"temperature": math.inf}, "temperature must be 0 or more"),
    ({"one_line": 1}, "one_line must be true or false"),
    ({"top_p": 0.0}, "top_p must lie in"),
    ({"top_p": 1.5}, "top_p must lie in"),
    ({"top_p": math.nan}, "top_p must lie in"),
    ({"seed": 0.5}, "seed"),
    ({"seed": 1 << 64}, "seed"),
]


@pytest.mark.parametrize(("options", "message"), BAD_POT, ids=str)
def test_pot_settings_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        PotSettings(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(("options", "message"), BAD_GENERATION, ids=str)
def test_generation_settings_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        GenerationSettings(**options)
    assert message in str(caught.value)


def test_the_defaults_are_legal_and_keep_half() -> None:
    settings = PotSettings()
    assert settings.distilled == settings.kept == settings.capacity // 2
    settings.check_room(64, 64)
    assert PotSettings(capacity=17).kept == 8


@given(
    capacity=st.integers(16, 5000),
    alpha=st.floats(0, 1),
    method=st.sampled_from(METHODS),
    reduce=st.sampled_from(REDUCTIONS),
    scope=st.sampled_from(SCOPES),
    norm=st.floats(1, 20),
    pooling=st.sampled_from(POOLINGS),
    pool=st.sampled_from(POOLS),
    decay=st.floats(0.01, 1),
    data=st.data(),
)
def test_legal_settings_survive_a_mapping(data: st.DataObject, capacity: int, **options: Any) -> None:
    distilled = data.draw(st.integers(1, capacity - 1))
    recent = data.draw(st.integers(0, distilled))
    settings = PotSettings(capacity=capacity, distilled=distilled, recent=recent, **options)
    assert PotSettings.from_dict(settings.to_dict()) == settings


def test_older_pots_were_kept_by_head_by_the_largest_score_and_by_the_sum() -> None:
    settings = PotSettings(scope="layer").to_dict()
    del settings["scope"], settings["norm"], settings["pool"]
    assert PotSettings.from_dict(settings) == PotSettings(scope="head", norm=1, pool="max")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SettingsError, match="unknown pot settings: capcity, windw"):
        PotSettings.from_dict({"capcity": 1, "windw": 2, "alpha": 0.5})


@given(
    protected=st.integers(0, 30), distilled=st.integers(1, 30), catalyst=st.integers(0, 30), spare=st.integers(-9, 9)
)
def test_room_for_one_token_is_needed_and_enough(protected: int, distilled: int, catalyst: int, spare: int) -> None:
    need = protected + distilled + catalyst + 1
    settings = PotSettings(capacity=max(need + spare, 31), distilled=distilled)
    if settings.capacity >= need:
        settings.check_room(protected, catalyst)
        return
    with pytest.raises(SettingsError) as caught:
        settings.check_room(protected, catalyst)
    assert f"capacity {settings.capacity} is too small" in str(caught.value)
    assert f"need {need}" in str(caught.value)
    assert caught.value.hint is not None
    assert "--capacity" in caught.value.hint


@given(tokens=st.integers(0, 3000), capacity=st.integers(16, 200), data=st.data())
def test_the_estimate_equals_counting(tokens: int, capacity: int, data: st.DataObject) -> None:
    catalyst = data.draw(st.integers(0, 5))
    protected = data.draw(st.integers(0, 5))
    settings = PotSettings(capacity=capacity, distilled=data.draw(st.integers(1, capacity - catalyst - protected - 1)))
    entries, cycles = protected, 0
    for _ in range(tokens):
        if entries == capacity - catalyst:
            entries, cycles = protected + settings.kept, cycles + 1
        entries += 1
    assert estimate.cycles(tokens, settings, protected, catalyst) == cycles
    assert estimate.entries(tokens, settings, protected, catalyst) == entries


def test_capacity_for_fills_the_bytes() -> None:
    assert estimate.capacity_for(1000, 100) == 10
    assert estimate.capacity_for(1099, 100) == 10


def test_settings_and_errors_need_no_torch() -> None:
    code = "import sys, engine.settings, engine.errors, engine.estimate; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_error_can_carry_a_hint() -> None:
    error = InfinipotError("it broke", hint="mend it")
    assert (str(error), error.hint) == ("it broke", "mend it")
    assert SettingsError("no").hint is None
