"""``infinipot pot show``: the text that was read, with what a pot still holds of it, shaded."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot_cli.errors import UsageError, not_written
from infinipot_cli.options import InputOptions, OutputOptions
from infinipot_cli.units import show_bytes
from infinipot_cli.wiring import App, takes

if TYPE_CHECKING:
    from infinipot_cli.show.holding import Holding
    from infinipot_cli.show.pieces import View
    from infinipot_cli.terminal import Terminal

EPILOG = """\
infinipot pot show book.pot

infinipot pot show book.pot --source book.pdf --page 12-14

infinipot pot show book.pot --source book.pdf --html book.html
"""
_PAGES = re.compile(r"(\d+)(?:-(\d+))?")
_PART = "What to show"


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PART, show_default=False, **more)


@takes
def show(
    app: App,
    pot_file: Annotated[str, typer.Argument(metavar="POT", show_default=False, help="A pot file, or - for stdin.")],
    *,
    source: Annotated[
        list[str] | None,
        _option("--source", "-s", metavar="FILE", help="The original (or its folder): shows what was evicted, too."),
    ] = None,
    layer: Annotated[int | None, _option("--layer", min=0, help="Only this layer, counted from 0.")] = None,
    head: Annotated[int | None, _option("--head", min=0, help="Only this KV head, counted from 0.")] = None,
    page: Annotated[
        str | None, _option("--page", metavar="N|N-M", help="Only these pages or chapters; lines where there are none.")
    ] = None,
    first: Annotated[int, _option("--from", min=0, metavar="N", help="Only from this character of a source on.")] = 0,
    end: Annotated[int | None, _option("--to", min=1, metavar="N", help="Only up to this character.")] = None,
    html: Annotated[
        str | None, _option("--html", metavar="FILE", help="Write one HTML file, complete in itself; - for stdout.")
    ] = None,
    force: Annotated[bool, _option("--force", "-f", help="Replace FILE if it exists.")] = False,
    tokenizer: Annotated[
        str | None, _option("--tokenizer", metavar="MODEL", help="Whose tokenizer to use, where the model has moved.")
    ] = None,
    inputs: InputOptions,
    output: OutputOptions,
) -> None:
    """Show the text that a pot was read from, shaded by how many heads still hold each token.

    No model is loaded. In colour on a terminal; elsewhere a mark stands before text that is held by more and more heads
    (░ ▒ ▓ █), · before text that was evicted, and ⋯123⋯ for that many characters which only --source could show.
    --json gives one object per token.
    """
    from infinipot_cli.show.pieces import View

    terminal = app.terminal
    if html is not None and output.json:
        raise UsageError("--html and --json exclude each other", hint="give one of them")
    if end is not None and end <= first:
        raise UsageError(f"--to {end} does not lie behind --from {first}")
    target = _target(terminal, html, force)
    with _opened(app, pot_file) as path:
        holding = _holding(app, path, pot_file, View(first, end, _pages(page)), layer, head, tokenizer)
    holding = _with_originals(holding, source or [], inputs)
    if output.json:
        from infinipot_cli.show.lines import objects

        for item in objects(holding):
            terminal.write_json(item, indent=None)
    elif html is not None:
        _write_html(terminal, holding, target)
    else:
        _write_text(terminal, holding)


def _opened(app: App, name: str) -> Any:
    from infinipot_cli.commands.pot import open_pot

    return open_pot(app, name)


def _holding(
    app: App, path: Path, name: str, view: View, layer: int | None, head: int | None, tokenizer: str | None
) -> Holding:
    from infinipot_cli.show.holding import Holding

    info, census = app.workbench.census(path, layer, head)
    identity = info["identity"]
    vocabulary = app.workbench.vocabulary(tokenizer or identity["name"], identity["tokenizer"])
    if tokenizer is not None and vocabulary is None:
        raise UsageError(
            f"{tokenizer} is not on this machine, or its tokenizer is not the one that the pot was read with"
        )
    return Holding(name, info, census, vocabulary, head, view)


def _with_originals(holding: Holding, names: list[str], inputs: InputOptions) -> Holding:
    from infinipot_cli.reading import ingest_options
    from infinipot_cli.show.originals import find_originals

    options = ingest_options(inputs)
    known = holding.info["meta"]["sources"]
    return replace(holding, originals=find_originals(names, known, options) if names else {}, options=options)


def _pages(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = _PAGES.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise UsageError(f"--page takes a page or a range such as 12 or 12-14, not {text!r}")
    return first, last


def _target(terminal: Terminal, html: str | None, force: bool) -> Path | None:
    """Where the page goes, None for stdout. Raises UsageError."""
    from infinipot_cli.commands.pot import writable

    return None if html in (None, "-") else writable(str(html), force)


def _write_html(terminal: Terminal, holding: Holding, path: Path | None) -> None:
    from engine.potfile import replacing
    from infinipot_cli.show.page import html

    if path is None:
        for part in html(holding):
            terminal.binary.write(part.encode())
        terminal.binary.flush()
        return
    try:
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
            stream.writelines(html(holding))
    except OSError as error:
        raise not_written(path, error) from error
    terminal.say(f"saved    {path} ({show_bytes(path.stat().st_size)})", "dim")


def _write_text(terminal: Terminal, holding: Holding) -> None:
    from infinipot_cli.show.plain import TextPage
    from infinipot_cli.show.shades import palette_for

    palette = palette_for(terminal.takes_color(terminal.stdout_tty), terminal.stdout.encoding or "utf-8")
    width = shutil.get_terminal_size().columns if terminal.stdout_tty else None
    slots = holding.census.slots
    if not terminal.quiet:
        lines = (f"{holding.name}: {holding.summary()}", *holding.notes(), palette.legend(slots, holding.has_text))
        terminal.stdout.write("".join(f"{line}\n" for line in lines) + "\n")
    page = TextPage(terminal.stdout.write, palette, slots, width)
    several = len(holding.sources) > 1
    try:
        for number in range(len(holding.sources)):
            page.source(holding.source_name(number) if several else None, holding.unit(number))
            for piece in holding.pieces(number):
                page.piece(piece)
    finally:
        page.end()
    terminal.stdout.flush()
