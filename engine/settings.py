"""Every option of the method and of generation, in one place, checked when made. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.errors import SettingsError

# The one list of methods; each is a file of the same name in engine/methods. Those that never hold more than the
# capacity, and those that hold everything while they read, for comparison.
CONSTRAINED = (
    "infinipot", "cap", "nuc", "recent", "streaming", "h2o", "tova", "sirllm", "keydiff", "truncate", "swa",
)  # fmt: skip
UNCONSTRAINED = ("full", "snapkv", "self-extend")
METHODS = CONSTRAINED + UNCONSTRAINED
#: Methods for which the capacity means nothing: they hold all, to the end.
HOLDS_ALL = ("full", "self-extend")
#: Methods that let a catalyst look at the entries; for the others its tokens take no room.
CATALYSED = ("infinipot", "cap", "snapkv")
REDUCTIONS = ("sum", "mean", "max")
#: Which heads decide together what stays: each alone, those of a layer, all of the pot.
SCOPES = ("head", "layer", "pot")
POOLS = ("max", "mean")
POOLINGS = (1, 3, 5, 7, 15, 31, 63, 127)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise SettingsError(message)


def _require_whole(name: str, value: Any) -> None:
    _require(isinstance(value, int) and not isinstance(value, bool), f"{name} must be a whole number, not {value!r}")


def _require_number(name: str, value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    _require(number, f"{name} must be a number, not {value!r}")


#: Entries of the smallest pot.
LEAST = 16


@dataclass(frozen=True)
class PotSettings:
    """How a pot is filled and distilled; names follow the paper (section 3).

    capacity   |M|: the most entries per layer and KV head at any moment, catalyst included.
    distilled  |C|: entries kept by a cycle beside the protected prefix; None means half the capacity.
    alpha      share of |C| chosen by novelty (T = alpha * |C|, section 3.3.3); the rest by the catalyst.
    method     which importance decides (see ``engine.methods``).
    reduce     how catalyst attention is reduced over catalyst tokens and the queries of one KV head.
    scope      which heads decide together (see ``engine.scope``).
    norm       how those agree: by the norm of their scores; 1 is their sum, and the larger, the more the surest counts.
    pooling    width of the pool along the entries before selection (1 = none).
    pool       whether an entry takes the largest score of its pool or their mean.
    decay      factor on the novelty that an entry carries, per cycle survived.
    recent     entries at the end that a cycle always keeps.
    block      tokens per forward pass; bounds activation memory, changes nothing else.
    reset      whether positions restart after a cycle (CR-RoPE, section 3.5); else entries keep their source positions.
    group      self-extend: how many positions share one, farther away than ``window``.
    window     self-extend: the nearest tokens, seen at their exact positions.
    """

    capacity: int = 2048
    distilled: int | None = None
    alpha: float = 0.5
    method: str = "cap"
    reduce: str = "max"
    scope: str = "pot"
    norm: float = 4.0
    pooling: int = 63
    pool: str = "mean"
    decay: float = 1.0
    recent: int = 0
    block: int = 512
    reset: bool = True
    group: int = 4
    window: int = 1024

    def __post_init__(self) -> None:
        for name in ("capacity", "recent", "block", "pooling", "group", "window"):
            _require_whole(name, getattr(self, name))
        for name in ("alpha", "decay", "norm"):
            _require_number(name, getattr(self, name))
        _require(self.capacity >= LEAST, f"capacity must be at least {LEAST}, not {self.capacity}")
        if self.distilled is None:
            object.__setattr__(self, "distilled", self.capacity // 2)
        _require_whole("distilled", self.distilled)
        _require(1 <= self.kept < self.capacity, f"distilled must lie between 1 and capacity - 1, not {self.kept}")
        _require(0 <= self.alpha <= 1, f"alpha must lie in 0..1, not {self.alpha}")
        _require(self.method in METHODS, f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        _require(self.reduce in REDUCTIONS, f"reduce must be one of {', '.join(REDUCTIONS)}, not {self.reduce!r}")
        _require(self.scope in SCOPES, f"scope must be one of {', '.join(SCOPES)}, not {self.scope!r}")
        # Beyond that, what heads barely look at is zero in float64, and the earliest of it would win.
        _require(1 <= self.norm <= 32, f"norm must lie in 1..32, not {self.norm}")
        _require(self.pooling in POOLINGS, f"pooling must be one of {POOLINGS}, not {self.pooling}")
        _require(self.pool in POOLS, f"pool must be one of {', '.join(POOLS)}, not {self.pool!r}")
        _require(0 < self.decay <= 1, f"decay must lie in (0, 1], not {self.decay}")
        _require(0 <= self.recent <= self.kept, f"recent must lie between 0 and distilled, not {self.recent}")
        for name in ("block", "group", "window"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        _require(isinstance(self.reset, bool), f"reset must be true or false, not {self.reset!r}")

    @property
    def kept(self) -> int:
        """|C| as a number."""
        assert self.distilled is not None
        return self.distilled

    @property
    def bounded(self) -> bool:
        """Whether the capacity bounds what the method ever holds."""
        return self.method in CONSTRAINED

    def catalyst_room(self, catalyst: int) -> int:
        """|P|: the entries that a catalyst of so many tokens takes, none where the method does not look at it."""
        return catalyst if self.method in CATALYSED else 0

    def check_room(self, protected: int, catalyst: int) -> None:
        """Raise SettingsError unless a cycle can take in at least one token: |M| >= protected + |C| + |P| + 1.

        |C| is 1 where nothing is distilled to it: ``truncate`` fills the pot once, ``snapkv`` leaves room for |P|.
        """
        if self.method in HOLDS_ALL:
            return
        kept = 1 if self.method in ("truncate", "snapkv") else self.kept
        catalyst = self.catalyst_room(catalyst)
        need = protected + kept + catalyst + 1
        if self.capacity < need:
            raise SettingsError(
                f"capacity {self.capacity} is too small: {protected} protected + {kept} distilled "
                f"+ {catalyst} catalyst tokens + 1 need {need}",
                hint="raise --capacity or lower --distilled",
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PotSettings:
        """Settings from a pot file; unknown names are an error, missing ones take their defaults.

        But for what came later: in older pots every head kept entries of its own, or added its scores to the others',
        and pools were of the largest.
        """
        unknown = set(values) - {field.name for field in fields(cls)}
        _require(not unknown, f"unknown pot settings: {', '.join(sorted(unknown))}")
        return cls(**{"scope": "head", "norm": 1.0, "pool": "max", **values})


@dataclass(frozen=True)
class GenerationSettings:
    """How an answer is written. Temperature 0 is greedy decoding.

    ``one_line``: the token of a line end ends the answer too, and the first token is neither that nor another that
    ends it (LongBench's rule for a task whose answer is one line). ``min_new_tokens``: the answer does not end before
    so many tokens, for measuring how fast a model writes. ``focus``: the most entries, beside the protected prefix,
    that the answer is written from: those that the question looks at, where the method lets a catalyst decide. None
    is all that the pot holds. ``no_repeat``: no run of so many tokens comes twice in an answer, which small models
    else fall into; 0 is no such rule. ``avoid``: phrases that never stand in it. ``refusal``: a text, and a
    probability: where the model would begin the answer with the text's first words with at least that, it does.
    ``whole_sentences``: an answer as long as it may be ends with its last whole sentence, if it has one.
    ``lines_once``: it ends ahead of a line that has come before.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    one_line: bool = False
    min_new_tokens: int = 0
    focus: int | None = None
    no_repeat: int = 0
    avoid: tuple[str, ...] = ()
    refusal: tuple[str, float] | None = None
    whole_sentences: bool = False
    lines_once: bool = False

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "seed", "min_new_tokens", "no_repeat"):
            _require_whole(name, getattr(self, name))
        for name in ("temperature", "top_p"):
            _require_number(name, getattr(self, name))
        _require(0 <= self.seed < 1 << 63, f"seed must lie between 0 and 2**63 - 1, not {self.seed}")
        if self.focus is not None:
            _require_whole("focus", self.focus)
            _require(self.focus >= 1, f"focus must be at least 1, not {self.focus}")
        _require(self.no_repeat >= 0, f"no_repeat must be 0 or more, not {self.no_repeat}")
        _require(self.max_new_tokens >= 1, f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        low, high = self.min_new_tokens, self.max_new_tokens
        _require(0 <= low <= high, f"min_new_tokens must lie between 0 and max_new_tokens, not {low}")
        _require(0 <= self.temperature < math.inf, f"temperature must be 0 or more, not {self.temperature}")
        _require(0 < self.top_p <= 1, f"top_p must lie in (0, 1], not {self.top_p}")
        if self.refusal is not None:
            _require(bool(self.refusal[0]), "refusal must have a text")
            _require_number("refusal", self.refusal[1])
            _require(0 < self.refusal[1] <= 1, f"doubt must lie in 0..1, not {self.refusal[1]}")
        for name in ("one_line", "whole_sentences", "lines_once"):
            _require(
                isinstance(getattr(self, name), bool), f"{name} must be true or false, not {getattr(self, name)!r}"
            )
