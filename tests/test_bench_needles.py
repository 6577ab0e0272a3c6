"""What `bench nih` hides: documents of the length asked for, each needle in them once and where it should be."""

from __future__ import annotations

import math
import random
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from engine.text import Encoder
from infinipot_cli.bench import words
from infinipot_cli.bench.haystack import GARBAGE, Count, Filler, Needle, Repeated, hide, novel, texts, whole_sentences
from infinipot_cli.bench.needles import TASKS, Distractors, Puzzle, Request
from infinipot_cli.bench.wordlists import CODES, DOTS, CommonPlan, CommonWords, FrequentPlan, Shuffle, coded
from infinipot_cli.errors import InputError, UsageError
from infinipot_cli.ingest import IngestOptions

SEEDS = st.integers(0, 10**6).map(str)
DEPTHS = st.floats(0, 1)


def by_words(text: str) -> int:
    return len(text.split())


def by_letters(text: str) -> int:
    return math.ceil(len(text) / 4)


def by_model() -> Count:
    encoder = Encoder(tiny.tokenizer())
    return lambda text: len(encoder.encode(text)[0])


COUNTS: dict[str, Count] = {"words": by_words, "letters": by_letters, "model": by_model()}
HIDING = [name for name, task in TASKS.items() if task.haystack]


def stack_of(name: str, stack: str) -> object:
    if stack == "needles":
        return Distractors("uuid" if name == "multikey" else "number")
    return Repeated() if stack == "repeated" else novel()


@st.composite
def hidden(draw: Callable[..., object]) -> tuple[str, Request, Puzzle, Count]:
    name = draw(st.sampled_from(HIDING))
    stack = draw(st.sampled_from(["repeated", "natural"] + ["needles"] * TASKS[name].keyed))
    depth = draw(DEPTHS) if TASKS[name].by_depth else None
    tokens = draw(st.integers(1200, 6000))
    request = Request(tokens, depth, draw(SEEDS), stack_of(name, stack), draw(st.integers(0, 4)))  # type: ignore[arg-type]
    return name, request, TASKS[name].make(request), COUNTS[draw(st.sampled_from(list(COUNTS)))]


@given(hidden())
def test_a_document_is_as_long_as_asked_and_holds_each_needle_once_at_its_depth(
    made: tuple[str, Request, Puzzle, Count],
) -> None:
    _, request, puzzle, count = made
    passages = list(puzzle.document(count))
    text = "".join(passages)
    tokens = sum(map(count, passages))
    assert request.tokens - 8 <= tokens <= request.tokens
    for needle in puzzle.needles:
        assert text.count(needle.text) == 1
        before = count(text[: text.index(needle.text)])
        # To within a sentence or two, and what the other needles and the intro take.
        others = count("".join(each.text for each in puzzle.needles)) + 60
        assert abs(before - needle.depth * request.tokens) <= 120 + others
    if request.depth is not None:
        assert puzzle.needles[0].depth == request.depth


@given(hidden())
def test_every_answer_stands_in_its_needles_and_nowhere_else(made: tuple[str, Request, Puzzle, Count]) -> None:
    name, _, puzzle, count = made
    text = "".join(puzzle.document(count))
    rest = text
    for needle in puzzle.needles:
        rest = rest.replace(needle.text, "")
    assert len(set(puzzle.accepted)) == len(puzzle.accepted)
    for answer in puzzle.accepted:
        assert any(answer in needle.text for needle in puzzle.needles)
        assert answer not in rest
        assert answer not in puzzle.question
    if name == "multikey":
        key = re.search(r"for (\S+) mentioned", puzzle.question)
        assert key is not None
        assert puzzle.needles[0].text.count(key[1]) == 1 == text.count(key[1])


@given(hidden(), SEEDS)
def test_the_same_seed_gives_the_same_document_and_another_seed_another(
    made: tuple[str, Request, Puzzle, Count], other: str
) -> None:
    name, request, puzzle, count = made
    again = TASKS[name].make(request)
    assert again.question == puzzle.question
    assert again.accepted == puzzle.accepted
    assert list(again.document(count)) == list(puzzle.document(count)) == list(puzzle.document(count))
    if other != request.seed:
        different = TASKS[name].make(Request(request.tokens, request.depth, other, request.haystack))
        # Pass keys are few: two seeds may draw the same one, the other tasks' answers are as good as unique.
        assert name == "passkey" or different.accepted != puzzle.accepted


@given(SEEDS, st.integers(0, 30))
def test_distractors_are_like_the_needle_but_none_has_its_key_or_value(seed: str, number: int) -> None:
    request = Request(9000, 0.5, seed, Repeated(), number)
    needle, *others = TASKS["multikey"].make(request).needles
    pattern = re.compile(r"One of the special magic uuids for (\S{36}) is: (\S{36})\.")
    pairs = [pattern.fullmatch(each.text) for each in (needle, *others)]
    assert len(others) == number
    assert len({part for pair in pairs for part in (pair[1], pair[2])}) == 2 * len(pairs)  # type: ignore[index]


