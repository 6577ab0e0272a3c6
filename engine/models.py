"""Loading: any causal RoPE model of transformers, from a folder, a GGUF file or the hub, admitted by proof."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, MutableSet
from contextlib import contextmanager
from typing import Any

import torch

from engine.admission import probe_layers, prove
from engine.direct import load_folder
from engine.errors import ModelError, first_line
from engine.folders import expanded
from engine.identity import config_fingerprint
from engine.model import Model, base_of
from engine.processor import QUANTIZED, VALUE_BYTES, Quantized, auto_dtype

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in VALUE_BYTES}


def load_model(
    spec: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    quantize: Quantized | None = None,
    offline: bool = False,
    revision: str | None = None,
    name: str | None = None,
    admitted: MutableSet[str] | None = None,
) -> Model:
    """Load a model from a folder, a ``.gguf`` file or a hub id, and admit it.

    device "auto" is CUDA where there is one; dtype "auto" is bfloat16 there and on a CPU that has
    instructions for it, else float32. ``admitted`` is a set of config fingerprints proven before: those skip the
    proof, and a new proof is added. Raises ModelError.
    """
    where = _device(device)
    kind = _dtype(dtype, where)
    with _explained(spec, where):
        module, tokenizer = _from_pretrained(spec, where, kind, quantize, offline, revision)
        model = wrap(module, tokenizer, name or spec, revision=_revision(module, revision))
        if admitted is None or _proof_key(model) not in admitted:
            prove(model)
            if admitted is not None:
                admitted.add(_proof_key(model))
    return model


def wrap(module: Any, tokenizer: Any, name: str, revision: str | None = None) -> Model:
    """A Model around a loaded transformers model; finds out how its layers attend, proves nothing."""
    module.eval().requires_grad_(False)
    layers, rotary = probe_layers(base_of(module))
    return Model(name, revision, module, tokenizer, layers, rotary)


def _from_pretrained(
    spec: str, device: torch.device, dtype: torch.dtype, quantize: str | None, offline: bool, revision: str | None
) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    path = expanded(spec)
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": offline, "revision": revision}
    source = spec
    if path.exists():
        source = str(path)
        if path.is_file():
            if path.suffix.lower() != ".gguf":
                raise ModelError(f"{spec} is a file, but not a GGUF one", hint="give a model folder or a .gguf file")
            source, options["gguf_file"] = str(path.parent), path.name
    elif spec.startswith((".", "/", "~")) or spec.endswith(".gguf") or spec.count("/") > 1:
        raise ModelError(f"there is no model at {spec}")
    tokenizer = AutoTokenizer.from_pretrained(source, **options)
    module = load_folder(path, dtype) if path.is_dir() and quantize is None else None
    if module is None:
        if quantize is not None:
            options |= {"quantization_config": _quantization(quantize, dtype), "device_map": {"": device}}
        module, loaded = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, output_loading_info=True, **options)
        _check_complete(spec, loaded)
    _check_vocabulary(spec, module, tokenizer)
    if not getattr(module, "is_quantized", False):
        module = module.to(device)
    return module, tokenizer


def _check_complete(spec: str, loaded: dict[str, Any]) -> None:
    """transformers makes up weights that a file lacks, and says so in a warning; noise would answer."""
    absent = sorted(loaded.get("missing_keys", ())) + sorted(str(key) for key in loaded.get("mismatched_keys", ()))
    if absent:
        raise ModelError(
            f"{spec} is not whole: {len(absent)} of its weights are missing or misshapen, such as {absent[0]}"
        )


def _check_vocabulary(spec: str, module: Any, tokenizer: Any) -> None:
    rows = module.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ModelError(f"{spec} has a tokenizer of {len(tokenizer)} tokens and embeddings for {rows}")


def _quantization(quantize: str, dtype: torch.dtype) -> Any:
    from transformers import BitsAndBytesConfig

    if quantize == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    if quantize == "4bit":
        return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    raise ModelError(f"quantize must be {' or '.join(QUANTIZED)}, not {quantize}")


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"unknown device {device!r}", hint="auto, cpu, cuda or cuda:N") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelError("there is no CUDA device here", hint="use --device cpu, or leave --device out")
    return chosen


def _dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        dtype = auto_dtype(cuda=device.type == "cuda")
    if dtype not in DTYPES:
        raise ModelError(f"unknown dtype {dtype!r}", hint=f"auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _revision(module: Any, asked: str | None) -> str | None:
    return getattr(module.config, "_commit_hash", None) or asked


def _proof_key(model: Model) -> str:
    """A proof holds for one config, dtype and device kind, under one release of transformers and torch."""
    import transformers

    # Not the whole identity: a tokenizer's fingerprint takes a third of a second.
    parts = (
        config_fingerprint(model.module),
        str(model.dtype),
        model.device.type,
        transformers.__version__,
        torch.__version__,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@contextmanager
def _explained(spec: str, device: torch.device) -> Iterator[None]:
    """Turn what loading can raise into one ModelError with a hint."""
    try:
        yield
    except ModelError:
        raise
    except (torch.cuda.OutOfMemoryError, MemoryError) as error:
        raise ModelError(
            f"{spec} does not fit into the memory of {device}",
            hint="choose a smaller model (see `infinipot models`), --dtype bfloat16, or --quantize 4bit on CUDA",
        ) from error
    except ImportError as error:
        raise ModelError(f"{spec} needs a package that is not here: {first_line(error)}") from error
    except Exception as error:  # a damaged or foreign model can raise anything, from any library
        offline = os.environ.get("HF_HUB_OFFLINE") == "1"
        raise ModelError(
            f"cannot load {spec}: {first_line(error)}",
            hint="the hub is switched off (HF_HUB_OFFLINE=1)" if offline else "see `infinipot models` for names",
        ) from error
