"""Every row of the table of config entries, each with a model of its own."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.config_fields import FIELDS, Field, document, find_field
from cassandra_spec.golden.model_config import read_stop_tokens
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.native.models.config import ModelConfig
from cassandra_spec.native.models.reading import read_model_config
from tests.model.test_gguf_inventory import PAGE
from tests.model.tiny import MODEL_TYPES, change_config, write_model

TOKENS = [5, 7, 9, 11, 13, 5, 7, 9, 11, 13, 5, 8, 12, 90]
VALUES: dict[str, Any] = {
    "model_type": "gpt2",
    **dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size"), 64),
    **{"num_hidden_layers": 1, "head_dim": 24, "num_attention_heads": 2, "num_key_value_heads": 1},
    **{"max_position_embeddings": 32, "rms_norm_eps": 0.125, "hidden_act": "gelu_pytorch_tanh"},
    **{"hidden_activation": "silu", "attention_bias": True, "mlp_bias": True},
    **{"tie_word_embeddings": True, "eos_token_id": [3, 4]},
    "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0},
    "rope_scaling": {"rope_type": "linear", "factor": 3.0},
    **{"rope_theta": 99.0, "rope_local_base_freq": 99.0, "partial_rotary_factor": 0.5},
    **{"original_max_position_embeddings": 32, "sliding_window": 5, "max_window_layers": 1},
    **{"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": True},
    **{"sliding_window_pattern": 2, "query_pre_attn_scalar": 20},
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping", "logits_scaling"), 0.5),
    **dict.fromkeys(("attention_multiplier", "residual_multiplier", "logit_scale"), 0.5),
    **{"embedding_multiplier": 0.5, "dtype": "float32", "torch_dtype": "float32"},
    **{"initializer_range": 0.5, "pretraining_tp": 2, "attention_dropout": 0.5, "embd_pdrop": 0.5},
    **{"resid_pdrop": 0.5, "bos_token_id": 3, "pad_token_id": 3, "unk_token_id": 3},
    **{"use_cache": False, "chunk_size_feed_forward": 3, "return_dict": True},
    **{"output_hidden_states": True, "output_attentions": False, "id2label": {"0": "x"}},
    **{"label2id": {"x": 0}, "problem_type": "regression", "architectures": ["Other"]},
    **{"transformers_version": "4.0.0", "_name_or_path": "x", "_sliding_window_pattern": 2},
    **{"is_encoder_decoder": True, "quantization_config": {"quant_method": "gptq"}},
    **{"no_rope_layers": [1, 0], "num_experts": 4, "num_local_experts": 4, "clip_qkv": 3.0},
    **{"attention_chunk_size": 4, "kv_lora_rank": 4, "use_mrope": True},
    "position_embedding_type": "nope",
}
BESIDE: dict[str, dict[str, Any]] = {
    "max_window_layers": {"use_sliding_window": True, "sliding_window": 5},
    "use_sliding_window": {"max_window_layers": 1, "sliding_window": 5},
    "layer_types": {"use_sliding_window": True, "sliding_window": 5},
    "sliding_window_pattern": {"sliding_window": 5, "layer_types": None},
    "rope_theta": {"rope_parameters": None},
    "rope_scaling": {"rope_parameters": None},
    "rope_local_base_freq": {"rope_parameters": None},
    "partial_rotary_factor": {"rope_parameters": None},
    "original_max_position_embeddings": {
        "max_position_embeddings": 64,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 100.0,
            **{"short_factor": [1.0] * 6, "long_factor": [4.0] * 6},
        },
    },
}
"""Entries without which another would mean nothing."""

QWEN_WINDOWS = {"use_sliding_window": True, "max_window_layers": 1}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("fields")
    return cache(lambda kind: write_model(folder / kind, model_type=kind))


def changed(model: Path, folder: Path, entries: dict[str, Any]) -> Path:
    """Return a copy of a model with entries in its config."""
    shutil.copytree(model, folder)
    return change_config(folder, **entries)


def figures(config: ModelConfig) -> dict[str, Any]:
    """Return the numbers of a config, to compare."""
    found = dataclasses.asdict(config)
    ropes = [(rope.frequencies.tolist(), rope.scale, rope.reach) for rope in config.ropes]
    return found | {"ropes": ropes}


def meaning(path: Path) -> Any:
    """Return what the engine computes and what ends replies, or the error."""
    try:
        open_source(path)
        return figures(read_model_config(json.loads((path / "config.json").read_text()))), set(
            read_stop_tokens(path)
        )
    except CassandraError as error:
        return str(error)


def logits(path: Path) -> torch.Tensor:
    network = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad():
        found: torch.Tensor = network(torch.tensor([TOKENS])).logits
    return found


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("row", FIELDS, ids=lambda row: f"{row.name}-{'-'.join(row.only)}")
def test_a_row_is_what_becomes_of_a_config(
    row: Field, model_type: str, models: Callable[[str], Path], tmp_path: Path
) -> None:
    if find_field(row.name, model_type) is not row:
        pytest.skip("another row is about this model type")
    model = models(model_type)
    fields = {each.name for each in dataclasses.fields(CONFIG_MAPPING[model_type])}
    if row.treatment == "honoured" and row.name not in fields | OLD:
        pytest.skip("transformers ignores it in this model type")
    beside = dict(BESIDE.get(row.name, {}))
    if row.name == "sliding_window" and model_type.startswith("qwen"):
        beside |= QWEN_WINDOWS | {"layer_types": None}
    if row.name in ("max_window_layers", "use_sliding_window"):
        beside["layer_types"] = None
    value = VALUES.get(row.name, True)
    if model_type == "gemma3_text" and row.name.startswith("rope_parameters"):
        value = {"full_attention": value}
    plain = changed(model, tmp_path / "plain", beside)
    other = changed(model, tmp_path / "other", beside | {row.name: value})
    if row.treatment == "honoured":
        assert meaning(other) != meaning(plain)
    elif row.treatment == "without influence":
        assert meaning(other) == meaning(plain)
        assert torch.equal(logits(other), logits(plain))
    else:
        line = meaning(other)
        assert f"{row.name} must be {row.expected} for {model_type}, not " in line
        for neutral in (None, *row.neutral):
            same = changed(model, tmp_path / f"neutral {neutral}", {row.name: neutral})
            assert meaning(same) == meaning(plain)


OLD = {"rope_scaling", "rope_theta", "rope_local_base_freq", "partial_rotary_factor"} | {
    *("sliding_window_pattern", "model_type")
}
"""Entries of older configs, which the classes read without a field."""


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_field_of_a_config_class_has_a_row(model_type: str) -> None:
    kind = CONFIG_MAPPING[model_type]
    fields = {each.name for each in dataclasses.fields(kind)} | set(kind().to_dict())
    assert {name for name in fields if find_field(name, model_type) is None} == set()


def test_the_page_has_the_table() -> None:
    assert document() in PAGE.read_text(encoding="utf-8")
