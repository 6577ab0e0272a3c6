"""The entry point: ``main`` owns the process, ``run`` turns errors into exit codes, ``program`` does the work."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from infinipot_cli.errors import ExitCode, exit_code, explain
from infinipot_cli.terminal import Terminal
from infinipot_cli.workbench import Workbench

NAME = "infinipot"
_COMPLETION = "_INFINIPOT_COMPLETE"


def main() -> None:
    """Run the command line of this process, and leave with its exit code."""
    if _COMPLETION in os.environ:  # the shell asks for completions
        from infinipot_cli.cli import app

        app(prog_name=NAME)
    try:
        terminal = Terminal.system()
    except Exception as error:
        sys.exit(_report(Terminal(None, sys.__stderr__ or sys.stderr, sys.stderr), error))
    code = run(sys.argv[1:], terminal)
    sys.exit(_close(terminal, code))


def run(arguments: Sequence[str], terminal: Terminal, workbench: Workbench | None = None) -> int:
    """Run one command line and return its exit code. The one place that turns exceptions into exit codes."""
    try:
        return program(arguments, terminal, workbench)
    except Exception as error:
        if type(error).__module__.startswith("typer") and type(error).__name__ == "Exit":
            return int(error.exit_code)  # type: ignore[attr-defined]
        terminal.debug = terminal.debug or "--debug" in arguments
        return _report(terminal, error)
    except KeyboardInterrupt as error:
        return _report(terminal, error)
    except SystemExit:
        # How rich, which draws --help, ends a program whose stdout was closed.
        return int(ExitCode.CLOSED_PIPE)


def program(arguments: Sequence[str], terminal: Terminal, workbench: Workbench | None = None) -> int:
    """The program without error handling."""
    import typer

    from infinipot_cli.cli import app
    from infinipot_cli.wiring import App

    if workbench is None:
        from infinipot_cli.local import LocalWorkbench

        workbench = LocalWorkbench()
    command = typer.main.get_command(app)
    with command.make_context(NAME, list(arguments), obj=App(terminal, workbench)) as context:
        code = command.invoke(context)
    terminal.stdout.flush()
    return int(code or ExitCode.OK)


def _report(terminal: Terminal, error: BaseException) -> int:
    """Say what went wrong, as much as there is to say, and return the exit code."""
    code = exit_code(error)
    if terminal.debug:
        terminal.stderr.write("".join(traceback.format_exception(error)))
    if code is ExitCode.INTERRUPTED:
        terminal.say("")
    elif code is not ExitCode.CLOSED_PIPE and type(error).__name__ != "NoArgsIsHelpError":
        terminal.error(*explain(error))
    return int(code)


def _close(terminal: Terminal, code: int) -> int:
    """Flush stdout once more. Where its reader went away, point it to nowhere, so that the exit stays quiet."""
    try:
        terminal.stdout.flush()
    except BrokenPipeError:
        code = int(ExitCode.CLOSED_PIPE)
    except OSError as error:
        code = _report(terminal, error)
    if code == ExitCode.CLOSED_PIPE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), terminal.stdout.fileno())
    return code
