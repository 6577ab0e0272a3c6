"""Documents made in code: records among prose, as sentences, tables, settings or logs, each with exact answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from training.corpus import Ask, Text
from training.negatives import NOT_SAID

#: Word lists, one a line.
_FIRST, _LAST, _CITY, _TRADE, _COLOUR, _THING, _MONTH, _SETTING = map(
    str.split,
    (
        "Maria Anton Grace Yusuf Elena Peter Ingrid Samuel Noor Victor Leah Omar Hannah Diego Ruth Pavel Amina "
        "Jonas Clara Hugo Mei Tomas Sofia Kofi Brigid Arthur Leila Martin Priya Walter Nadia Edwin Rosa Felix "
        "Tessa Ivan",
        "Lopez Keller Okafor Brandt Novak Haddad Sorensen Whitfield Moreau Tanaka Petrov Ashdown Bergman Castillo "
        "Doyle Eriksen Farouk Gallagher Horvat Iversen Jansen Kowalski Lindqvist Mercer Nakamura Osborne Pereira "
        "Quinn Rossi",
        "Porto Leeds Vienna Osaka Lima Tunis Bergen Quebec Ghent Izmir Cork Riga Malmo Accra Perth Zagreb Lyon "
        "Salem Davos Natal Odense Turin Varna Hobart",
        "carpenter surveyor pharmacist pilot translator geologist baker printer nurse architect tailor clerk",
        "red green blue amber violet silver white black crimson grey",
        "cabinet gate locker vault archive depot harbour station bridge tower warehouse boiler",
        "January February March April May June July August September October November December",
        "timeout retries region port cache_size log_level owner interval endpoint quota mode threads",
    ),
)

Maker = Callable[[random.Random], tuple[str, list[Ask]]]


def needle(prose: Sequence[Text], rng: random.Random) -> Text:
    """One document with several questions, about a fifth of them about what it does not hold."""
    document, asks = rng.choice((_people, _people, _codes, _codes, _settings, _log, _table, _payments))(rng)
    if rng.random() < 0.6:
        document = _among(document, rng.choice(prose).text, rng)
    rng.shuffle(asks)
    return Text("needles", "made in code", "", document, asks[:6])


def _among(document: str, prose: str, rng: random.Random) -> str:
    """The lines of a document, in order, at random places between sentences of prose."""
    sentences = prose[:1100].replace("\n", " ").split(". ")
    places = sorted(rng.randint(0, len(sentences)) for _ in document.split("\n"))
    for place, line in reversed(list(zip(places, document.split("\n"), strict=True))):
        sentences.insert(place, line.rstrip("."))
    return ". ".join(sentence for sentence in sentences if sentence)


def _ask(question: str, answer: str, kind: str = "needle") -> Ask:
    return Ask(question, answer, (answer,), kind)


def _missing(question: str) -> Ask:
    return _ask(question, NOT_SAID, "near")


def _names(rng: random.Random, count: int) -> list[str]:
    lasts = rng.sample(_LAST, count)
    return [f"{first} {last}" for first, last in zip(rng.sample(_FIRST, count), lasts, strict=True)]


def _date(rng: random.Random) -> str:
    day, month, year = rng.randint(1, 28), rng.choice(_MONTH), rng.randint(1790, 2024)
    return f"{day} {month} {year}" if rng.random() < 0.5 else f"{month} {day}, {year}"


def _people(rng: random.Random) -> tuple[str, list[Ask]]:
    *names, absent = _names(rng, rng.randint(3, 6))
    lines, asks = [], []
    cities, trades = rng.sample(_CITY, len(names) + 1), rng.sample(_TRADE, len(names))
    for name, city, trade in zip(names, cities, trades, strict=False):
        date = _date(rng)
        lines.append(f"{name}, a {trade}, moved to {city} on {date}.")
        asks += [_ask(f"When did {name} move to {city}?", date), _ask(f"Where did {name} move?", city)]
        asks += [_ask(f"Who moved to {city}?", name), _ask(f"What was {name}'s trade?", trade)]
    right, wrong = rng.sample(range(len(names)), 2)
    asks = rng.sample(asks, 4)
    asks.append(_ask(f"Did {names[right]} move to {cities[right]}?", "Yes", "yesno"))
    if rng.random() < 0.7:
        asks[-1] = _ask(f"Did {names[right]} move to {cities[wrong]}?", "No", "yesno")
    asks.append(_missing(rng.choice((f"When did {absent} move?", f"Who moved to {cities[-1]}?"))))
    return "\n".join(lines), asks


def _codes(rng: random.Random) -> tuple[str, list[Ask]]:
    count = rng.choice((1, 1, 2, 3, 4))
    pairs = rng.sample([f"{colour} {thing}" for colour in _COLOUR for thing in _THING], count + 1)
    word = rng.choice(("pass key", "access code", "secret number", "password"))
    lines, asks = [], []
    for place in pairs[:-1]:
        number = str(rng.randint(1000, 99999))
        code = number if word != "password" else f"{rng.choice(_CITY).lower()}-{number}"
        lines.append(f"The {word} of the {place} is {code}.")
        asks.append(_ask(f"What is the {word} of the {place}?", code))
    if count == 1:
        lines = [f"The {word} is {asks[0].answer}. Remember it."]
        asks = [_ask(f"What is the {word}?", asks[0].answer), _missing(f"Where is the {pairs[0]}?")]
    else:
        asks.append(_missing(f"What is the {word} of the {pairs[-1]}?"))
    return "\n".join(lines), asks


def _settings(rng: random.Random) -> tuple[str, list[Ask]]:
    *keys, absent = rng.sample(_SETTING, rng.randint(5, 10))
    form = rng.choice(("{} = {}", "{}: {}", "{}={}", "- {}: {}"))
    values = [
        rng.choice((str(rng.randint(2, 9000)), rng.choice(_CITY).lower(), f"{rng.randint(2, 90)}s")) for _ in keys
    ]
    lines = [form.format(key, value) for key, value in zip(keys, values, strict=True)]
    asks = [_ask(f"What is the value of {key}?", value) for key, value in zip(keys, values, strict=True)]
    return "\n".join(lines), [*rng.sample(asks, 4), _missing(f"What is the value of {absent}?")]


def ip_address(rng: random.Random) -> str:
    """An address of four numbers."""
    return ".".join(str(rng.randint(1, 254)) for _ in range(4))


def _log(rng: random.Random) -> tuple[str, list[Ask]]:
    hour, day = rng.randint(0, 20), rng.randint(1, 28)
    users = [name.split()[0].lower() for name in _names(rng, rng.randint(4, 7))]
    lines, asks = [], []
    for index, user in enumerate(users[:-1]):
        when = f"{hour:02}:{index * 7 + rng.randint(0, 6):02}:{rng.randint(0, 59):02}"
        address = ip_address(rng)
        event = rng.choice(("Accepted password", "Failed password", "session opened"))
        lines.append(f"2024-{rng.randint(1, 12):02}-{day:02} {when} sshd: {event} for {user} from {address}")
        asks += [_ask(f"From which address did {user} come?", address), _ask(f"At what time did {user} appear?", when)]
        asks.append(_ask(f"Who came from {address}?", user))
    return "\n".join(lines), [*rng.sample(asks, 4), _missing(f"From which address did {users[-1]} come?")]


def _table(rng: random.Random) -> tuple[str, list[Ask]]:
    *names, absent = _names(rng, rng.randint(4, 7))
    bar = rng.choice((" | ", ", ", "\t"))
    lines, asks = [bar.join(("Name", "City", "Age", "Score"))], []
    for name in names:
        city, age, points = rng.choice(_CITY), str(rng.randint(18, 90)), f"{rng.randint(10, 99)}.{rng.randint(0, 9)}"
        lines.append(bar.join((name, city, age, points)))
        asks += [_ask(f"How old is {name}?", age), _ask(f"What is {name}'s score?", points)]
        asks.append(_ask(f"In which city is {name}?", city))
    return "\n".join(lines), [*rng.sample(asks, 4), _missing(f"How old is {absent}?")]


def _payments(rng: random.Random) -> tuple[str, list[Ask]]:
    *names, absent = _names(rng, rng.randint(4, 7))
    lines, asks = [], []
    for giver, taker in zip(names, names[1:] + names[:1], strict=True):
        amount = f"{rng.choice('$£€')}{rng.randint(5, 20000):,}"
        lines.append(f"{giver} paid {taker} {amount} for the {rng.choice(_THING)}.")
        asks += [_ask(f"How much did {giver} pay?", amount), _ask(f"Who paid {amount}?", giver)]
        asks.append(_ask(f"Whom did {giver} pay?", taker))
    return "\n".join(lines), [*rng.sample(asks, 4), _missing(f"How much did {absent} pay?")]
