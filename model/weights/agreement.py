"""Make a config and the tensors beside it agree, as transformers does when it loads them.

The config says which tensors the model has. Others are left out, missing biases are zero, and a
head of its own is not tied to the embedding, whatever the config says. Each of these is a note. Any
other tensor that is missing or of another shape is an error. What comes out agrees with itself, so
readers of packed directories need no rule of their own but :func:`golden.model_config.is_tied`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.model_config import is_tied
from cassandra_spec.golden.model_types import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    ModelType,
    layer_numbers,
)
from cassandra_spec.model.weights.tensor import Tensor

BUFFERS = (".rotary_emb.inv_freq",)
"""Suffixes of tensors in old checkpoints that models compute themselves."""

Shape = tuple[int, ...]

_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """The tensors of a file that make up the model of its config."""

    tied: bool  # the embedding is the head, too
    unused: frozenset[str]  # tensors that are left out
    zeros: Mapping[str, Shape]  # biases that are missing
    notes: tuple[str, ...]  # contradictions between config and tensors, one line each


def agree(
    architecture: ModelType,
    config: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    *,
    same_head: Callable[[], bool],
    where: object,
) -> Agreement:
    """Settle what a config and tensors of some shapes contradict each other in.

    ``same_head`` compares the values of head and embedding where the config ties them and both are
    there. Raises :class:`FileError`, which begins with ``where``, if a tensor is missing or has
    another shape than the config says.
    """
    biases = architecture.biases(config)
    layers = config.get("num_hidden_layers") or len(layer_numbers(shapes))
    expected = {
        f"model.layers.{layer}.{part}": part
        for layer in range(layers)
        for part in (*architecture.weights, *biases)
    } | {name: name for name in (EMBEDDING, FINAL_NORM)}
    zeros = _zeros(expected, shapes)
    copied = bool(config.get("tie_word_embeddings")) and HEAD in shapes and same_head()
    names = shapes.keys() - {HEAD} if copied else shapes.keys()
    tied = is_tied(config, names, where)
    if not tied:
        expected[HEAD] = HEAD
    _check(expected, {**shapes, **zeros}, _Sizes.of(config, architecture), where)
    unused = frozenset(name for name in shapes if name not in expected and not _is_buffer(name))
    notes = (*_tie_note(config, tied), *_unused_note(unused - {HEAD}), *_zeros_note(zeros))
    return Agreement(tied=tied, unused=unused, zeros=zeros, notes=notes)


def zero_tensors(agreement: Agreement) -> dict[str, Tensor]:
    """Return the biases that are not in the file."""
    return {
        name: Tensor(name=name, shape=shape, dtype="BF16", nbytes=2 * shape[0], kind="other")
        for name, shape in agreement.zeros.items()
    }


def _is_buffer(name: str) -> bool:
    return name.endswith(BUFFERS)


def _zeros(expected: Mapping[str, str], shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the biases that are missing although their weights exist."""
    weights = {
        name: shapes.get(name.removesuffix("bias") + "weight")
        for name in expected
        if name.endswith(".bias") and name not in shapes
    }
    return {name: shape[:1] for name, shape in weights.items() if shape}


def _check(
    expected: Mapping[str, str],
    shapes: Mapping[str, Shape],
    sizes: _Sizes | None,
    where: object,
) -> None:
    for name, part in expected.items():
        if name not in shapes:
            raise FileError(f"{where}: {name} must be a tensor of the model, and is missing")
        if sizes is not None and shapes[name] != sizes.shape(part):
            raise FileError(
                f"{where}: {name} must have the shape {list(sizes.shape(part))}, as the config "
                f"says, not {list(shapes[name])}"
            )


# --- shapes ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Sizes that a config states."""

    hidden: int
    inner: int
    queries: int  # rows of the projection of queries
    keys: int
    query_norm: int
    key_norm: int
    vocabulary: int

    @classmethod
    def of(cls, config: Mapping[str, Any], architecture: ModelType) -> _Sizes | None:
        """Read the sizes; None if the config leaves some to transformers' defaults."""
        llama = architecture.name == "llama"
        needed = _SIZES if llama else (*_SIZES, "head_dim", "num_key_value_heads")
        if any(config.get(name) is None for name in needed):
            return None
        hidden, inner, heads, vocabulary = (config[name] for name in _SIZES)
        head = config.get("head_dim") or hidden // heads
        key_heads = config.get("num_key_value_heads") or heads
        rows = architecture.query_key_norms == "row"
        return cls(
            hidden=hidden,
            inner=inner,
            queries=heads * head,
            keys=key_heads * head,
            query_norm=head * (heads if rows else 1),
            key_norm=head * (key_heads if rows else 1),
            vocabulary=vocabulary,
        )

    def shape(self, part: str) -> Shape:
        """Return the shape of a tensor, by its name in a layer or in the model."""
        if part in (EMBEDDING, HEAD):
            return self.vocabulary, self.hidden
        if part.endswith(("q_norm.weight", "k_norm.weight")):
            return (self.query_norm if "q_norm" in part else self.key_norm,)
        if part.endswith("norm.weight"):
            return (self.hidden,)
        name = part.split(".")[1]
        rows = self._rows.get(name, self.hidden)
        columns = {"o_proj": self.queries, "down_proj": self.inner}.get(name, self.hidden)
        return (rows,) if part.endswith(".bias") else (rows, columns)

    @property
    def _rows(self) -> dict[str, int]:
        return {
            "q_proj": self.queries,
            "k_proj": self.keys,
            "v_proj": self.keys,
            "qkv_proj": self.queries + 2 * self.keys,
            "gate_proj": self.inner,
            "up_proj": self.inner,
            "gate_up_proj": 2 * self.inner,
        }


# --- notes ----------------------------------------------------------------------------------------


def _tie_note(config: Mapping[str, Any], tied: bool) -> Sequence[str]:
    if tied or not config.get("tie_word_embeddings"):
        return ()
    return (
        f"{HEAD} and {EMBEDDING} are not tied, as their values differ"
        " (tie_word_embeddings is true in the config)",
    )


def _unused_note(names: Collection[str]) -> Sequence[str]:
    if not names:
        return ()
    return (f"{_tensors(names)} left out: the config's model has no such tensor",)


def _zeros_note(names: Collection[str]) -> Sequence[str]:
    return (f"{_tensors(names)} missing, and taken as zero",) if names else ()


def _tensors(names: Collection[str]) -> str:
    """Return the first name and the number of the others."""
    first, *rest = sorted(names)
    return f"{first} and {len(rest)} more are" if rest else f"{first} is"
