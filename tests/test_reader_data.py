"""The reader's training data: answers stand in their documents, what is called unanswerable is, sets share nothing."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict, replace
from datetime import datetime

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from infinipot_cli.prompts import load_task
from training import average
from training.checkpoint import save_adapter
from training.corpus import Ask, Text, _ask, _split, _told, _told_whole, answers_in, group_of, split_of
from training.logs import FORMS, MOST_FAULTS, NOTHING_WRONG, Line, begun, laid_out, log, told_of
from training.needles import needle
from training.negatives import NOT_SAID, near_miss, swapped
from training.prepare import LONG_RANGE, LONGEST, _parts, _reading
from training.through_pot import ANSWERED, SOURCES, joined, random_pot

seeds = st.integers(0, 2**32)
PROSE = [Text("wiki", "", "p", "It rained. The old mill stood by the river, and nobody went there. " * 8)]


def passage(number: int, source: str = "squadshifts_new_wiki") -> Text:
    """A passage about one invented person."""
    name, city, year = f"Aldo Ver{chr(97 + number)}", f"Port{chr(97 + number)}", str(1800 + number)
    asks = [
        Ask(f"Where did {name} live?", city, (city,), "extractive"),
        Ask(f"When did {name} move to {city}?", year, (year,), "extractive"),
    ]
    return Text(source, "", f"group {number % 5}", f"In {year} the painter {name} moved to {city}.", asks)


POOL = [passage(number) for number in range(20)]


@given(seeds)
def test_needles_are_in_the_document_or_marked_as_missing(seed):
    made = needle(PROSE, random.Random(seed))
    assert made.asks
    for ask in made.asks:
        if ask.kind == "near":
            assert ask.answer == NOT_SAID
        elif ask.kind == "needle":
            assert ask.answer in made.text
        else:
            assert ask.answer in ("Yes", "No")


@given(seeds, st.booleans())
def test_documents_answer_what_they_are_asked_and_nothing_else(seed, long):
    rng = random.Random(seed)
    text = rng.choice(POOL)
    kin = [t for t in POOL if t.group == text.group]
    parts = _parts(text, kin, POOL, long, rng)
    assert sum(len(part.text) for part in parts) <= max(len(text.text), LONG_RANGE[1] if long else LONGEST)
    made = _reading(parts, kin, POOL, rng)
    assert text.text in made.text
    for ask in made.asks:
        if ask.kind == "extractive":
            assert answers_in(made.text, ask)
        else:
            assert ask.answer == NOT_SAID
            assert ask.question not in {own.question for t in POOL if t.text in made.text for own in t.asks}


@given(seeds)
def test_a_near_miss_asks_about_somebody_the_document_does_not_mention(seed):
    rng = random.Random(seed)
    text = rng.choice(POOL)
    ask = near_miss(text.text, text.asks, POOL, rng)
    assert ask is not None
    words = ask.question.rstrip("?").split()
    assert any(word[0].isupper() and word not in text.text for word in words[1:])


def test_a_question_whose_answer_happens_to_be_there_is_not_swapped_in():
    everywhere = " ".join(ask.answer for text in POOL for ask in text.asks)
    assert swapped(everywhere, POOL, random.Random(0)) is None


def test_a_title_is_one_document_in_every_source():
    assert group_of("Ancient_Rome", "one text") == group_of(" ancient rome", "another")
    assert group_of("Filtered_Reddit_Comments", "one text") != group_of("Filtered_Reddit_Comments", "another")


def test_splits_are_stable_and_near_their_shares():
    groups = [f"title {number}" for number in range(4000)]
    splits = [split_of(group, 0) for group in groups]
    assert splits == [split_of(group, 0) for group in groups]
    for name in ("tuning", "final"):
        assert 0.06 < splits.count(name) / len(splits) < 0.10


@given(seeds)
def test_joined_documents_keep_only_questions_that_are_still_right(seed):
    rng = random.Random(seed)
    rows = [_row(text) for text in rng.sample(POOL, 3)]
    rows[0]["asks"].append({**rows[1]["asks"][0], "kind": "swapped", "answer": NOT_SAID})
    made = joined(rows, rng)
    assert all(row["document"] in made["document"] for row in rows)
    assert all(ask["kind"] == "extractive" for ask in made["asks"])
    assert len(made["asks"]) <= ANSWERED


@given(st.integers(50, 3000), st.integers(0, 60), seeds)
def test_random_pots_leave_room_for_a_question(tokens, prefix, seed):
    random_pot(tokens, prefix, random.Random(seed)).check_room(prefix, 60)


def _row(text: Text) -> dict:
    return {"task": "question", "source": SOURCES[0], "document": text.text, "asks": [asdict(ask) for ask in text.asks]}


@given(st.integers(1, 20), st.integers(0, 50))
def test_a_lead_is_told_in_a_form_that_it_is_long_enough_for(count, turn):
    lead = [f"Sentence {number}." for number in range(count)]
    variant, summary = _told(lead, turn)
    assert variant in load_task("summary", {}).variants
    points = summary.split("\n") if variant.endswith("bullets") else re.findall(r"Sentence \d+\.", summary)
    assert [point.removeprefix("- ") for point in points] == lead[: len(points)]
    assert all(point.startswith("- ") for point in points) == variant.endswith("bullets")


def test_every_form_of_a_summary_is_told_of_a_long_lead():
    lead = [f"Sentence {number}." for number in range(20)]
    assert {_told(lead, turn)[0] for turn in range(6)} == set(load_task("summary", {}).variants)


@given(st.integers(1, 30), st.integers(0, 3))
def test_a_whole_summary_is_told_whole_in_a_form_with_room_for_it(count, turn):
    sentences = [f"Sentence {number} is here." for number in range(count)]
    variant, told = _told_whole(sentences, turn)
    assert variant in load_task("summary", {}).variants
    assert re.findall(r"Sentence \d+ is here\.", told) == sentences
    if variant == "long-paragraph":
        assert len(told.split("\n\n")) == 3
    elif variant.endswith("bullets"):
        most = {"short": 3, "medium": 6, "long": 12}[variant.partition("-")[0]]
        assert len(told.split("\n")) == count <= most


def test_sentences_are_split_at_their_ends_only():
    text = 'It cost 3.5 million (in 1990). "So it did", he said,\nin 1991. No more.'
    assert _split(text) == ["It cost 3.5 million (in 1990).", '"So it did", he said, in 1991.', "No more."]


def test_of_several_answers_the_commonest_or_the_fullest_is_taught():
    answers = ["four shillings", "three pounds four shillings", "four shillings."]
    context = "He paid three pounds four shillings."
    assert _ask("What did he pay?", answers, context).answer == "four shillings"
    fullest = _ask("What did he pay?", answers, context, fullest=True)
    assert fullest.answer == "three pounds four shillings"
    assert fullest.accepted == ("four shillings", "three pounds four shillings")


@given(st.floats(0, 1))
def test_averaged_adapters_lie_between_the_two(share):
    first, second = {"a": torch.tensor([1.0, -2.0])}, {"a": torch.tensor([3.0, 6.0])}
    expected = [1 + 2 * share, -2 + 8 * share]
    assert average.averaged(first, second, share)["a"].tolist() == pytest.approx(expected, abs=1e-5)


def test_a_mean_says_what_it_is_made_of(tmp_path, monkeypatch):
    about = {"rank": 2, "alpha": 4.0, "wording": "{document}"}
    for name, value in (("a", 1.0), ("b", 3.0), ("c", 6.0)):
        (tmp_path / name).mkdir()
        save_adapter(tmp_path / name / "adapter.safetensors", {"x": torch.tensor([value])}, about | {"seed": name})
    for one, other, out in (("a", "b", "ab"), ("ab", "c", "abc")):
        folders = [str(tmp_path / name) for name in (one, other)]
        monkeypatch.setattr("sys.argv", ["average.py", *folders, "--share", "0.5", "--out", str(tmp_path / out)])
        average.main()
    with safe_open(tmp_path / "abc" / "adapter.safetensors", framework="pt") as file:
        mean = json.loads(file.metadata()["mean"])
        assert file.get_tensor("x").tolist() == [4.0]
    assert [past["seed"] for past in mean["of"][0]["mean"]["of"]] == ["a", "b"]
    assert mean["of"][1]["seed"] == "c"


@given(seeds)
def test_the_list_of_a_log_repeats_lines_that_stand_in_it(seed):
    text = log(random.Random(seed))
    assert log(random.Random(seed)) == text
    (ask,) = text.asks
    lines, points = text.text.splitlines(), ask.answer.splitlines()
    assert len(points) == len(ask.accepted) <= MOST_FAULTS
    if ask.answer == NOTHING_WRONG:
        assert not re.search(r"error|warning|critical|fatal", text.text, re.IGNORECASE)
        return
    places = []
    for point, message in zip(points, ask.accepted, strict=True):
        assert point.startswith("- ")
        assert message in point
        places.append(next(place for place, line in enumerate(lines) if line.endswith(point[2:])))
    assert places == sorted(set(places))


@given(seeds)
def test_faults_are_told_once_each_in_the_order_in_which_they_began(seed):
    chance = random.Random(seed)
    counts = [chance.randint(1, 6) for _ in range(chance.randint(0, 4))]
    said = [Line("nas", 1, "ERROR", f"disk {n} failed", n) for n, count in enumerate(counts) for _ in range(count)]
    said += [Line("nas", 1, "INFO", f"disk {n} is well") for n in range(5)]
    chance.shuffle(said)
    told = begun(said)
    assert sorted(line.fault for line in told) == list(range(len(counts)))
    firsts = [said.index(line) for line in told]
    assert firsts == sorted(firsts)
    assert [next(n for n, line in enumerate(said) if line.fault == fault.fault) for fault in told] == firsts


@pytest.mark.parametrize(
    ("form", "copied"),
    [
        (0, "disk failed"),
        (1, "ERROR nas: disk failed"),
        (2, "ERROR [nas] disk failed"),
        (3, "ERROR: disk failed"),
        (4, "E0501 13:06:56 7 nas] disk failed"),
        (5, 'level=error component=nas msg="disk failed"'),
        (6, '{"level": "error", "time": "2024-05-01T13:06:56", "logger": "nas", "msg": "disk failed"}'),
    ],
)
def test_a_fault_is_copied_from_its_level_on(form, copied):
    line = Line("nas", 7, "ERROR", "disk failed", 0, datetime(2024, 5, 1, 13, 6, 56))
    assert told_of(line, form, "host7") == copied
    web = replace(line, program="httpd", message='1.2.3.4 - maria "GET /cart HTTP/1.1" 500 12')
    assert told_of(web, form, "host7").startswith('"GET /cart HTTP/1.1" 500 12 ')


def test_every_form_of_a_log_has_time_program_and_message():
    line = Line("nas", 7, "ERROR", "disk failed", 0, datetime(2024, 5, 1, 13, 6, 56))
    for form in range(FORMS):
        assert all(part in laid_out(line, form, "host7") for part in ("13:06:56", "nas", "disk failed"))
    with pytest.raises(IndexError):
        laid_out(line, FORMS, "host7")
    web = replace(line, program="httpd", message='1.2.3.4 - maria "GET /cart HTTP/1.1" 500 12')
    assert laid_out(web, 0, "host7").startswith(
        '1.2.3.4 - maria [01/May/2024:13:06:56 +0000] "GET /cart HTTP/1.1" 500 12 '
    )
