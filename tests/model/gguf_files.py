"""GGUF files of small models, as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType, GGUFWriter
from numpy.typing import NDArray
from transformers.convert_slow_tokenizer import bytes_to_unicode

from cassandra_spec.golden.model_types import MODEL_TYPES, ModelType
from tests.model.tiny import tensors_of, write_model

BYTES = 259
"""Tokens of :func:`tokenizer_keys`: two special ones, bytes, and one merge."""

SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
OWN = {
    "granite": {
        "attention.scale": "attention_multiplier",
        "residual_scale": "residual_multiplier",
        "embedding_scale": "embedding_multiplier",
        "logit_scale": "logits_scaling",
    },
    "gemma2": {
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "attention.sliding_window": "sliding_window",
    },
    "gemma3": {"attention.sliding_window": "sliding_window"},
}
"""Entries of a config by the names of keys; some are of single architectures."""

TYPES = {bool: GGUFValueType.BOOL, float: GGUFValueType.FLOAT32, str: GGUFValueType.STRING}


SHARD_TYPES = {
    **dict.fromkeys(("split.no", "split.count"), GGUFValueType.UINT16),
    "split.tensors.count": GGUFValueType.INT32,
}


def architecture_of(model: Path) -> ModelType:
    """Return the model type of a directory."""
    config = json.loads((model / "config.json").read_text())
    (found,) = (each for each in MODEL_TYPES if each.name == config["model_type"])
    return found


def tokenizer_keys(size: int, **changes: Any) -> dict[str, Any]:
    """Return the keys of a tokenizer of bytes with ``size`` tokens; None removes a key."""
    tokens = ["<s>", "<end>", *bytes_to_unicode().values()]
    tokens = [*tokens[: size - 1], "ab"]  # a small vocabulary lacks some bytes
    tokens += [f"<{number}>" for number in range(len(tokens), size)]
    keys = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": ([3, 3] + [1] * (BYTES - 2) + [3] * max(0, size - BYTES))[:size],
        "merges": ["a b"],
        "bos_token_id": 0,
        "eos_token_id": 1,
        **changes,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items()} | {
        "tokenizer.chat_template": "{{ messages[0].content }}"
    }


def piece_keys() -> dict[str, Any]:
    """Return the keys of a SentencePiece tokenizer with bytes, spaces and a few letters."""
    pieces = ["▁", "a", "b", "ab", "▁a", "<turn>"]
    keys = {
        "model": "llama",
        "pre": None,
        "merges": None,
        "tokens": ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), *pieces],
        "scores": [*[0.0] * 259, -4.0, -3.0, -5.0, -1.0, -2.0, 0.0],
        "token_type": [2, 3, 3, *[6] * 256, 1, 1, 1, 1, 1, 4],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items()}


def keys_of(model: Path) -> dict[str, Any]:
    """Return the keys for the model in a directory, with a tokenizer of bytes."""
    config, kind = json.loads((model / "config.json").read_text()), architecture_of(model)
    entries = SIZES | OWN.get(kind.gguf, {})
    keys = {f"{kind.gguf}.{name}": config[entry] for name, entry in entries.items()}
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config["rope_parameters"]
    theta = rope.get("full_attention", rope)["rope_theta"]
    keys |= {f"{kind.gguf}.attention.{name}_length": head for name in ("key", "value")}
    return {
        "general.architecture": kind.gguf,
        **keys,
        f"{kind.gguf}.rope.freq_base": float(theta),
        **tokenizer_keys(config["vocab_size"]),
    }


def as_llama_cpp_has_it(
    tensor: torch.Tensor, name: str, architecture: ModelType
) -> NDArray[np.float32]:
    """Convert a tensor as llama.cpp: rows of q and k of Llama reordered, norms of Gemma + 1."""
    values = tensor.float().numpy()
    if architecture.name.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
    if architecture.gguf not in ("llama", "granite") or heads is None:
        return values
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def arrays_of(model: Path, kind: Kind = Kind.F32) -> dict[str, tuple[NDArray[Any], Kind]]:
    """Return the tensors of a model by GGUF's names; matrices are of ``kind``, vectors F32."""
    architecture, tensors = architecture_of(model), tensors_of(model)
    parts = [f"{part}.{form}" for part in architecture.gguf_layer for form in ("weight", "bias")]
    count = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    layers = [f"blk.{number}.{part}" for number in range(count) for part in parts]
    found = {}
    for name in ("token_embd.weight", "output.weight", "output_norm.weight", *layers):
        tensor = tensors.get(architecture.from_gguf_name(name))
        if tensor is not None:
            values = as_llama_cpp_has_it(tensor, architecture.from_gguf_name(name), architecture)
            own = Kind.F32 if values.ndim == 1 else kind
            found[name] = (gguf.quants.quantize(np.ascontiguousarray(values), own), own)
    return found


def write_gguf(
    path: Path,
    model: Path,
    kind: Kind = Kind.F32,
    *,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[Any]] | None = None,
) -> Path:
    """Return the model in a directory as a GGUF file.

    ``keys`` and ``tensors`` are added to those of the model, or replace them; a key that is None is
    left out.
    """
    arrays = arrays_of(model, kind)
    arrays |= {name: (values, Kind.F32) for name, values in (tensors or {}).items()}
    return write_file(path, {**keys_of(model), **(keys or {})}, arrays)


def write_file(
    path: Path,
    keys: Mapping[str, Any],
    arrays: Mapping[str, tuple[NDArray[Any], Kind]],
    alignment: int | None = None,
) -> Path:
    """Return a GGUF file of keys and tensors; keys that are None are left out."""
    writer = GGUFWriter(path, str(keys.get("general.architecture")))
    if alignment:
        writer.add_custom_alignment(alignment)
    for key, value in keys.items():
        if key != "general.architecture" and value is not None:
            add_key(writer, key, value)
    for name, (values, own) in arrays.items():
        writer.add_tensor(name, values, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_key(writer: GGUFWriter, key: str, value: Any) -> None:
    """Add a key with the type that its value has in Python, or that llama.cpp wants."""
    if isinstance(value, list):
        writer.add_array(key, value)
    elif type(value) is int:
        kind = GGUFValueType.INT32 if value < 0 else GGUFValueType.UINT32
        writer.add_key_value(key, value, SHARD_TYPES.get(key, kind))
    else:
        writer.add_key_value(key, value, TYPES[type(value)])


def write_shards(
    folder: Path,
    model: Path,
    count: int,
    place: Mapping[str, int],
    *,
    keys: Mapping[str, Any] | None = None,
    twice: str = "",
) -> list[Path]:
    """Return the model as shards; ``place`` has the shards of tensors, from 0, if not the first.

    The tensor ``twice`` is in every shard.
    """
    arrays = arrays_of(model)
    paths = [folder / f"m-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    for number, path in enumerate(paths):
        own = {n: each for n, each in arrays.items() if n == twice or place.get(n, 0) == number}
        total = len(arrays) + (count - 1) * bool(twice)
        split = {"split.no": number, "split.count": count, "split.tensors.count": total}
        first = keys_of(model) if number == 0 else {}
        write_file(path, {**first, **split, **(keys or {})}, own)
    return paths


def bytes_model(path: Path, **entries: Any) -> Path:
    """Return a small model whose vocabulary is :func:`tokenizer_keys`'."""
    return write_model(path, **{"vocab_size": BYTES, "tied": True, **entries})
