"""tokens, and the counters behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import FakeWorkbench, home, invoke  # noqa: F401

from infinipot_cli import counting, local, memory, models
from infinipot_cli.options import ModelOptions


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model folder with nothing in it but a tokenizer that splits at spaces, and a config."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(max_length=2)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = '{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}'
    (folder / "config.json").write_text(config)
    return str(folder)


def test_one_file_and_several(tmp_path: Path) -> None:
    for name, text in (("a.txt", "one two three"), ("b.txt", "word " * 2000)):
        (tmp_path / name).write_text(text)
    one = invoke("tokens", tmp_path / "a.txt")
    assert one.stdout == f"3  {tmp_path / 'a.txt'}\n"
    assert "counted with fake counter" in one.stderr
    both = invoke("tokens", tmp_path / "a.txt", tmp_path / "b.txt").stdout.splitlines()
    assert both[1] == f"2,000  {tmp_path / 'b.txt'}"
    assert both[2] == "2,003  total"


def test_json_and_stdin() -> None:
    content = invoke("tokens", "--json", stdin=b"one two").json
    assert content["tokens"] == 2
    assert content["counted_with"] == "fake counter"
    assert content["sources"][0]["name"] == "stdin"


def test_a_file_of_several_names_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three")
    result = invoke("tokens", tmp_path, tmp_path / "a.txt", "--json")
    assert result.json["tokens"] == 3
    assert "a.txt: a file that is read under another name" in result.stderr


def test_a_pot_has_no_tokens_to_count(tmp_path: Path) -> None:
    pot = tmp_path / "x.pot"
    assert invoke("pot", "save", "-o", pot, stdin=b"text").code == 0
    assert invoke("tokens", pot).code == 2


def test_no_model_is_loaded() -> None:
    bench = FakeWorkbench()
    invoke("tokens", stdin=b"text", bench=bench)
    assert not bench.loaded


def test_the_models_own_tokenizer_by_wish(model: str) -> None:
    said: list[str] = []
    counter = local.LocalWorkbench().counter(ModelOptions(model=model), own=True, report=said.append)
    assert counter.exact
    assert counter.count("one two three four") == 4
    assert said == []


def test_half_a_surrogate_pair_is_counted(model: str) -> None:
    counter = local.LocalWorkbench().counter(ModelOptions(model=model), own=True, report=lambda line: None)
    assert counter.count("x \ud800 y") == 3


def test_without_tiktokens_vocabulary_the_model_counts_and_says_so(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_tiktoken", lambda: None)
    monkeypatch.setattr(models, "is_local", lambda name: False)
    said: list[str] = []
    counter = counting.open_counter(ModelOptions(model=model), own=False, offline=False, report=said.append)
    assert counter.count("one two") == 2
    assert "tiktoken" in said[0]


def test_a_model_that_is_here_counts_and_the_network_is_not_asked(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_tiktoken", lambda: pytest.fail("tiktoken was asked"))
    counter = counting.open_counter(ModelOptions(model=model), own=False, offline=False, report=pytest.fail)
    assert (counter.count("one two"), counter.exact) == (2, True)


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three\n" * 900 + "\0")
    (tmp_path / "program").write_bytes(b"\x7fELF" + bytes(100))
    for words in (("tokens", tmp_path), ("ask", tmp_path, "Who?", "--dry-run")):
        said = invoke(*words).stderr
        assert "skipped" in said
        assert "program: is a program (ELF)" in said
        assert "a.txt: 1 NUL character" in said


def test_offline_asks_the_network_for_nothing(model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail() -> None:
        raise AssertionError("tiktoken was asked")

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(counting, "_tiktoken", fail)
    counting.open_counter(ModelOptions(model=model), own=False, offline=True, report=lambda line: None)


def test_tiktoken_where_it_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    class Encoding:
        def encode_ordinary(self, text: str) -> list[str]:
            return list(text)

    monkeypatch.setattr(counting, "_tiktoken", Encoding)
    counter = counting.open_counter(ModelOptions(), own=False, offline=False, report=lambda line: None)
    assert (counter.count("abc"), counter.exact) == (3, False)


def test_a_download_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    import tiktoken

    never = threading.Event()
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: never.wait(5))
    monkeypatch.setattr(counting, "_DOWNLOAD_SECONDS", 0.05)
    assert counting._tiktoken() is None
    never.set()


def test_facts_of_a_folder(model: str) -> None:
    facts = local.LocalWorkbench().facts(ModelOptions(model=model, dtype="float32"))
    assert facts.entry_bytes == 2 * 2 * 2 * 8 * 4
    assert facts.tokens_per_second is None


def test_facts_of_the_default_model() -> None:
    facts = local.LocalWorkbench().facts(ModelOptions(device="cpu"))
    assert facts.entry_bytes == 46080
    assert facts.tokens_per_second


def test_speeds_and_proofs_are_remembered(home: Path) -> None:  # noqa: F811
    options = ModelOptions(device="cpu")
    bench = local.LocalWorkbench()
    assert not bench.facts(options).measured
    bench.remember_rate(options, 123.45)
    assert bench.facts(options).tokens_per_second == pytest.approx(123.4, abs=0.1)
    proofs = memory.Proofs()
    assert "a" not in proofs
    proofs.add("a")
    assert "a" in memory.Proofs()
    proofs.discard("a")
    assert len(memory.Proofs()) == 0


def test_a_memory_that_is_damaged_or_cannot_be_written_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    path = home / "cache" / "infinipot" / "memory.json"
    path.parent.mkdir(parents=True)
    for damage in ("{", "[]", '{"rates": 3, "proofs": {}}'):
        path.write_text(damage)
        assert memory.recall_rate("x") is None
        memory.remember_rate("x", 5)
        assert memory.recall_rate("x") == 5
    monkeypatch.setenv("INFINIPOT_CACHE", "/dev/null/x")
    memory.remember_rate("y", 5)
    memory.Proofs().add("z")
    assert memory.recall_rate("y") is None
