"""What a run is asked to do: the options, the wish (task, question, catalyst), and the engine's settings from both."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import SettingsError
from engine.estimate import capacity_for
from engine.processor import QUANTIZED
from engine.settings import LEAST, GenerationSettings, PotSettings
from infinipot_cli.catalog import REFUSAL, find
from infinipot_cli.errors import UsageError
from infinipot_cli.options import (
    DEVICE,
    DTYPES,
    ON_INTERRUPT,
    AnswerOptions,
    InputOptions,
    ModelOptions,
    PotOptions,
    RunOptions,
)
from infinipot_cli.prompts import Catalyst, Task, Variant, load_catalyst
from infinipot_cli.units import parse_size, show_bytes
from infinipot_cli.wiring import App
from infinipot_cli.workbench import Framing

#: The catalyst where no question is known.
GENERAL = "cap-g"
_DEFAULT_TOKENS = 256


@dataclass(frozen=True)
class Options:
    """The option groups of a run."""

    model: ModelOptions
    pot: PotOptions
    inputs: InputOptions
    run: RunOptions
    answer: AnswerOptions = field(default_factory=AnswerOptions)


@dataclass(frozen=True)
class Wish:
    """What is wanted of a document: the task, the question in it, and what distils for it."""

    task: Task
    catalyst: Catalyst
    question: str = ""
    max_new_tokens: int | None = None

    @property
    def after(self) -> str:
        """What follows the document."""
        return self.task.turn(self.question)


def make_wish(app: App, options: Options, task: Task, question: str = "", variant: Variant | None = None) -> Wish:
    """A wish from a task, its variant if it has some, and --catalyst. Raises UsageError."""
    catalyst = load_catalyst(options.pot.catalyst or task.catalyst, app.terminal.environ)
    if variant is not None:
        return Wish(task, catalyst, variant.question, variant.max_new_tokens or task.max_new_tokens)
    return Wish(task, catalyst, question, task.max_new_tokens)


def open_wish(app: App, options: Options, task: Task) -> Wish:
    """A wish whose question is not known yet, so that no question can be the catalyst. Raises UsageError."""
    catalyst = load_catalyst(options.pot.catalyst or GENERAL, app.terminal.environ)
    if catalyst.text is None:
        raise UsageError(f"{catalyst.name} needs a question, and there is none yet", hint=f"use --catalyst {GENERAL}")
    return Wish(task, catalyst, "", task.max_new_tokens)


def catalyst_ids(framing: Framing, wish: Wish) -> list[int]:
    """The catalyst as a user turn that leads into the answer: the question itself, or the catalyst's own text."""
    return framing.suffix_ids(wish.after if wish.catalyst.text is None else wish.catalyst.text)


def usual_focus(task: Task, model: str) -> int | None:
    """Entries that an answer is written from where no flag says: the task's own, else, for a question, the model's."""
    if task.focus is not None or not task.asks:
        return task.focus
    entry = find(model)
    return entry.focus if entry else None


def usual_doubt(task: Task, model: str) -> float | None:
    """The least probability at which a question is answered with ``REFUSAL`` where no flag says; None where the model
    has not learnt it."""
    entry = find(model)
    return entry.doubt if entry and task.asks else None


def refusal(doubt: float | None) -> tuple[str, float] | None:
    """``doubt`` as the engine takes it."""
    return (REFUSAL, doubt) if doubt else None


def generation_settings(answer: AnswerOptions, wish: Wish, pot: PotSettings, model: str) -> GenerationSettings:
    """How to write: flags, else the task's own, else the model's; a length that nobody asked for never fills a small
    pot."""
    tokens = answer.max_tokens
    if tokens is None:
        tokens = wish.max_new_tokens or _DEFAULT_TOKENS
        if pot.bounded:
            tokens = min(tokens, max(pot.capacity // 4, 1))
    temperature = answer.temperature if answer.temperature is not None else wish.task.temperature or 0.0
    focus = answer.focus if answer.focus is not None else usual_focus(wish.task, model)
    no_repeat = answer.no_repeat if answer.no_repeat is not None else wish.task.no_repeat
    doubt = usual_doubt(wish.task, model)
    if answer.doubt is not None:
        if doubt is None:
            raise UsageError(
                "--doubt is for questions to a model that was taught to say that the document does not say",
                hint="the default model was",
            )
        doubt = answer.doubt
    return GenerationSettings(
        tokens,
        temperature,
        answer.top_p,
        answer.seed,
        focus=focus or None,
        no_repeat=no_repeat,
        avoid=wish.task.avoid,
        refusal=refusal(doubt),
        whole_sentences=wish.task.whole_sentences,
        lines_once=wish.task.lines_once,
    )


def pot_settings(pot: PotOptions, entry_bytes: int) -> PotSettings:
    """The engine's settings from the options; --pot-size counts in entries of ``entry_bytes``. Raises SettingsError."""
    capacity = pot.capacity
    if pot.pot_size is not None:
        capacity = capacity_for(parse_size(pot.pot_size, "--pot-size"), entry_bytes)
        if capacity < LEAST:
            least = show_bytes(LEAST * entry_bytes)
            raise UsageError(f"--pot-size {pot.pot_size} is too small", hint=f"{LEAST} entries take {least}")
    return PotSettings(
        capacity=capacity,
        distilled=pot.distilled,
        alpha=pot.alpha,
        method=pot.method,
        reduce=pot.reduce,
        scope=pot.scope,
        norm=pot.norm,
        pooling=pot.pooling,
        pool=pot.pool,
        decay=pot.decay,
        recent=pot.recent,
        reset=not pot.no_reset,
        group=pot.group,
        window=pot.window,
    )


def check_options(options: Options) -> None:
    """Find what is wrong with the settings before a model is loaded. Raises UsageError or SettingsError."""
    if options.run.on_interrupt not in (None, *ON_INTERRUPT):
        raise UsageError(f"--on-interrupt must be {' or '.join(ON_INTERRUPT)}, not {options.run.on_interrupt!r}")
    _check_model(options.model)
    if options.pot.pot_size is not None:
        parse_size(options.pot.pot_size, "--pot-size")
    else:
        pot_settings(options.pot, 1)
    answer = options.answer
    tokens = 1 if answer.max_tokens is None else answer.max_tokens
    GenerationSettings(
        tokens,
        answer.temperature or 0.0,
        answer.top_p,
        answer.seed,
        focus=answer.focus or None,
        no_repeat=answer.no_repeat or 0,
    )


def _check_model(model: ModelOptions) -> None:
    if not DEVICE.fullmatch(model.device):
        raise UsageError(f"--device must be auto, cpu, cuda or cuda:N, not {model.device!r}")
    if model.dtype not in DTYPES:
        raise UsageError(f"--dtype must be {', '.join(DTYPES)}, not {model.dtype!r}")
    if model.quantize not in (None, *QUANTIZED):
        raise UsageError(f"--quantize must be {' or '.join(QUANTIZED)}, not {model.quantize!r}")


def check_room(settings: PotSettings, need: int) -> None:
    """Raise SettingsError where ``need`` entries for template, question and answer leave none to read with."""
    if settings.bounded and need >= settings.capacity:
        raise SettingsError(
            f"question and answer need {need} entries, and the pot has {settings.capacity} in all",
            hint="raise --capacity, or ask for a shorter answer with --max-tokens",
        )
