"""What the reader is taught from: rows of the corpus folder as documents with questions, split by document."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from infinipot_cli.bench.scoring import contains, normalised

Split = Literal["training", "tuning", "final"]

#: Share of the groups (articles, products, stories) held back for each of tuning and final test.
HELD_BACK = 0.08
#: Titles that name a collection, not a document: there the text itself is the document.
_COLLECTIONS = {"", "filtered reddit comments"}
_EXTRACTIVE = (
    "squadshifts_new_wiki",
    "squadshifts_amazon_reviews",
    "squadshifts_reddit",
    "quoref_contrast",
    "ropes_contrast",
    "fairytaleqa_train",
)
_WIKI_LICENCE = "CC BY-SA 3.0 (Wikipedia)"
#: Kinds of rule-made questions whose answers are short and sharp.
_RULES = {"whendid", "whendid2", "born", "died", "bornin", "studied", "whoby", "located", "married", "pop", "whodid"}
_MOST_WORDS = 8
#: Characters of an article that is to be summarised, in turn.
SUMMARISED = (1800, 3600, 5400)
#: Characters of the longest textbook section or article that is summarised out of a pot, and of the longest meeting or
#: story: about 3,000 and 8,000 tokens.
LONGEST_SECTION, LONGEST_STORY = 13_000, 32_000


@dataclass(frozen=True)
class Ask:
    """One question; ``answer`` is what is taught, ``accepted`` what counts as right."""

    question: str
    answer: str
    accepted: tuple[str, ...]
    kind: str


@dataclass
class Text:
    """One passage with the questions that it answers. ``group`` is what it is held back by."""

    source: str
    licence: str
    group: str
    text: str
    asks: list[Ask] = field(default_factory=list)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSON lines file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def group_of(title: str, text: str) -> str:
    """The document that a passage belongs to: its title, the same in every source, or the text itself."""
    name = " ".join(title.lower().replace("_", " ").split())
    return name if name not in _COLLECTIONS else hashlib.sha256(text.encode()).hexdigest()[:16]


def split_of(group: str, seed: int) -> Split:
    """Which set a document belongs to: by a hash of its name, so that no order or later addition changes it."""
    place = int(hashlib.sha256(f"{seed}:{group}".encode()).hexdigest()[:12], 16) / 16**12
    if place < HELD_BACK:
        return "tuning"
    return "final" if place < 2 * HELD_BACK else "training"


def extractive(corpus: Path, name: str, fullest: bool = False) -> list[Text]:
    """Passages of one QA set with their questions, answered in the passage's words."""
    texts: dict[str, Text] = {}
    for row in rows(corpus / "qa" / f"{name}.jsonl"):
        context = row["context"].strip()
        text = texts.setdefault(context, Text(name, row["lic"], group_of(row["title"], context), context))
        if ask := _ask(row["question"], row["answers"], context, fullest):
            text.asks.append(ask)
    return [text for text in texts.values() if text.asks]


def _ask(question: str, answers: list[str], context: str, fullest: bool = False) -> Ask | None:
    """A question with the answer that most gave, or the ``fullest``; None where no literal answer is short."""
    accepted = [_trimmed(answer) for answer in answers]
    literal = [answer for answer in accepted if answer in context and 0 < len(answer.split()) <= _MOST_WORDS]
    question = " ".join(question.split())
    if not literal or len(question) < 8:
        return None
    votes = Counter(normalised(answer) for answer in literal)
    best = max(literal, key=len if fullest else lambda answer: (votes[normalised(answer)], -len(answer)))
    return Ask(_sentence(question), best, tuple(dict.fromkeys(accepted)), "extractive") if normalised(best) else None


def _trimmed(answer: str) -> str:
    return " ".join(answer.split()).strip(" .,;:")


def _sentence(question: str) -> str:
    question = question[0].upper() + question[1:]
    return question if question.endswith("?") else question.rstrip(" .") + "?"


def sentences(corpus: Path, fullest: bool = False) -> list[Text]:
    """Single sentences of Wikipedia with questions about nearly every word of theirs (QAMR)."""
    titles = {article["id"]: article["title"] for article in articles(corpus)}
    texts: dict[str, Text] = {}
    for row in rows(corpus / "qa" / "qamr_wiki.jsonl"):
        context, article = row["context"].strip(), row["id"].split(":")[2]
        group = group_of(titles.get(article, f"article {article}"), context)
        text = texts.setdefault(context, Text("qamr_wiki", row["lic"], group, context))
        if ask := _ask(row["question"], row["answers"], context, fullest):
            text.asks.append(ask)
    return [text for text in texts.values() if text.asks]


