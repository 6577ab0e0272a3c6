"""LongBench's metrics: against naive transcriptions of their definitions, and values that the official code gave."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infinipot_cli.bench.longbench import metrics
from infinipot_cli.bench.longbench.rouge import DEEPEST, rouge_l

CLASSES = ["Date", "Other location", "Location", "city", "Organization", "group or organization of person", "Group"]
NESTED = ["a", "an", "ban", "banana", "x"]
WORDS = st.sampled_from(["a", "the", "cat", "sat", "Cat,", "12", ".", ". ", "\n", " ", "  ", "x.y", "-"])
TEXTS = st.lists(WORDS, max_size=14).map(" ".join) | st.lists(WORDS, max_size=10).map("".join)


# ------------------------------------------------------------------------- values that the official code gave

ROUGE = [
    (
        "The committee approved the budget on Tuesday. It rises by 4 percent. Schools get most of it.",
        "The budget was approved on Tuesday. Most of the rise of 4 percent goes to schools. Roads get the rest.",
        0.514285709289796,
    ),
    ("U.S. exports fell. . Imports rose", "Exports of the U.S. fell in May. Imports rose.", 0.5882352892733564),
    ("a b c d e", "b a d c e. e d c b a", 0.5999999950000001),
    ("one two. one two. one two.", "one two three", 0.7999999952000001),
    ("...", "words here", 0.0),
    ("", "words here", 0.0),
]
CODE = [
    ("\n\n    return self.value", "        return self.value", 0.91),
    ("```python\n# note\nint x = 1; // one\nx += 2", "x += 1", 0.83),
    ("# only", "x", 0.0),
    ("", "", 1.0),
    ("foo(bar)", "foo(bar, baz)", 0.76),
    ("ab" * 150, "ab" * 150, 1.0),
]
NAMED = [
    ("Type: Other location", "Other location", CLASSES, 1.0),
    ("Date or city", "city", CLASSES, 0.5),
    ("nothing", "Date", CLASSES, 0.0),
    ("other location of a group or organization of person", "group or organization of person", CLASSES, 1.0),
    ("banana", "banana", NESTED, 0.5),  # "an" is skipped where "a" was taken out
    ("banana x", "banana", NESTED, 1 / 3),
]


@pytest.mark.parametrize(("prediction", "truth", "score"), ROUGE)
def test_rouge_as_published(prediction: str, truth: str, score: float) -> None:
    assert metrics.rouge(prediction, truth) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(("prediction", "truth", "score"), CODE)
def test_code_similarity_as_published(prediction: str, truth: str, score: float) -> None:
    assert metrics.code_similarity(prediction, truth) == score


@pytest.mark.parametrize(("prediction", "truth", "classes", "score"), NAMED)
def test_classification_as_published(prediction: str, truth: str, classes: Sequence[str], score: float) -> None:
    assert metrics.classification(prediction, truth, classes) == pytest.approx(score)


def test_code_is_compared_by_blocks_not_by_edits() -> None:
    # The longest common subsequence is "abcd" (as python-Levenshtein counts), the longest block "XYZ" (difflib).
    assert metrics.code_similarity("abcdXYZ", "XYZaQbQcQd") == round(100 * 2 * 3 / 17) / 100


@pytest.mark.parametrize(
    ("prediction", "truth", "score"),
    [
        ("The capital is Paris, France.", "Paris", 0.4),
        ("paris", "Paris!", 1.0),
        ("a an the", "the", 0.0),
        ("New York City", "The City of New York", 6 / 7),
        ("it's", "its", 1.0),
        ("", "anything", 0.0),
    ],
)
def test_answers_are_compared_by_words(prediction: str, truth: str, score: float) -> None:
    assert metrics.qa_f1(prediction, truth) == pytest.approx(score)


def test_numbers_are_counted() -> None:
    assert metrics.count("There are 12, or 13, or 12.", "12") == pytest.approx(2 / 3)
    assert metrics.count("twelve", "12") == 0.0
    assert metrics.count("0012", "12") == 0.0
    assert metrics.retrieval("Paragraph 7 (not 8)", "Paragraph 7") == 0.5
    assert metrics.retrieval("7", "Paragraph 7 and Paragraph 9") == 1.0
    assert metrics.retrieval("7", "7") == 0.0


# ------------------------------------------------------------------------------------- naive transcriptions


def naive_rouge(prediction: str, truth: str) -> float:
    """The definition: recursive, on sets of words."""

    def sentences(text: str) -> list[list[str]]:
        return [" ".join(part.split()).split(" ") for part in text.split(".") if len(part) > 0]

    def lcs(x: list[str], y: list[str]) -> int:
        table = {(i, j): 0 for i in range(len(x) + 1) for j in range(len(y) + 1)}
        for i in range(1, len(x) + 1):
            for j in range(1, len(y) + 1):
                equal = x[i - 1] == y[j - 1]
                table[i, j] = table[i - 1, j - 1] + 1 if equal else max(table[i - 1, j], table[i, j - 1])
        return table[len(x), len(y)]

    def walk(x: list[str], y: list[str]) -> list[str]:
        if not x or not y:
            return []
        if x[-1] == y[-1]:
            return [*walk(x[:-1], y[:-1]), x[-1]]
        return walk(x[:-1], y) if lcs(x[:-1], y) > lcs(x, y[:-1]) else walk(x, y[:-1])

    written, wanted = sentences(prediction), sentences(truth)
    if not written or not wanted:
        return 0.0
    union = {word for left in wanted for right in written for word in walk(left, right)}
    p = len(union) / len({word for sentence in written for word in sentence})
    r = len(union) / len({word for sentence in wanted for word in sentence})
    return 2 * p * r / (p + r + 1e-8)


@settings(max_examples=120, deadline=None)
@given(TEXTS, TEXTS)
def test_rouge_is_the_naive_one(prediction: str, truth: str) -> None:
    assert rouge_l(prediction, truth) == pytest.approx(naive_rouge(prediction, truth), abs=1e-12)


@given(TEXTS, TEXTS)
def test_f1_is_the_naive_one(prediction: str, truth: str) -> None:
    def words(text: str) -> list[str]:
        kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    written, wanted = words(prediction), words(truth)
    left = list(wanted)
    same = 0
    for word in written:
        if word in left:
            left.remove(word)
            same += 1
    p, r = same / max(len(written), 1), same / max(len(wanted), 1)
    assert metrics.qa_f1(prediction, truth) == pytest.approx(2 * p * r / (p + r) if same else 0.0)


def test_two_sentences_too_long_for_the_official_code_score_nothing_as_there() -> None:
    def unlike(words: int) -> tuple[str, str]:
        sizes = {"x": words // 2, "y": words - words // 2}
        left, right = (" ".join(["w", *(f"{name}{i}" for i in range(size))]) for name, size in sizes.items())
        return left, right

    assert rouge_l(*unlike(DEEPEST - 1)) > 0.0  # as many steps, and one for the word in common
    assert rouge_l(*unlike(DEEPEST)) == 0.0


def test_the_first_line_counts_and_the_best_answer() -> None:
    assert metrics.first_line("\n\nyes\nno") == "yes"
    assert metrics.first_line(" \nyes") == " "
    assert metrics.best(metrics.qa_f1, "Paris", ["London", "in Paris", "Paris"]) == 1.0
    assert metrics.best(metrics.qa_f1, "Paris", []) == 0.0
