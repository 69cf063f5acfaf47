"""Read model configs (``config.json``) by model type, with transformers' semantics."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cassandra_spec.golden import CassandraError, bf16
from cassandra_spec.golden.config_fields import check_fields
from cassandra_spec.golden.format import is_integer
from cassandra_spec.golden.model_config import check_config
from cassandra_spec.golden.model_types import MODEL_TYPES, ModelType
from cassandra_spec.native.models.config import ACTIVATIONS, ModelConfig
from cassandra_spec.native.models.rope import Rope, read_rope

_NEEDED = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    *("vocab_size", "max_position_embeddings"),
)

_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_model_config(config: Mapping[str, Any], context: int | None = None) -> ModelConfig:
    """Return a model's parameters from its ``config.json``.

    ``context`` is the requested maximum sequence length, or None; some rotary embeddings depend on
    it. Raises :class:`CassandraError` if the engine does not support the model, or an entry is
    invalid.
    """
    check_config(config, "config.json")
    kind = _supported_type(config)
    entries = {**kind.defaults, **config}
    for name in _NEEDED:
        if entries.get(name) is None:
            raise CassandraError(f"config.json must have an entry {name!r}")
    check_fields(entries, kind, "config.json")
    return _model(entries, kind, *_ropes(entries, kind, context))


def _model(
    entries: Mapping[str, Any],
    kind: ModelType,
    ropes: tuple[Rope, ...],
    layer_ropes: tuple[int, ...],
) -> ModelConfig:
    heads, hidden = entries["num_attention_heads"], entries["hidden_size"]
    head_size = _head_size(entries)
    return ModelConfig(
        layers=entries["num_hidden_layers"],
        hidden=hidden,
        intermediate=entries["intermediate_size"],
        heads=heads,
        kv_heads=entries.get("num_key_value_heads") or heads,
        head_size=head_size,
        vocabulary=entries["vocab_size"],
        positions=min(rope.reach.positions for rope in ropes),
        longest=min(rope.reach.longest for rope in ropes),
        epsilon=entries.get("rms_norm_eps", 1e-6),
        tied=entries.get("tie_word_embeddings", False),
        ropes=ropes,
        layer_ropes=layer_ropes,
        windows=_windows(entries, kind),
        activation=_activation(entries, kind.activation),
        query_scale=_query_scale(entries, kind, head_size),
        embedding_scale=_embedding_scale(entries, kind),
        residual_scale=_used(entries, kind, "residual_multiplier", 1.0),
        attention_cap=_used(entries, kind, "attn_logit_softcapping", 0.0),
        logit_divisor=_used(entries, kind, "logits_scaling", 1.0),
        logit_cap=_used(entries, kind, "final_logit_softcapping", 0.0),
        norm_offset=kind.norm_offset,
        norms=kind.norms,
        biases=kind.biases(entries),
        query_key_norms=kind.query_key_norms,
        fused=kind.fused,
    )


def _head_size(entries: Mapping[str, Any]) -> int:
    stated = entries.get("head_dim") or entries["hidden_size"] // entries["num_attention_heads"]
    return int(stated)


def _supported_type(config: Mapping[str, Any]) -> ModelType:
    matching = [kind for kind in MODEL_TYPES if kind.name == config.get("model_type")]
    if matching:
        return matching[0]
    known = ", ".join(kind.name for kind in MODEL_TYPES)
    raise CassandraError(
        f"model_type must be one of {known} for the native engine, "
        f"not {_short(config.get('model_type'))}"
    )


def _activation(entries: Mapping[str, Any], name: str) -> Any:
    activation = entries.get(name, "silu")
    if activation not in ACTIVATIONS:
        known = " or ".join(ACTIVATIONS)
        raise CassandraError(
            f"{name} must be {known} for the native engine, not {_short(activation)}"
        )
    return activation


def _number(entries: Mapping[str, Any], name: str) -> float:
    """Return a number above 0; 0 for null."""
    value = entries.get(name)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9:
        raise CassandraError(f"{name} must be a number above 0, not {_short(value)}")
    return float(value)


def _used(entries: Mapping[str, Any], kind: ModelType, name: str, default: float) -> float:
    """Return an entry that the model type may have, otherwise ``default``."""
    return (_number(entries, name) if name in kind.used else 0.0) or default


def _query_scale(entries: Mapping[str, Any], kind: ModelType, head_size: int) -> float:
    """Return the factor on scores: a number, or one over the root of a size, in float32."""
    if "attention_multiplier" in kind.used:
        return _used(entries, kind, "attention_multiplier", 1.0)
    size = _number(entries, kind.query_size) if kind.query_size else head_size
    if not size:
        raise CassandraError(f"{kind.query_size} must be a number above 0, not null")
    return float(np.float32(1) / np.sqrt(np.float32(size)))


def _embedding_scale(entries: Mapping[str, Any], kind: ModelType) -> float:
    """Return a number, or the root of the size, rounded to BF16 as in transformers' BF16 models."""
    if not kind.root_embedding:
        return _used(entries, kind, "embedding_multiplier", 1.0)
    root = np.array([math.sqrt(entries["hidden_size"])], np.float32)
    pattern = bf16.from_f32(root.view(np.uint32))
    return float((pattern.astype(np.uint32) << 16).view(np.float32)[0])