def articles(corpus: Path) -> Iterator[dict[str, Any]]:
    """Wikipedia articles."""
    for path in sorted((corpus / "wiki").glob("*.jsonl")):
        yield from rows(path)


def wiki_rules(corpus: Path) -> list[Text]:
    """Wikipedia paragraphs with rule-made questions after dates, places, names and numbers."""
    wanted = defaultdict(list)
    for row in rows(corpus / "qa" / "wiki_rules.jsonl"):
        if row["k"] in _RULES and len(row["a"].split()) <= _MOST_WORDS and not re.search(r" (and|the|of)$", row["a"]):
            wanted[row["wiki"]].append(row)
    found = []
    for article in articles(corpus):
        passages: dict[str, Text] = {}
        for row in wanted.get(article["id"], ()):
            context = article["text"][row["ps"] : row["pe"]].strip()
            group = group_of(article["title"], context)
            text = passages.setdefault(context, Text("wiki_rules", _WIKI_LICENCE, group, context))
            if ask := _ask(row["q"], [row["a"]], context):
                text.asks.append(ask)
        found += [text for text in passages.values() if text.asks]
    return found


def reading(corpus: Path, fullest: bool = False) -> dict[str, list[Text]]:
    """Every passage with questions, by source; of several accepted answers the ``fullest``, or what most gave."""
    made = {"wiki_rules": wiki_rules(corpus), "qamr_wiki": sentences(corpus, fullest)}
    return {name: extractive(corpus, name, fullest) for name in _EXTRACTIVE} | made


