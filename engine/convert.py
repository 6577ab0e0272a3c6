"""Convert a GGUF file once into a folder that loads fast: safetensors, tokenizer.json, config, template."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import InfinipotError, ModelError
from engine.folders import flaw, make_once, not_stored, write_manifest

if TYPE_CHECKING:
    import torch

#: Raised whenever the same GGUF would give other files, so that older folders are made again.
CONVERTER = 1

#: Changes one weight on its way: (parameter name, float32 tensor) -> float32 tensor of the same shape.
WeightTransform = Callable[[str, "torch.Tensor"], "torch.Tensor"]
Report = Callable[[str], None]
#: Puts a GGUF file into the folder given and returns its path.
Obtain = Callable[[Path], Path]
Pair = tuple[Any, Any]
Reader = Callable[[Path, bool], Pair]

SAMPLE = "On 3 May 1927, at 07:45,\n  Mr. O'Hara paid £1,250 — naïve?\n\n\tdef f(x):  return x[10]"


def expected_manifest(about: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest fields of a folder that this converter makes from the source that ``about`` describes."""
    return {**about, "converter": CONVERTER}


def convert_gguf(
    source: Path | Obtain,
    target: Path,
    about: Mapping[str, Any],
    *,
    transforms: Sequence[WeightTransform] = (),
    report: Report | None = None,
    reader: Reader | None = None,
) -> bool:
    """Make ``target`` from a GGUF file, unless a sound one made from the same source is there; True if made.

    ``source`` is the file, or a function that puts it into the folder it is given and returns its path: it
    is called only where there is work, and by one process at a time. ``about`` goes into the manifest and
    says what the source is (name, sha256, …): a folder whose manifest says otherwise is made again.
    ``transforms`` are applied in order to every floating-point weight. ``report`` gets one line when work
    begins, and one when another process is waited for.
    Raises ModelError: unreadable file, unknown architecture, wrong tokenizer, disk full, not writable.
    """

    def make(folder: Path, scratch: Path, say: Report) -> None:
        gguf = source if isinstance(source, Path) else source(scratch)
        say(f"Converting {gguf.name} (once, about half a minute)…")
        model, tokenizer = _read(reader or read_gguf, gguf, full_precision=bool(transforms))
        check_tokenizer(tokenizer, model.config.vocab_size)
        apply_transforms(model, transforms)
        save(model, tokenizer, folder)

    return make_model(target, about, make, report)


def make_model(
    target: Path,
    about: Mapping[str, Any],
    make: Callable[[Path, Path, Report], None],
    report: Report | None = None,
) -> bool:
    """Have ``make(folder, scratch, say)`` fill ``target``, its manifest aside; True if made.

    Not where the manifest says ``about`` already and the files are whole. ``say`` is ``report``, or nobody. Raises
    ModelError.
    """
    expected = expected_manifest(about)
    say = report or (lambda line: None)

    def fill(folder: Path, scratch: Path) -> None:
        make(folder, scratch, say)
        write_manifest(folder, expected)

    return make_once(
        target,
        fill,
        lambda: flaw(target, expected) is None,
        waiting=lambda: say("Another process is preparing this model; waiting for it…"),
    )


def _read(reader: Reader, gguf: Path, full_precision: bool) -> Pair:
    try:
        with quiet_transformers():
            return reader(gguf, full_precision)
    except InfinipotError:
        raise
    except OSError as exc:
        raise ModelError(f"cannot read {gguf}: {exc}") from exc
    except MemoryError as exc:
        raise ModelError(f"not enough memory to convert {gguf.name}") from exc
    except Exception as exc:
        # The readers below raise whatever a malformed file makes them trip over.
        raise ModelError(f"{gguf.name} is not a GGUF model that can be read: {exc}") from exc


def read_gguf(gguf: Path, full_precision: bool) -> Pair:
    """(model on the CPU, tokenizer) of a GGUF file through transformers' own reading; needs ``accelerate``.

    Weights come as float32 where ``full_precision`` (they are to be changed), else as float16.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), **place)
    fix_pre_tokenizer(tokenizer, gguf)
    dtype = torch.float32 if full_precision else torch.float16
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), dtype=dtype, **place, **_unpacked(gguf))
    return model.eval(), tokenizer


def _unpacked(gguf: Path) -> dict[str, Any]:
    """Newer transformers may leave weights in GGUF blocks; such a model could not be saved."""
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(gguf_file=gguf.name, dequantize=True)}


def fix_pre_tokenizer(tokenizer: Any, gguf: Path) -> None:
    """Split text as the SmolLM vocabulary was learned: every digit alone, before the GPT-2 rule.

    transformers does not know this file's ``tokenizer.ggml.pre`` value and leaves the plain GPT-2 rule,
    which cuts spaces before a number differently ("\\n  5"), so the model would see tokens it never saw.
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(str(gguf)).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )


