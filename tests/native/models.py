"""Small random models for the tests of the engine: configs and tensors, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import Format, Packed, encode
from cassandra_spec.native.llama import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    LINEAR,
    LlamaConfig,
    read_llama_config,
)

Tensors = dict[str, NDArray[np.uint16]]

SMALL: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "vocab_size": 97,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
DRAFT = Format(scheme="exact", truncated=4, fill="midpoint", group=32)


def patterns(values: NDArray[Any]) -> NDArray[np.uint16]:
    """BF16 patterns of floats, cut off."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def random_tensors(config: LlamaConfig, seed: int = 1) -> Tensors:
    """Tensors of a model: matrices of about unit gain, norms near one."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[np.uint16]:
        return patterns(random.normal(size=shape) / np.sqrt(shape[-1]))

    def norm(size: int) -> NDArray[np.uint16]:
        return patterns(1 + random.normal(size=size) / 8)

    made = {EMBEDDING: normal(config.vocabulary, config.hidden), FINAL_NORM: norm(config.hidden)}
    if not config.tied:
        made[HEAD] = patterns(random.normal(size=(config.vocabulary, config.hidden)) / 4)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        made |= {f"{prefix}{name}": normal(*config.shapes[name]) for name in LINEAR}
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{prefix}{name}.weight"] = norm(config.hidden)
    return made


def with_extras(config: LlamaConfig, tensors: Tensors, names: tuple[str, ...]) -> Tensors:
    """The same with vectors that some models have, such as ``self_attn.q_proj.bias``."""
    random = np.random.default_rng(2)
    extra = {
        f"model.layers.{layer}.{name}": patterns(
            1 + random.normal(size=config.vector_size(name)) / 4
        )
        for layer in range(config.layers)
        for name in names
    }
    return tensors | extra


def packed(tensors: Tensors, format: Format = DRAFT) -> dict[str, NDArray[np.uint16] | Packed]:
    """Matrices packed, embeddings that are not the head and norms as they are."""
    done: dict[str, NDArray[np.uint16] | Packed] = dict(tensors)
    for name, values in tensors.items():
        linear = name.endswith("_proj.weight") or name == HEAD
        if linear or (name == EMBEDDING and HEAD not in tensors):
            done[name] = encode(values.reshape(-1), format)
    return done


def small(**changes: Any) -> tuple[dict[str, Any], Tensors]:
    """A config and its tensors."""
    config = {**SMALL, **changes}
    return config, random_tensors(read_llama_config(config))
