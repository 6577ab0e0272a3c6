"""LongBench's tasks: the official prompts and lengths, cut at the document; and how they are framed and answered."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from engine.errors import ModelError
from engine.framing import Framing
from engine.generation import generate, stops_of
from engine.model import Model
from engine.settings import GenerationSettings, PotSettings
from engine.text import Encoder
from infinipot_cli.bench.longbench import tasks
from infinipot_cli.bench.longbench.tasks import all_tasks, groups, split
from infinipot_cli.local import LocalSession
from tests import tiny

# Table 1 of the paper, from left to right; and dataset2maxlen.json.
LENGTHS = {
    "narrativeqa": 128, "qasper": 128, "multifieldqa_en": 64,
    "hotpotqa": 32, "2wikimqa": 32, "musique": 32,
    "gov_report": 512, "qmsum": 512, "multi_news": 512,
    "trec": 64, "triviaqa": 32, "samsum": 128,
    "passage_count": 32, "passage_retrieval_en": 32,
    "lcc": 64, "repobench-p": 64,
}  # fmt: skip
BARE = {"trec", "triviaqa", "samsum", "lcc", "repobench-p"}
PIECES = st.text(alphabet="ab {}\n", max_size=12).map(lambda text: text.replace("{", "{{").replace("}", "}}"))


def whole(name: str, document: str, question: str) -> str:
    """The user's turn, put together again."""
    wording = all_tasks()[name].wording
    return wording.before + document + wording.turn(question)


def test_the_sixteen_tasks_in_the_order_of_the_paper() -> None:
    assert {name: task.max_new_tokens for name, task in all_tasks().items()} == LENGTHS
    assert list(all_tasks()) == list(LENGTHS)
    names = {group: [task.name for task in inside] for group, inside in groups(list(all_tasks().values())).items()}
    assert [len(inside) for inside in names.values()] == [3, 3, 3, 3, 2, 2]
    assert names["single-document QA"] == ["narrativeqa", "qasper", "multifieldqa_en"]
    assert names["code"] == ["lcc", "repobench-p"]


def test_which_rules_hold_for_which_task() -> None:
    found = all_tasks().values()
    assert {task.name for task in found if task.frame == "bare"} == BARE
    assert {task.name for task in found if task.first_line} == {"trec", "triviaqa", "samsum"}
    assert {task.name for task in found if task.one_line} == {"samsum"}
    # Section 4.4.1: the question for QA, the general prompt for all other tasks.
    assert {task.wording.catalyst for task in found if "QA" in task.group} == {"cap-q"}
    assert {task.wording.catalyst for task in found if "QA" not in task.group} == {"cap-g"}


def test_prompts_are_the_official_ones_to_the_letter() -> None:
    assert whole("multifieldqa_en", "DOC", "Why?") == (
        "Read the following text and answer briefly.\n\nDOC\n\nNow, answer the following question based on the above "
        "text, only give me the answer and do not output any other words.\n\nQuestion: Why?\nAnswer:"
    )
    assert whole("lcc", "DOC", "ignored") == "Please complete the code given below. \nDOCNext line of code:\n"
    assert whole("repobench-p", "DOC", "ASK") == "Please complete the code given below. \nDOCASKNext line of code:\n"
    assert whole("trec", "DOC", "ASK").endswith("Here are some examples of questions.\n\nDOC\nASK")
    assert whole("narrativeqa", "DOC", "ASK").count("asconcisely as you can") == 2
    assert whole("passage_count", "DOC", "ASK").endswith("\n\nThe final answer is: ")
    assert whole("passage_retrieval_en", "DOC", "ASK").endswith('"Paragraph 2", etc.\n\nThe answer is: ')
    assert "summary of all news. \n\nNews:\nDOC\n\nNow" in whole("multi_news", "DOC", "ASK")
    assert 'write "unanswerable". If' in whole("qasper", "DOC", "ASK")


def test_the_licence_of_the_prompts_is_carried() -> None:
    text = tasks.FILE.with_name("LICENSE").read_text(encoding="utf-8")
    assert "MIT License" in text
    assert "THU-KEG & Zhipu AI" in text


@given(PIECES, PIECES, PIECES)
def test_a_prompt_put_together_is_what_format_makes_of_it(first: str, second: str, third: str) -> None:
    prompt = f"{first}{{context}}{second}{{input}}{third}"
    before, after = split(prompt)
    assert before + "DOC {x}" + "ASK".join(after) == prompt.format(context="DOC {x}", input="ASK")


@pytest.mark.parametrize("prompt", ["nothing", "{input}{context}", "{context}{context}", "{context}{input}{input}"])
def test_other_prompts_are_refused(prompt: str) -> None:
    with pytest.raises(ValueError, match="a prompt holds"):
        split(prompt)


# ------------------------------------------------------------------------------- framing, on a tiny real model


def framed(model: Model, name: str, document: str, question: str) -> list[int]:
    """The ids that a model gets to see in all."""
    task = all_tasks()[name]
    framing = LocalSession(model).framing(task.wording.before, None, task.frame)
    read = Encoder(model.tokenizer).batch(document, 0, 0, False).ids.tolist()
    return framing.prefix_ids + read + framing.suffix_ids(task.wording.turn(question))


