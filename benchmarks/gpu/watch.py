"""Where the host would have to wait for the device: every operation is looked at as it is asked for.

Works wherever tensors do. On a CPU everything is one device, and only what reads a value shows (``item``, ``nonzero``);
with ``pretend`` the model lies on torch's "meta" device, which computes nothing, and copies show as on a GPU.
"""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.model import Model

#: Operations whose result's shape depends on values, so that the host must know them.
SHAPED_BY_VALUES = (
    "aten.nonzero", "aten.masked_select", "aten._unique2", "aten.unique_dim", "aten.unique_consecutive",
    "aten.bincount", "aten.repeat_interleave.Tensor",
)  # fmt: skip
#: Operations that hand a value to the host.
READING = ("aten._local_scalar_dense", "aten.item", "aten.is_nonzero", "aten.equal")
#: Parts of a reading, by the innermost of the engine's files that asks; what is not among them is the model's own.
PHASES = {
    "attention": ("attention.py", "tiles.py", "grouped.py", "rope.py", "scope.py"),
    "novelty": ("novelty.py",),
    "storing": ("pot.py",),
}
#: Operations that only look at memory otherwise: nothing is launched for them.
VIEWS = {
    "view", "_unsafe_view", "reshape", "expand", "expand_as", "slice", "select", "transpose", "t", "permute",
    "unsqueeze", "squeeze", "detach", "alias", "split", "chunk", "unflatten", "flatten", "as_strided", "unbind",
    "lift_fresh", "empty", "empty_like", "new_empty", "sym_size", "matrix_H", "numpy_T", "mT", "narrow",
}  # fmt: skip


@dataclass(frozen=True)
class Wait:
    """One kind of waiting at one place: ``where`` is file:line, ``line`` what stands there."""

    kind: str
    where: str
    line: str


@dataclass
class Seen:
    """``waits`` by how often they came; ``launches``: operations asked for that start something, by phase."""

    waits: Counter[Wait] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)


class Watch(TorchDispatchMode):
    """Within it every operation is counted into ``seen``, as ``device`` would have it.

    What would read a value off "meta" reads 0. A read of a tensor that lies on the host costs nothing.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.seen = Seen()
        self._device = device.type

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = str(func), kwargs or {}
        given = _tensors((args, options))
        ours = [tensor for tensor in given if tensor.device.type == self._device]
        if name.startswith(READING) and ours:
            self._note("reads a value")
            if self._device == "meta":
                return 0 if "scalar" in name or "item" in name else False
        result = self._done(func, args, options, given)
        made = _tensors(result)
        if kind := _copies([*given, *made], name, options):
            self._note(kind)
        if ours and (name.startswith(SHAPED_BY_VALUES) or _by_mask(name, args)):
            self._note("has a shape that depends on values")
        idle = name.split(".")[1] in VIEWS or (_same(given, made) and not func._schema.is_mutable)
        if not idle and any(tensor.device.type == self._device for tensor in (*given, *made)):
            self.seen.launches[_phase()] += 1
        return result

    def _done(self, func: Any, args: Any, options: Any, given: Sequence[Tensor]) -> Any:
        """The operation's result; of what lies on "meta" the host can have no values, and gets zeros."""
        try:
            return func(*args, **options)
        except NotImplementedError:
            if self._device != "meta" or not given:
                raise
            return torch.zeros(given[0].shape, dtype=given[0].dtype)

    def _note(self, kind: str) -> None:
        self.seen.waits[Wait(kind, *_place())] += 1


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _same(given: Sequence[Tensor], made: Sequence[Tensor]) -> bool:
    """Whether an operation gave back what it was given, because there was nothing to do."""
    return bool(given) and len(made) == 1 and made[0] is given[0]


def _copies(tensors: Iterable[Tensor], name: str, options: Any) -> str | None:
    """How a copy between host and device would be named, or None; single numbers travel with the launch."""
    devices = [tensor.device.type for tensor in tensors if tensor.ndim or "copy" in name]
    if len(set(devices)) < 2 or options.get("non_blocking"):
        return None
    return f"copies {devices[0]} to {next(one for one in devices if one != devices[0])}"


def _by_mask(name: str, args: Any) -> bool:
    """Whether an index is a mask, whose ones must be counted first."""
    if not name.startswith("aten.index"):
        return False
    indices = tree_leaves(args[1]) if len(args) > 1 else []
    return any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _frames() -> Iterator[FrameType]:
    """The callers, innermost first, without this file's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            yield frame
        frame = frame.f_back


def _inside(frame: FrameType, package: str) -> bool:
    return f"/{package}/" in frame.f_code.co_filename.replace("\\", "/")


def _place() -> tuple[str, str]:
    """(file:line, its text) of the innermost of the engine's own lines, else of transformers'."""
    for package in ("engine", "transformers"):
        for frame in _frames():
            if _inside(frame, package) and not _inside(frame, "torch"):
                name = frame.f_code.co_filename.replace("\\", "/").rpartition(f"/{package}/")[2]
                line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
                return f"{package}/{name}:{frame.f_lineno}", line
    return "elsewhere", ""


def _phase() -> str:
    """Which part of a reading asks."""
    found = None
    for frame in _frames():
        if not _inside(frame, "engine"):
            continue
        if frame.f_code.co_name == "distil":
            return "distilling"
        name = Path(frame.f_code.co_filename).name
        found = found or next((phase for phase, files in PHASES.items() if name in files), None)
    return found or "model"


def pretend(model: Model) -> None:
    """Move the model's weights to the ``meta`` device: from now on it computes nothing, and takes no memory."""
    for module in model.module.modules():
        for name, tensor in _own_tensors(module):
            moved = tensor.detach().to("meta")
            if name in module._parameters:
                module._parameters[name] = nn.Parameter(moved, requires_grad=False)
            else:
                setattr(module, name, moved)


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, buffers and plain tensors that a module itself holds."""
    held = {**module._parameters, **module._buffers, **vars(module)}
    return ((name, tensor) for name, tensor in held.items() if isinstance(tensor, Tensor))
