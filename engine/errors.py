"""The errors that the engine raises on purpose: one sentence, and a hint where one helps."""


class InfinipotError(Exception):
    """Something a user can understand and act on; ``hint`` says how."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class SettingsError(InfinipotError):
    """Options that contradict each other or lie outside their range."""


class ModelError(InfinipotError):
    """A model that is missing, refused, or too large for this machine."""


class PotDamaged(InfinipotError):
    """A pot file that is truncated, altered, or of an unknown version."""


class PotMismatch(InfinipotError):
    """A sound pot that belongs to another model or tokenizer."""


def first_line(error: BaseException) -> str:
    """What a library's error says in its first line, or its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
