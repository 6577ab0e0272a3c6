"""The benchmark of peers: documents, limits, order and tables; no model is loaded."""

from __future__ import annotations

import json
import os
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers.agreement import KEPT, overlap
from benchmarks.peers.common import Case, Job, until_stop
from benchmarks.peers.documents import Haystack, Needle, pass_key, questions, sentences
from benchmarks.peers.report import outcomes, report, table
from benchmarks.peers.run import PEERS, Kind, absent, parse_lengths, rotated, run_all, unfit
from benchmarks.peers.stock import passages, within
from benchmarks.peers.supervise import Run, supervise
from benchmarks.peers.worker import out_of_memory
from infinipot_cli.bench.table import as_text
from infinipot_cli.errors import UsageError

BOOK = "".join(f"The {word} came home at {number} o'clock. " for number, word in enumerate(["cat", "dog", "cow"] * 4))
words = st.text("ab.!? \n’”", max_size=200)


def count(text: str) -> int:
    return len(text.split())


def needle(text: str) -> Needle:
    return Needle("n", "question", text, "?", ("!",))


@given(words)
def test_sentences_together_are_the_text(text: str) -> None:
    assert "".join(sentences(text)) == text


@given(st.integers(12, 300), st.floats(0, 1))
def test_a_needle_is_hidden_once_at_its_depth_and_the_document_is_no_longer_than_asked(
    tokens: int, depth: float
) -> None:
    hidden = pass_key(0, 0)
    text = Haystack(BOOK, count).hide(hidden, depth, tokens)
    assert text.count(hidden.text) == 1
    assert tokens - 7 < count(text) <= tokens  # a sentence of the book has seven words
    before = count(text.partition(hidden.text)[0])
    around = count(text) - count(hidden.text)
    assert abs(before - depth * around) <= 7


def test_what_is_hidden_stands_nowhere_else_in_the_book() -> None:
    text = Haystack(BOOK, count).hide(needle("The dog came\nhome at 1 o'clock."), 0.5, 200)
    assert " ".join(text.split()).count("The dog came home at 1 o'clock.") == 1


def test_a_needle_longer_than_the_document_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 3 tokens"):
        Haystack(BOOK, count).hide(needle("one two three four"), 0.5, 3)


def test_question_sets_come_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(
        '{"id": 1, "context": "Ann is 7.", "question": "How old?", "answers": ["7"]}\n'
        '{"id": 2, "context": "Ann is 7.", "question": "Who is Bob?", "answers": []}\n'
        '{"context": "Eve is 9.", "question": "How old is Eve?", "answers": ["9"]}\n',
        encoding="utf-8",
    )
    first, second = questions(str(path), "unread.txt")
    assert first == Needle("1", "question", "Ann is 7.", "How old?", ("7",))
    assert (len(second.id), second.text) == (8, "Eve is 9.")


def test_lines_of_different_settings_are_no_one_table(tmp_path: Path) -> None:
    path = tmp_path / "peers.jsonl"
    path.write_text("".join(json.dumps({"settings": {"capacity": size}}) + "\n" for size in (512, 2048)))
    with pytest.raises(UsageError, match="different settings"):
        report(path, None)


@given(words, st.integers(1, 12))
def test_passages_hold_every_word_in_order_and_no_more_than_they_may(text: str, most: int) -> None:
    found = passages(text, most)
    assert " ".join(found).split() == text.split()
    for passage in found:
        assert count(passage) <= most or len(passages(passage, 1)) == 1


@given(st.permutations(range(8)), st.integers(0, 40))
def test_retrieval_takes_the_best_that_fit_in_the_order_of_the_document(ranked: list[int], room: int) -> None:
    chosen = within(ranked, lambda i: i + 1, room)
    assert chosen == sorted(ranked[: len(chosen)])
    assert sum(i + 1 for i in chosen) <= room
    left = ranked[len(chosen) :]
    assert not left or sum(i + 1 for i in chosen) + left[0] + 1 > room