def plain(model: Model, text: str) -> list[int]:
    return model.tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", sorted(BARE))
def test_bare_tasks_are_the_prompt_and_nothing_else(name: str) -> None:
    model = tiny.model()
    document, question = "the cat sat on the mat\n", "the dog\n"
    ids = framed(model, name, document, question)
    assert model.tokenizer.decode(ids) == whole(name, document, question)


@pytest.mark.parametrize("name", ["hotpotqa", "passage_count"])
def test_other_tasks_stand_in_the_chat_template(name: str) -> None:
    model = tiny.model()
    turns = [{"role": "user", "content": whole(name, "the cat sat", "who sat?")}]
    text = model.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert model.tokenizer.decode(framed(model, name, "the cat sat", "who sat?")) == text


@pytest.mark.parametrize("name", ["hotpotqa", "lcc"])
def test_models_without_a_template_see_the_prompt_alone(name: str) -> None:
    model = tiny.with_tokenizer(None)
    assert model.tokenizer.decode(framed(model, name, "the cat sat", "who?")) == whole(name, "the cat sat", "who?")


def test_the_start_token_is_the_tokenizers_own() -> None:
    model = tiny.with_tokenizer(None)
    assert Framing(model, "Read.\n", frame="bare").prefix_ids == plain(model, "Read.\n")
    assert Framing(model, "Read.\n").prefix_ids[0] == model.tokenizer.bos_token_id
    putting = tiny.with_tokenizer(None)
    start = putting.tokenizer.bos_token
    putting.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, putting.tokenizer.bos_token_id)]
    )
    assert Framing(putting, "Read.\n", frame="bare").prefix_ids == putting.tokenizer("Read.\n")["input_ids"]
    assert Framing(putting, "Read.\n", frame="bare").prefix_ids[0] == putting.tokenizer.bos_token_id


def test_a_template_that_cannot_be_rendered_does_not_matter_to_bare_tasks() -> None:
    model = tiny.with_tokenizer(tiny.BROKEN)
    assert Framing(model, "Read.\n", frame="bare").suffix_ids("\nWhy?") == plain(model, "\nWhy?")
    with pytest.raises(ModelError):
        Framing(model, "Read.\n", frame="prompt")


# ------------------------------------------------------------------------------------------------- answers


class Scripted:
    """Makes the tiny model prefer the ids of a list, one after the other, whatever it reads."""

    def __init__(self, model: Model, preferred: list[list[int]]) -> None:
        self._head = model.module.lm_head
        self._preferred = preferred
        self._step = 0

    def __enter__(self) -> None:
        self._handle = self._head.register_forward_hook(self._hook)

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def _hook(self, module: torch.nn.Module, inputs: object, logits: torch.Tensor) -> torch.Tensor:
        forced = torch.zeros_like(logits)
        for rank, token in enumerate(self._preferred[min(self._step, len(self._preferred) - 1)]):
            forced[..., token] = 10.0 - rank
        self._step += 1
        return forced


def answer(model: Model, preferred: list[list[int]], one_line: bool) -> tuple[str, str]:
    """(what is written, why it ended) where the model prefers these ids."""
    pot = tiny.read(model, PotSettings(capacity=128, distilled=32), tiny.document(40))
    with Scripted(model, preferred):
        found = generate(model, pot, [5, 6], GenerationSettings(max_new_tokens=6, one_line=one_line))
    assert found.text == found.raw.strip()
    return found.raw, found.stop_reason


def test_one_line_ends_at_a_line_end_but_does_not_begin_with_one() -> None:
    model = tiny.model()
    ids = {text: plain(model, text)[-1] for text in ("\n", "c", "d")}
    end, stop = ids["\n"], model.tokenizer.eos_token_id
    script = [[end, stop, ids["c"]], [ids["d"]], [end], [ids["d"]]]
    assert answer(model, script, one_line=True) == ("cd\n", "stop")
    assert answer(model, script, one_line=False) == ("\nd\nddd", "length")
    assert answer(model, [[stop, ids["c"]], [stop]], one_line=False) == ("", "stop")
    assert answer(model, [[stop, ids["c"]], [stop]], one_line=True) == ("c", "stop")


def test_what_ends_an_answer() -> None:
    model = tiny.model()
    assert stops_of(model, GenerationSettings()) == [tiny.STOP]
    assert stops_of(model, GenerationSettings(one_line=True)) == [tiny.STOP, plain(model, "\n")[-1]]


def test_white_space_around_an_answer_is_kept_beside_it() -> None:
    model = tiny.model()
    blank, letter = plain(model, "    ")[-1], plain(model, "c")[-1]
    raw, _ = answer(model, [[blank], [letter], [tiny.STOP]], one_line=False)
    assert raw == model.tokenizer.decode([blank, letter])
    assert raw.startswith(" ")


def test_the_package_carries_the_tasks() -> None:
    assert tasks.FILE.is_file()
    assert Path(tasks.__file__).parent == tasks.FILE.parent
