"""Answers: pour the pot, then let transformers' own ``generate`` do the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.cache_utils import Cache

from engine.ccd import as_ids
from engine.errors import SettingsError
from engine.filling import filler, make_room, ready
from engine.forward import over_the_pot
from engine.pot import Batch, Pot
from engine.pour import pour
from engine.rope import angles_shift
from engine.sentences import ByLine, BySentence
from engine.settings import GenerationSettings
from engine.writing import quick_steps

if TYPE_CHECKING:
    from engine.model import Model

StopReason = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True)
class Generation:
    """An answer: its text without control tokens, the ids that were written, and why it ended.

    ``raw`` is the text with the white space around it, which code needs.
    """

    text: str
    raw: str
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
    question as the catalyst (the last-fill rule), and so it is if there is more than ``generation.focus`` in it.
    Raises SettingsError if even that leaves no room.
    """
    began = time.perf_counter()
    suffix = as_ids(list(suffix_ids))
    need = len(suffix) + generation.max_new_tokens
    if not ready(pot, need, generation.focus):
        pot = pot.copy()
        make_room(model, pot, need, suffix, generation.focus)
    lines = ByLine(on_text) if generation.lines_once else None
    parts = lines or (BySentence(on_text) if generation.whole_sentences else None)
    listener = _Listener(model.tokenizer, parts or on_text)
    begin = beginning(model, pot, suffix, generation)
    stopped = _run(model, pot, suffix, generation, begin, listener, should_stop, lines)
    ended = time.perf_counter()
    first = listener.first_at or ended
    reason = _reason(stops_of(model, generation), listener.ids, stopped, generation.max_new_tokens)
    cut = generation.whole_sentences and reason == "length"
    text = parts.close(cut) if parts else decode(model.tokenizer, listener.ids)
    if lines and lines.repeats and not stopped:
        reason = "stop"
    return Generation(
        text=text.strip(),
        raw=text,
        token_ids=listener.ids,
        stop_reason=reason,
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
    begin: Sequence[int],
    listener: _Listener,
    should_stop: Callable[[], bool] | None,
    lines: ByLine | None,
) -> bool:
    """Generate into ``listener`` until ``lines`` repeat; whether ``should_stop`` ended it."""
    if len(suffix) == 0:
        raise SettingsError("there is nothing to answer")
    # generate() takes the whole sequence and skips what the cache already holds: the ids there are never looked at.
    filler = torch.zeros(pot.entries, dtype=torch.int64)
    ids = torch.cat([filler, suffix]).to(model.device)[None]
    stopped = False

    def stop(*_: Any, **__: Any) -> Tensor:
        nonlocal stopped
        stopped = should_stop is not None and should_stop()
        ended = stopped or (lines is not None and lines.repeats)
        return torch.full((1,), ended, device=model.device, dtype=torch.bool)

    config = _config(model, generation)
    slots = pot.entries + len(suffix) + generation.max_new_tokens
    with (
        _cache(model, pot, slots) as cache,
        _seeded(generation, model.device),
        _without_authors_settings(model),
    ):
        model.module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=cache,
            generation_config=config,
            stopping_criteria=[stop],
            logits_processor=_begun_with(begin, ids.shape[1]),
            streamer=listener,
            **_positions(pot, ids),
        )
    return stopped


@contextmanager
def _cache(model: Model, pot: Pot, slots: int) -> Iterator[Cache]:
    """What generate() reads and writes: the pot poured; or the pot itself, for now, where only our own attention knows
    what a query of this method sees, or can keep all angles those of one length."""
    first = pot.taken if pot.stays else pot.entries
    shift = angles_shift(model.rotary, first, first + slots - pot.entries, model.device)
    if pot.method.sees == "all" and not shift:
        with quick_steps(model):
            yield pour(model, pot, slots - pot.entries)
        return
    with over_the_pot(model, pot, slots), pot.for_now():
        yield pot


def _positions(pot: Pot, ids: Tensor) -> dict[str, Tensor]:
    """Where entries stay at their source positions, so does what follows them; else generate() counts by itself."""
    if not pot.stays:
        return {}
    return {"position_ids": torch.arange(ids.shape[1], device=ids.device)[None] + (pot.taken - pot.entries)}


