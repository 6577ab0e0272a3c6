"""How a benchmark ends when something is wrong that its user can put right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from engine.errors import InfinipotError
from infinipot_cli.errors import exit_code, explain


@contextmanager
def explained() -> Iterator[None]:
    """Errors that a user can understand end the program with one line, a hint where one helps, and their exit code;
    Ctrl-C ends it without a word."""
    try:
        yield
    except (InfinipotError, OSError) as error:
        message, hint = explain(error)
        sys.stderr.write(f"error: {message}\n" + (f"hint: {hint}\n" if hint else ""))
        sys.exit(int(exit_code(error)))
    except KeyboardInterrupt as error:
        sys.exit(int(exit_code(error)))
