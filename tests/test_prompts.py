"""Prompts: those that come with infinipot, the user's own, and files that are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from cli_support import home, invoke  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from infinipot_cli.errors import InfinipotError, UsageError
from infinipot_cli.prompts import Catalyst, Task, all_prompts, builtin_folder, load_catalyst, load_prompt, load_task

CATALYSTS = {"cap-g", "cap-q", "cap-p", "cap-u", "cap-g1", "cap-g2"}
TASKS = {"question", "summary", "logs", "paper", "contract", "meeting"}
TASK = "kind: task\nname: mine\ndescription: mine\ncatalyst: cap-g\n"


def written(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_what_comes_with_infinipot() -> None:
    prompts = list(all_prompts({"INFINIPOT_CONFIG": "/nowhere/config.yaml"}))
    assert {prompt.name for prompt in prompts if isinstance(prompt, Catalyst)} == CATALYSTS
    assert {prompt.name for prompt in prompts if isinstance(prompt, Task)} == TASKS
    for prompt in prompts:
        assert len(prompt.description) > 20
        if isinstance(prompt, Task):
            load_catalyst(prompt.catalyst, {})


def test_pots_serve_every_task() -> None:
    """What stands before the document is in the pot; were it another text per task, a pot would serve one only."""
    assert {load_task(name, {}).before for name in TASKS} == {""}


def test_the_published_catalyst_is_literal() -> None:
    text = "\n\nSummarize the previous context highlighting the most important parts."
    assert load_catalyst("cap-g", {}).text == text
    assert load_catalyst("cap-q", {}).text is None


def test_summaries_in_every_form() -> None:
    forms = {f"{length}-{style}" for length in ("short", "medium", "long") for style in ("paragraph", "bullets")}
    assert set(load_task("summary", {}).variants) == forms


def test_the_question_stands_behind_the_document() -> None:
    task = load_task("question", {})
    assert task.asks
    assert "Question: Who?" in task.turn("Who?")


def test_braces_and_a_document_in_the_middle(tmp_path: Path) -> None:
    task = load_prompt(written(tmp_path, TASK + 'prompt: "{{a}} {document} b {question} {{}}"\n'))
    assert isinstance(task, Task)
    assert task.before == "{a} "
    assert task.turn("{document}{0}") == " b {document}{0} {}"


@given(st.text(max_size=60), st.text(max_size=30))
def test_any_text_around_the_document_comes_back(around: str, question: str) -> None:
    from infinipot_cli.prompts import _Reader
    from infinipot_cli.strict_yaml import Item, StrictFile

    escaped = around.replace("{", "{{").replace("}", "}}")
    reader = _Reader(StrictFile(Path("x.yaml"), {}))
    before, after = reader._template(Item(f"{escaped}{{document}}{escaped}{{question}}{escaped}", 1))
    assert before == around
    assert question.join(after) == around + question + around


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TASK + 'prompt: "{document}"\ncolour: red\n', "line 6: unknown key 'colour'"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  tokens: 3\n', "line 7: unknown key 'tokens' in defaults"),
        (TASK + 'prompt: "no document"\n', "line 5: prompt must hold {document} once"),
        (TASK + 'prompt: "{document}{document}"\n', "line 5"),
        (TASK + 'prompt: "{question} {document}"\n', "line 5"),
        (TASK + 'prompt: "{document} {name}"\n', "line 5: only {document} and {question}"),
        (TASK + 'prompt: "{document!r}"\n', "line 5"),
        (TASK + 'prompt: "{document.__class__}"\n', "line 5"),
        (TASK + 'prompt: "{document:>9}"\n', "line 5"),
        (TASK + 'prompt: "{document} {"\n', "line 5"),
        (TASK + 'prompt: "{document}"\ndefaults: 3\n', "line 6: defaults must be a mapping"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  max_new_tokens: 0\n', "line 7"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  max_new_tokens: true\n', "line 7"),
        (
            TASK + 'prompt: "{document}"\ndefaults:\n  no_repeat: 0\n',
            "line 7: no_repeat must be a whole number above 0",
        ),
        (TASK + 'prompt: "{document}"\ndefaults:\n  avoid: often\n', "line 7: avoid must be a list of phrases"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  whole_sentences: 1\n', "line 7: whole_sentences must be true or"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  avoid: [""]\n', "line 7: avoid must be a list of phrases"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  focus: 0\n', "line 7: focus must be a whole number above 0"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  temperature: -1\n', "line 7"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  temperature: .nan\n', "line 7"),
        (TASK + 'prompt: "{document}"\nvariants:\n  a: {question: x}\n', "line 5"),
        (TASK + 'prompt: "{document}{question}"\nvariants:\n  a: {text: x}\n', "unknown key 'text' in a"),
        (TASK + 'prompt: "{document}{question}"\nvariants:\n  a: {}\n', "`question` is missing"),
        (TASK + 'prompt: "{document} \\ud800"\n', "line 5: prompt holds half of a surrogate pair"),
        (TASK + 'prompt: "{document}"\ndefaults:\n  avoid: ["\\ud800"]\n', "line 7: avoid holds half"),
        (TASK, "`prompt` is missing"),
        (TASK + "prompt: 3\n", "line 5: prompt must be text"),
        ("kind: poem\n", "line 1: kind must be catalyst or task"),
        ("name: mine\n", "`kind` is missing"),
        ("kind: catalyst\nname: yours\ndescription: x\ntext: x\n", "line 2: name must be that of the file"),
        ("kind: catalyst\nname: mine\ndescription: x\n", "either `text` or `from: question`"),
        ("kind: catalyst\nname: mine\ndescription: x\ntext: x\nfrom: question\n", "either"),
        ("kind: catalyst\nname: mine\ndescription: x\nfrom: afar\n", "line 4"),
        ("kind: catalyst\nname: mine\nprompt: x\n", "line 3: unknown key 'prompt'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_prompt(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)


@given(st.dictionaries(st.sampled_from(["kind", "name", "description", "prompt", "text", "variants", "x"]), st.text()))
def test_any_file_is_a_prompt_or_a_usage_error(content: dict[str, str]) -> None:
    from infinipot_cli.prompts import _Reader
    from infinipot_cli.strict_yaml import StrictFile

    reader = _Reader(StrictFile.parse(yaml.safe_dump(content, allow_unicode=True), Path("x.yaml")))
    for take in (reader.task, reader.catalyst):
        try:
            take()
        except InfinipotError:
            pass


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_prompt(path)
    with pytest.raises(UsageError, match="no prompt file"):
        load_task(str(tmp_path / "none.yaml"), {})


def test_the_users_own_come_first(home: Path) -> None:  # noqa: F811
    folder = home / "config" / "infinipot" / "prompts"
    path = written(folder, "kind: catalyst\nname: cap-g\ndescription: my own words\ntext: Attend!\n", "cap-g")
    assert invoke("prompts", "path").stdout == f"{folder}\n"
    assert invoke("prompts", "path", "cap-g").stdout == f"{path}\n"
    assert "Attend!" in invoke("prompts", "show", "cap-g").stdout
    listed = {row["name"]: row for row in invoke("prompts", "list", "--json").json}
    assert listed["cap-g"]["description"] == "my own words"
    assert set(listed) == CATALYSTS | TASKS


def test_list_and_show() -> None:
    lines = invoke("prompts", "list").stdout.splitlines()
    assert len(lines) == len(CATALYSTS | TASKS)
    assert lines[0].startswith("task")
    assert invoke("prompts", "show", "summary").stdout == (builtin_folder() / "summary.yaml").read_text()
    assert invoke("prompts", "show", "summary", "--json").json["variants"]["short-bullets"]["question"]
    assert invoke("prompts", "show", "nothing").code == 2


def test_the_prompt_files_in_the_docs_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "prompts.md").read_text(encoding="utf-8")
    shown = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    prompts = [load_prompt(written(tmp_path, text, yaml.safe_load(text)["name"])) for text in shown]
    assert [type(prompt) for prompt in prompts] == [Catalyst, Task]
    assert prompts[1].catalyst == prompts[0].name
