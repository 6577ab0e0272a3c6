"""One run from sources to answer: load a model, read into a pot or take one from a file, answer, give the receipt.

Shared by ask, summarize, chat and pot; the commands decide what to do with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.errors import ModelError
from engine.settings import HOLDS_ALL, PotSettings
from infinipot_cli import catalog
from infinipot_cli.interrupts import Interrupts
from infinipot_cli.options import ModelOptions
from infinipot_cli.plan import Plan
from infinipot_cli.progress import make_progress
from infinipot_cli.prompts import Task
from infinipot_cli.reading import Feed, Readout, open_plan, read_sources, total_bytes
from infinipot_cli.receipt import Receipt
from infinipot_cli.wiring import App
from infinipot_cli.wishes import (
    Options,
    Wish,
    catalyst_ids,
    check_options,
    check_room,
    generation_settings,
    pot_settings,
)
from infinipot_cli.workbench import Framing, Generation, Session, Stats

# Fewer tokens than this say nothing about the speed of reading.
_TELLING_TOKENS = 500


class Run:
    """A run under way. Use as a context manager: progress goes away whatever happens."""

    def __init__(self, app: App, command: str, options: Options) -> None:
        self.app = app
        self.terminal = app.terminal
        self.options = options
        self.receipt = Receipt(command)
        self.progress = make_progress(app.terminal)
        self.interrupts = Interrupts()
        self.pot: Any = None
        self._session: Session | None = None
        check_options(options)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    @property
    def session(self) -> Session:
        """The loaded model; loaded when first asked for."""
        if self._session is None:
            self._session = self.load(self.options.model)
        return self._session

    def load(self, options: ModelOptions) -> Session:
        """Load the model and note it on the receipt."""
        self.progress.stage(f"Loading {options.model}")
        with self.timed("loading"):
            session = self.app.workbench.load(options, self._report)
        self.receipt.model = session.describe()
        self._session = session
        self.progress.stop()
        self.terminal.detail(f"attention kernel: {self.receipt.model.get('kernel')}")
        return session

    def renew(self, command: str) -> None:
        """Begin a new receipt for another document; the model stays loaded."""
        model = self.receipt.model
        self.receipt = Receipt(command, model=model)

    def framing(self, task: Task) -> Framing:
        return self.session.framing(task.before, task.system)

    def fill(self, plan: Plan, wish: Wish) -> None:
        """Get the pot: from a pot file, or by reading the sources."""
        if plan.pot:
            with plan.pot_file() as path:
                self.take_pot(path, plan.names[0], wish.task)
            return
        sources = open_plan(plan, self.options.inputs)
        self.read(Feed(sources, plan.several, total_bytes(plan.names)), wish)
        self.receipt.skipped = list(sources.skipped)

    def take_pot(self, path: Path, name: str, task: Task) -> None:
        """Load a pot file with the model it belongs to."""
        info = self.app.workbench.pot_info(path)
        self._load_model_of(info["identity"]["name"])
        session = self.session
        self.progress.stage(f"Loading {name}")
        with self.timed("loading"):
            self.pot, meta = session.load(path)
        self.receipt.sources = [source for source in meta["sources"] if isinstance(source, dict)]
        self.receipt.settings |= {"pot": self.pot.settings.to_dict(), "catalyst": meta["catalyst"]}
        self._note_pot()
        self.receipt.pot["file_dtype"] = info["dtype"]
        if any(meta["prompt"].get(part, value) != value for part, value in ahead(task).items()):
            self.warn(f"the task {task.name} has a text ahead of the document; this pot was read behind another one")
        for name in asdict(self.options.pot):
            if self.app.origins.get(name, "").startswith("flag"):
                self.warn(f"--{name.replace('_', '-')} has no effect on a pot that was already read")

    def read(self, feed: Feed, wish: Wish) -> None:
        """Read documents into a new pot. Raises KeyboardInterrupt if reading was broken off and is not wanted."""
        framing = self.framing(wish.task)
        settings = pot_settings(self.options.pot, self.session.entry_bytes)
        answer = generation_settings(self.options.answer, wish, settings, self.session.name).max_new_tokens
        check_room(settings, len(framing.prefix_ids) + len(framing.suffix_ids(wish.after)) + answer)
        self._note_settings(settings, wish)
        if settings.method in HOLDS_ALL:
            for name in ("capacity", "pot_size", "distilled"):
                if self.app.origins.get(name, "").startswith("flag"):
                    self.warn(f"--{name.replace('_', '-')} has no effect with --method {settings.method}")
        reading = self.session.reading(settings, framing.prefix_ids, catalyst_ids(framing, wish))
        self.progress.stage("Reading")
        with self.interrupts.polite(self._stopping), self.timed("reading"):
            readout = read_sources(feed, reading, self.progress, self.interrupts)
            if readout.interrupted and not readout.tokens:
                self.progress.stop()
                self.terminal.say("nothing had been read yet")
                raise KeyboardInterrupt
            self.progress.stage("Reading the last block")
            if not readout.interrupted or self.answers_when_interrupted:
                self.pot = reading.finish()
            if self.interrupts.pressed and not self.answers_when_interrupted:
                raise KeyboardInterrupt
        self._note_reading(readout, reading.stats)

    @property
    def answers_when_interrupted(self) -> bool:
        """What Ctrl-C while reading means: --on-interrupt, else `answer` where somebody watches."""
        chosen = self.options.run.on_interrupt
        if chosen is not None:
            return chosen == "answer"
        return self.terminal.stderr_tty and self.receipt.command != "pot save"

    def answer(self, wish: Wish, suffix: list[int] | None = None, shown: bool = True) -> Generation:
        """Answer from the pot; ``shown`` streams the text to stdout. ``suffix`` replaces the wish's own ids."""
        ids = self.framing(wish.task).suffix_ids(wish.after) if suffix is None else suffix
        settings = generation_settings(self.options.answer, wish, self.pot.settings, self.session.name)
        self.receipt.settings["generation"] = vars(settings)
        self.progress.stage("Answering")
        stream = _Stream(self) if shown and not self.terminal.json else None
        with self.interrupts.polite(), self.timed("answering"):
            result = self.session.generate(
                self.pot, ids, settings, stream.take if stream else None, self.interrupts.is_pressed
            )
        self.progress.stop()
        if stream:
            stream.end()
        self._note_answer(wish, result)
        if not result.text and result.stop_reason != "interrupted":
            self.warn("the model answered nothing")
        return result

    def finish(self, human: bool = True) -> None:
        """Give the receipt: as JSON on stdout, or as lines on stderr."""
        self.progress.stop()
        if self.terminal.json:
            self.terminal.write_json(self.receipt.to_dict())
        elif human:
            if self.terminal.stdout_tty and self.receipt.answer is not None:
                self.terminal.say("")
            for line in self.receipt.lines():
                self.terminal.say(line, "dim")

    def warn(self, text: str) -> None:
        """A warning, also on the receipt."""
        self.progress.stop()
        self.receipt.warnings.append(text)
        self.terminal.warn(text)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time spent inside to the receipt."""
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = self.receipt.timings.get(name, 0.0) + time.perf_counter() - began
            self.receipt.timings[name] = spent

    def _report(self, line: str) -> None:
        """What loading has to say, such as that a model is being fetched."""
        self.progress.stop()
        self.terminal.say(line)
        self.progress.stage(line)

    def _stopping(self) -> None:
        self.progress.stage("Stopping; Ctrl-C again stops at once")

    def _load_model_of(self, made_with: str) -> None:
        """Unless a model is named, take the one that the pot was made with, if it is here or comes by itself."""
        if self._session is not None or self.app.chosen("model") or made_with == self.options.model.model:
            return
        if catalog.find(made_with) not in catalog.PINNED and not self.app.workbench.on_this_machine(made_with):
            raise ModelError(
                f"this pot was made with {made_with}, which is not on this machine",
                hint=f"infinipot models pull {made_with}, or name its folder with --model",
            )
        self.load(replace(self.options.model, model=made_with))

    def _note_settings(self, settings: PotSettings, wish: Wish) -> None:
        self.receipt.settings |= {
            "pot": settings.to_dict(),
            "task": wish.task.name,
            "catalyst": {"name": wish.catalyst.name, "text": wish.catalyst.text},
        }

    def _note_reading(self, readout: Readout, stats: Stats) -> None:
        self.receipt.sources = readout.sources
        self.receipt.interrupted = readout.interrupted
        self.receipt.timings["distilling"] = stats.seconds_distilling
        self._note_pot()
        if readout.interrupted:
            self.warn(f"reading was interrupted; going on with the {readout.tokens:,} tokens read so far")
        seconds = stats.seconds_reading + stats.seconds_distilling
        if readout.tokens >= _TELLING_TOKENS and seconds > 0:
            self.app.workbench.remember_rate(self.options.model, readout.tokens / seconds)

    def _note_pot(self) -> None:
        pot = self.pot
        self.receipt.pot |= {
            "capacity": pot.capacity if pot.settings.bounded else None,
            "entries": pot.entries,
            "bytes": pot.nbytes,
            "cycles": pot.cycles,
        }
        self.receipt.tokens |= {"read": pot.tokens_read, "kept": pot.entries - pot.protected}

    def _note_answer(self, wish: Wish, result: Generation) -> None:
        self.receipt.question = wish.question or None
        self.receipt.answer, self.receipt.stop_reason = result.text, result.stop_reason
        self.receipt.tokens |= {"question": result.prompt_tokens, "answer": len(result.token_ids)}
        self.receipt.timings |= {"first_token": result.seconds_prompt, "writing": result.seconds_writing}


class _Stream:
    """The answer on its way to stdout: the progress goes at the first piece, spaces before the text are dropped."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last = ""

    def take(self, text: str) -> None:
        if not self._last:
            text = text.lstrip()
        if not text:
            return
        self._run.progress.stop()
        self._run.terminal.write(text)
        self._last = text

    def end(self) -> None:
        if not self._last.endswith("\n"):
            self._run.terminal.write("\n")


def ahead(task: Task) -> dict[str, str | None]:
    """What stands ahead of the document in a task, for a pot to remember."""
    return {"before": task.before, "system": task.system}
