"""Is a pass key found in garbage, at three depths? (Mohtashami & Jaggi's text; the question as `ask` words it, CaP-Q.)

    python benchmarks/passkey.py [--tokens 8000] [--capacity 2048] [--set NAME=VALUE …]

Prints one line per depth. The same keys for all settings.
"""

from __future__ import annotations

import argparse
import os
import random
import time

from choices import pot_settings

from engine.framing import Framing
from engine.generation import generate
from engine.models import load_model
from engine.reader import Reader
from engine.settings import GenerationSettings
from infinipot_cli.models import resolve
from infinipot_cli.prompts import load_task

TASK = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there.\n"
)
GARBAGE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
LINE = "The pass key is {key}. Remember it. {key} is the pass key.\n"
CHARACTERS_A_TOKEN = 3.74


def document(tokens: int, depth: float, key: int) -> str:
    """Garbage of about ``tokens`` tokens with the key's line at ``depth`` (0..1)."""
    count = int(tokens * CHARACTERS_A_TOKEN / len(GARBAGE))
    before = int(count * depth)
    return f"{TASK}{GARBAGE * before}\n{LINE.format(key=key)}{GARBAGE * (count - before)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    settings = pot_settings(options)
    model = load_model(resolve(options.model), offline=True)
    task = load_task("question", os.environ)
    framing = Framing(model, task.before, task.system)
    suffix = framing.suffix_ids(task.turn("What number is the pass key?"))
    chance = random.Random(0)
    for depth in (0.1, 0.5, 0.9):
        key = chance.randint(1, 50_000)
        reader = Reader(model, settings, framing.prefix_ids, suffix)
        began = time.perf_counter()
        reader.read(document(options.tokens, depth, key))
        answer = generate(model, reader.finish(), suffix, GenerationSettings(max_new_tokens=16)).text
        found = "found" if str(key) in answer else "lost "
        seconds = time.perf_counter() - began
        print(f"{found}  depth {depth}  {reader.stats.tokens} tokens  {key}  {answer!r}  {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
