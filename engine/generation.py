"""Answers: pour the pot, then let transformers' own ``generate`` do the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from engine.ccd import Distiller, as_ids, make_room
from engine.errors import SettingsError
from engine.pot import Batch, Pot
from engine.pour import pour
from engine.settings import GenerationSettings

if TYPE_CHECKING:
    from engine.model import Model

StopReason = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True)
class Generation:
    """An answer: its text without control tokens, its ids, and why it ended."""

    text: str
    token_ids: list[int]
    stop_reason: StopReason
    prompt_tokens: int
    seconds_prompt: float
    seconds_writing: float


class _Listener:
    """transformers' streamer protocol: collects new ids, passes on text as soon as it can no longer change.

    The first token to arrive also ends the time spent on the prompt.
    """

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None] | None) -> None:
        self.ids: list[int] = []
        self.first_at: float | None = None
        self._tokenizer = tokenizer
        self._on_text = on_text
        self._skip_prompt = True
        self._context = 0  # decoding starts here, one piece before what is new: a first word loses its space
        self._read = 0  # ids before it are spoken for
        self._started = False  # white space before the first word is dropped

    def put(self, value: Tensor) -> None:
        if self._skip_prompt:
            self._skip_prompt = False
            return
        self.first_at = self.first_at or time.perf_counter()
        self.ids.extend(value.reshape(-1).tolist())
        self._show(final=False)

    def end(self) -> None:
        self._show(final=True)

    def _show(self, final: bool) -> None:
        """Pass on what is new, but hold back the bytes of an unfinished character."""
        if self._on_text is None:
            return
        known = decode(self._tokenizer, self.ids[self._context : self._read])
        text = decode(self._tokenizer, self.ids[self._context :])
        if len(text) <= len(known) or (text.endswith("\ufffd") and not final):
            return
        new = text[len(known) :] if self._started else text[len(known) :].lstrip()
        self._context, self._read = self._read, len(self.ids)
        if new:
            self._started = True
            self._on_text(new)


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of ``ids`` without control tokens."""
    return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def generate(
    model: Model,
    pot: Pot,
    suffix_ids: Sequence[int],
    generation: GenerationSettings,
    on_text: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Generation:
    """Answer ``suffix_ids`` (question and answer header) from the pot, which stays as it was.

    If question and answer do not fit into the capacity, a copy of the pot is distilled just enough, with the
    question as the catalyst (the last-fill rule). Raises SettingsError if even that leaves no room.
    """
    began = time.perf_counter()
    suffix = as_ids(list(suffix_ids))
    need = len(suffix) + generation.max_new_tokens
    if pot.entries + need > pot.capacity:
        pot = pot.copy()
        make_room(model, pot, need, suffix)
    listener = _Listener(model.tokenizer, on_text)
    stopped = _run(model, pot, suffix, generation, listener, should_stop)
    ended = time.perf_counter()
    first = listener.first_at or ended
    return Generation(
        text=decode(model.tokenizer, listener.ids).strip(),
        token_ids=listener.ids,
        stop_reason=_reason(model, listener.ids, stopped, generation.max_new_tokens),
        prompt_tokens=len(suffix),
        seconds_prompt=first - began,
        seconds_writing=ended - first,
    )


@torch.inference_mode()
def _run(
    model: Model,
    pot: Pot,
    suffix: Tensor,
    generation: GenerationSettings,
    listener: _Listener,
    should_stop: Callable[[], bool] | None,
) -> bool:
    """Generate into ``listener``; whether ``should_stop`` ended it."""
    if len(suffix) == 0:
        raise SettingsError("there is nothing to answer")
    # generate() takes the whole sequence and skips what the cache already holds: the ids there are never looked at.
    filler = torch.zeros(pot.entries, dtype=torch.int64)
    ids = torch.cat([filler, suffix]).to(model.device)[None]
    stopped = False

    def stop(*_: Any, **__: Any) -> Tensor:
        nonlocal stopped
        stopped = should_stop is not None and should_stop()
        return torch.full((1,), stopped, device=model.device, dtype=torch.bool)

    config = _config(model, generation)
    with _seeded(generation, model.device), _without_authors_settings(model):
        model.module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=pour(model, pot),
            generation_config=config,
            stopping_criteria=[stop],
            streamer=listener,
        )
    return stopped


def _config(model: Model, generation: GenerationSettings) -> Any:
    """The model's own stop tokens with our choice of decoding."""
    from transformers import GenerationConfig

    own = model.module.generation_config
    sampling = {}
    if generation.temperature > 0:
        sampling = {"temperature": generation.temperature, "top_p": generation.top_p, "top_k": 0}
    stops = own.eos_token_id if own.eos_token_id is not None else model.tokenizer.eos_token_id
    first = stops[0] if isinstance(stops, list) else stops
    return GenerationConfig(
        max_new_tokens=generation.max_new_tokens,
        do_sample=generation.temperature > 0,
        eos_token_id=stops,
        bos_token_id=own.bos_token_id,
        pad_token_id=own.pad_token_id if own.pad_token_id is not None else first,
        use_cache=True,
        **sampling,
    )


@contextmanager
def _seeded(generation: GenerationSettings, device: torch.device) -> Iterator[None]:
    """Sampling from its own seed, leaving the process's random state alone."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(generation.seed)
        yield


@contextmanager
def _without_authors_settings(model: Model) -> Iterator[None]:
    """generate() fills what a config leaves open from the model's own: a repetition penalty, say, which the filler
    would mislead. What this engine was not asked for does not happen."""
    from transformers import GenerationConfig

    own = model.module.generation_config
    model.module.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.module.generation_config = own


def _reason(model: Model, ids: list[int], stopped: bool, limit: int) -> StopReason:
    if stopped:
        return "interrupted"
    return "length" if len(ids) >= limit and not _is_stop(model, ids[-1]) else "stop"


def _is_stop(model: Model, token: int) -> bool:
    stops = model.module.generation_config.eos_token_id
    stops = model.tokenizer.eos_token_id if stops is None else stops
    return token in stops if isinstance(stops, list) else token == stops


def extend(model: Model, pot: Pot, ids: Sequence[int], catalyst_ids: Sequence[int]) -> Pot:
    """A new pot that has also read ``ids``, such as a question and its answer; distilled when it is full."""
    longer = pot.copy()
    distiller = Distiller(model, longer, as_ids(list(catalyst_ids)))
    distiller.feed(Batch.of(ids))
    distiller.flush()
    return longer
