"""The command line as a process of its own: imports, pipes, closed streams, folders that are not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import home, invoke  # noqa: F401

from infinipot_cli import errors
from infinipot_cli.errors import ExitCode

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "infinipot_cli"]
FAKE = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from cli_support import FakeWorkbench
from infinipot_cli import local, main
local.LocalWorkbench = lambda: FakeWorkbench(answer=lambda pot: {answer})
sys.argv[0] = "infinipot"
main.main()
"""


def process(*arguments: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, env=environ, timeout=60, **more)  # type: ignore[call-overload]


def fake(answer: str = "(' The', ' answer.')") -> str:
    return FAKE.format(root=str(ROOT), tests=str(Path(__file__).parent), answer=answer)


def shell(script: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    (cwd / "infinipot.py").write_text(fake(**more))
    return subprocess.run(
        ["bash", "-c", f"infinipot() {{ {sys.executable} infinipot.py \"$@\"; }}\n{script}"],
        capture_output=True, text=True, cwd=cwd, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [["--help"], ["ask", "--help"], ["--version"], ["config", "show"], ["prompts", "list"]]
)
def test_looking_around_imports_no_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom infinipot_cli.main import run\nfrom infinipot_cli.terminal import Terminal\n"
        f"code = run({arguments!r}, Terminal.system())\n"
        "heavy = {'torch', 'transformers', 'numpy', 'tiktoken', 'pypdf', 'pypdfium2'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert result.stderr.strip() == "0 []"


def test_help_names_every_exit_code() -> None:
    text = " ".join(process("--help").stdout.decode().split())
    for code in ExitCode:
        assert f"{code.value} {code.meaning}" in text


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    answer = "('line\\n' for number in range(200000))"
    result = shell("infinipot ask a.txt Why | head -1; echo ${PIPESTATUS[0]}", tmp_path, answer=answer)
    assert result.stdout == "line\n141\n"
    assert "Traceback" not in result.stderr
    assert "error" not in result.stderr


def test_help_into_a_closed_pipe() -> None:
    result = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} ask --help | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert result.stdout.strip() in ("141", "0")  # 0 where the help was out before `true` had gone
    assert result.stderr == ""


def test_closed_streams(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    assert shell("infinipot ask a.txt Why <&-", tmp_path).stdout == "The answer.\n"
    no_stdin = shell("infinipot ask Why <&-", tmp_path)
    assert no_stdin.returncode == 2
    for command in ("tokens", "chat a.txt"):
        unreadable = shell(f"infinipot {command} 0>/dev/null", tmp_path)
        assert unreadable.returncode == 3
        assert "stdin cannot be read: Bad file descriptor" in unreadable.stderr
    no_stdout = shell("infinipot ask a.txt Why >&-", tmp_path)
    assert no_stdout.returncode == 2
    assert "stdout is closed" in no_stdout.stderr
    assert shell("infinipot ask a.txt Why 2>&-", tmp_path).stdout == "The answer.\n"


def test_no_home_and_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    away = "env -u HOME -u XDG_CONFIG_HOME -u XDG_CACHE_HOME"
    script = f"{away} {sys.executable} infinipot.py ask a.txt Why && {away} {sys.executable} infinipot.py config path"
    result = shell(script, tmp_path)
    assert result.stdout.startswith("The answer.\n")
    nowhere = "XDG_CONFIG_HOME=/dev/null/x XDG_CACHE_HOME=/dev/null/x HOME=/dev/null infinipot ask a.txt Why"
    assert shell(nowhere, tmp_path).stdout == "The answer.\n"


def test_the_document_comes_by_a_named_pipe(tmp_path: Path) -> None:
    assert shell("infinipot ask <(echo one two) Why --json -q | grep -c '\"tokens\": 2'", tmp_path).stdout == "1\n"


def test_a_full_disk_under_stdout(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    (tmp_path / "a.txt").write_text("text")
    result = shell("infinipot ask a.txt Why > /dev/full", tmp_path)
    assert result.returncode == 1
    assert "No space left" in result.stderr
    assert "Traceback" not in result.stderr


def test_no_arguments_show_the_help() -> None:
    result = process()
    assert result.returncode == 2
    assert b"summarize" in result.stdout + result.stderr


def test_the_unexpected_is_exit_1_and_says_how_to_see_more(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    for flag, traced in (("", False), ("--debug", True)):
        result = shell(f"infinipot ask a.txt Why {flag}", tmp_path, answer="1 / 0")
        assert result.returncode == 1
        assert "ZeroDivisionError" in result.stderr
        assert ("Traceback" in result.stderr) == traced


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyError("x"), 1),
        (errors.UsageError("x"), 2),
        (errors.SettingsError("x"), 2),
        (errors.InputError("x"), 3),
        (errors.ModelError("x"), 4),
        (MemoryError(), 4),
        (OutOfMemoryError("CUDA out of memory"), 4),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), 4),
        (errors.PotDamaged("x"), 5),
        (errors.PotMismatch("x"), 6),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert errors.exit_code(error) == code
    if code == 4 and not isinstance(error, errors.ModelError):
        message, hint = errors.explain(error)
        assert message == "out of memory"
        assert hint is not None


def test_flags_show_no_type_in_help() -> None:
    said = process("ask", "--help").stdout.decode()
    flags = [line for line in said.splitlines() if re.search("--(json|quiet|debug|offline|no-reset) ", line)]
    assert len(flags) >= 5
    assert not [line for line in flags if "<" in line]
