"""A Llama-type model written down naively in float64, with the engine's roundings to BF16.

The engine keeps the residual stream in float32 and rounds to BF16 what goes into a matrix, and keys
and values. So does this, one position after another; the engine differs by sums in float32 alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.native.llama import EMBEDDING, FINAL_NORM, HEAD, LlamaConfig

Reals = NDArray[np.float64]


def real(patterns: NDArray[np.uint16]) -> Reals:
    """The numbers that BF16 patterns stand for."""
    return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def rounded(values: Reals) -> Reals:
    """To BF16 and back: nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return real(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16))


class LlamaOracle:
    """``tensors`` are BF16 patterns by Hugging Face's names."""

    def __init__(self, config: LlamaConfig, tensors: Mapping[str, NDArray[np.uint16]]) -> None:
        self.config = config
        self.tensors = {name: real(values.reshape(-1)) for name, values in tensors.items()}

    def logits(self, tokens: Sequence[int]) -> Reals:
        """Of all positions, [tokens, vocabulary]."""
        config = self.config
        seen: list[list[tuple[Reals, Reals]]] = [[] for _ in range(config.layers)]
        return np.stack([self._position(token, at, seen) for at, token in enumerate(tokens)])

    def _matrix(self, name: str, rows: int) -> Reals:
        return self.tensors[name].reshape(rows, -1)

    def _norm(self, name: str, x: Reals) -> Reals:
        scale = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + self.config.epsilon)
        return x * scale * self.tensors[name]

    def _position(self, token: int, at: int, seen: list[list[tuple[Reals, Reals]]]) -> Reals:
        config = self.config
        x = self._matrix(EMBEDDING, config.vocabulary)[token]
        for layer in range(config.layers):
            prefix = f"model.layers.{layer}."
            x = x + self._attention(prefix, x, at, seen[layer])
            x = x + self._feed_forward(prefix, x)
        head = EMBEDDING if config.tied else HEAD
        return self._matrix(head, config.vocabulary) @ rounded(self._norm(FINAL_NORM, x))

    def _project(self, prefix: str, which: str, x: Reals, heads: int, at: int) -> Reals:
        """Heads of queries, keys or values [heads, head_size]; those of values are not turned."""
        name = f"{prefix}self_attn.{which}"
        y = self._matrix(f"{name}_proj.weight", heads * self.config.head_size) @ x
        y = (y + self.tensors.get(f"{name}_proj.bias", 0)).reshape(heads, -1)
        if f"{name}_norm.weight" in self.tensors:
            y = self._norm(f"{name}_norm.weight", y)
        return y if which == "v" else self._turn(y, at)

    def _turn(self, y: Reals, at: int) -> Reals:
        angle = at * self.config.frequencies().astype(np.float64)
        a, b = np.split(y, 2, axis=1)
        c, s = np.cos(angle), np.sin(angle)
        return np.concatenate([a * c - b * s, b * c + a * s], axis=1)

    def _attention(self, prefix: str, x: Reals, at: int, seen: list[tuple[Reals, Reals]]) -> Reals:
        config = self.config
        x = rounded(self._norm(f"{prefix}input_layernorm.weight", x))
        queries = self._project(prefix, "q", x, config.heads, at)
        own = (self._project(prefix, which, x, config.kv_heads, at) for which in "kv")
        seen.append(tuple(map(rounded, own)))  # type: ignore[arg-type]
        found = []
        for head, query in enumerate(queries):
            shared = head // (config.heads // config.kv_heads)
            scores = np.array([keys[shared] @ query for keys, _ in seen])
            weights = np.exp((scores - scores.max()) / np.sqrt(config.head_size))
            values = np.stack([values[shared] for _, values in seen])
            found.append(weights @ values / weights.sum())
        return self._matrix(f"{prefix}self_attn.o_proj.weight", config.hidden) @ rounded(
            np.concatenate(found)
        )

    def _feed_forward(self, prefix: str, x: Reals) -> Reals:
        config = self.config
        x = rounded(self._norm(f"{prefix}post_attention_layernorm.weight", x))
        gate = self._matrix(f"{prefix}mlp.gate_proj.weight", config.intermediate) @ x
        up = self._matrix(f"{prefix}mlp.up_proj.weight", config.intermediate) @ x
        inner = rounded(gate / (1 + np.exp(-gate)) * up)
        return self._matrix(f"{prefix}mlp.down_proj.weight", config.hidden) @ inner
