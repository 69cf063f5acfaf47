"""The config of a GGUF file's model, in transformers' terms, from the file's keys.

Every key is read as llama.cpp reads it, with llama.cpp's defaults: transformers' own conversion
leaves out scalings, caps, windows and sizes of heads.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.model_config import check_config
from cassandra_spec.golden.model_types import ModelType
from cassandra_spec.model.weights.gguf_header import Header
from cassandra_spec.model.weights.gguf_inventory import check_keys

Factors = Mapping[str, NDArray[np.float32]]
"""Values of the tensors that divide rotary frequencies, by name."""

FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Tensors that are part of a config."""

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_POSITIONS = 8192
"""Parameters of the published Llama 3 models; a file has only the factors that follow from them."""

_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_config(header: Header, kind: ModelType, factors: Factors, tensors: int) -> dict[str, Any]:
    """Return the entries of ``config.json`` for a file, apart from biases and tokens.

    ``tensors`` is the number of rows of the embedding. Raises :class:`FileError` for keys that are
    missing, refused or out of range.
    """
    return _Reading(header, kind, factors).config(tensors)


class _Reading:
    def __init__(self, header: Header, kind: ModelType, factors: Factors) -> None:
        self._header = header
        self._kind = kind
        self._factors = factors

    def config(self, vocabulary: int) -> dict[str, Any]:
        sizes = self._sizes()
        check_config(sizes, str(self._header.path))
        head = sizes["head_dim"]
        theta = self._number("rope.freq_base", 10000.0)
        standards = {"head size": head, "hidden size": sizes["hidden_size"], "theta": theta}
        check_keys(self._header, self._kind.gguf, standards)
        self._check_vocabulary(vocabulary)
        config = {
            **sizes,
            "vocab_size": vocabulary,
            "rms_norm_eps": self._number("attention.layer_norm_rms_epsilon"),
            **self._windows(sizes),
            **self._scales(sizes),
            **self._caps(),
            **self._ropes(theta, sizes),
        }
        check_config(config, str(self._header.path))
        return config

    # --- values ---

    def _key(self, name: str) -> str:
        return f"{self._kind.gguf}.{name}"

    def _get(self, name: str, default: Any = None) -> Any:
        return self._header.get(self._key(name), default)

    def _value(self, name: str, default: Any) -> Any:
        return self._header.need(self._key(name)) if default is None else self._get(name, default)

    def _number(self, name: str, default: float | None = None) -> float:
        return float(self._value(name, default))

    def _size(self, name: str, default: int | None = None) -> int:
        """Return a number of all layers; the file may have one for each layer."""
        value = self._value(name, default)
        sizes = set(value if isinstance(value, list) else [value])
        if len(sizes) != 1:
            raise self._wrong(name, "an integer, the same in all layers", value)
        return int(sizes.pop())

    def _wrong(self, name: str, expected: str, value: object) -> FileError:
        where, key = self._header.path, self._key(name)
        return FileError(f"{where}: {key} must be {expected}, not {reprlib.repr(value)}")

    # --- entries ---

    def _sizes(self) -> dict[str, Any]:
        heads, hidden = self._size("attention.head_count"), self._size("embedding_length")
        return {
            "max_position_embeddings": self._size("context_length"),
            "hidden_size": hidden,
            "num_hidden_layers": self._size("block_count"),
            "intermediate_size": self._size("feed_forward_length"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._size("attention.head_count_kv", heads),
            "head_dim": self._size("attention.key_length", hidden // heads),
        }

    def _check_vocabulary(self, rows: int) -> None:
        """Require the sizes of the vocabulary in the file to be the number of embeddings."""
        tokens = self._header.entries.get("tokenizer.ggml.tokens")
        sizes = {self._key("vocab_size"): self._get("vocab_size")}
        sizes |= {"tokenizer.ggml.tokens": tokens and tokens.elements}
        for key, size in sizes.items():
            if size not in (None, rows):
                raise FileError(
                    f"{self._header.path}: {key} must be of {rows} tokens, as token_embd.weight, "
                    f"not {size}"
                )

    def _scales(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if self._kind.query_size:
            whole = sizes["hidden_size"] // sizes["num_attention_heads"]
            largest = sizes["num_hidden_layers"] == self._kind.gguf_27b
            return {self._kind.query_size: whole if largest else sizes["head_dim"]}
        if "attention_multiplier" not in self._kind.used:
            return {}
        keys = {
            "attention_multiplier": ("attention.scale", 1 / math.sqrt(sizes["head_dim"])),
            "residual_multiplier": ("residual_scale", 1.0),
            "embedding_multiplier": ("embedding_scale", 1.0),
            "logits_scaling": ("logit_scale", 1.0),
        }
        return {entry: self._number(key, 0.0) or none for entry, (key, none) in keys.items()}

    def _caps(self) -> dict[str, Any]:
        defaults = {"gemma2": (50.0, 30.0), "gemma3": (0.0, 0.0)}.get(self._kind.gguf)
        if defaults is None:
            return {}
        names = ("attn_logit_softcapping", "final_logit_softcapping")
        return {
            name: self._number(name, default) or None
            for name, default in zip(names, defaults, strict=True)
        }

    def _windows(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if self._kind.windows not in ("all", "alternate", "pattern"):
            return {}
        window = self._size("attention.sliding_window", 4096 if self._kind.gguf == "gemma2" else 0)
        if self._kind.windows == "all":
            return {"sliding_window": window or None}
        layers = sizes["num_hidden_layers"]
        slides = self._pattern(layers) if window else [False] * layers
        types = [_SLIDING if each else _FULL for each in slides]
        return {"sliding_window": window or 4096, "layer_types": types}

    def _pattern(self, layers: int) -> list[bool]:
        """Return the layers that have a window."""
        name = "attention.sliding_window_pattern"
        value = self._get(name, 2 if self._kind.windows == "alternate" else 6)
        if isinstance(value, list):
            if len(value) < layers:
                raise self._wrong(name, f"a number or a list for {layers} layers", value)
            return [bool(each) for each in value[:layers]]
        return [value == 0 or (layer + 1) % value != 0 for layer in range(layers)]

    # --- rotary embeddings ---

    def _ropes(self, theta: float, sizes: Mapping[str, Any]) -> dict[str, Any]:
        full = self._scaled(theta, sizes)
        if "partial_rotary_factor" in self._kind.used:
            full["partial_rotary_factor"] = self._rotated(sizes) / sizes["head_dim"]
            return {
                "rope_parameters": full,
                "original_max_position_embeddings": self._original(sizes),
            }
        if not self._kind.two_ropes:
            return {"rope_parameters": full}
        windows = self._number("rope.freq_base_swa", 10000.0)
        sliding = self._divided(windows, np.ones(1), sizes)
        return {"rope_parameters": {_FULL: full, _SLIDING: sliding}}

    def _original(self, sizes: Mapping[str, Any]) -> int:
        stated = self._size("rope.scaling.original_context_length", 0)
        return stated or int(sizes["max_position_embeddings"])

    def _scaled(self, theta: float, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rotary embedding of layers without a window, or of all."""
        scaling = self._get("rope.scaling.type", "linear")
        factor = self._number("rope.scaling.factor", self._number("rope.scale_linear", 0.0)) or 1.0
        if scaling not in ("none", "linear", "yarn", "longrope"):
            raise self._wrong("rope.scaling.type", "none, linear, yarn or longrope", scaling)
        if scaling == "none" and factor != 1:
            raise self._wrong("rope.scaling.factor", "1 for the type none", factor)
        self._check_factors(scaling)
        if scaling == "yarn":
            return self._yarn(theta, factor, sizes)
        return self._divided(theta, np.full(1, factor), sizes, **self._lists(theta, factor, sizes))

    def _check_factors(self, scaling: str) -> None:
        """Refuse factors that llama.cpp does not read with a type of scaling."""
        own = self._kind.gguf == "phi3"
        known = {"longrope": FACTORS[1:], "yarn": ()}.get(scaling, FACTORS[:1])
        for name in self._factors:
            if name not in (FACTORS[1:] if own and scaling != "yarn" else known):
                raise FileError(
                    f"{self._header.path}: {name} must not be there with "
                    f"{self._key('rope.scaling.type')} {scaling!r}"
                )
        if own and scaling == "yarn":
            raise self._wrong("rope.scaling.type", "none, linear or longrope for phi3", scaling)

    def _yarn(self, theta: float, factor: float, sizes: Mapping[str, Any]) -> dict[str, Any]:
        scale = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
        return {
            "rope_type": "yarn",
            "rope_theta": theta,
            "factor": factor,
            "original_max_position_embeddings": self._original(sizes),
            "attention_factor": scale * self._number("rope.scaling.attn_factor", 1.0),
        }

    def _lists(
        self, theta: float, factor: float, sizes: Mapping[str, Any]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the divisors of frequencies that tensors state, for short and long sequences."""
        pairs = self._rotated(sizes) // 2
        divisors = {name: self._divisors(name, pairs) * factor for name in self._factors}
        if "rope_freqs.weight" in divisors:
            return dict.fromkeys(("short", "long"), divisors["rope_freqs.weight"])
        if not divisors:
            return {}
        plain = np.full(pairs, factor)
        return {
            name: divisors.get(f"rope_factors_{name}.weight", plain) for name in ("short", "long")
        }

    def _divisors(self, name: str, pairs: int) -> NDArray[np.float64]:
        values = self._factors[name].astype(np.float64)
        if values.shape != (pairs,) or not (np.isfinite(values) & (values > 0)).all():
            raise FileError(
                f"{self._header.path}: {name} must be {pairs} numbers above 0, "
                f"not {reprlib.repr(values.tolist())}"
            )
        return values

    def _rotated(self, sizes: Mapping[str, Any]) -> int:
        head = int(sizes["head_dim"])
        if "partial_rotary_factor" not in self._kind.used:
            return head
        rotated = self._size("rope.dimension_count", head)
        if rotated > head or rotated % 2:
            raise self._wrong("rope.dimension_count", f"an even number up to {head}", rotated)
        return rotated

    def _divided(
        self,
        theta: float,
        factor: NDArray[np.float64],
        sizes: Mapping[str, Any],
        short: NDArray[np.float64] | None = None,
        long: NDArray[np.float64] | None = None,
    ) -> dict[str, Any]:
        """Return a rotary embedding whose frequencies are divided, by one number or by lists."""
        scale, base = self._number("rope.scaling.attn_factor", 1.0), {"rope_theta": theta}
        if short is None and scale == 1 and (factor[0] == 1 or not self._kind.rope_types):
            linear = {"rope_type": "linear", "factor": float(factor[0])}
            return base | (linear if factor[0] != 1 else {"rope_type": "default"})
        if short is not None and short is long and scale == 1:
            llama3 = _as_llama3(short, theta)
            if llama3:
                return base | llama3
        pairs = self._rotated(sizes) // 2
        lists = [np.full(pairs, factor[0]) if each is None else each for each in (short, long)]
        return base | {
            "rope_type": "longrope",
            **dict(zip(("short_factor", "long_factor"), (a.tolist() for a in lists), strict=True)),
            "original_max_position_embeddings": self._original(sizes),
            "attention_factor": scale,
        }


def _as_llama3(factors: NDArray[np.float64], theta: float) -> dict[str, Any] | None:
    """Return the scaling of Llama 3 that has these factors, or None."""
    pairs = len(factors)
    frequencies = theta ** (-np.arange(pairs) / pairs)
    turns = _LLAMA3_POSITIONS * frequencies / (2 * math.pi)
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    share = np.clip((turns - low) / (high - low), 0, 1)
    expected = 1 / ((1 - share) / factors.max() + share)
    if not np.allclose(factors, expected, rtol=1e-5, atol=0):
        return None
    return {
        "rope_type": "llama3",
        "factor": float(factors.max()),
        **_LLAMA3,
        "original_max_position_embeddings": _LLAMA3_POSITIONS,
    }
