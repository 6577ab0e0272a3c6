"""``infinipot tokens``: how many tokens documents have."""

from __future__ import annotations

from infinipot_cli.commands.summarize import Names
from infinipot_cli.errors import ExitCode, UsageError
from infinipot_cli.options import InputOptions, ModelOptions, OutputOptions
from infinipot_cli.terminal import one_line
from infinipot_cli.wiring import App, takes

EPILOG = """\
infinipot tokens book.pdf notes/

infinipot tokens book.pdf --model smollm2-135m
"""


@takes
def tokens(app: App, model: ModelOptions, inputs: InputOptions, output: OutputOptions, names: Names = None) -> ExitCode:
    """Count the tokens of documents, loading no model: with its tokenizer if it is on this machine, else tiktoken."""
    from infinipot_cli.counting_sources import count_sources
    from infinipot_cli.plan import plan_sources

    terminal = app.terminal
    plan = plan_sources(terminal, names or [])
    if plan.pot:
        raise UsageError(f"{plan.names[0]} is a pot", hint="`infinipot pot info` says what it holds")
    counter = app.workbench.counter(model, app.chosen("model"), terminal.say)
    counted = count_sources(app, plan, inputs, counter)
    total = sum(source["tokens"] for source in counted)
    if output.json:
        terminal.write_json({"tokens": total, "counted_with": counter.name, "exact": counter.exact, "sources": counted})
        return ExitCode.OK
    rows = [(source["tokens"], one_line(source["name"])) for source in counted]
    if len(rows) > 1:
        rows.append((total, "total"))
    width = len(f"{total:,}")
    terminal.write("".join(f"{count:>{width},}  {name}\n" for count, name in rows))
    terminal.say(f"counted with {counter.name}", "dim")
    return ExitCode.OK