def test_overlap_counts_kept_positions_that_the_scores_put_first() -> None:
    rising = torch.arange(2.0 * KEPT).expand(2, -1)
    last, middle = torch.arange(KEPT, 2 * KEPT), torch.arange(KEPT // 2, KEPT // 2 + KEPT)
    assert overlap({0: torch.stack([last, middle])}, [rising]) == [1.0, 0.5]


def test_an_answer_ends_before_the_first_stop_token() -> None:
    assert until_stop([5, 6, 2, 7, 2], [2, 9]) == [5, 6]
    assert until_stop([5, 6], [2]) == [5, 6]


def test_lengths_double_to_the_end_named_or_without_one() -> None:
    assert list(parse_lengths("1k,4k..16k")) == [1000, 4000, 8000, 16000]
    assert list(islice(parse_lengths("4k.."), 4)) == [4000, 8000, 16000, 32000]
    with pytest.raises(UsageError, match="lengths such as"):
        list(parse_lengths("long"))


def test_only_what_attends_to_everything_is_bound_by_the_context() -> None:
    fits = {name: unfit(name, 16_000, 8_192, 2_048, past_context=False) is None for name in PEERS}
    assert fits == {"full": False, "snapkv": False, "llama.cpp": False, "bm25": True, "infinipot": True}
    assert unfit("full", 8_000, 8_192, 2_048, past_context=False) is None
    assert unfit("full", 16_000, 8_192, 2_048, past_context=True) is None
    assert unfit("infinipot", 16_000, 8_192, 9_000, past_context=False) is not None


def test_a_peer_that_is_not_installed_says_what_is_missing(tmp_path: Path) -> None:
    kind = Kind(whole=True, interpreter="venv/bin/python")
    assert "venv/bin/python" in (absent(kind, tmp_path, tmp_path) or "")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").touch()
    assert absent(kind, tmp_path, tmp_path) is None


def test_every_peer_begins_in_turn_and_one_that_failed_is_not_run_again() -> None:
    ran: list[tuple[int, int, str]] = []

    def measure(name: str, length: int, trial: int) -> bool:
        ran.append((length, trial, name))
        return not (name == "b" and length == 2)

    run_all(["a", "b", "c"], [1, 2, 4], 2, measure)
    firsts = [next(name for *when, name in ran if when == [length, trial]) for length in (1, 2, 4) for trial in (0, 1)]
    assert firsts == ["a", "b", "c", "a", "c", "c"]  # from its failure on, whoever follows b begins for it
    assert [when for *when, name in ran if name == "b"] == [[1, 0], [1, 1], [2, 0]]


def test_doubling_without_end_stops_when_every_peer_has() -> None:
    run_all(["a", "b"], parse_lengths("1.."), 1, lambda name, length, trial: length < (40 if name == "a" else 5))


def test_rotation() -> None:
    assert [rotated("abc", by) for by in (0, 1, 3, 5)] == [list("abc"), list("bca"), list("abc"), list("cab")]


def run_python(code: str, seconds: float = 20, memory_mib: float = 4_000) -> Run:
    """``code`` as a worker; ``say`` writes an event."""
    say = "import json, time\ndef say(event, **more): print(json.dumps({'event': event, **more}), flush=True)\n"
    return supervise([sys.executable, "-c", say + code], os.environ, seconds, memory_mib)


def test_a_worker_that_ends_well_is_heard() -> None:
    run = run_python("say('loaded', peak_mib=1e6)\nsay('answered')", memory_mib=2e6)
    assert (run.ended, [event["event"] for event in run.events]) == ("ok", ["loaded", "answered"])
    assert run.peak_mib == 1e6
    assert 0 < run.events[0]["seconds"] <= run.events[1]["seconds"]


def test_a_worker_out_of_time_is_stopped_and_says_where_it_was() -> None:
    run = run_python("say('loaded')\nsay('started')\ntime.sleep(60)", seconds=0.5)
    assert (run.ended, run.message) == ("time", "more than 0.5 s while reading or answering")


def test_an_event_starts_the_clock_anew() -> None:
    assert run_python("for _ in range(4):\n    time.sleep(0.4)\n    say('answered')", seconds=1.2).ended == "ok"


def test_a_worker_out_of_memory_is_stopped() -> None:
    run = run_python("block = b'x' * (200 << 20)\ntime.sleep(60)", memory_mib=150)
    assert (run.ended, run.message) == ("memory", "more than 150 MiB while loading")
    assert run.peak_mib > 150
    said = run_python("say('memory', peak_mib=7.0, message='no room')")
    assert (said.ended, said.message) == ("memory", "no room")


def test_a_worker_that_breaks_says_why() -> None:
    run = run_python("raise KeyError('weights')")
    assert (run.ended, run.message) == ("failed", "KeyError: 'weights'")


def test_memory_errors_are_told_from_others() -> None:
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    assert not out_of_memory(RuntimeError("shapes do not match"))


def test_a_job_comes_back_from_its_file(tmp_path: Path) -> None:
    case = Case("key", "passkey", "d.txt", "before", "after", "which?", ("7", "seven"))
    job = Job("model", "gguf", 1000, 512, 8, 1, {"capacity": 512}, (case,))
    job.save(tmp_path / "job.json")
    assert Job.load(tmp_path / "job.json") == job


def test_lines_and_table_give_rates_hits_and_reasons() -> None:
    case = Case("key", "passkey", "d.txt", "", "", "which?", ("77",))
    answer = {"case": "key", "text": "It is 77.", "prompt_tokens": 900, "seconds_first": 3.0, "seconds_writing": 2.0}
    events = [
        {"event": "loaded", "seconds": 1.5, "peak_mib": 10.0, "versions": {}},
        {"event": "started", "case": "key", "seconds": 1.6},
        {"event": "answered", "seconds": 7.0, "written": 11, "peak_mib": 20.0, "parts": {}, **answer},
    ]
    (done,) = outcomes(Run(events), [case])
    assert (done["right"], done["read_rate"], done["write_rate"], done["seconds_load"]) == (True, 300.0, 5.0, 1.5)
    (stopped,) = outcomes(Run([], "time", "more than 9 s", 30.0), [case])
    about = [{"peer": "full", "length": 1000, "trial": 0}, {"peer": "full", "length": 2000, "trial": 0}]
    text = as_text(table([{**about[0], **done}, {**about[1], **stopped}], "title"))
    assert ["1,000", "full", "1.5", "3.0", "300", "5.0", "20", "1/1", "–"] in [
        line.split() for line in text.splitlines()
    ]
    assert text.splitlines()[-1] == "2,000 full: out of time: more than 9 s"
