"""Read a model's ``config.json`` and ``generation_config.json`` as data, for every backend; types
and ranges are checked.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.format import is_integer

HEAD = "lm_head.weight"
"""The tensor of a head that is not the embedding."""

SIZES = {
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "num_hidden_layers": 1 << 12,
    "num_attention_heads": 1 << 14,
    "num_key_value_heads": 1 << 14,
    "head_dim": 1 << 14,
    "vocab_size": 1 << 26,
    "max_position_embeddings": 1 << 40,
    "num_labels": 1 << 16,
}
"""Entries that determine allocations: integers from 1 to these limits, or null."""

NUMBERS = {"rms_norm_eps": 1.0, "layer_norm_eps": 1.0, "rope_theta": 1e15}
ROPE_NUMBERS = {
    **{"rope_theta": 1e15, "factor": 1e6, "low_freq_factor": 1e6, "high_freq_factor": 1e6},
    "original_max_position_embeddings": 2.0**40,
}
"""Entries that are numbers above 0, up to these limits."""

_ROPE_NEEDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": (),
    "yarn": (),
    "longrope": (),
    "llama3": (
        *("factor", "low_freq_factor", "high_freq_factor"),
        "original_max_position_embeddings",
    ),
    "proportional": (),
}
"""Types of rotary embedding in transformers, with the entries that are checked here."""

_HUB_HINT = " (a model of the Hub is downloaded first, with `hf download NAME --local-dir DIR`)"
_SWITCHES = ("tie_word_embeddings", "use_sliding_window", "attention_bias", "mlp_bias")
_LAYER_TYPES = ("full_attention", "sliding_attention")


def read_config(directory: Path) -> dict[str, Any]:
    """Return the contents of a directory's config.json.

    Raises :class:`FileError` if it is missing, is not JSON, or has an entry of a wrong type or
    outside its range.
    """
    if not directory.is_dir():
        kind = "a file" if directory.exists() else "missing"
        hint = _HUB_HINT if re.fullmatch(r"[\w.-]+/[\w.-]+", str(directory)) else ""
        raise FileError(f"{directory} must be a directory of a model, and is {kind}{hint}")
    path = directory / "config.json"
    config = read_json(path)
    check_config(config, str(path))
    return config


def is_tied(config: Mapping[str, Any], tensors: Container[str], where: object) -> bool:
    """Return True if the model's head is its embedding, that is, if its file has no head.

    A head in the file is used whatever the config has, as in transformers. Raises
    :class:`FileError`, prefixed by ``where``, if the file has no head and the config requires one.
    """
    if HEAD not in tensors and config.get("tie_word_embeddings") is False:
        raise FileError(
            f"{where}: tie_word_embeddings must be true without a tensor {HEAD}, not false"
        )
    return HEAD not in tensors


def read_stop_tokens(directory: Path) -> list[int]:
    """Return the stop tokens in config.json and generation_config.json (``eos_token_id``).

    Raises :class:`FileError` like :func:`read_config`.
    """
    config, path = read_config(directory), directory / "generation_config.json"
    stop_tokens = _stop_tokens(config, config, str(directory / "config.json"))
    return stop_tokens + (_stop_tokens(read_json(path), config, str(path)) if path.exists() else [])


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    if not path.is_file():
        raise FileError(f"{path} must be a file, and is missing")
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} must be JSON ({error})") from error
    if not isinstance(body, dict):
        raise FileError(f"{path} must hold a JSON object, not {type(body).__name__}")
    return body


def check_config(config: Mapping[str, Any], where: str) -> None:
    """Raise for entries of a wrong type or outside their range; ``where`` prefixes the error."""
    for name, limit in SIZES.items():
        size = config.get(name)
        if size is not None and not is_integer(size, 1, limit):
            raise _wrong(where, name, f"an integer from 1 to {limit}", size)
    for name in _SWITCHES:
        if not isinstance(config.get(name) or False, bool):
            raise _wrong(where, name, "true or false", config[name])
    types = config.get("layer_types")
    if types is not None and not (
        isinstance(types, list) and all(t in _LAYER_TYPES for t in types)
    ):
        raise _wrong(where, "layer_types", f"a list of {' and '.join(_LAYER_TYPES)}", types)
    _check_numbers(config, NUMBERS, where)
    _check_rope(config, where)
    _stop_tokens(config, config, where)


def _stop_tokens(entries: Mapping[str, Any], config: Mapping[str, Any], where: str) -> list[int]:
    """Return the stop tokens of a file, checked against the vocabulary of ``config``."""
    vocabulary = config.get("vocab_size") or SIZES["vocab_size"]
    stated = entries.get("eos_token_id")
    tokens = stated if isinstance(stated, list) else [stated]
    stops = [token for token in tokens if token is not None]
    for token in stops:
        if not is_integer(token, 0, vocabulary - 1):
            raise _wrong(where, "eos_token_id", f"below vocab_size ({vocabulary})", token)
    return stops


def _check_rope(config: Mapping[str, Any], where: str) -> None:
    """Check the entries of the rotary embedding, under either of their names."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = config.get(name)
        if rope is None:
            continue
        if not isinstance(rope, dict):
            raise _wrong(where, name, "an object", rope)
        kinds = [value for value in rope.values() if isinstance(value, dict)]  # per layer type
        for each in kinds or [rope]:
            _check_rope_entries(each, f"{where}: {name}")


def _check_rope_entries(rope: Mapping[str, Any], where: str) -> None:
    """Check the entries of one rotary embedding."""
    _check_numbers(rope, ROPE_NUMBERS, where)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if not isinstance(kind, str) or kind not in _ROPE_NEEDS:
        raise _wrong(where, "rope_type", f"one of {', '.join(_ROPE_NEEDS)}", kind)
    for needed in _ROPE_NEEDS[kind]:
        if needed not in rope:
            raise FileError(f"{where} must have an entry {needed} for type {kind}")


def _check_numbers(entries: Mapping[str, Any], numbers: Mapping[str, float], where: str) -> None:
    for name, limit in numbers.items():
        if name not in entries:
            continue
        value = entries[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and 0 < value <= limit):
            raise _wrong(where, name, f"a number above 0 and at most {limit:g}", value)


def _wrong(where: str, name: str, expected: str, value: object) -> FileError:
    return FileError(f"{where}: {name} must be {expected}, not {reprlib.repr(value)}")
