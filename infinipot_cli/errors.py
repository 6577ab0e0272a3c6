"""What can go wrong, and which exit code it has. Imports nothing heavy."""

from __future__ import annotations

import errno
import os
from enum import IntEnum

from engine.errors import InfinipotError, ModelError, PotDamaged, PotMismatch, SettingsError


class InputError(InfinipotError):
    """A source cannot be read, or holds no text (exit 3)."""


class UsageError(InfinipotError):
    """The command was given wrongly (exit 2)."""


class ExitCode(IntEnum):
    """Every exit code, with what it means."""

    OK = 0, "success"
    UNEXPECTED = 1, "unexpected error"
    USAGE = 2, "wrong usage or settings"
    INPUT = 3, "input unreadable or without text"
    MODEL = 4, "model missing or refused, or out of memory"
    POT_DAMAGED = 5, "pot damaged or of an unknown version"
    POT_MISMATCH = 6, "pot belongs to another model"
    INTERRUPTED = 130, "interrupted (Ctrl-C)"
    CLOSED_PIPE = 141, "the reader of the output went away"

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (SettingsError, ExitCode.USAGE),
    (InputError, ExitCode.INPUT),
    (ModelError, ExitCode.MODEL),
    (MemoryError, ExitCode.MODEL),
    (PotDamaged, ExitCode.POT_DAMAGED),
    (PotMismatch, ExitCode.POT_MISMATCH),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    (BrokenPipeError, ExitCode.CLOSED_PIPE),
)

_FULL_HINT = "free some space, or write elsewhere"
_MEMORY_HINT = "lower --capacity or choose a smaller model; `infinipot doctor` says what fits here"


def exit_code(error: BaseException) -> ExitCode:
    """The exit code of an exception; anything unforeseen is UNEXPECTED."""
    if is_usage(error):
        return ExitCode.USAGE
    if is_out_of_memory(error):
        return ExitCode.MODEL
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)


def explain(error: BaseException) -> tuple[str, str | None]:
    """(one sentence, hint or None) for people."""
    if is_usage(error):
        return _usage(error)
    if is_out_of_memory(error):
        return "out of memory", _MEMORY_HINT
    if isinstance(error, InfinipotError):
        return str(error), error.hint
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename is not None else ""
        return name + reason(error), _FULL_HINT if _is_full(error) else None
    return f"unexpected {type(error).__name__}: {error}", "run again with --debug to see where"


def is_usage(error: BaseException) -> bool:
    """Whether the argument parser raised it; told by its shape, since the parser's classes are private."""
    return hasattr(error, "format_message") and getattr(error, "exit_code", None) == ExitCode.USAGE


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the CPU or a GPU; told without importing torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # What torch raises when the CPU allocator fails.
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _usage(error: BaseException) -> tuple[str, str | None]:
    message = str(error.format_message()).strip().rstrip(".")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    hint = f"see `{context.command_path} --help`" if context is not None else None
    return message[:1].lower() + message[1:], hint


def reason(error: OSError) -> str:
    """What the system says, in its own words where it has some."""
    return os.strerror(errno.ENOSPC) if _is_full(error) else error.strerror or str(error)


def not_written(path: object, error: OSError) -> InfinipotError:
    """The error to raise where a file could not be written (exit 1)."""
    return InfinipotError(f"{path} could not be written: {reason(error)}", _FULL_HINT if _is_full(error) else None)


def _is_full(error: OSError) -> bool:
    # safetensors' own writer hides the system's error number in the text.
    return error.errno in (errno.ENOSPC, errno.EDQUOT) or "os error 28" in str(error)