@given(SEEDS)
def test_a_haystack_of_distractors_avoids_what_it_is_told_to(seed: str) -> None:
    for kind in ("uuid", "number"):
        free = "".join(islice(Distractors(kind).pieces(random.Random(seed)), 3))
        key, value = re.findall(r"for (\S+) is: (\S+)\.", free)[7]
        without = "".join(islice(Distractors(kind).pieces(random.Random(seed), {key, value}), 3))
        assert key not in without
        assert value not in without
        assert len(without.splitlines()) == len(free.splitlines()) - 1


def test_variables_form_one_chain_in_the_order_of_the_text() -> None:
    puzzle = TASKS["variables"].make(Request(4000, None, "s", novel()))
    text = "".join(puzzle.document(by_words))
    assigned = re.findall(r"^VAR (\w+) = (?:VAR )?(\w+)$", text, re.MULTILINE)
    value = re.search(r"\d{5}", puzzle.question)
    assert value is not None
    assert [right for _, right in assigned] == [value[0], *puzzle.accepted[:-1]]
    assert [left for left, _ in assigned] == list(puzzle.accepted)


@pytest.mark.parametrize("name", HIDING)
def test_too_short_a_document_is_refused(name: str) -> None:
    puzzle = TASKS[name].make(Request(20, None, "s", Repeated(), 3))
    with pytest.raises(UsageError, match="20 tokens are too few"):
        list(puzzle.document(by_letters))


# Documents of words


@st.composite
def listed(draw: Callable[..., object]) -> tuple[str, Request, Count]:
    name = draw(st.sampled_from(["common-words", "frequent-words"]))
    count = draw(st.sampled_from([by_words, by_letters]))
    return name, Request(draw(st.integers(1500, 6000)), None, draw(SEEDS), Repeated()), count  # type: ignore[arg-type]


