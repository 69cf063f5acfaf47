"""Small random models for the tests of the engine: configs and tensors, in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import Format, Packed, encode
from cassandra_spec.golden.file import PackedTensor, RawTensor, Writer
from cassandra_spec.golden.model_types import MODEL_TYPES
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.models.config import EMBEDDING, FINAL_NORM, HEAD, ModelConfig
from cassandra_spec.native.models.reading import read_model_config

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
_GEMMA = {
    "hidden_size": 72,
    "head_dim": 24,
    "num_hidden_layers": 3,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 20,
}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "qwen2": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3"},
    "gemma2": {
        "model_type": "gemma2",
        **_GEMMA,
        "sliding_window": 9,
        "attn_logit_softcapping": 0.6,
        "final_logit_softcapping": 2.0,
    },
    "gemma3_text": {
        "model_type": "gemma3_text",
        **_GEMMA,
        "sliding_window": 3,
        "sliding_window_pattern": 2,
        "rope_local_base_freq": 50.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "phi3": {
        "model_type": "phi3",
        "sliding_window": 12,
        "partial_rotary_factor": 0.5,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.5, 2.0],
            "long_factor": [2.0, 4.0, 8.0],
        },
        "original_max_position_embeddings": 256,
    },
    "granite": {
        "model_type": "granite",
        "attention_multiplier": 0.25,
        "residual_multiplier": 0.375,
        "embedding_multiplier": 2.0,
        "logits_scaling": 0.75,
    },
    "olmo2": {"model_type": "olmo2"},
}
assert set(KINDS) == {each.name for each in MODEL_TYPES}
"""What configs of the model types have beside :data:`SMALL`."""

DRAFT = Format(scheme="exact", truncated=4, fill="midpoint", group=32)


def patterns(values: NDArray[Any]) -> NDArray[np.uint16]:
    """BF16 patterns of floats, cut off."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def random_tensors(config: ModelConfig, seed: int = 1) -> Tensors:
    """Return tensors of a model: matrices of about unit gain, norms near one."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[np.uint16]:
        return patterns(random.normal(size=shape) / np.sqrt(shape[-1]))

    def norm(size: int) -> NDArray[np.uint16]:
        return patterns(1 - config.norm_offset + random.normal(size=size) / 8)

    made = {EMBEDDING: normal(config.vocabulary, config.hidden), FINAL_NORM: norm(config.hidden)}
    if not config.tied:
        made[HEAD] = patterns(random.normal(size=(config.vocabulary, config.hidden)) / 4)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        made |= {f"{prefix}{name}": normal(*config.stored_shape(name)) for name in config.stored}
        norms = (name for name in config.vectors if name not in config.biases)
        made |= {f"{prefix}{name}": norm(config.vector_size(name)) for name in norms}
    return made


def with_biases(config: ModelConfig, tensors: Tensors) -> Tensors:
    """Add the biases of the model to its tensors."""
    random = np.random.default_rng(2)
    extra = {
        f"model.layers.{layer}.{name}": patterns(
            1 + random.normal(size=config.vector_size(name)) / 4
        )
        for layer in range(config.layers)
        for name in config.biases
    }
    return tensors | extra


@lru_cache(maxsize=1000)
def _encoded(octets: bytes, format: Format) -> Packed:
    return encode(np.frombuffer(octets, np.uint16), format)


def encode_once(values: NDArray[np.uint16], format: Format) -> Packed:
    """Return what golden encodes; many tests have the same models."""
    return _encoded(values.tobytes(), format)


def packed(
    tensors: Tensors, format: Format = DRAFT, encoder: Callable[..., Packed] = encode_once
) -> dict[str, NDArray[np.uint16] | Packed]:
    """Return matrices packed, embeddings that are not the head and norms as they are."""
    done: dict[str, NDArray[np.uint16] | Packed] = dict(tensors)
    for name, values in tensors.items():
        linear = name.endswith("_proj.weight") or name == HEAD
        if linear or (name == EMBEDDING and HEAD not in tensors):
            done[name] = encoder(values.reshape(-1), format)
    return done


def small(kind: str = "llama", **changes: Any) -> tuple[dict[str, Any], Tensors]:
    """Return a config of a model type and its tensors."""
    config = {**SMALL, **KINDS[kind], **changes}
    read = read_model_config(config)
    tensors = random_tensors(read)
    return config, with_biases(read, tensors)


def save_packed(folder: Path, config: Mapping[str, Any], tensors: Tensors, format: Format) -> Path:
    """Return a packed model in a new directory, as :func:`packed` packs it; no tokenizer."""
    folder.mkdir()
    shapes = read_model_config(config).tensor_shapes()
    stored = packed(tensors, format, NativeCodec().encode)
    plan = {
        name: PackedTensor(format=format, shape=shapes[name])
        if isinstance(values, Packed)
        else RawTensor(dtype="BF16", shape=shapes[name], nbytes=values.nbytes)
        for name, values in stored.items()
    }
    (folder / "config.json").write_text(json.dumps(dict(config)))
    with Writer(folder / "model.safetensors", plan) as writer:
        for name, values in stored.items():
            if isinstance(values, Packed):
                writer.write_packed(name, values)
            else:
                writer.write_raw(name, [values.reshape(-1).view(np.uint8)])
    return folder


def packed_models(folder: Path, formats: Mapping[str, Format]) -> Callable[[str, str], Path]:
    """Return a function that packs a small model once, by name of its format and kind."""

    @lru_cache(None)
    def save(name: str, kind: str) -> Path:
        config, tensors = small(kind)
        return save_packed(folder / f"{name}-{kind}", config, tensors, formats[name])

    return save
