"""``infinipot prompts``: the wordings there are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infinipot_cli.options import OutputOptions
from infinipot_cli.wiring import App, Command, takes

app = typer.Typer(no_args_is_help=True, help="Show the catalysts and tasks, and where to put your own.")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="A name from the list, or a path.")]


@app.command("list", cls=Command)
@takes
def list_prompts(app: App, output: OutputOptions) -> None:
    """List every task and catalyst."""
    from infinipot_cli.prompts import Task, all_prompts

    rows: list[dict[str, Any]] = [
        {
            "name": prompt.name,
            "kind": "task" if isinstance(prompt, Task) else "catalyst",
            "description": prompt.description,
            "path": str(prompt.path),
        }
        for prompt in all_prompts(app.terminal.environ)
    ]
    if output.json:
        app.terminal.write_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        app.terminal.write(f"{row['kind']:<8}  {row['name']:<{width}}  {row['description']}\n")


@app.command("show", cls=Command)
@takes
def show(app: App, name: Name, output: OutputOptions) -> None:
    """Print the file of a prompt."""
    from infinipot_cli.prompts import find_prompt, load_prompt

    path = find_prompt(name, app.terminal.environ)
    prompt = load_prompt(path)
    if output.json:
        fields = {key: value for key, value in vars(prompt).items() if key != "variants"}
        variants = {key: vars(variant) for key, variant in getattr(prompt, "variants", {}).items()}
        app.terminal.write_json(fields | {"path": str(path)} | ({"variants": variants} if variants else {}))
    else:
        app.terminal.write(path.read_text(encoding="utf-8"))


@app.command("path", cls=Command)
@takes
def path(
    app: App,
    output: OutputOptions,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", show_default=False, help="A prompt; without it, your own folder.")
    ] = None,
) -> None:
    """Print where a prompt is, or where your own prompts go."""
    from infinipot_cli.folders import user_prompts
    from infinipot_cli.prompts import find_prompt

    environ = app.terminal.environ
    found = find_prompt(name, environ) if name else user_prompts(environ)
    if output.json:
        app.terminal.write_json({"path": str(found)})
    else:
        app.terminal.write(f"{found}\n")
