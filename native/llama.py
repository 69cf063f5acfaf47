"""What the engine needs to know of a Llama-type model: sizes, rotary frequencies, tensor names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import Costs, pass_costs
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.file import PackedFile, PackedTensor, RawTensor
from cassandra_spec.golden.model_config import check_config

MODEL_TYPES = ("llama", "qwen2", "qwen3")
"""``model_type`` of the models that the engine can run."""

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FINAL_NORM = "model.norm.weight"

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

VECTORS = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.bias",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
)
"""Vectors of a layer, in the engine's order; all but the first two may be missing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """Sizes of a model, and its rotary embedding."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    positions: int  # most that the model was made for
    epsilon: float  # of norms
    tied: bool  # the embedding is the head, too
    rope: Mapping[str, Any]  # parameters of the rotary embedding, as transformers names them

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
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the matrices of a layer, by :data:`LINEAR`."""
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        hidden, inner = self.hidden, self.intermediate
        sizes = ((q, hidden), (kv, hidden), (kv, hidden), (hidden, q))
        return dict(
            zip(LINEAR, (*sizes, (inner, hidden), (inner, hidden), (hidden, inner)), strict=True)
        )

    def vector_size(self, name: str) -> int:
        """Values of a vector of a layer, one of :data:`VECTORS`."""
        if name.endswith("_norm.weight"):
            return self.head_size
        if name.endswith(".bias"):
            return self.shapes[name.replace(".bias", ".weight")][0]
        return self.hidden

    def frequencies(self) -> NDArray[np.float32]:
        """Angle by position of each pair of dimensions, float32 [head_size / 2]."""
        powers = np.arange(0, self.head_size, 2, dtype=np.float32) / np.float32(self.head_size)
        plain = (1.0 / np.float32(self.rope["rope_theta"]) ** powers).astype(np.float32)
        kind = self.rope["rope_type"]
        if kind == "linear":
            return (plain / np.float32(self.rope["factor"])).astype(np.float32)
        return _stretch(plain, self.rope) if kind == "llama3" else plain

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """All tensors that the engine knows, those that may be missing included."""
        table = (self.vocabulary, self.hidden)
        own = self.shapes | {name: (self.vector_size(name),) for name in VECTORS}
        return {EMBEDDING: table, HEAD: table, FINAL_NORM: (self.hidden,)} | {
            f"model.layers.{layer}.{name}": shape
            for layer in range(self.layers)
            for name, shape in own.items()
        }


def _stretch(plain: NDArray[np.float32], rope: Mapping[str, Any]) -> NDArray[np.float32]:
    """Llama 3's frequencies for long contexts: slow ones by a factor, fast ones as they were."""
    waves = 2 * np.pi / plain
    original = rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    share = np.clip((original / waves - low) / (high - low), 0, 1)
    return ((1 - share) * plain / factor + share * plain).astype(np.float32)


def read_llama_config(config: Mapping[str, Any]) -> LlamaConfig:
    """Sizes by a model's ``config.json``.

    Raises :class:`CassandraError` if the engine cannot run such a model, or if an entry is wrong.
    """
    check_config(config, "config.json")
    _require_supported(config)
    try:
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        return LlamaConfig(
            layers=config["num_hidden_layers"],
            hidden=hidden,
            intermediate=config["intermediate_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_size=config.get("head_dim") or hidden // heads,
            vocabulary=config["vocab_size"],
            positions=config["max_position_embeddings"],
            epsilon=config.get("rms_norm_eps", 1e-6),
            tied=config.get("tie_word_embeddings", False),
            rope=_rope(config),
        )
    except KeyError as error:
        raise CassandraError(f"config.json must have an entry {error}") from error


def _require_supported(config: Mapping[str, Any]) -> None:
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        raise CassandraError(
            f"the native engine runs Llama-type models: model_type must be one of {known}, "
            f"not {kind!r} (--backend torch runs more)"
        )
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise CassandraError(f"hidden_act must be 'silu' for the native engine, not {activation!r}")
    if config.get("use_sliding_window"):
        raise CassandraError("use_sliding_window must be false for the native engine, not true")


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary parameters: in one entry, or as configs had them before transformers 5."""
    found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    found.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    found["rope_type"] = kind = found.get("rope_type", found.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise CassandraError(
            f"rope_type must be default, linear or llama3 for the native engine, not {kind!r}"
        )
    return found


def llama_costs(config: LlamaConfig, packed: PackedFile) -> Costs:
    """What the passes of a packed model read."""
    own = not config.tied and HEAD in {*packed.tensors, *packed.others}
    head = HEAD if own else EMBEDDING
    return pass_costs(
        packed,
        linear=[f"model.layers.{n}.{name}" for n in range(config.layers) for name in LINEAR],
        head=head,
        embedding=EMBEDDING,
        position=2 * config.layers * config.kv_heads * config.head_size,
    )


def check_tensors(folder: Path, shapes: Mapping[str, tuple[int, ...]], packed: PackedFile) -> None:
    """Refuse a file with a tensor that is unknown or of another shape."""
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
