"""How a document and a question become one conversation: template prefix | document | question and answer header."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from engine.errors import ModelError
from engine.text import Encoder

if TYPE_CHECKING:
    from engine.model import Model

# Letters only, so that no template escapes, strips or splits them.
_DOCUMENT = "DOCUMENTsentinelDOCUMENT"
_ANSWER = "ANSWERsentinelANSWER"
_TEXT = "TEXTsentinelTEXT"

#: What stands around a task's own words. "turn": the chat template, and for models without one an "Answer:" at the
#: end; "prompt": the chat template if there is one, else nothing; "bare": nothing in any case. Where nothing does,
#: the text is what a tokenizer makes of it, with the start token that it puts there by itself.
Frame = Literal["turn", "prompt", "bare"]


class Framing:
    """One user turn that holds the document; ``before`` is the task's text ahead of it.

    ``frame`` says what else is put around them (see Frame).
    """

    def __init__(self, model: Model, before: str = "", system: str | None = None, frame: Frame = "turn") -> None:
        self._tokenizer = model.tokenizer
        self._frame = frame
        self._encoder = Encoder(model.tokenizer)
        self._system = system
        self._before = before
        self.prefix_ids: list[int] = self._prefix()

    @property
    def chat(self) -> bool:
        """Whether there is a chat template, and it is wanted."""
        return bool(self._tokenizer.chat_template) and self._frame != "bare"

    def suffix_ids(self, after: str) -> list[int]:
        """What follows the document: the task's text, the end of the user's turn and the head of the answer."""
        if not self.chat:
            return self._encode(lambda text: f"{text}{self._lead}", after)
        return self._encode(lambda text: self._split(self._render([self._user(text)]), _DOCUMENT)[1], after)

    def next_turn_ids(self, question: str) -> list[int]:
        """What follows an answer when another question is asked in the same conversation."""
        if not self.chat:
            return self._encode(lambda text: f"\n\n{text}{self._lead}", question)
        answered = [self._user(""), {"role": "assistant", "content": _ANSWER}]

        def rendered(text: str) -> str:
            return self._split(self._render([*answered, {"role": "user", "content": text}]), _ANSWER)[1]

        return self._encode(rendered, question)

    @property
    def _lead(self) -> str:
        """What leads into the answer where no template does."""
        return "\nAnswer:" if self._frame == "turn" else ""

    def _prefix(self) -> list[int]:
        if not self.chat:
            return self._start() + self._encoder.encode_ahead(self._before)
        return self._encoder.encode_ahead(self._split(self._render([self._user("")]), _DOCUMENT)[0])

    def _start(self) -> list[int]:
        """The start token where no template sets one: any that there is, or only what the tokenizer itself puts."""
        start = self._tokenizer.bos_token_id
        own = [start] if self._frame == "turn" else self._tokenizer("")["input_ids"][:1]
        return own if start is not None and own == [start] else []

    def _user(self, after: str) -> dict[str, str]:
        return {"role": "user", "content": f"{self._before}{_DOCUMENT}{after}"}

    def _render(self, turns: list[dict[str, str]]) -> str:
        """The conversation as text, up to the head of the answer; a system text goes where the template takes one."""
        if self._system:
            try:
                text = self._apply([{"role": "system", "content": self._system}, *turns])
            except ModelError:
                text = ""
            if self._system.strip() in text:
                return text
            # The template refuses or drops a system turn.
            turns = [{"role": "user", "content": f"{self._system}\n\n{turns[0]['content']}"}, *turns[1:]]
        return self._apply(turns)

    def _apply(self, turns: list[dict[str, Any]]) -> str:
        try:
            return self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except Exception as error:  # templates are programs, with errors in words of their own choosing
            raise ModelError(f"the model's chat template cannot be rendered: {error}") from error

    def _split(self, text: str, sentinel: str) -> tuple[str, str]:
        if text.count(sentinel) != 1:
            raise ModelError(
                "the model's chat template drops or repeats the user's text, so a document cannot be placed in it"
            )
        before, _, after = text.partition(sentinel)
        return before, after

    def _encode(self, rendered: Callable[[str], str], users: str) -> list[int]:
        """Template text around ``users`` text, whose control tokens, if it has any, stay text."""
        if not self._encoder.holds_markup(users):
            return self._encoder.encode(rendered(users), "a", markup=True)[0]
        before, after = self._split(rendered(_TEXT), _TEXT)
        parts = [(before, "a", True), (users, "\n", False), (after, "a", True)]
        return [i for part, anchor, markup in parts for i in self._encoder.encode(part, anchor, markup)[0]]
