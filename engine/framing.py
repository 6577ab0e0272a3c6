"""How a document and a question become one conversation: template prefix | document | question and answer header."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.errors import ModelError
from engine.text import Encoder

if TYPE_CHECKING:
    from engine.model import Model

# Letters only, so that no template escapes, strips or splits them.
_DOCUMENT = "DOCUMENTsentinelDOCUMENT"
_ANSWER = "ANSWERsentinelANSWER"
_TEXT = "TEXTsentinelTEXT"


class Framing:
    """One user turn that holds the document; ``before`` is the task's text ahead of it.

    Models without a chat template get plain text with an "Answer:" at the end.
    """

    def __init__(self, model: Model, before: str = "", system: str | None = None) -> None:
        self._tokenizer = model.tokenizer
        self._encoder = Encoder(model.tokenizer)
        self._system = system
        self._before = before
        self.prefix_ids: list[int] = self._prefix()

    @property
    def chat(self) -> bool:
        """Whether the model has a chat template."""
        return bool(self._tokenizer.chat_template)

    def suffix_ids(self, after: str) -> list[int]:
        """What follows the document: the task's text, the end of the user's turn and the head of the answer."""
        if not self.chat:
            return self._encode(lambda text: f"{text}\nAnswer:", after)
        return self._encode(lambda text: self._split(self._render([self._user(text)]), _DOCUMENT)[1], after)

    def next_turn_ids(self, question: str) -> list[int]:
        """What follows an answer when another question is asked in the same conversation."""
        if not self.chat:
            return self._encode(lambda text: f"\n\n{text}\nAnswer:", question)
        answered = [self._user(""), {"role": "assistant", "content": _ANSWER}]

        def rendered(text: str) -> str:
            return self._split(self._render([*answered, {"role": "user", "content": text}]), _ANSWER)[1]

        return self._encode(rendered, question)

    def _prefix(self) -> list[int]:
        if not self.chat:
            start = self._tokenizer.bos_token_id
            return ([] if start is None else [start]) + self._encoder.encode_ahead(self._before)
        return self._encoder.encode_ahead(self._split(self._render([self._user("")]), _DOCUMENT)[0])

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
