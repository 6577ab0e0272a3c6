"""Counting the tokens of documents, source by source: for ``tokens`` and --dry-run."""

from __future__ import annotations

from typing import Any

from infinipot_cli.options import InputOptions
from infinipot_cli.plan import Plan
from infinipot_cli.progress import make_progress
from infinipot_cli.reading import open_plan
from infinipot_cli.wiring import App
from infinipot_cli.workbench import Counter


def count_sources(app: App, plan: Plan, inputs: InputOptions, counter: Counter) -> list[dict[str, Any]]:
    """The report of every source, with its tokens; reads them all, and says what was left out. Raises InputError as
    ingestion does."""
    progress = make_progress(app.terminal)
    counted = []
    sources = open_plan(plan, inputs)
    try:
        for source in sources:
            progress.stage(f"Counting {source.name}")
            tokens = sum(counter.count(passage.text) for passage in source.passages())
            counted.append(source.report().to_dict() | {"tokens": tokens})
    finally:
        progress.stop()
    for report in counted:
        for text in (*report["skipped"], *report["warnings"]):
            app.terminal.warn(f"{report['name']}: {text}")
    for text in sources.skipped:
        app.terminal.warn(f"skipped {text}")
    return counted