@given(listed())
def test_the_words_asked_for_are_the_most_frequent_ones(made: tuple[str, Request, Count]) -> None:
    name, request, count = made
    puzzle = TASKS[name].make(request)
    passages = list(puzzle.document(count))
    assert request.tokens - 8 <= sum(map(count, passages)) <= request.tokens
    found = Counter(re.findall(r"[a-z]+-[a-z]+" if name == "common-words" else r"\b[a-z]{6}\b", "".join(passages[1:])))
    top = found.most_common(len(puzzle.accepted) + 1)
    assert {word for word, _ in top[:-1]} == set(puzzle.accepted)
    assert top[-2][1] > top[-1][1]
    if name == "common-words":
        assert len({often for _, often in top[:-1]}) == 1  # all ten alike
        assert top[-2][1] == 10 * top[-1][1]
        numbers = [int(number) for number in re.findall(r"(\d+)\. ", "".join(passages))]
        assert numbers == list(range(1, len(numbers) + 1))
    else:
        stand = "".join(passages).split()
        assert any(word in puzzle.accepted for word in stand[-len(stand) // 4 :])  # to the end, not early on only
        assert [word for word, _ in top[:-1]] == list(puzzle.accepted)
        assert "".join(passages).split().count(DOTS) > top[0][1]


@pytest.mark.parametrize("name", ["common-words", "frequent-words"])
def test_too_short_a_list_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="too short"):
        list(TASKS[name].make(Request(60, None, "s", Repeated())).document(by_words))


@given(st.integers(1, 3000), st.integers(0, 99))
def test_a_shuffle_has_every_item_once(size: int, seed: int) -> None:
    order = Shuffle(size, random.Random(seed))
    assert sorted(order[place] for place in range(size)) == list(range(size))
    with pytest.raises(IndexError):
        order[size]


def test_a_shuffle_leaves_no_order() -> None:
    shuffle = Shuffle(10_000, random.Random(3))
    order = [shuffle[place] for place in range(10_000)]
    steps = Counter(after - before for before, after in pairwise(order))
    assert steps.most_common(1)[0][1] < 20
    for start in range(0, 10_000, 1000):
        assert abs(sum(order[start : start + 1000]) / 1000 - 5000) < 400


@given(st.integers(110, 10_000_000))
def test_common_words_stay_ten_times_as_common(items: int) -> None:
    plan = CommonWords(random.Random(0)).plan(items)
    assert items - 20 * plan.rare <= plan.total <= items
    assert plan.kinds <= words.COUNT  # none has to be used twice
    edge = 10 * plan.rare * 10
    assert [plan.number(index) for index in (0, edge - 1, edge, plan.total - 1)] == [0, 9, 10, plan.kinds - 1]


def test_plans_count_as_they_say() -> None:
    small = CommonPlan(rare=3, others=20)
    assert sorted(Counter(map(small.number, range(small.total))).values()) == [3] * 20 + [30] * 10
    zipf = FrequentPlan(5000)
    counted = Counter(map(zipf.number, range(zipf.total)))
    shares = [int(5000 * 6 / math.pi**2 / rank**2) for rank in range(1, zipf.kinds + 1)]
    assert [counted[number] for number in range(zipf.kinds)] == shares


@given(st.integers(0, CODES - 1), st.integers(0, CODES - 1))
def test_made_up_words_differ(one: int, other: int) -> None:
    assert re.fullmatch("[a-z]{6}", coded(one))
    assert (coded(one) == coded(other)) == (one == other)


def test_no_key_stands_in_another() -> None:
    assert len(set(words.ADJECTIVES)) == len(words.ADJECTIVES)
    assert len(set(words.NOUNS)) == len(words.NOUNS)
    pairs = ((a, b) for a in words.ADJECTIVES for b in words.ADJECTIVES if a != b)
    assert not [(a, b) for a, b in pairs if b.endswith(a)]
    assert not [(a, b) for a in words.NOUNS for b in words.NOUNS if a != b and b.startswith(a)]
    assert words.key(0) != words.key(words.COUNT - 1)
    with pytest.raises(IndexError):
        words.key(words.COUNT)


# Haystacks


@given(st.lists(st.text(st.sampled_from("ab .!\n。"), min_size=1, max_size=900), max_size=12))
def test_resegmenting_loses_nothing(passages: list[str]) -> None:
    assert "".join(whole_sentences(passages)) == "".join(passages)


@given(st.text(st.sampled_from("abc .\n"), min_size=1, max_size=300), st.lists(st.integers(1, 400), max_size=8))
def test_a_filler_hands_out_the_text_in_order_and_never_too_much(unit: str, takes: list[int]) -> None:
    filler = Filler(iter(lambda: unit, None), by_letters)
    given_out = ""
    for index, tokens in enumerate(takes):
        taken = list(filler.take(tokens, exactly=index % 2 == 0))
        assert all(size == by_letters(text) for text, size in taken)
        assert sum(size for _, size in taken) <= tokens
        given_out += "".join(text for text, _ in taken)
    assert (unit * (len(given_out) // len(unit) + 1)).startswith(given_out)


def test_text_without_blanks_is_cut_all_the_same() -> None:
    passages = list(hide([Needle(0.5, "NEEDLE")], 1000, "", iter(lambda: "字" * 2000, None), len))
    text = "".join(passages)
    assert 990 <= len(text) <= 1000
    assert text.count("NEEDLE") == 1


def test_needles_at_one_depth_keep_their_order() -> None:
    needles = [Needle(0.5, "first"), Needle(0.5, "second"), Needle(0.1, "zero")]
    text = "".join(hide(needles, 400, "intro ", Repeated().pieces(random.Random(0)), by_words))
    assert text.startswith("intro ")
    assert text.index("zero") < text.index("first") < text.index("second")


def test_the_repeated_text_is_the_pass_keys() -> None:
    assert next(Repeated().pieces(random.Random(0))).startswith(GARBAGE * 2)


def test_the_novel_comes_with_infinipot_and_never_ends() -> None:
    found = novel()
    size = found.tokens(by_words, 10**9)
    assert 20_000 < size < 60_000
    pieces = found.pieces(random.Random(0))
    first = next(pieces)
    assert first.startswith("# One Hundred and Forty-Nine Pounds")
    assert any(piece.startswith(first[:100]) for piece in islice(pieces, 500))


def test_the_users_texts_are_read_in_order_and_named_by_what_is_in_them(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "1.txt").write_text("One sentence. " * 10)
    (folder / "2.txt").write_text("Another one.\n" * 10)
    one = texts([str(folder)], IngestOptions())
    start = "".join(islice(one.pieces(random.Random(0)), 2))
    assert start.startswith("One sentence. " * 10 + "\n\n" + "Another one.\n" * 10 + "One")
    assert texts([str(folder)], IngestOptions()).name == one.name
    (folder / "2.txt").write_text("Another two.\n" * 10)
    assert texts([str(folder)], IngestOptions()).name != one.name
    (folder / "1.txt").write_text("One sentence. " * 10_000)
    long = texts([str(folder)], IngestOptions())
    (folder / "2.txt").write_text("Another six.\n" * 10)
    assert texts([str(folder)], IngestOptions()).name != long.name


def test_texts_that_cannot_be_read_again_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    for name in (tmp_path / "none.txt", tmp_path / "empty.txt", "/dev/stdin", "-"):
        with pytest.raises(InputError):
            texts([str(name)], IngestOptions())


@pytest.mark.parametrize("name", TASKS)
def test_a_long_document_takes_no_more_memory_than_a_short_one(name: str) -> None:
    def peak(tokens: int) -> int:
        puzzle = TASKS[name].make(Request(tokens, 0.5, "s", Repeated(), 3))
        tracemalloc.start()
        consumed(puzzle.document(by_words))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(3000)  # what is made once, such as compiled patterns
    assert peak(10_000) < peak(3000) + 60_000


def consumed(passages: Iterator[str]) -> None:
    for _ in passages:
        pass
