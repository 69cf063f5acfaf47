"""A model's parameters for the engine: sizes, operations of its layers, tensor names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from cassandra_spec.drafting import Costs, pass_costs
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.file import PackedFile, PackedTensor, RawTensor
from cassandra_spec.golden.model_types import EMBEDDING, FINAL_NORM, HEAD
from cassandra_spec.native.models.rope import Rope

Activation = Literal["silu", "gelu_pytorch_tanh"]
ACTIVATIONS: tuple[Activation, ...] = ("silu", "gelu_pytorch_tanh")
"""Activations of feed-forward layers; the index is the number in kernels.h."""


LINEAR = (
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)
"""Matrices of a layer, in the engine's order."""

_FUSED = {
    "self_attn.qkv_proj.weight": LINEAR[:3],
    LINEAR[3]: LINEAR[3:4],
    "mlp.gate_up_proj.weight": LINEAR[4:6],
    LINEAR[6]: LINEAR[6:],
}

_BIASES = tuple(name.replace(".weight", ".bias") for name in LINEAR)
HEAD_NORMS = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
_INPUT_NORM, _AFTER_ATTENTION = "input_layernorm.weight", "post_attention_layernorm.weight"
_AROUND = ("pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of a model, and the operations of its layers."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    positions: int  # maximum sequence length with these rotary embeddings
    longest: int  # maximum sequence length if a context is requested
    epsilon: float  # added to variances in norms
    tied: bool  # the embedding is also the head
    ropes: tuple[Rope, ...]  # rotary embeddings
    layer_ropes: tuple[int, ...]  # index into ropes, by layer
    windows: tuple[int, ...]  # attention window by layer, including the row itself; 0: all
    activation: Activation = "silu"
    query_scale: float  # multiplies queries before the products with keys
    embedding_scale: float = 1.0
    attention_cap: float = 0.0  # c in c tanh(x / c) on attention scores; 0: off
    logit_cap: float = 0.0  # c in c tanh(x / c) on logits; 0: off
    norm_offset: float = 0.0  # added to norm weights
    residual_scale: float = 1.0  # multiplies the outputs of attention and feed-forward
    logit_divisor: float = 1.0
    norms: Literal["before", "after", "both"] = "before"  # around attention and feed-forward
    biases: tuple[str, ...] = ()  # names, in every layer
    query_key_norms: Literal["head", "row"] | None = None  # norms over single heads, or over all
    fused: bool = False  # q, k and v are one tensor, and so are gate and up

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and not (isinstance(value, int) and value > 0):
                raise CassandraError(f"{field.name} must be an integer from 1 on, not {value!r}")
        if self.heads % self.kv_heads:
            raise CassandraError(
                f"heads must be a multiple of kv_heads ({self.kv_heads}), not {self.heads}"
            )
        if self.head_size % 2:
            raise CassandraError(f"head_size must be even, not {self.head_size}")

    @property
    def pairs(self) -> int:
        """Pairs of dimensions of a head that are rotated."""
        return len(self.ropes[0].frequencies)

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of a layer's matrices, by :data:`LINEAR`."""
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        hidden, inner = self.hidden, self.intermediate
        sizes = ((q, hidden), (kv, hidden), (kv, hidden), (hidden, q))
        return dict(
            zip(LINEAR, (*sizes, (inner, hidden), (inner, hidden), (hidden, inner)), strict=True)
        )

    @property
    def stored(self) -> Mapping[str, tuple[str, ...]]:
        """Tensors of a layer, each with the matrices of :data:`LINEAR` that are its rows."""
        return _FUSED if self.fused else {name: (name,) for name in LINEAR}

    @property
    def vectors(self) -> dict[str, int]:
        """Vectors of a layer, with their indices in the engine."""
        after = (_AFTER_ATTENTION, _AROUND[1])
        before, after = {
            "before": ((_INPUT_NORM, _AFTER_ATTENTION), ("", "")),
            "after": (("", ""), after),
            "both": ((_INPUT_NORM, _AROUND[0]), after),
        }[self.norms]
        biases = [name if name in self.biases else "" for name in _BIASES]
        own = HEAD_NORMS if self.query_key_norms else ("", "")
        names = [*before, *biases, *own, *after]
        return {name: place for place, name in enumerate(names) if name}

    def vector_size(self, name: str) -> int:
        """Return the number of values of a layer's vector."""
        if name in HEAD_NORMS:
            heads = (self.heads, self.kv_heads)[HEAD_NORMS.index(name)]
            return self.head_size * (heads if self.query_key_norms == "row" else 1)
        if name.endswith(".bias"):
            return self.shapes[name.replace(".bias", ".weight")][0]
        return self.hidden

    def stored_shape(self, name: str) -> tuple[int, int]:
        """Return the rows and columns of a tensor in :attr:`stored`."""
        shapes = [self.shapes[part] for part in self.stored[name]]
        return sum(rows for rows, _ in shapes), shapes[0][1]

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all tensors of the model."""
        table = (self.vocabulary, self.hidden)
        own: dict[str, tuple[int, ...]] = {name: self.stored_shape(name) for name in self.stored}
        own |= {name: (self.vector_size(name),) for name in self.vectors}
        tables = {EMBEDDING: table} if self.tied else {EMBEDDING: table, HEAD: table}
        return {**tables, FINAL_NORM: (self.hidden,)} | {
            f"model.layers.{layer}.{name}": shape
            for layer in range(self.layers)
            for name, shape in own.items()
        }


def model_costs(config: ModelConfig, packed: PackedFile) -> Costs:
    """Return the bytes that the passes of a packed model read."""
    head = EMBEDDING if config.tied else HEAD
    return pass_costs(
        packed,
        linear=[f"model.layers.{n}.{name}" for n in range(config.layers) for name in config.stored],
        head=head,
        embedding=EMBEDDING,
        position=2 * config.layers * config.kv_heads * config.head_size,
    )


def check_tensors(folder: Path, shapes: Mapping[str, tuple[int, ...]], packed: PackedFile) -> None:
    """Raise if a file has an unknown tensor or one of another shape."""
    stored: dict[str, PackedTensor | RawTensor] = {**packed.tensors, **packed.others}
    for name, tensor in stored.items():
        if name.endswith("rotary_emb.inv_freq"):
            continue
        if name not in shapes:
            raise CassandraError(f"{folder}: the native engine has no use for a tensor {name}")
        if tensor.shape != shapes[name]:
            raise CassandraError(
                f"{name} must have the shape {list(shapes[name])}, as the config says, "
                f"not {list(tensor.shape)}"
            )
