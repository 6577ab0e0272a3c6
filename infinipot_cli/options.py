"""Every option of the command line, once: groups that commands take as a whole (see ``takes`` in wiring.py).

A field's default is the option's default. A field with an environment variable is a setting: it may also stand in
``config.yaml`` under its own name, unless it is secret or of one run only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from engine.packing import DEFAULT_DTYPE, POT_DTYPES
from engine.processor import QUANTIZED, VALUE_BYTES
from engine.settings import METHODS, POOLINGS, POOLS, REDUCTIONS, SCOPES, GenerationSettings, PotSettings
from infinipot_cli.terminal import COLORS

DEFAULT_MODEL = "smollm2-135m-reader"
ON_INTERRUPT = ("answer", "discard")
LENGTHS = ("short", "medium", "long")
STYLES = ("paragraph", "bullets")
DEVICE = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d+)?")
DTYPES = ("auto", *VALUE_BYTES)

_POT = PotSettings()
_GENERATION = GenerationSettings()


def _option(*names: str, panel: str, help: str, env: bool = True, **more: Any) -> Any:
    """A typer option whose environment variable is INFINIPOT_ and its long name."""
    long = next(name for name in names if name.startswith("--"))
    variable = "INFINIPOT_" + long[2:].replace("-", "_").upper()
    return typer.Option(*names, help=help, rich_help_panel=panel, envvar=variable if env else None, **more)


def _choices(values: tuple[Any, ...]) -> str:
    return "|".join(str(value) for value in values)


_MODEL = "Model"


@dataclass(frozen=True)
class ModelOptions:
    """Which model reads, and where it runs."""

    model: Annotated[
        str, _option("--model", "-m", panel=_MODEL, help="Name (see `infinipot models`), folder, .gguf file or hub id.")
    ] = DEFAULT_MODEL
    device: Annotated[str, _option("--device", panel=_MODEL, help="auto, cpu, cuda or cuda:N.")] = "auto"
    dtype: Annotated[
        str,
        _option(
            "--dtype",
            panel=_MODEL,
            help=f"auto (bfloat16 where the hardware computes in it, else float32), {', '.join(VALUE_BYTES)}.",
        ),
    ] = "auto"
    quantize: Annotated[
        str | None,
        _option("--quantize", panel=_MODEL, metavar=_choices(QUANTIZED), help="Load weights quantised (CUDA)."),
    ] = None
    revision: Annotated[str | None, _option("--revision", panel=_MODEL, help="Revision of a hub model.")] = None
    offline: Annotated[bool, _option("--offline", panel=_MODEL, help="Use only what is on this machine.")] = False


_POTS = "Pot"


@dataclass(frozen=True)
class PotOptions:
    """How a pot is filled and distilled."""

    capacity: Annotated[
        int, _option("--capacity", "-c", panel=_POTS, help="Entries per layer and head that the pot never exceeds.")
    ] = _POT.capacity
    pot_size: Annotated[
        str | None, _option("--pot-size", panel=_POTS, metavar="SIZE", help="The same as bytes, such as 512M or 2G.")
    ] = None
    distilled: Annotated[
        int | None,
        _option("--distilled", panel=_POTS, help="Entries that a cycle keeps.", show_default="half the capacity"),
    ] = None
    alpha: Annotated[
        float, _option("--alpha", panel=_POTS, help="Share of the kept entries chosen by novelty, 0 to 1.")
    ] = _POT.alpha
    method: Annotated[
        str, _option("--method", panel=_POTS, metavar=_choices(METHODS), help="What decides which entries stay.")
    ] = _POT.method
    reduce: Annotated[
        str,
        _option(
            "--reduce", panel=_POTS, metavar=_choices(REDUCTIONS), help="How catalyst attention is reduced to a score."
        ),
    ] = _POT.reduce
    scope: Annotated[
        str,
        _option("--scope", panel=_POTS, metavar=_choices(SCOPES), help="Which heads decide together what stays."),
    ] = _POT.scope
    norm: Annotated[
        float,
        _option(
            "--norm", panel=_POTS, help="How heads agree: 1 adds their scores; the larger, the more the surest counts."
        ),
    ] = _POT.norm
    pooling: Annotated[
        int,
        _option("--pooling", panel=_POTS, metavar=_choices(POOLINGS), help="Width of the pools along the text."),
    ] = _POT.pooling
    pool: Annotated[
        str,
        _option("--pool", panel=_POTS, metavar=_choices(POOLS), help="What an entry takes of the scores in its pool."),
    ] = _POT.pool
    decay: Annotated[
        float, _option("--decay", panel=_POTS, help="Factor on an entry's novelty per cycle survived.")
    ] = _POT.decay
    recent: Annotated[int, _option("--recent", panel=_POTS, help="Newest entries that a cycle always keeps.")] = (
        _POT.recent
    )
    no_reset: Annotated[
        bool,
        _option("--no-reset", panel=_POTS, help="Kept entries stay at their source positions (CR-RoPE off)."),
    ] = False
    group: Annotated[
        int, _option("--group", panel=_POTS, help="Positions that self-extend takes for one, far away.")
    ] = _POT.group
    window: Annotated[
        int, _option("--window", panel=_POTS, help="Nearest tokens that self-extend sees at exact positions.")
    ] = _POT.window
    catalyst: Annotated[
        str | None,
        _option(
            "--catalyst",
            panel=_POTS,
            metavar="NAME|PATH",
            help="What is asked of the text while it is distilled (`infinipot prompts list`).",
            show_default="the task's own",
        ),
    ] = None


@dataclass(frozen=True)
class SaveOptions:
    """How a pot is written."""

    pot_dtype: Annotated[
        str,
        _option(
            "--pot-dtype",
            panel=_POTS,
            metavar=_choices(POT_DTYPES),
            help="Keys and values in the file: as the model computes them, rounded to 16 bits, or in 8 or 4.",
        ),
    ] = DEFAULT_DTYPE


_INPUT = "Input"


@dataclass(frozen=True)
class InputOptions:
    """How sources are read."""

    password: Annotated[str | None, _option("--password", panel=_INPUT, help="Password of encrypted PDFs.")] = None
    encoding: Annotated[
        str | None, _option("--encoding", panel=_INPUT, help="Encoding of text files.", show_default="detected")
    ] = None
    input_type: Annotated[
        str | None,
        _option(
            "--input-type",
            panel=_INPUT,
            metavar="TYPE",
            help="Take the input for pdf, text, html, …",
            show_default="detected",
        ),
    ] = None
    include: Annotated[
        list[str] | None,
        _option("--include", panel=_INPUT, metavar="GLOB", help="In folders, read only files like this."),
    ] = None
    exclude: Annotated[
        list[str] | None,
        _option("--exclude", panel=_INPUT, metavar="GLOB", help="In folders, leave out files like this."),
    ] = None
    keep_headers: Annotated[
        bool, _option("--keep-headers", panel=_INPUT, help="Keep running headers and page numbers of PDFs.")
    ] = False


_ANSWER = "Answer"


@dataclass(frozen=True)
class AnswerOptions:
    """How the answer is asked for and written."""

    task: Annotated[
        str | None,
        _option(
            "--task",
            "--prompt",
            panel=_ANSWER,
            metavar="NAME|PATH",
            help="The wording to use (`infinipot prompts list`).",
            show_default="the command's own",
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        _option("--max-tokens", panel=_ANSWER, help="Longest answer, in tokens.", show_default="the task's own"),
    ] = None
    focus: Annotated[
        int | None,
        _option(
            "--focus",
            panel=_ANSWER,
            min=0,
            help="Most entries that the answer is written from, 0 for all of the pot.",
            show_default="the task's own, else the model's",
        ),
    ] = None
    no_repeat: Annotated[
        int | None,
        _option(
            "--no-repeat",
            panel=_ANSWER,
            min=0,
            help="No run of so many tokens comes twice in the answer; 0: it may.",
            show_default="the task's own, or 0",
        ),
    ] = None
    doubt: Annotated[
        float | None,
        _option(
            "--doubt",
            panel=_ANSWER,
            help="Least probability at which the model says that the document does not say; 0: where that comes first.",
            show_default="the model's",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        _option("--temperature", "-t", panel=_ANSWER, help="0 is greedy.", show_default="the task's own, or 0"),
    ] = None
    top_p: Annotated[float, _option("--top-p", panel=_ANSWER, help="Nucleus sampling, 0 to 1.")] = _GENERATION.top_p
    seed: Annotated[int, _option("--seed", panel=_ANSWER, help="Seed of sampling.")] = _GENERATION.seed


@dataclass(frozen=True)
class SummaryOptions:
    """What kind of summary is written."""

    length: Annotated[
        str, _option("--length", "-l", panel=_ANSWER, metavar=_choices(LENGTHS), help="How long the summary is.")
    ] = "medium"
    style: Annotated[
        str, _option("--style", panel=_ANSWER, metavar=_choices(STYLES), help="Running text, or a list.")
    ] = "paragraph"


_RUN = "Run"


@dataclass(frozen=True)
class RunOptions:
    """How a reading run behaves."""

    dry_run: Annotated[
        bool, _option("--dry-run", "-n", panel=_RUN, env=False, help="Only say pages, tokens, cycles, bytes and time.")
    ] = False
    on_interrupt: Annotated[
        str | None,
        _option(
            "--on-interrupt",
            panel=_RUN,
            metavar=_choices(ON_INTERRUPT),
            help="At Ctrl-C while reading: use the text read so far, or stop.",
            show_default="answer on a terminal; discard for pot save",
        ),
    ] = None


_OUTPUT = "Output"


@dataclass(frozen=True)
class OutputOptions:
    """What is shown, and how."""

    json: Annotated[bool, _option("--json", panel=_OUTPUT, env=False, help="One JSON object on stdout.")] = False
    quiet: Annotated[
        int,
        _option(
            "--quiet",
            "-q",
            panel=_OUTPUT,
            env=False,
            count=True,
            help="No receipt and no progress; -qq: no warnings.",
            show_default=False,
        ),
    ] = 0
    verbose: Annotated[
        int, _option("--verbose", "-v", panel=_OUTPUT, env=False, count=True, help="Say more.", show_default=False)
    ] = 0
    color: Annotated[
        str, _option("--color", panel=_OUTPUT, metavar=_choices(COLORS), help="Whether to use colour.")
    ] = "auto"
    debug: Annotated[bool, _option("--debug", panel=_OUTPUT, help="Show the traceback of an error.")] = False


#: Settings that an environment variable may give, but not the config file.
NOT_IN_CONFIG = frozenset({"password", "debug"})
#: Pairs that say the same thing twice: the better source wins, two of equal rank are an error.
EXCLUSIVE = (("capacity", "pot_size"), ("quiet", "verbose"))
#: The groups whose fields are settings.
SETTINGS_GROUPS: tuple[type, ...] = (
    ModelOptions,
    PotOptions,
    SaveOptions,
    InputOptions,
    AnswerOptions,
    SummaryOptions,
    RunOptions,
    OutputOptions,
)
