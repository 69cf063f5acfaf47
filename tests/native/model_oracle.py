"""A model written down naively in float64, with the engine's roundings to BF16.

The engine keeps the residual stream in float32 and rounds to BF16 what goes into a matrix, and keys
and values. So does this, one position after another; the engine differs by sums in float32 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.native.library import rounds_attention
from cassandra_spec.native.models.config import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    HEAD_NORMS,
    ModelConfig,
)

Reals = NDArray[np.float64]
Seen = list[list[tuple[Reals, Reals]]]
"""Keys and values of each layer and position."""

CHUNK = 128
"""Positions whose softmax the engine computes together (attention.h)."""


def real(patterns: NDArray[np.uint16]) -> Reals:
    """Return the numbers that BF16 patterns stand for."""
    return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def rounded(values: Reals) -> Reals:
    """Round to BF16 and back: nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return real(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16))


def capped(values: Reals, bound: float) -> Reals:
    """Within a soft bound; 0: as they are."""
    return bound * np.tanh(values / bound) if bound else values


class ModelOracle:
    """``tensors`` are BF16 patterns by Hugging Face's names.

    ``sees(position, place)`` hides places from a position, beyond the windows of layers. Attention
    rounds queries and weights where the engine does with the instruction set in use.
    """

    def __init__(self, config: ModelConfig, tensors: Mapping[str, NDArray[np.uint16]]) -> None:
        self.config = config
        self.rounds_attention = rounds_attention()
        self.sees: Callable[[int, int], bool] = lambda position, place: True
        self.tensors = {name: real(values.reshape(-1)) for name, values in tensors.items()}

    def logits(self, tokens: Sequence[int], seen: Seen | None = None) -> Reals:
        """Return the logits of all positions, [tokens, vocabulary], behind those that are seen.

        What the tokens leave for others to see is added to ``seen``.
        """
        seen = self.nothing() if seen is None else seen
        start = len(seen[0])
        return np.stack([self._position(token, at, seen) for at, token in enumerate(tokens, start)])

    def nothing(self) -> Seen:
        """Return what the first position sees."""
        return [[] for _ in range(self.config.layers)]

    def _matrix(self, name: str, rows: int) -> Reals:
        return self.tensors[name].reshape(rows, -1)

    def _linear(self, layer: int, name: str) -> Reals:
        """Return a matrix of :data:`LINEAR`, which may be rows of a tensor."""
        config = self.config
        ((stored, parts),) = ((s, p) for s, p in config.stored.items() if name in p)
        rows = [config.shapes[part][0] for part in parts]
        start = sum(rows[: parts.index(name)])
        whole = self._matrix(f"model.layers.{layer}.{stored}", sum(rows))
        return whole[start : start + config.shapes[name][0]]

    def _product(self, layer: int, name: str, x: Reals) -> Reals:
        """Return the product of a matrix, with its bias if there is one."""
        bias = self.tensors.get(f"model.layers.{layer}.{name}.bias", 0)
        y: Reals = self._linear(layer, f"{name}.weight") @ x + bias
        return y

    def _norm(self, name: str, x: Reals) -> Reals:
        scale = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + self.config.epsilon)
        return x * scale * (self.tensors[name] + self.config.norm_offset)

    def _position(self, token: int, at: int, seen: Seen) -> Reals:
        config = self.config
        x = self._matrix(EMBEDDING, config.vocabulary)[token] * config.embedding_scale
        first, second = {
            "before": (("input_layernorm", ""), ("post_attention_layernorm", "")),
            "after": (("", "post_attention_layernorm"), ("", "post_feedforward_layernorm")),
            "both": (
                ("input_layernorm", "post_attention_layernorm"),
                ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
            ),
        }[config.norms]
        for layer in range(config.layers):
            attended = self._attention(layer, self._layer_norm(layer, first[0], x), at, seen[layer])
            x = x + config.residual_scale * self._layer_norm(layer, first[1], attended)
            fed = self._feed_forward(layer, self._layer_norm(layer, second[0], x))
            x = x + config.residual_scale * self._layer_norm(layer, second[1], fed)
        head = EMBEDDING if config.tied else HEAD
        logits = self._matrix(head, config.vocabulary) @ rounded(self._norm(FINAL_NORM, x))
        return capped(logits / config.logit_divisor, config.logit_cap)

    def _layer_norm(self, layer: int, norm: str, x: Reals) -> Reals:
        return self._norm(f"model.layers.{layer}.{norm}.weight", x) if norm else x

    def _project(self, layer: int, which: str, x: Reals, heads: int, at: int) -> Reals:
        """Return heads of queries, keys or values [heads, head_size]; values are not rotated."""
        name = f"self_attn.{which}_proj"
        y = self._product(layer, name, x)
        norm = f"self_attn.{which}_norm.weight"
        if self.config.query_key_norms and norm in HEAD_NORMS:
            parts = y if self.config.query_key_norms == "row" else y.reshape(heads, -1)
            y = self._norm(f"model.layers.{layer}.{norm}", parts)
        y = y.reshape(heads, -1)
        return y if which == "v" else self._rotate(layer, y, at)

    def _rotate(self, layer: int, y: Reals, at: int) -> Reals:
        rope = self.config.ropes[self.config.layer_ropes[layer]]
        angle = at * rope.frequencies.astype(np.float64)
        a, b, rest = np.split(y, [len(angle), 2 * len(angle)], axis=1)
        c, s = rope.scale * np.cos(angle), rope.scale * np.sin(angle)
        return np.concatenate([a * c - b * s, b * c + a * s, rest], axis=1)

    def _weights(self, scores: Reals, places: NDArray[np.int64]) -> Reals:
        """Return weights of positions; those of a chunk are rounded relative to its largest."""
        if not self.rounds_attention:
            return np.exp(scores - scores.max())
        chunks = places // CHUNK
        tops = np.array([scores[chunks == chunk].max() for chunk in chunks])
        return rounded(np.exp(scores - tops)) * np.exp(tops - scores.max())

    def _attention(self, layer: int, x: Reals, at: int, seen: list[tuple[Reals, Reals]]) -> Reals:
        config = self.config
        x = rounded(x)
        queries = self._project(layer, "q", x, config.heads, at) * config.query_scale
        own = (self._project(layer, which, x, config.kv_heads, at) for which in "kv")
        seen.append(tuple(map(rounded, own)))  # type: ignore[arg-type]
        window = config.windows[layer] or at + 1
        places = [place for place in range(max(0, at + 1 - window), at + 1) if self.sees(at, place)]
        keys, values = (np.stack([seen[place][which] for place in places]) for which in (0, 1))
        found = []
        for head, query in enumerate(queries):
            shared = head // (config.heads // config.kv_heads)
            query = rounded(query) if self.rounds_attention else query
            scores = capped(keys[:, shared] @ query, config.attention_cap)
            weights = self._weights(scores, np.array(places))
            found.append(weights @ values[:, shared] / weights.sum())
        return self._product(layer, "self_attn.o_proj", rounded(np.concatenate(found)))

    def _feed_forward(self, layer: int, x: Reals) -> Reals:
        x = rounded(x)
        gate = self._product(layer, "mlp.gate_proj", x)
        inner = rounded(self._activation(gate) * self._product(layer, "mlp.up_proj", x))
        return self._product(layer, "mlp.down_proj", inner)

    def _activation(self, x: Reals) -> Reals:
        if self.config.activation == "silu":
            return x / (1 + np.exp(-x))
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
