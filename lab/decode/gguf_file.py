"""A Llama model as a GGUF file in BF16, for llama.cpp: weights and sizes, without a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.weights.sources import Source, Values


def write_gguf(source: Source, config: Mapping[str, Any], path: Path) -> None:
    """Write the weights of a source, whole or not at all.

    ``config`` is the contents of its config.json. Tokens go in and come out as numbers, so there is
    no tokenizer. Rows of q and k are brought into llama.cpp's order. :class:`CassandraError` for
    other models than Llamas with plain rotary embeddings.
    """
    import gguf  # slow to import

    _require_plain(config)
    layers = int(config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path.with_suffix(".part"), "llama")
    _add_sizes(writer, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for tensor in source.tensors.values():
        name = names.get_name(tensor.name, try_suffixes=(".weight",))
        if name is None:
            raise CassandraError(f"{tensor.name} must be a tensor of a Llama, and is unknown")
        values = source.read(tensor.name).reshape(tensor.shape)
        if values.ndim == 1:  # llama.cpp wants norms in F32
            writer.add_tensor(name, (values.astype(np.uint32) << 16).view(np.float32))
            continue
        rows = np.ascontiguousarray(values[_row_order(tensor.name, values, config)])
        kind = gguf.GGMLQuantizationType.BF16
        writer.add_tensor(name, rows.view(np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").rename(path)


def _require_plain(config: Mapping[str, Any]) -> None:
    kind, rope = config.get("model_type"), _rope(config)
    if kind != "llama":
        raise CassandraError(f"model_type must be 'llama' for llama.cpp here, not {kind!r}")
    if rope.get("rope_type", "default") != "default":
        raise CassandraError(f"rope_type must be 'default', not {rope['rope_type']!r}")


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rotary embedding's entries, one object since transformers 5."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _add_sizes(writer: Any, config: Mapping[str, Any]) -> None:
    heads = int(config["num_attention_heads"])
    size = int(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    base = _rope(config).get("rope_theta", config.get("rope_theta", 10_000.0))
    writer.add_rope_freq_base(float(base))
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_vocab_size(int(config["vocab_size"]))
    writer.add_tokenizer_model("none")


def _row_order(name: str, values: Values, config: Mapping[str, Any]) -> NDArray[np.intp]:
    """Return Hugging Face's row numbers in llama.cpp's order."""
    rows = np.arange(values.shape[0])
    heads = int(config["num_attention_heads"])
    if ".k_proj." in name:
        heads = int(config.get("num_key_value_heads") or heads)
    elif ".q_proj." not in name:
        return rows
    return rows.reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)
