"""Answers from a pot: the pot stays as it was, the capacity holds, and text arrives whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList

from engine import ccd, generation
from engine.errors import SettingsError
from engine.generation import Generation, extend, generate
from engine.model import Model
from engine.pot import Pot
from engine.sentences import ByLine, BySentence, whole
from engine.settings import METHODS, GenerationSettings, PotSettings
from tests import tiny
from tests.test_engine_exact import fullest, stock_greedy

SETTINGS = PotSettings(capacity=64, distilled=24, block=13)
QUESTION = tiny.random_ids(8, 9).tolist()
STYLES = [GenerationSettings(max_new_tokens=12), GenerationSettings(max_new_tokens=12, temperature=0.8, top_p=0.9)]


def ask(model: Model, pot: Pot, count: int, **options: Any) -> Generation:
    return generate(model, pot, QUESTION, GenerationSettings(max_new_tokens=count), **options)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Callable[[Model, Sequence[int]], None]:
    """Make a model write given ids whatever it reads, one per forward, then stop tokens."""

    def force(model: Model, ids: Sequence[int]) -> None:
        queue = list(ids)
        stock = model.module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            output = stock(*args, **kwargs)
            token = queue.pop(0) if queue else tiny.STOP
            logits = torch.full_like(output.logits, -1e4)
            logits[:, -1, token] = 1e4
            output.logits = logits
            return output

        monkeypatch.setattr(model.module, "forward", forward)

    return force


# ----------------------------------------------------------------------------------- the pot stays as it was


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss", "llama-dynamic"])
@pytest.mark.parametrize("length", [20, 50, 300])
@pytest.mark.parametrize("style", STYLES, ids=["greedy", "sampled"])
def test_generating_leaves_the_pot_bit_for_bit(name: str, length: int, style: GenerationSettings) -> None:
    model = tiny.model(name)
    pot = tiny.read(model, SETTINGS, tiny.document(length))
    before = tiny.contents(pot)
    first = generate(model, pot, QUESTION, style)
    assert tiny.same(tiny.contents(pot), before)
    second = generate(model, pot, QUESTION, style)
    assert second.token_ids == first.token_ids
    assert tiny.same(tiny.contents(pot), before)


def test_an_error_in_generation_leaves_the_pot_too() -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(300))
    before = tiny.contents(pot)
    with pytest.raises(SettingsError):
        ask(model, pot, 100)
    with pytest.raises(SettingsError, match="nothing to answer"):
        generate(model, pot, [], GenerationSettings(max_new_tokens=3))
    assert tiny.same(tiny.contents(pot), before)


# ---------------------------------------------------------------------------------------- the last-fill rule


@given(length=st.integers(0, 200), count=st.integers(1, 50))
def test_the_last_fill_is_distilled_just_enough(length: int, count: int) -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(length))
    need = len(QUESTION) + count
    with pytest.MonkeyPatch.context() as patch:
        pots: list[Pot] = []
        pour = generation.pour
        patch.setattr(generation, "pour", lambda model, pot, room: (pots.append(pot), pour(model, pot, room))[1])
        ask(model, pot, count)
    assert len(pots) == 1
    if pot.entries + need <= pot.capacity:
        assert pots[0] is pot
    else:
        assert pots[0].entries + need == pot.capacity
        assert pots[0].cycles == pot.cycles + 1
        for store in pots[0].stores.values():
            assert store.token[:, :3].tolist() == [tiny.random_ids(3, 101).tolist()] * 2


@given(length=st.integers(0, 200), focus=st.integers(1, 60), method=st.sampled_from(METHODS))
def test_an_answer_is_written_from_as_many_entries_as_the_focus_says(length: int, focus: int, method: str) -> None:
    model = tiny.model()
    pot = tiny.read(model, replace(SETTINGS, method=method), tiny.document(length))
    before = tiny.contents(pot)
    with pytest.MonkeyPatch.context() as patch:
        pots: list[Pot] = []
        pour = generation.pour
        patch.setattr(generation, "pour", lambda model, pot, room: (pots.append(pot), pour(model, pot, room))[1])
        generate(model, pot, QUESTION, GenerationSettings(max_new_tokens=5, focus=focus))
    assert tiny.same(tiny.contents(pot), before)
    if method in ("cap", "infinipot"):
        room = pot.capacity - len(QUESTION) - 5 - pot.protected
        held = pot.entries - pot.protected
        assert pots[0].entries - pot.protected == min(held, room, focus)
    elif pot.fits(len(QUESTION) + 5) and pots:
        assert pots[0] is pot  # a method that does not look at the question would keep any


@given(length=st.integers(0, 60), run=st.integers(2, 6))
def test_no_run_of_tokens_comes_twice_where_it_may_not(length: int, run: int) -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(length))
    free, bound = (
        generate(model, pot, QUESTION, GenerationSettings(24, no_repeat=none, min_new_tokens=24)).token_ids
        for none in (0, run)
    )
    repeated = [i for i in range(run, len(free) + 1) if _runs(free[:i], run).count(tuple(free[i - run : i])) > 1]
    assert len(set(_runs(bound, run))) == len(_runs(bound, run))
    first = min(repeated, default=len(free) + 1)
    assert bound[: first - 1] == free[: first - 1]  # nothing else changes before the first repetition


def test_a_phrase_that_is_to_be_avoided_never_stands_in_an_answer() -> None:
    model, free = tiny.model(), GenerationSettings(24, min_new_tokens=24)
    pot = tiny.read(model, SETTINGS, tiny.document(40))
    ids = generate(model, pot, QUESTION, free).token_ids
    pairs = {i: model.tokenizer.decode(ids[i : i + 2]) for i in range(2, 23)}
    encode = model.tokenizer.encode
    place = next(i for i, text in pairs.items() if encode(text, add_special_tokens=False) == ids[i : i + 2])
    without = generate(model, pot, QUESTION, replace(free, avoid=(pairs[place],))).token_ids
    assert tuple(ids[place : place + 2]) not in _runs(without, 2)
    first = _runs(ids, 2).index(tuple(ids[place : place + 2]))
    assert without[: first + 1] == ids[: first + 1]


@pytest.mark.parametrize("method", ["cap", "streaming", "self-extend", "swa"])
def test_a_refusal_is_begun_where_the_model_is_inclined_to_it_enough(method: str) -> None:
    model, free = tiny.model(), GenerationSettings(12, min_new_tokens=12)
    settings = PotSettings(capacity=200, distilled=24, method=method, group=2, window=16)
    pot = tiny.read(model, settings, tiny.document(220))  # once distilled, with room for all that follows
    first, second = model.tokenizer.encode("the cat", add_special_tokens=False)[:2]
    inclined = 0.0
    for asked, token in ((QUESTION, first), ([*QUESTION, first], second)):
        with first_probabilities(model, token) as probability:
            generate(model, pot, asked, replace(free, max_new_tokens=1, min_new_tokens=1))
        inclined += math.log(probability[0])
    plain = generate(model, pot, QUESTION, free).token_ids
    for least, begun in ((0.9 * math.exp(inclined), True), (min(1.1 * math.exp(inclined), 1.0), False)):
        said = generate(model, pot, QUESTION, replace(free, refusal=("the cat", least))).token_ids
        assert (said[:2] == [first, second]) is begun or plain[:2] == [first, second]
        if begun:
            ten = replace(free, max_new_tokens=10, min_new_tokens=10)
            assert said[2:] == generate(model, pot, [*QUESTION, first, second], ten).token_ids
        else:
            assert said == plain


@contextmanager
def first_probabilities(model: Model, token: int) -> Iterator[list[float]]:
    """What the answers inside give to ``token`` at each of their steps."""
    seen: list[float] = []
    whole = model.module.generate

    def noting(*arguments: Any, **named: Any) -> Any:
        def note(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
            seen.append(float(logits.float().softmax(-1)[0, token]))
            return logits

        return whole(*arguments, **{**named, "logits_processor": LogitsProcessorList([note])})

    model.module.generate = noting
    try:
        yield seen
    finally:
        del model.module.generate


def _runs(ids: list[int], length: int) -> list[tuple[int, ...]]:
    return [tuple(ids[i : i + length]) for i in range(len(ids) - length + 1)]


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss"])
@pytest.mark.parametrize("length", [30, 49, 300])
def test_the_poured_cache_never_outgrows_the_capacity(
    name: str, length: int, monkeypatch: pytest.MonkeyPatch, forced: Callable[[Model, Sequence[int]], None]
) -> None:
    model = tiny.model(name)
    caches: list[Any] = []
    pour = generation.pour

    def spy(model: Model, pot: Pot, room: int) -> Any:
        caches.append(pour(model, pot, room))
        return caches[-1]

    monkeypatch.setattr(generation, "pour", spy)
    pot = tiny.read(model, SETTINGS, tiny.document(length))
    forced(model, [50] * 30)
    assert len(ask(model, pot, 20).token_ids) == 20
    for layer in caches[0].layers:
        assert layer.get_seq_length() <= SETTINGS.capacity
        assert layer.keys.shape[2] <= SETTINGS.capacity


def test_the_question_is_the_catalyst_of_the_last_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(200))
    catalysts: list[list[int]] = []
    score = ccd.score

    def spy(model: Model, pot: Pot, catalyst: Tensor) -> Any:
        catalysts.append(catalyst.tolist())
        return score(model, pot, catalyst)

    monkeypatch.setattr(ccd, "score", spy)
    ask(model, pot, 40)
    assert catalysts == [QUESTION]


def test_question_and_answer_that_cannot_fit_are_refused_with_a_hint() -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(200))
    ask(model, pot, 64 - 3 - len(QUESTION) - 1)  # one entry is left of the document
    with pytest.raises(SettingsError) as caught:
        ask(model, pot, 64 - 3 - len(QUESTION))
    assert "61 entries beside 3 protected" in str(caught.value)
    assert caught.value.hint is not None
    assert "--max-tokens" in caught.value.hint


def test_a_question_longer_than_the_room_left_is_answered() -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(57))  # 60 of 64 entries
    question = tiny.random_ids(40, 5).tolist()
    with fullest() as seen:
        answer = generate(model, pot, question, GenerationSettings(max_new_tokens=4))
    assert 1 <= len(answer.token_ids) <= 4
    assert max(seen) == 64


def test_a_pot_full_to_the_last_entry_can_still_be_asked() -> None:
    model = tiny.model()
    settings = PotSettings(capacity=64, distilled=24, method="recent")
    pot = tiny.read(model, settings, tiny.document(61), catalyst=0)
    assert pot.entries == 64
    assert ask(model, pot, 10).token_ids


@pytest.mark.parametrize("name", ["llama", "llama-dynamic", "phi3-longrope"])
def test_an_empty_document_is_answered_from_the_prefix(name: str) -> None:
    model = tiny.model(name)
    pot = tiny.read(model, SETTINGS, tiny.document(0))
    whole = torch.cat([tiny.random_ids(3, 101), torch.tensor(QUESTION)])
    assert ask(model, pot, 10).token_ids == stock_greedy(model, whole, 10)
    bare = tiny.read(model, SETTINGS, tiny.document(0), prefix=0)
    assert bare.entries == 0
    assert ask(model, bare, 10).token_ids == stock_greedy(model, torch.tensor(QUESTION), 10)


# ------------------------------------------------------------------------------------------ text as it comes


TEXTS = [
    "plain words, one line",
    "two lines\nand the second\n",
    "\n\n\nblank lines\n\n",
    "naïve café — “quotes” €5 …",
    "日本語のテキスト",
    "emoji 🎉🏴‍☠️ done",
    "    indented\n    def f(x):\n        return x",
    "  \n  spaces  \n ",
    "tab\tand\r\ncarriage",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte-level", "metaspace", "prepend"])
def test_pieces_make_the_text_and_never_split_a_character(
    text: str, kind: str, forced: Callable[[Model, Sequence[int]], None]
) -> None:
    tokenizer = {
        "byte-level": tiny.tokenizer,
        "metaspace": tiny.spiece_tokenizer,
        "prepend": lambda: tiny.spiece_tokenizer(legacy=True),
    }[kind]()
    model = tiny.wrap(tiny.roomy_module(), tokenizer, "llama")
    ids = tokenizer.encode(text, add_special_tokens=False)
    forced(model, ids)
    pieces: list[str] = []
    answer = ask(model, tiny.read(model, PotSettings(), tiny.document(5)), len(ids) + 9, on_text=pieces.append)
    assert answer.token_ids == [*ids, tiny.STOP]
    assert all(pieces)
    assert not any("\ufffd" in piece for piece in pieces)
    assert answer.text == text.strip()
    assert "".join(pieces).lstrip() == tokenizer.decode(ids).lstrip()


@given(ids=st.lists(st.integers(4, tiny.VOCABULARY - 9), max_size=30))
def test_pieces_of_any_tokens_make_the_text(ids: list[int]) -> None:
    tokenizer = tiny.tokenizer()
    pieces: list[str] = []
    listener = generation._Listener(tokenizer, pieces.append)
    listener.put(torch.tensor([[1, 2, 3]]))  # the prompt
    for token in ids:
        listener.put(torch.tensor([token]))
    listener.end()
    assert listener.ids == ids
    assert "".join(pieces).lstrip() == generation.decode(tokenizer, ids).lstrip()


def test_half_a_character_at_the_end_is_not_lost(forced: Callable[[Model, Sequence[int]], None]) -> None:
    model = tiny.model()
    ids = model.tokenizer.encode("a€")[:-1]
    forced(model, ids)
    pieces: list[str] = []
    answer = ask(model, tiny.read(model, SETTINGS, tiny.document(5)), len(ids), on_text=pieces.append)
    assert answer.stop_reason == "length"
    assert "".join(pieces) == answer.text == "a\ufffd"


# ---------------------------------------------------------------------------------------------- when it ends


def test_a_stop_token_ends_it_and_is_not_shown(forced: Callable[[Model, Sequence[int]], None]) -> None:
    model = tiny.model()
    ids = model.tokenizer.encode("the cat")
    forced(model, ids)
    pieces: list[str] = []
    answer = ask(model, tiny.read(model, SETTINGS, tiny.document(30)), 20, on_text=pieces.append)
    assert (answer.text, answer.stop_reason, answer.token_ids[-1]) == ("the cat", "stop", tiny.STOP)
    assert "".join(pieces) == "the cat"


@pytest.mark.parametrize("stops", [[7, 8], 8])
def test_the_models_own_stop_tokens_count(
    stops: Any, forced: Callable[[Model, Sequence[int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.model()
    monkeypatch.setattr(model.module, "generation_config", GenerationConfig(eos_token_id=stops))
    forced(model, [50, 60, 8, 70])
    answer = ask(model, tiny.read(model, SETTINGS, tiny.document(30)), 20)
    assert (answer.token_ids, answer.stop_reason) == ([50, 60, 8], "stop")


def test_without_stop_tokens_the_tokenizers_end_counts(
    forced: Callable[[Model, Sequence[int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.model()
    monkeypatch.setattr(model.module, "generation_config", GenerationConfig())
    forced(model, [50, tiny.STOP, 70])
    answer = ask(model, tiny.read(model, SETTINGS, tiny.document(30)), 20)
    assert (answer.token_ids, answer.stop_reason) == ([50, tiny.STOP], "stop")


def test_the_answer_is_never_longer_than_asked(forced: Callable[[Model, Sequence[int]], None]) -> None:
    model = tiny.model()
    forced(model, [50] * 40)
    answer = ask(model, tiny.read(model, SETTINGS, tiny.document(30)), 5)
    assert (answer.token_ids, answer.stop_reason, answer.prompt_tokens) == ([50] * 5, "length", len(QUESTION))
    forced(model, [50, 60])
    last = ask(model, tiny.read(model, SETTINGS, tiny.document(30)), 3)
    assert (last.token_ids, last.stop_reason) == ([50, 60, tiny.STOP], "stop")


def test_it_can_be_stopped(forced: Callable[[Model, Sequence[int]], None]) -> None:
    model = tiny.model()
    forced(model, [50] * 40)
    pieces: list[str] = []
    pot = tiny.read(model, SETTINGS, tiny.document(30))
    answer = ask(model, pot, 20, on_text=pieces.append, should_stop=lambda: len(pieces) >= 3)
    assert answer.stop_reason == "interrupted"
    assert len(answer.token_ids) in (3, 4)  # asked once per token, before or after that token is shown
    assert "".join(pieces).strip() == answer.text


def test_settings_of_the_models_author_do_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(30))
    plain = ask(model, pot, 12).token_ids
    greedy = GenerationSettings(max_new_tokens=12, temperature=0.9, seed=3)
    sampled = generate(model, pot, QUESTION, greedy).token_ids
    odd = GenerationConfig(
        eos_token_id=tiny.STOP,
        pad_token_id=0,
        repetition_penalty=5.0,
        no_repeat_ngram_size=1,
        temperature=0.01,
        top_k=1,
        top_p=0.1,
        do_sample=True,
        min_p=0.9,
        max_length=3,
        min_length=9,
        suppress_tokens=[plain[0], sampled[0]],
    )
    monkeypatch.setattr(model.module, "generation_config", odd)
    assert ask(model, pot, 12).token_ids == plain
    assert generate(model, pot, QUESTION, greedy).token_ids == sampled


# ---------------------------------------------------------------------------------------------------- chance


def test_sampling_is_reproducible_by_its_seed() -> None:
    model = tiny.model("qwen2")
    pot = tiny.read(model, SETTINGS, tiny.document(30))

    def sampled(seed: int, temperature: float = 1.5) -> list[int]:
        return generate(
            model, pot, QUESTION, GenerationSettings(max_new_tokens=10, temperature=temperature, seed=seed)
        ).token_ids

    assert sampled(1) == sampled(1)
    assert len({tuple(sampled(seed)) for seed in range(6)}) > 3
    assert sampled(5, temperature=1e-4) == ask(model, pot, 10).token_ids


@pytest.mark.parametrize("style", STYLES, ids=["greedy", "sampled"])
def test_the_random_state_of_the_process_is_left_alone(style: GenerationSettings) -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(300))
    torch.manual_seed(77)
    before = torch.get_rng_state()
    generate(model, pot, QUESTION, style)
    assert torch.equal(torch.get_rng_state(), before)


# --------------------------------------------------------------------------------------------- conversations


def test_a_conversation_is_read_behind_the_document() -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(20))
    before = tiny.contents(pot)
    answer = ask(model, pot, 6)
    longer = extend(model, pot, [*QUESTION, *answer.token_ids], [7, 8])
    assert tiny.same(tiny.contents(pot), before)
    assert (longer.entries, longer.cycles) == (pot.entries + len(QUESTION) + len(answer.token_ids), 0)
    assert longer.tokens_read == pot.tokens_read
    whole = torch.cat([tiny.random_ids(3, 101), tiny.document(20).ids, torch.tensor(QUESTION + answer.token_ids)])
    again = torch.cat([whole, torch.tensor(QUESTION)])
    assert ask(model, longer, 10).token_ids == stock_greedy(model, again, 10)


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen2-mixed"])
def test_a_long_conversation_is_distilled(name: str) -> None:
    model = tiny.model(name)
    pot = tiny.read(model, SETTINGS, tiny.document(100))
    before = tiny.contents(pot)
    turn = tiny.random_ids(17, 3).tolist()
    with fullest() as seen:
        longer = pot
        for _ in range(8):
            longer = extend(model, longer, turn, QUESTION)
    assert tiny.same(tiny.contents(pot), before)
    assert longer.cycles > pot.cycles
    assert max(seen) <= longer.capacity
    assert ask(model, longer, 10).token_ids
    for store in longer.distilled_stores:
        assert store.token[:, :3].tolist() == [tiny.random_ids(3, 101).tolist()] * store.spec.kv_heads


def test_a_conversation_read_in_turns_is_the_conversation_read_at_once() -> None:
    model = tiny.model("llama", torch.float64)
    pot = tiny.read(model, SETTINGS, tiny.document(90))
    turns = tiny.random_ids(40, 3).tolist()
    at_once = extend(model, pot, turns, QUESTION)
    in_two = extend(model, extend(model, pot, turns[:11], QUESTION), turns[11:], QUESTION)
    for index, store in at_once.stores.items():
        other = in_two.stores[index]
        assert torch.equal(store.token[:, : store.length], other.token[:, : other.length])
        torch.testing.assert_close(store.key[:, : store.length], other.key[:, : other.length])


def test_a_catalyst_that_leaves_no_room_is_refused() -> None:
    model = tiny.model()
    pot = tiny.read(model, SETTINGS, tiny.document(90))
    with pytest.raises(SettingsError, match="capacity 64 is too small"):
        extend(model, pot, [5, 6], [7] * 40)


PIECES = ["Noon", " Mr", ".", " ", "\n", "!", '"', "4", "。", ")", " J", " was weighed", "…", " No"]


@given(texts=st.lists(st.sampled_from(PIECES), max_size=30), cut=st.booleans())
def test_text_is_passed_on_by_sentences(texts: list[str], cut: bool) -> None:
    passed: list[str] = []
    gate, text = BySentence(passed.append), "".join(texts)
    for piece in texts:
        gate(piece)
        assert not passed or whole("".join(passed)) == "".join(passed)
    assert gate.close(cut) == "".join(passed) == (whole(text) if cut else text)


@given(texts=st.lists(st.text("ab \n.", max_size=4), max_size=12), cut=st.booleans())
def test_an_answer_of_distinct_lines_ends_ahead_of_the_first_that_comes_again(texts: list[str], cut: bool) -> None:
    passed: list[str] = []
    gate, text = ByLine(passed.append), "".join(texts)
    for piece in texts:
        gate(piece)
    kept: list[str] = []
    for line in (whole(text) if cut else text).splitlines(keepends=True):
        if line.strip() and line.strip() in map(str.strip, kept):
            assert gate.repeats or not line.endswith("\n")
            break
        kept.append(line)
    assert gate.close(cut) == "".join(passed) == "".join(kept)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("It rained. The mill stood by the", "It rained."),
        ("It rained. Mr. Noon saw J. Garside, No. 4, i.e. the", "It rained."),
        ('"It rained!" she said in 1990. Then', '"It rained!" she said in 1990.'),
        ("It cost 3.5 million (in 1990.) It", "It cost 3.5 million (in 1990.)"),
        ("- one\n- two\n- thr", "- one\n- two\n"),
        ("1. The mill.\n2. The river.\n3. The", "1. The mill.\n2. The river.\n"),
        ("1. The mill. 12. The", "1. The mill. 12."),
        ("雨が降った。水車は", "雨が降った。"),
        ("It rained. It stopped.", "It rained. It stopped."),
        ("It rained all day and", "It rained all day and"),
    ],
)
def test_what_is_cut_off_ends_with_its_last_whole_sentence(text: str, kept: str) -> None:
    assert whole(text) == kept


@given(length=st.integers(0, 60), most=st.integers(1, 40), ends=st.booleans())
def test_an_answer_of_whole_sentences_is_the_same_one_without_its_last_half(length: int, most: int, ends: bool) -> None:
    model, shown = tiny.model(), list[str]()
    pot = tiny.read(model, SETTINGS, tiny.document(length))
    settings = GenerationSettings(most, min_new_tokens=0 if ends else most, temperature=1.5, seed=length)
    free = generate(model, pot, QUESTION, settings)
    bound = generate(model, pot, QUESTION, replace(settings, whole_sentences=True), shown.append)
    assert (bound.token_ids, bound.stop_reason) == (free.token_ids, free.stop_reason)
    wanted = whole(free.raw.lstrip()) if free.stop_reason == "length" else free.raw.lstrip()
    assert (bound.raw, bound.text, "".join(shown)) == (wanted, wanted.strip(), wanted)


@pytest.mark.parametrize(
    ("written", "kept", "reason"),
    [
        ("- a\n- b\n- a\n- c\n", "- a\n- b\n", "stop"),
        ("- a\n\n- b\n\n - a \nc", "- a\n\n- b\n\n", "stop"),
        ("- a\n- b\n- a", "- a\n- b\n", "stop"),  # it ends by itself
        ("- a\n- b\n", "- a\n- b\n", "stop"),
        ("x\n" * 12, "x\n", "stop"),
        ("".join(f"{n}\n" for n in range(40)), "".join(f"{n}\n" for n in range(10)) + "10\n11\n", "length"),
    ],
)
def test_an_answer_of_distinct_lines_ends_with_them(
    forced: Callable[[Model, Sequence[int]], None], written: str, kept: str, reason: str
) -> None:
    model, shown = tiny.model(), list[str]()
    pot = tiny.read(model, SETTINGS, tiny.document(20))
    ids = model.tokenizer.encode(written, add_special_tokens=False)
    most = len(model.tokenizer.encode(kept, add_special_tokens=False)) if reason == "length" else len(ids) + 1
    forced(model, ids)
    answer = generate(model, pot, QUESTION, GenerationSettings(most, lines_once=True), shown.append)
    assert ("".join(shown), answer.raw, answer.stop_reason) == (kept, kept, reason)
    if written.startswith("x"):  # writing ends once the second line is whole, not at the end of all
        assert model.tokenizer.decode(answer.token_ids).count("x") <= 3
