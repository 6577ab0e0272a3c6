"""Counting tokens before a model is loaded."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.wellformed import well_formed
from infinipot_cli import models
from infinipot_cli.options import ModelOptions
from infinipot_cli.workbench import Counter, Report

VOCABULARY = "o200k_base"
_ADDRESS = f"https://openaipublic.blob.core.windows.net/encodings/{VOCABULARY}.tiktoken"
_DOWNLOAD_SECONDS = 8.0


class TiktokenCounter:
    """Counts with a tiktoken vocabulary: close to what most models count, the same for all of them."""

    exact = False

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self.name = f"tiktoken {VOCABULARY}"

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))


class ModelCounter:
    """Counts with the model's own tokenizer (``tokenizers``, which needs no torch)."""

    exact = True

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        self.name = f"the tokenizer of {name}"

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(well_formed(text), add_special_tokens=False).ids)


def open_counter(options: ModelOptions, own: bool, offline: bool, report: Report) -> Counter:
    """The model's own tokenizer where it is on this machine or ``own`` asks for it, else tiktoken, which is close to
    most; without tiktoken's vocabulary the model's after all.

    Raises ModelError if neither is to be had.
    """
    if own or models.is_local(options.model):
        return _model_counter(options, offline, report)
    encoding = None if offline and not _cached() else _tiktoken()
    if encoding is not None:
        return TiktokenCounter(encoding)
    counter = _model_counter(options, offline, report)
    report(f"tiktoken's vocabulary is not on this machine and cannot be fetched; counting with {counter.name}")
    return counter


def _tiktoken() -> Any:
    """The vocabulary, from tiktoken's cache or the network; None if it does not come within seconds."""
    found: list[Any] = []

    def fetch() -> None:
        try:
            import tiktoken

            found.append(tiktoken.get_encoding(VOCABULARY))
        except Exception:
            # No network, no room, a proxy's page instead of a vocabulary: all mean that there is none.
            pass

    # tiktoken sets no time limit on its download, so it runs where it can be left behind.
    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(_DOWNLOAD_SECONDS)
    return found[0] if found else None


def _cached() -> bool:
    """Whether tiktoken already has the vocabulary: it keeps it under the hash of its address."""
    given = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    folder = Path(given) if given else Path(tempfile.gettempdir()) / "data-gym-cache"
    return (folder / hashlib.sha1(_ADDRESS.encode()).hexdigest()).is_file()


def _model_counter(options: ModelOptions, offline: bool, report: Report) -> ModelCounter:
    from tokenizers import Tokenizer

    spec = models.resolve(options.model, offline=offline, report=report)
    path = Path(spec) / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path)) if path.is_file() else Tokenizer.from_pretrained(spec)
    except Exception as error:
        # tokenizers raises bare Exceptions.
        raise ModelError(f"{options.model} has no tokenizer that can be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return ModelCounter(tokenizer, options.model)
