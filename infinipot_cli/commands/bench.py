"""``infinipot bench``: what a pot costs and what it loses, measured on this machine with any model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infinipot_cli.bench.options import BenchOptions, MoreNeedles, NeedleOptions, ResultOptions, option
from infinipot_cli.errors import ExitCode
from infinipot_cli.options import InputOptions, ModelOptions, OutputOptions, PotOptions
from infinipot_cli.wiring import App, Command, takes

app = typer.Typer(no_args_is_help=True, help="Measure what a pot costs and what it loses, with any model.")

NIH_EPILOG = """\
infinipot bench nih --lengths 4k,16k,128k --trials 20 --out nih.jsonl --plot nih.png

infinipot bench nih --method infinipot,cap,streaming --task multikey --haystack book.epub

infinipot bench nih --task all --lengths 8k --markdown
"""


@app.command("nih", cls=Command, epilog=NIH_EPILOG)
@takes
def nih(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    inputs: InputOptions,
    bench: BenchOptions,
    output: OutputOptions,
    needles: NeedleOptions,
) -> ExitCode:
    """Needles in a haystack: is what was hidden in a long text found again?"""
    from infinipot_cli.bench.nih import Wanted, measure_nih

    wanted = Wanted.parse(needles)
    return measure_nih(app, model, pot, inputs, bench, wanted)


_LONGBENCH = "LongBench"
LONGBENCH_EPILOG = """\
infinipot bench longbench --data LongBench/data.zip --method infinipot,truncate --out longbench.jsonl

infinipot bench longbench --tasks hotpotqa,gov_report --limit 20 --capacity 4096
"""


@app.command("longbench", cls=Command, epilog=LONGBENCH_EPILOG)
@takes
def longbench(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    bench: ResultOptions,
    output: OutputOptions,
    data: Annotated[
        Path | None,
        option(
            "--data",
            panel=_LONGBENCH,
            metavar="FOLDER|data.zip",
            help="Where the examples are.",
            show_default="fetched from the hub",
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        option("--tasks", "--task", panel=_LONGBENCH, metavar="NAME,…", help="Tasks.", show_default="all 16"),
    ] = None,
    limit: Annotated[
        int | None,
        option(
            "--limit",
            panel=_LONGBENCH,
            metavar="N",
            min=1,
            help="Examples per task, drawn with --seed.",
            show_default="all",
        ),
    ] = None,
) -> ExitCode:
    """LongBench: 16 tasks on real documents, with the official prompts and metrics.

    Unless --catalyst says so, QA distils with the question, all else with cap-g.
    """
    from infinipot_cli.bench.longbench.run import Wanted, measure_longbench

    return measure_longbench(app, model, pot, bench, Wanted.parse(data, tasks, limit))


_SPEED = "Speed"
SPEED_EPILOG = """\
infinipot bench speed --lengths 4k,16k,64k --method infinipot,snapkv,full --plot speed.png

infinipot bench speed --text book.pdf --lengths 10k --repeats 5 --out speed.jsonl
"""


@app.command("speed", cls=Command, epilog=SPEED_EPILOG)
@takes
def speed(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    inputs: InputOptions,
    bench: BenchOptions,
    output: OutputOptions,
    lengths: Annotated[
        str,
        option("--lengths", panel=_SPEED, help="Tokens of the documents; k and m are thousands and millions."),
    ] = "4k,16k",
    repeats: Annotated[int, option("--repeats", panel=_SPEED, min=1, help="Runs of every method on every length.")] = 3,
    text: Annotated[
        str,
        option(
            "--text",
            panel=_SPEED,
            metavar="natural|repeated|PATH",
            help="What is read: a novel, five sentences over and over, or your own files.",
        ),
    ] = "natural",
    write: Annotated[int, option("--write", panel=_SPEED, min=2, help="Tokens to write after each reading.")] = 64,
    give_up: Annotated[
        float | None,
        option(
            "--give-up",
            panel=_SPEED,
            metavar="SECONDS",
            help="A method that takes longer to its first token is not tried on longer documents.",
            show_default="never",
        ),
    ] = None,
) -> ExitCode:
    """Time to the first token and its parts, tokens per second, memory, and the distance from the floor.

    All methods run in one process in the order A B A B. What --out holds of earlier runs is never taken over.
    """
    from infinipot_cli.bench.speed_run import Wanted, measure_speed

    wanted = Wanted.parse(lengths, repeats, text, write, give_up)
    return measure_speed(app, model, pot, inputs, bench, wanted)


_ABLATE, _QUESTIONS = "Sweeps", "Questions"
ABLATE_EPILOG = """\
infinipot bench ablate --sweep alpha --task passkey,multikey --lengths 8k --out ablate.jsonl