def check_tokenizer(tokenizer: Any, vocabulary: int) -> None:
    """Raise ModelError for a tokenizer that loses text, splits special tokens, or does not fit the model."""
    ids = tokenizer.encode(SAMPLE, add_special_tokens=False)
    if tokenizer.decode(ids, clean_up_tokenization_spaces=False).strip() != SAMPLE:
        raise ModelError("the tokenizer in this GGUF file does not give a text back as it was")
    if len(tokenizer) > vocabulary:
        raise ModelError(f"the tokenizer has {len(tokenizer)} tokens, the model only {vocabulary}")
    for token in tokenizer.all_special_tokens:
        if tokenizer.encode(token, add_special_tokens=False) != [tokenizer.convert_tokens_to_ids(token)]:
            raise ModelError(f"the tokenizer splits its special token {token!r}")
    if tokenizer.eos_token_id is None:
        raise ModelError("the tokenizer in this GGUF file names no end-of-text token")
    if tokenizer.chat_template is not None:
        _check_template(tokenizer)


def _check_template(tokenizer: Any) -> None:
    turn = [{"role": "user", "content": "infinipot asks"}]
    try:
        text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    except Exception as exc:
        raise ModelError(f"the chat template in this GGUF file does not render: {exc}") from exc
    if text.count("infinipot asks") != 1:
        raise ModelError("the chat template in this GGUF file loses or repeats the user's turn")


def apply_transforms(model: Any, transforms: Sequence[WeightTransform]) -> None:
    """Apply each transform in place to every floating-point parameter; tied weights are visited once.

    Raises ModelError from a transform, or if one has not met all the weights that it is for.
    """
    import torch

    with torch.no_grad():
        for name, weight in model.named_parameters() if transforms else ():
            changed = weight.float()
            for transform in transforms:
                changed = transform(name, changed)
            if changed.shape != weight.shape:
                raise ModelError(f"a weight transform changed the shape of {name}")
            weight.copy_(changed)
    require_complete(transforms)


def require_complete(transforms: Sequence[WeightTransform]) -> None:
    """Ask those transforms that can tell whether they have met every weight they are for. Raises ModelError."""
    for transform in transforms:
        check = getattr(transform, "require_complete", None)
        if check is not None:
            check()


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write float16 weights, configs and tokenizer files to ``folder``. Raises ModelError, OSError."""
    import torch
    from safetensors import SafetensorError

    model.to(torch.float16)
    _check_finite(model)
    _forget_gguf(model, tokenizer)
    _check_room(sum(weight.nbytes for weight in model.parameters()), folder)
    try:
        with quiet_transformers():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except SafetensorError as exc:
        raise not_stored(exc) from exc
    _tidy(folder)


def _check_finite(model: Any) -> None:
    for name, weight in model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise ModelError(f"weights of this GGUF file ({name}) do not fit into float16")


def _check_room(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + (16 << 20):
        raise OSError(errno.ENOSPC, f"{needed >> 20} MiB are needed, {free >> 20} MiB are free")


def _forget_gguf(model: Any, tokenizer: Any) -> None:
    """Make it an ordinary model: no quantisation left, end tokens where generation looks for them."""
    if getattr(model, "hf_quantizer", None) is not None:
        model.hf_quantizer = None
    for name in ("quantization_config", "_model_name_or_path"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    for kind in ("bos", "eos", "pad"):
        token = getattr(tokenizer, f"{kind}_token_id")
        for config in (model.config, model.generation_config):
            if getattr(config, f"{kind}_token_id", None) is None and token is not None:
                setattr(config, f"{kind}_token_id", token)


#: What tells how and by which version a file was written, not what the model is: the same everywhere without.
INCIDENTAL = {
    "config.json": ("transformers_version",),
    "generation_config.json": ("transformers_version", "_from_model_config"),
    "tokenizer_config.json": ("is_local", "local_files_only", "name_or_path"),
}


def _tidy(folder: Path) -> None:
    for name, incidental in INCIDENTAL.items():
        path = folder / name
        config = json.loads(path.read_text(encoding="utf-8"))
        for key in incidental:
            config.pop(key, None)
        if name == "tokenizer_config.json":
            config["clean_up_tokenization_spaces"] = False
        path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for path in folder.glob("*.safetensors"):
        # The writer makes weights readable by their owner only, unlike everything else here.
        path.chmod((folder / "config.json").stat().st_mode)


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No bars and no warnings from transformers inside; everything as it was afterwards."""
    from transformers import modeling_gguf_pytorch_utils as reading
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    plain_bar = getattr(reading, "tqdm", None)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    if plain_bar is not None:
        # This module's bar does not heed the switch above.
        reading.tqdm = functools.partial(plain_bar, disable=True)
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if plain_bar is not None:
            reading.tqdm = plain_bar
        if bars:
            logging.enable_progress_bar()