# --- windows -------------------------------------------------------------------------------------


def _windows(entries: Mapping[str, Any], kind: ModelType) -> tuple[int, ...]:
    """Return the attention window by layer; 0: all positions."""
    layers, window = entries["num_hidden_layers"], entries.get("sliding_window")
    switched_off = kind.windows == "late" and not entries.get("use_sliding_window")
    if kind.windows == "none" or switched_off or window is None:
        return (0,) * layers
    if not is_integer(window, 1, 1 << 40):
        raise CassandraError(f"sliding_window must be an integer from 1 on, not {_short(window)}")
    kinds = [_SLIDING] * layers if kind.windows == "all" else _layer_types(entries, kind)
    return tuple(min(window, 1 << 30) if each == _SLIDING else 0 for each in kinds)


def _layer_types(entries: Mapping[str, Any], kind: ModelType) -> Sequence[str]:
    """Return the type of each layer: attention to all positions, or to a window."""
    layers, stated = entries["num_hidden_layers"], entries.get("layer_types")
    if stated is None:
        return [_SLIDING if _slides(entries, kind, layer) else _FULL for layer in range(layers)]
    if (
        not isinstance(stated, list)
        or len(stated) != layers
        or any(each not in (_FULL, _SLIDING) for each in stated)
    ):
        raise CassandraError(
            f"layer_types must be a list of {layers} of {_FULL} and {_SLIDING}, "
            f"not {_short(stated)}"
        )
    return stated


def _slides(entries: Mapping[str, Any], kind: ModelType, layer: int) -> bool:
    if kind.windows == "late":
        return bool(layer >= _integer(entries, "max_window_layers"))
    every = 2 if kind.windows == "alternate" else _integer(entries, "sliding_window_pattern")
    return (layer + 1) % every > 0


def _integer(entries: Mapping[str, Any], name: str) -> int:
    value: Any = entries.get(name)
    if not is_integer(value, 1 if name == "sliding_window_pattern" else 0, 1 << 40):
        raise CassandraError(f"{name} must be an integer, not {_short(value)}")
    return int(value)


# --- rotary embeddings ---------------------------------------------------------------------------


def _ropes(
    entries: Mapping[str, Any], kind: ModelType, context: int | None
) -> tuple[tuple[Rope, ...], tuple[int, ...]]:
    """Return the rotary embeddings of a model, and the index of each layer's."""
    layers = entries["num_hidden_layers"]
    if not kind.two_ropes:
        stated = entries.get("rope_parameters") or entries.get("rope_scaling") or {}
        return (_rope(entries, stated, kind, context),), (0,) * layers
    stated = entries.get("rope_parameters") or {}
    if any(name not in (_FULL, _SLIDING) or not isinstance(stated[name], dict) for name in stated):
        raise CassandraError(f"rope_parameters must be objects {_FULL} and {_SLIDING} in Gemma 3")
    full = {**stated.get(_FULL, {}), **(entries.get("rope_scaling") or {})}
    sliding = dict(stated.get(_SLIDING, {}))
    full.setdefault("rope_theta", entries.get("rope_theta") or 1e6)
    sliding.setdefault("rope_theta", entries.get("rope_local_base_freq") or 1e4)
    places = tuple(int(each == _SLIDING) for each in _layer_types(entries, kind))
    return tuple(_rope(entries, each, kind, context) for each in (full, sliding)), places


def _rope(
    entries: Mapping[str, Any], stated: Mapping[str, Any], kind: ModelType, context: int | None
) -> Rope:
    """Return a rotary embedding from one entry, or from several as before transformers 5."""
    rope = dict(stated)
    theta = entries.get("rope_theta")
    rope.setdefault("rope_theta", 10000.0 if theta is None else theta)
    rope["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    rope.setdefault("partial_rotary_factor", entries.get("partial_rotary_factor"))
    if entries.get("original_max_position_embeddings") is not None:
        rope["original_max_position_embeddings"] = entries["original_max_position_embeddings"]
    rope["rope_type"] = _renamed(rope["rope_type"], kind)
    partial = "partial_rotary_factor" in kind.used
    if not partial and rope.get("partial_rotary_factor") not in (None, 1):
        raise CassandraError(
            f"partial_rotary_factor must be 1 for {kind.name}, "
            f"not {rope['partial_rotary_factor']!r}"
        )
    positions = entries["max_position_embeddings"]
    head_size = _head_size(entries)
    return read_rope(rope, head_size=head_size, positions=positions, context=context)


def _renamed(rope_type: Any, kind: ModelType) -> Any:
    """Return the current name of a type of rotary embedding."""
    return kind.rope_types.get(rope_type, rope_type) if isinstance(rope_type, str) else rope_type


def _short(value: Any) -> str:
    return reprlib.repr(value)