infinipot bench ablate --sweep catalysts,parts --questions questions.jsonl --fill 8k --limit 100

infinipot bench ablate --sweep capacity --questions examples/questions.yaml --document book.pdf --plot capacity.png
"""


@app.command("ablate", cls=Command, epilog=ABLATE_EPILOG)
@takes
def ablate(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    inputs: InputOptions,
    bench: BenchOptions,
    output: OutputOptions,
    more: MoreNeedles,
    sweep: Annotated[
        str,
        option(
            "--sweep",
            panel=_ABLATE,
            metavar="NAME,…",
            help="catalysts, alpha, parts, capacity, distilled, reduce, scope, norm, pooling, pool, focus, decay, "
            "recent, or all.",
        ),
    ] = "parts",
    questions: Annotated[
        Path | None,
        option(
            "--questions",
            panel=_QUESTIONS,
            metavar="FILE.jsonl|FILE.yaml",
            help="Documents, questions and accepted answers.",
        ),
    ] = None,
    document: Annotated[
        Path | None,
        option("--document", panel=_QUESTIONS, metavar="FILE", help="What questions without a document are about."),
    ] = None,
    kinds: Annotated[
        str | None,
        option("--kinds", panel=_QUESTIONS, metavar="KIND,…", help="Only such questions.", show_default="all"),
    ] = None,
    limit: Annotated[
        int | None,
        option(
            "--limit",
            panel=_QUESTIONS,
            metavar="N",
            min=1,
            help="So many questions, drawn with --seed from as many documents as there are.",
            show_default="all",
        ),
    ] = None,
    fill: Annotated[
        str | None,
        option(
            "--fill",
            panel=_QUESTIONS,
            metavar="TOKENS",
            help="Hide the document's paragraphs among those of other documents, so many tokens in all.",
            show_default="the document alone",
        ),
    ] = None,
    score: Annotated[
        str,
        option(
            "--score",
            panel=_QUESTIONS,
            metavar="contained|f1|exact",
            help="Whether an accepted answer stands in the answer; how many words they share; whether they are equal.",
        ),
    ] = "contained",
) -> ExitCode:
    """What each part and each choice of the method gives: the paper's Tables 2, 3, 4 and Figure 6, and more.

    The pot's options are what a sweep starts from. Every setup answers the same cases; differences are paired.
    """
    from infinipot_cli.bench import nih
    from infinipot_cli.bench.ablate import Wanted, measure_ablate

    needles = nih.Wanted.parse(more) if more.tasks is not None else None
    wanted = Wanted.parse(sweep, questions, document, kinds, limit, fill, score, needles)
    return measure_ablate(app, model, pot, inputs, bench, wanted)


_ANALYSIS = "What is analysed"
ANALYSE_EPILOG = """\
infinipot bench analyse book.pdf --question "Who is the narrator?" --plot kept.png

infinipot bench analyse --length 16k --trials 5 --method recent,cap,infinipot,streaming --out analyse.jsonl
"""


@app.command("analyse", cls=Command, epilog=ANALYSE_EPILOG)
@takes
def analyse(
    app: App,
    model: ModelOptions,
    pot: PotOptions,
    inputs: InputOptions,
    bench: BenchOptions,
    output: OutputOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE…]", show_default=False, help="Your documents; without, some are generated."),
    ] = None,
    question: Annotated[
        str | None,
        option("--question", panel=_ANALYSIS, show_default=False, help="What is asked of them."),
    ] = None,
    needle: Annotated[
        str,
        option("--task", panel=_ANALYSIS, metavar="NAME", help="What is hidden in generated ones, as in bench nih."),
    ] = "multikey",
    tokens: Annotated[str, option("--length", panel=_ANALYSIS, help="Tokens of a generated document.")] = "8k",
    depth: Annotated[float, option("--depth", panel=_ANALYSIS, min=0, max=1, help="Where the needle is.")] = 0.5,
    trials: Annotated[int, option("--trials", panel=_ANALYSIS, min=1, help="Generated documents.")] = 1,
    haystack: Annotated[
        str,
        option("--haystack", panel=_ANALYSIS, metavar="natural|repeated|PATH", help="What they are made of."),
    ] = "natural",
) -> ExitCode:
    """What a pot keeps, beside what matters when everything is in memory.

    Compares each --method (recent,cap,infinipot) with each --catalyst that it looks at (cap-q,cap-g); both take several
    with commas. Everything is in memory once, so the document must fit there.
    """
    from infinipot_cli.bench.analyse import Wanted, measure_analyse

    wanted = Wanted.parse(names or [], question, needle, tokens, depth, trials, haystack)
    return measure_analyse(app, model, pot, inputs, bench, wanted)