def _config(model: Model, generation: GenerationSettings) -> Any:
    """The model's own stop tokens with our choice of decoding."""
    from transformers import GenerationConfig

    own = model.module.generation_config
    more: dict[str, Any] = {}
    if generation.temperature > 0:
        more = {"temperature": generation.temperature, "top_p": generation.top_p, "top_k": 0}
    if fewest := max(generation.min_new_tokens, int(generation.one_line)):
        more["min_new_tokens"] = fewest
    if generation.no_repeat:
        # It looks at the filler and the question too: the one holds nothing that an answer could repeat.
        more["no_repeat_ngram_size"] = generation.no_repeat
    if generation.avoid:
        spellings = [spelling for phrase in generation.avoid for spelling in (phrase, f" {phrase}")]
        more["bad_words_ids"] = [model.tokenizer.encode(text, add_special_tokens=False) for text in spellings]
    stops = stops_of(model, generation)
    return GenerationConfig(
        max_new_tokens=generation.max_new_tokens,
        do_sample=generation.temperature > 0,
        eos_token_id=stops or None,
        bos_token_id=own.bos_token_id,
        pad_token_id=own.pad_token_id if own.pad_token_id is not None else next(iter(stops), None),
        use_cache=True,
        **more,
    )


#: So many of a refusal's first tokens tell it from any other answer.
_TELLING = 2


@torch.inference_mode()
def beginning(model: Model, pot: Pot, suffix: Tensor, generation: GenerationSettings) -> list[int]:
    """The first ids of ``generation.refusal`` where the model is inclined to it enough, else none.

    Its first choice may be another: a small model that is not sure guesses rather than refuses. One forward of the
    question with those ids behind it tells; ``generate`` reads the question again.
    """
    if generation.refusal is None or len(suffix) == 0 or generation.max_new_tokens < _TELLING:
        return []
    text, least = generation.refusal
    wanted = model.tokenizer.encode(text, add_special_tokens=False)[:_TELLING]
    ids = torch.cat([suffix, as_ids(wanted)])
    first = pot.taken if pot.stays else pot.entries
    with _cache(model, pot, pot.entries + len(ids)) as cache:
        hidden = model.base(
            input_ids=ids.to(model.device)[None],
            position_ids=torch.arange(first, first + len(ids), device=model.device)[None],
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state[0]
        predicted = model.logits(hidden[len(suffix) - 1 : -1]).float().log_softmax(-1)
    inclined = sum(float(row[token]) for row, token in zip(predicted, wanted, strict=True))
    return wanted if inclined >= math.log(least) else []


def _begun_with(begin: Sequence[int], length: int) -> LogitsProcessorList:
    """Lets an answer behind ``length`` ids begin with the ids ``begin``."""

    def processor(ids: Tensor, logits: Tensor) -> Tensor:
        written = ids.shape[1] - length
        if written < len(begin):
            logits = torch.full_like(logits, float("-inf"))
            logits[:, begin[written]] = 0
        return logits

    return LogitsProcessorList([processor] if begin else [])


def stops_of(model: Model, generation: GenerationSettings) -> list[int]:
    """The ids that end an answer: the model's own, else its tokenizer's; and a line end's where one line is wanted."""
    stops = model.module.generation_config.eos_token_id
    stops = model.tokenizer.eos_token_id if stops is None else stops
    ids = list(stops) if isinstance(stops, list) else [] if stops is None else [stops]
    return ids + model.tokenizer.encode("\n", add_special_tokens=False)[-1:] if generation.one_line else ids


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


def _reason(stops: list[int], ids: list[int], stopped: bool, limit: int) -> StopReason:
    if stopped:
        return "interrupted"
    return "length" if len(ids) >= limit and ids[-1] not in stops else "stop"


def extend(model: Model, pot: Pot, ids: Sequence[int], catalyst_ids: Sequence[int]) -> Pot:
    """A new pot that has also read ``ids``, such as a question and its answer; distilled when it is full."""
    longer = pot.copy()
    reading = filler(model, longer, as_ids(list(catalyst_ids)))
    reading.feed(Batch.of(ids))
    reading.flush()
    return longer
