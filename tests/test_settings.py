"""Where a setting comes from: flags over environment over config file over defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import FakeWorkbench, home, invoke  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from engine.settings import PotSettings
from infinipot_cli.config import settings
from infinipot_cli.errors import InfinipotError, UsageError
from infinipot_cli.options import NOT_IN_CONFIG
from infinipot_cli.strict_yaml import StrictFile
from infinipot_cli.units import parse_size, show_bytes, show_seconds


@pytest.fixture
def config(home: Path) -> Path:  # noqa: F811
    path = home / "config" / "infinipot" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


def shown(*flags: str) -> dict[str, tuple[object, str]]:
    result = invoke("config", "show", "--json", *flags)
    assert result.code == 0, result.stderr
    return {row["name"]: (row["value"], row["from"]) for row in result.json}


def capacity_of(*flags: str) -> int:
    bench = FakeWorkbench()
    result = invoke("summarize", *flags, stdin=b"some text", bench=bench)
    assert result.code == 0, result.stderr
    return bench.readings[0].pot.settings.capacity


def test_precedence(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown()["capacity"] == (PotSettings.capacity, "default")
    assert capacity_of() == PotSettings.capacity
    config.write_text("# mine\ncapacity: 300\n")
    assert shown()["capacity"] == (300, f"config {config}:2")
    assert capacity_of() == 300
    monkeypatch.setenv("INFINIPOT_CAPACITY", "400")
    assert shown()["capacity"] == (400, "environment INFINIPOT_CAPACITY")
    assert capacity_of() == 400
    assert shown("--capacity", "500")["capacity"] == (500, "flag --capacity")
    assert capacity_of("--capacity", "500") == 500


def test_every_setting_can_come_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"int": "3", "float": "0.5", "bool": "1", "list": "*.py", "str": "text"}
    for name, setting in settings().items():
        if name in ("capacity", "pot_size"):
            continue  # they exclude each other
        value = {"color": "never"}.get(name, values[setting.kind.__name__])
        monkeypatch.setenv(setting.variable, value)
    origins = {name: origin for name, (_, origin) in shown().items()}
    for name, setting in settings().items():
        if name not in ("capacity", "pot_size"):
            assert origins[name] == f"environment {setting.variable}"


def test_every_setting_can_come_from_the_file(config: Path) -> None:
    values = {"int": "3", "float": "1", "bool": "true", "list": "['*.py']", "str": "text"}
    names = [name for name in settings() if name not in NOT_IN_CONFIG and name != "capacity"]
    lines = [
        f"{name.replace('_', '-')}: {'never' if name == 'color' else values[settings()[name].kind.__name__]}"
        for name in names
    ]
    config.write_text("\n".join(lines))
    found = shown()
    for line, name in enumerate(names, 1):
        assert found[name][1] == f"config {config}:{line}"


def test_the_better_of_two_that_exclude_each_other_wins(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("pot_size: 1M\n")
    assert capacity_of() == 1024
    assert capacity_of("--capacity", "77") == 77
    monkeypatch.setenv("INFINIPOT_CAPACITY", "88")
    assert capacity_of() == 88
    assert capacity_of("--pot-size", "2M") == 2048
    monkeypatch.setenv("INFINIPOT_POT_SIZE", "1M")
    assert invoke("summarize", stdin=b"text").code == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("model: x\nspeed: fast\n", "line 2: unknown key 'speed'"),
        ("\n\ncapacity: much\n", "line 3: capacity must be a whole number, not 'much'"),
        ("capacity: true\n", "line 1: capacity must be a whole number"),
        ("capacity: 1.5\n", "line 1"),
        ("capacity:\n  a: 1\n", "line 1"),
        ("offline: maybe\n", "true or false"),
        ("include: [1]\n", "list of texts"),
        ("model: a\nmodel: b\n", "line 2: 'model' stands here twice"),
        ("max-tokens: 1\nmax_tokens: 2\n", "twice"),
        ("- model\n", "line 1"),
        ("model: [\n", "line 2"),
        ("a: &x 1\nb: *x\n", "line 2: aliases"),
        ("1: 2\n", "line 1: a key must be text"),
        ("password: secret\n", "unknown key 'password'"),
        ("model: !!python/object/apply:os.system [ls]\n", "line 1"),
    ],
)
def test_a_wrong_file_is_an_error_with_its_line(config: Path, text: str, complaint: str) -> None:
    config.write_text(text)
    result = invoke("summarize", stdin=b"text")
    assert result.code == 2
    assert str(config) in result.stderr
    assert complaint in result.stderr


def test_a_wrong_file_does_not_hide_its_place(config: Path) -> None:
    config.write_text("{")
    assert invoke("config", "path").stdout == f"{config}\n"
    assert invoke("--help").code == 0


def test_an_empty_file_is_fine(config: Path) -> None:
    config.write_text("# nothing yet\n")
    assert capacity_of() == PotSettings.capacity


def test_the_file_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "other.yaml"
    monkeypatch.setenv("INFINIPOT_CONFIG", str(path))
    missing = invoke("summarize", stdin=b"text")
    assert missing.code == 2
    assert "INFINIPOT_CONFIG" in missing.stderr
    path.write_text("capacity: 123\n")
    assert capacity_of() == 123
    assert invoke("config", "path").stdout == f"{path}\n"


def test_a_folder_that_may_not_be_entered_is_no_reason_to_stop(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    import io

    from infinipot_cli.config import load_config
    from infinipot_cli.terminal import Terminal

    stderr = io.StringIO()
    assert load_config(Terminal(None, io.StringIO(), stderr)).items == {}
    assert "going on without it" in stderr.getvalue()


def test_an_invalid_variable_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINIPOT_CAPACITY", "many")
    assert invoke("summarize", stdin=b"text").code == 2


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINIPOT_PASSWORD", "hunter2")
    assert "hunter2" not in invoke("config", "show").stdout
    assert shown()["password"][0] == "(set)"


def test_every_value_is_shown_as_json_can_hold_it() -> None:
    rows = json.loads(invoke("config", "show", "--norm", "inf", "--json").stdout, parse_constant=pytest.fail)
    assert next(row["value"] for row in rows if row["name"] == "norm") == "inf"


def test_show_for_people() -> None:
    result = invoke("config", "show")
    assert "capacity" in result.stdout
    assert "default" in result.stdout


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("1.5g", 3 << 29), ("2 GiB", 2 << 30), ("10kb", 10 << 10), ("4096", 4096), ("1T", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--pot-size") == size


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    try:
        assert parse_size(text, "--pot-size") >= 1
    except UsageError:
        pass


@given(st.integers(0, 1 << 60), st.floats(0, 1e7))
def test_numbers_for_people_are_short(count: int, seconds: float) -> None:
    assert len(show_bytes(count)) <= 14
    assert "60 s" not in show_seconds(seconds)


@given(st.text(max_size=200))
def test_any_text_is_strict_yaml_or_a_usage_error(text: str) -> None:
    try:
        StrictFile.parse(text, Path("x.yaml"))
    except InfinipotError:
        pass
