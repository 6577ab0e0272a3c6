"""ROUGE-L at summary level, with the number that LongBench publishes: that of the package ``rouge`` 1.0.1.

Written here because that package has not moved since 2021, also computes two scores that nobody asks for, and
needs ``six``; and because the better kept ``rouge-score`` splits sentences and words otherwise, hence scores otherwise.
"""

from __future__ import annotations

#: Steps back through the table after which the package's recursion meets Python's own limit (1,000 frames, ten of
#: them the evaluation's). LongBench counts a comparison that ends so as 0, and so the published numbers do.
DEEPEST = 990
_EPSILON = 1e-8

Sentence = list[str]


class _TooDeep(Exception):
    """Two sentences together too long for the package."""


def rouge_l(prediction: str, truth: str) -> float:
    """F of the union longest common subsequence, 0 to 1; words count once however often they stand there.

    With U the union over all pairs of sentences of the words in their longest common subsequence:
    p = |U| / |words of the prediction|, r = |U| / |words of the truth|, F = 2pr / (p + r + 1e-8).
    """
    written, wanted = _sentences(prediction), _sentences(truth)
    if not written or not wanted:
        return 0.0
    union: set[str] = set()
    try:
        for left in wanted:
            for right in written:
                union |= _common(left, right)
    except _TooDeep:
        return 0.0
    precision = len(union) / len(set().union(*written))
    recall = len(union) / len(set().union(*wanted))
    return 2.0 * (precision * recall / (precision + recall + _EPSILON))


def _sentences(text: str) -> list[Sentence]:
    """What stands between full stops, as words; white space alone is one sentence of one empty word."""
    return [part.split() or [""] for part in text.split(".") if part]


def _common(left: Sentence, right: Sentence) -> set[str]:
    """The words of one longest common subsequence: of several, the one that drops words of ``right`` first."""
    table = _table(left, right)
    i, j, steps = len(left), len(right), 0
    found: set[str] = set()
    while i and j:
        if left[i - 1] == right[j - 1]:
            found.add(left[i - 1])
            i, j = i - 1, j - 1
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
        steps += 1
    if steps > DEEPEST:
        raise _TooDeep
    return found


def _table(left: Sentence, right: Sentence) -> list[list[int]]:
    """Length of the longest common subsequence of the first i words of ``left`` and j of ``right``, at [i][j]."""
    table = [[0] * (len(right) + 1)]
    for word in left:
        above, row = table[-1], [0]
        for j, other in enumerate(right):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        table.append(row)
    return table
