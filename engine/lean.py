"""Import transformers without torch's compiler and without torch's distributed tensors.

transformers marks a few of its functions for the compiler, and each mark loads all of it (900 modules): a third of the
time from the command to a loaded model, in a process that compiles nothing and runs on one device. Within
``without_compiler`` the marks are no-ops. Whoever asks the compiler for more than a mark gets the real one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"
#: What marks a function for the compiler, and changes nothing where nothing is compiled.
_MARKS = ("allow_in_graph", "assume_constant_result", "disable")


@contextmanager
def without_compiler() -> Iterator[None]:
    """Within it, transformers and models are loaded without the compiler.

    Only for a process that will neither compile nor shard: nothing happens where CUDA is, since decoding may be
    compiled there, nor where the compiler or transformers is loaded already.
    """
    import torch

    if torch.cuda.is_available() or _COMPILER in sys.modules or "transformers" in sys.modules:
        yield
        return
    distributed, available = torch.distributed, torch.distributed.is_available
    marks = _Marks()
    distributed.is_available = lambda: False
    try:
        with _scanned_once():
            yield
    finally:
        distributed.is_available = available
        marks.leave()


class _Marks(ModuleType):
    """Stands where the compiler's package will be, until somebody needs it."""

    def __init__(self) -> None:
        super().__init__(_COMPILER)
        # Submodules are found where they are: transformers takes one class from a small one.
        self.__path__ = [str(Path(sys.modules["torch"].__file__ or "").parent / "_dynamo")]
        sys.modules[_COMPILER] = self
        sys.modules["torch"]._dynamo = self  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        if name in _MARKS:
            return _unmarked
        if name.startswith("__"):  # the import machinery, looking at a module
            raise AttributeError(name)
        self.leave()
        return getattr(importlib.import_module(_COMPILER), name)

    def leave(self) -> None:
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
        if sys.modules["torch"].__dict__.get("_dynamo") is self:
            del sys.modules["torch"]._dynamo


def _unmarked(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
    """A mark, with or without arguments, that leaves its function as it is."""
    return (lambda inner: inner) if function is None else function


@contextmanager
def _scanned_once() -> Iterator[None]:
    """Let transformers look through the files of all its models once.

    It does so for itself and again for its package of models, because the two name the same folder differently.
    """
    import transformers  # noqa: F401  (the first time)

    structures = sys.modules.get("transformers.utils.import_utils")
    scan = getattr(structures, "create_import_structure_from_path", None)
    if structures is None or scan is None:
        yield
        return

    def scan_folder(path: str | Path) -> Any:
        path = Path(path)
        return scan(path.parent if path.name == "__init__.py" else path)

    structures.create_import_structure_from_path = scan_folder  # type: ignore[attr-defined]
    try:
        yield
    finally:
        structures.create_import_structure_from_path = scan  # type: ignore[attr-defined]
