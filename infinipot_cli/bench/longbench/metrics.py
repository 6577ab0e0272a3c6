"""LongBench's metrics as its published numbers were made, oddities included; each scores 0 to 1.

A metric takes the prediction, one accepted answer, and the classes of a classification task.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher

from infinipot_cli.bench.longbench.rouge import rouge_l

Metric = Callable[[str, str, Sequence[str]], float]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NUMBER = re.compile(r"\d+")
_PARAGRAPH = re.compile(r"Paragraph (\d+)")
#: A line of code that holds one of these is taken for a comment or a fence.
_NOT_CODE = ("`", "#", "//")


def normalised(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, single blanks (SQuAD)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def qa_f1(prediction: str, truth: str, classes: Sequence[str] = ()) -> float:
    """F1 over normalised words, each counted as often as it stands there."""
    written, wanted = normalised(prediction).split(), normalised(truth).split()
    common = sum((Counter(written) & Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(written), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def rouge(prediction: str, truth: str, classes: Sequence[str] = ()) -> float:
    """ROUGE-L's F (see ``rouge.py``)."""
    return rouge_l(prediction, truth)


def classification(prediction: str, truth: str, classes: Sequence[str] = ()) -> float:
    """1 / (classes named) if the right one is among them, else 0.

    A class whose name is part of the right one's is not counted; but the official code takes such names out of the
    list that it walks over, so that the name behind a removed one is never looked at. Kept, for equal numbers.
    """
    named = [name for name in classes if name in prediction]
    for name in named:
        if name in truth and name != truth:
            named.remove(name)
    return 1.0 / len(named) if truth in named else 0.0


def count(prediction: str, truth: str, classes: Sequence[str] = ()) -> float:
    """Share of the numbers in the prediction that are the right one."""
    return _share(prediction, truth)


def retrieval(prediction: str, truth: str, classes: Sequence[str] = ()) -> float:
    """The same, the right one being that of "Paragraph N"; 0 where the answer names no paragraph."""
    wanted = _PARAGRAPH.search(truth)
    return _share(prediction, wanted[1]) if wanted else 0.0


def code_similarity(prediction: str, truth: str, classes: Sequence[str] = ()) -> float:
    """Similarity of the prediction's first line of code to the right one, in whole percent.

    It is difflib's ratio: the official fuzzywuzzy takes that one where python-Levenshtein is missing, as it was when
    the published numbers were made (with it, LCC comes out some two points higher). Its shortcut for equal lines
    counts: difflib ignores letters that are frequent in a line of 200 or more.
    """
    lines = prediction.lstrip("\n").split("\n")
    code = next((line for line in lines if not any(mark in line for mark in _NOT_CODE)), "")
    if code == truth:
        return 1.0
    return round(100 * SequenceMatcher(None, code, truth).ratio()) / 100


#: By the names that tasks.yaml uses.
METRICS: Mapping[str, Metric] = {
    "qa_f1": qa_f1,
    "rouge": rouge,
    "classification": classification,
    "count": count,
    "retrieval": retrieval,
    "code_similarity": code_similarity,
}


def first_line(prediction: str) -> str:
    """What counts of a few-shot answer: the first line, without the line ends before it."""
    return prediction.lstrip("\n").split("\n")[0]


def best(metric: Metric, prediction: str, accepted: Sequence[str], classes: Sequence[str] = ()) -> float:
    """The best score over the accepted answers, 0 if there are none."""
    return max((metric(prediction, truth, classes) for truth in accepted), default=0.0)


def _share(prediction: str, wanted: str) -> float:
    numbers = _NUMBER.findall(prediction)
    return numbers.count(wanted) / len(numbers) if numbers else 0.0
