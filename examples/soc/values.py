"""Values of the first layer of SmolLM2: weights, and the keys and values of some tokens."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import bf16
from cassandra_spec.golden.packed import Values
from cassandra_spec.model.weights.sources import Source

HEAD = 64
"""Values of a vector: of a token's key in one head."""

_HIDDEN = 576
_EPSILON = 1e-5
_EMBEDDING = "model.embed_tokens.weight"
_LAYER = "model.layers.0."


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerValues:
    """Weights of a projection, and the keys and values of ``count`` tokens, as BF16 patterns."""

    weights: Values
    keys: Values
    values: Values


def read(source: Source, count: int) -> LayerValues:
    """Read ``count`` weights; compute at least half as many keys, and values of the same tokens.

    The tokens are the first of the vocabulary; keys are those before the rotary embedding.
    """
    projection = f"{_LAYER}self_attn.{{}}_proj.weight"
    of_a_token = source.read(projection.format("k")).size // _HIDDEN
    tokens = -(-count // (2 * of_a_token))
    hidden = _normalised(source, tokens)
    keys, values = (
        _narrow(hidden @ _wide(source.read(projection.format(name))).reshape(-1, _HIDDEN).T)
        for name in ("k", "v")
    )
    return LayerValues(
        weights=source.read(projection.format("k"), 0, count), keys=keys, values=values
    )


def _normalised(source: Source, tokens: int) -> NDArray[np.float32]:
    """Return the inputs of the attention, [tokens, hidden]."""
    rows = _wide(source.read(_EMBEDDING, 0, tokens * _HIDDEN)).reshape(tokens, _HIDDEN)
    scale = np.sqrt((rows**2).mean(axis=1, keepdims=True) + np.float32(_EPSILON))
    return rows / scale * _wide(source.read(f"{_LAYER}input_layernorm.weight"))


def _wide(patterns: Values) -> NDArray[np.float32]:
    return (patterns.astype(np.uint32) << 16).view(np.float32)


def _narrow(numbers: NDArray[np.float32]) -> Values:
    return bf16.from_f32(np.ascontiguousarray(numbers).view(np.uint32)).ravel()