def prose(corpus: Path, length: int = 1400) -> list[Text]:
    """Windows of novels and of Wikipedia, to stay fluent by and to measure what is forgotten."""
    found = []
    for path in sorted((corpus / "books").rglob("*.txt")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for start in range(20_000, min(len(text), 200_000), 12_000):
            found.append(Text("novels", "public domain", path.stem.lower(), _window(text, start, length)))
    for article in articles(corpus):
        if len(article["text"]) > length:
            group = group_of(article["title"], article["text"])
            found.append(Text("wiki", _WIKI_LICENCE, group, _window(article["text"], 0, length)))
    return found


def _window(text: str, start: int, length: int) -> str:
    """About ``length`` characters from a paragraph's start near ``start``, up to a sentence's end."""
    if start:
        start = max(text.find("\n\n", start), start)
    piece = text[start : start + length].strip()
    return piece[: piece.rfind(". ") + 1] or piece


def summaries(corpus: Path) -> list[Text]:
    """Abstracts and legal texts with their summaries, and articles with the first two sentences of their lead."""
    found = []
    for name in ("scitldr_train", "scitldr_dev", "legal_plain"):
        for row in rows(corpus / "summ" / f"{name}.jsonl"):
            text, summary = row["document"].strip(), row["summary"].strip()
            if len(text) < 2500 and summary and len(text) > 3 * len(summary):
                found.append(_summary(Text(name, row["lic"], group_of(row["title"], text), text), summary))
    for article in articles(corpus):
        lead = " ".join(article["text"][: article["lead_chars"]].split())
        text = _window(article["text"], 0, SUMMARISED[len(found) // 2 % len(SUMMARISED)])
        variant, summary = _told(re.split(r"(?<=[a-z)]\.) (?=[A-Z])", lead), len(found))
        if 80 < len(summary) < 900 and len(text) > 1.5 * len(summary) and len(article["text"]) > 900:
            group = group_of(article["title"], text)
            found.append(_summary(Text("wiki_lead", _WIKI_LICENCE, group, text), summary, variant))
    return found


def _told(lead: Sequence[str], turn: int) -> tuple[str, str]:
    """The sentences of a lead as one of the forms of prompts/summary.yaml, in turn, as far as they are enough."""
    forms = [("short-paragraph", 2, " ")]
    forms += [("short-bullets", 3, "\n")] * (len(lead) >= 3)
    forms += [("medium-paragraph", 5, " ")] * (len(lead) >= 4) + [("medium-bullets", 6, "\n")] * (len(lead) >= 6)
    forms += [("long-bullets", 12, "\n")] * (len(lead) >= 9) + [("long-paragraph", 15, " ")] * (len(lead) >= 7)
    variant, count, between = forms[turn % len(forms)]
    points = [f"- {sentence}" for sentence in lead] if between == "\n" else lead
    return variant, between.join(points[:count])


def long_summaries(corpus: Path) -> dict[str, list[Text]]:
    """Long documents with summaries by people, by source: textbook sections, articles, meetings, stories."""
    return {
        "openstax": _textbooks(corpus),
        "wiki_long": _long_articles(corpus),
        "qmsum_train": _meetings(corpus),
        "squality_train": _stories(corpus),
    }


def _textbooks(corpus: Path) -> list[Text]:
    """Sections of textbooks with the summaries that end them."""
    found = []
    for path in sorted((corpus / "textbooks").glob("*.jsonl")):
        for row in rows(path):
            text, summary = row["text"].strip(), " ".join(row["summary"].split())
            if 2500 < len(text) < LONGEST_SECTION and 40 < len(summary.split()) < 220 and len(text) > 5 * len(summary):
                group = group_of(f"{row['book']} {row['module']}", text)
                found.append(_summarised(Text("openstax", "CC BY 4.0 (OpenStax)", group, text), summary, len(found)))
    return found


def _long_articles(corpus: Path) -> list[Text]:
    """Long articles with the first sentences of their leads."""
    found = []
    for article in articles(corpus):
        if 5500 < len(article["text"]) < LONGEST_SECTION:
            variant, told = _told(_split(article["text"][: article["lead_chars"]]), len(found))
            if 80 < len(told) < 1400:
                group = group_of(article["title"], article["text"])
                found.append(_summary(Text("wiki_long", _WIKI_LICENCE, group, article["text"]), told, variant))
    return found


def _meetings(corpus: Path) -> list[Text]:
    """Transcripts of meetings."""
    found = []
    for row in rows(corpus / "summ" / "qmsum_train.jsonl"):
        whole = [ask["answer"] for ask in row["questions"] if "summarize the whole meeting" in ask["query"].lower()]
        if whole and len(row["document"]) < LONGEST_STORY:
            text = Text("qmsum_train", row["lic"], group_of("", row["document"]), row["document"].strip())
            found.append(_summarised(text, whole[0], len(found)))
    return found


def _stories(corpus: Path) -> list[Text]:
    """Short stories with the shortest of their summaries."""
    found = []
    for row in rows(corpus / "summ" / "squality_train.jsonl"):
        plot = next(ask["summaries"] for ask in row["questions"] if "plot" in ask["query"])
        text = Text("squality_train", row["lic"], group_of("", row["document"]), row["document"].strip())
        found.append(_summarised(text, min(plot, key=len), len(found)))
    return found


def _summarised(text: Text, summary: str, turn: int) -> Text:
    """``text`` with the whole of its summary."""
    variant, told = _told_whole(_split(summary), turn)
    return _summary(text, told, variant)


def _split(text: str) -> list[str]:
    """Sentences of a text."""
    return re.split(r"(?<=[a-z0-9)\"”]\.) (?=[A-Z“\"])", " ".join(text.split()))


def _told_whole(sentences: Sequence[str], turn: int) -> tuple[str, str]:
    """A whole summary in a form of prompts/summary.yaml that has room for it, in turn."""
    points = "\n".join(f"- {sentence}" for sentence in sentences)
    if len(sentences) <= 2:
        return "short-paragraph", " ".join(sentences)
    if len(sentences) <= 6:
        bullets = "short-bullets" if len(sentences) == 3 else "medium-bullets"
        return (bullets, points) if turn % 2 else ("medium-paragraph", " ".join(sentences))
    if turn % 2 and len(sentences) <= 12:
        return "long-bullets", points
    third = -(-len(sentences) // 3)
    paragraphs = [sentences[start : start + third] for start in range(0, len(sentences), third)]
    return "long-paragraph", "\n\n".join(map(" ".join, paragraphs))


def _summary(text: Text, summary: str, variant: str = "short-paragraph") -> Text:
    text.asks.append(Ask(variant, summary, (summary,), "summary"))
    return text


def chat(corpus: Path) -> list[Text]:
    """General requests without a document, with answers that stand on their own."""
    wanted = ("common_gen_", "commonsense_qa_answer", "qasc_qa_with_combined", "cosmos_qa_no_prompt_text")
    found, seen = [], set()
    for name in ("t0_permissive", "tldr_commands"):
        for row in rows(corpus / "instruct" / f"{name}.jsonl"):
            prompt, answer = row["prompt"].strip(), row["response"].strip()
            general = name == "tldr_commands" or row["src"].startswith(tuple(f"t0/{start}" for start in wanted))
            if general and answer and prompt not in seen and len(prompt) < 900:
                seen.add(prompt)
                ask = Ask(prompt, answer, (answer,), "chat")
                found.append(Text(row["src"], row["lic"], group_of("", prompt), "", [ask]))
    return found


def answers_in(text: str, ask: Ask) -> bool:
    """Whether any accepted answer stands in a text."""
    return contains(text, [answer for answer in ask.accepted if normalised(answer)])
