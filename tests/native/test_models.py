"""Models of all types in the engine: the naive model, transformers in float32, other configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.models.config import EMBEDDING
from cassandra_spec.native.models.loaded import one_ahead
from cassandra_spec.native.models.reading import read_model_config
from tests.model.tiny import BY_LENGTH, patterns, tensors_of, with_long_angles, write_model
from tests.native.model_oracle import ModelOracle
from tests.native.models import KINDS, SMALL, packed, random_tensors, small
from tests.native.test_engine import ONE_ROUNDING, PROMPT, errors, make, reply, require_same

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0}
BIASED = {"attention_bias": True, "mlp_bias": True}
ODD = {"head_dim": 24, "hidden_size": 72, "vocab_size": 1003, "intermediate_size": 50}
SHAPES: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in KINDS),
    ("llama", {"tie_word_embeddings": True, "head_dim": 16}),
    ("llama", {"head_dim": 64, "num_attention_heads": 5, "num_key_value_heads": 1}),
    ("llama", {"head_dim": 80, "num_attention_heads": 2, "hidden_size": 33}),
    *((kind, ODD) for kind in ("llama", "qwen2", "qwen3", "gemma2", "olmo2")),
    ("phi3", {**ODD, "partial_rotary_factor": 0.25}),
    ("gemma3_text", {"head_dim": 18, "hidden_size": 70, "vocab_size": 1003}),
    *((kind, BIASED) for kind in ("llama", "granite", "olmo2")),
    ("llama", {"rope_parameters": LLAMA3}),
    ("llama", {"rope_parameters": {**YARN, "original_max_position_embeddings": 32}}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
]


@pytest.mark.parametrize(("kind", "changes"), SHAPES)
def test_logits_are_those_of_the_naive_model(
    kind: str, changes: dict[str, Any], every_isa: str
) -> None:
    config, tensors = small(kind, **changes)
    expected = ModelOracle(read_model_config(config), tensors).logits(PROMPT)
    with make(config, tensors) as engine:
        require_same(engine.forward(PROMPT), expected)


LONG = {"short_factor": [1.0, 1.5, 2.0], "long_factor": [2.0, 4.0, 8.0]}


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        ("llama", {}),
        *((kind, BIASED) for kind in ("llama", "granite", "qwen3")),
        ("llama", {"rope_parameters": LLAMA3}),
        ("llama", {"rope_parameters": {**YARN, "original_max_position_embeddings": 16}}),
        ("llama", {"rope_parameters": {**YARN, "mscale": 2.0, "mscale_all_dim": 0.5}}),
        ("llama", {"rope_parameters": {**YARN, "truncate": False, "attention_factor": 1.3}}),
        ("llama", {"rope_parameters": {**YARN, "rope_type": "dynamic"}}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
        ("qwen3", {"rope_parameters": {**YARN, "rope_type": "linear"}}),
        (
            "gemma2",
            {"hidden_size": 64, "sliding_window": 5, "query_pre_attn_scalar": 20}
            | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        ),
        (
            "gemma3_text",
            {"hidden_size": 64, "sliding_window": 5, "num_hidden_layers": 6}
            | {"final_logit_softcapping": 2.0},
        ),
        ("granite", {}),
        ("olmo2", {}),
        ("olmo2", {"num_key_value_heads": 4}),
        ("phi3", {}),
        (
            "phi3",
            {"sliding_window": 9, "original_max_position_embeddings": 32}
            | {"rope_parameters": {**LONG, "rope_type": "longrope", "partial_rotary_factor": 0.5}},
        ),
    ],
)
def test_logits_are_close_to_torch_in_float32(
    kind: str, entries: dict[str, Any], tmp_path: Path
) -> None:
    path = write_model(tmp_path, model_type=kind, **entries)
    with _engine(path) as engine:
        _require_close(engine, path, [token % 96 for token in PROMPT[:20]])


def _engine(path: Path, **options: Any) -> Engine:
    tensors = {name: patterns(tensor) for name, tensor in tensors_of(path).items()}
    return make(json.loads((path / "config.json").read_text()), tensors, **options)


def _require_close(engine: Engine, path: Path, tokens: list[int]) -> None:
    """Require logits close to those of transformers without a cache, in float32."""
    network = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        expected = network(torch.tensor([tokens])).logits[0].numpy()
    # Two layers round 13 times one after another (inputs of q, o, gate and down, keys, values, and
    # the head's), each time by at most half a unit of 8 bits; norms keep relative errors.
    steps = 6 * engine.config.layers + 1
    assert errors(engine.forward(tokens), expected).max() < steps * ONE_ROUNDING


@pytest.mark.parametrize("count", [60, 20])
@pytest.mark.parametrize(("kind", "entries"), BY_LENGTH)
def test_a_long_context_has_its_angles_from_the_first_position(
    kind: str, entries: dict[str, Any], count: int, tmp_path: Path, every_isa: str
) -> None:
    path = write_model(tmp_path / "plain", model_type=kind, **entries)
    tokens = np.random.default_rng(count).integers(2, 96, count).tolist()
    other = path
    if count < 44:  # where transformers by itself would take others
        other = write_model(tmp_path / "long", model_type=kind, **with_long_angles(entries, 60))
    with _engine(path, context=60) as engine:
        _require_close(engine, other, tokens)
        found = engine.forward(tokens)
        oracle = ModelOracle(engine.config, {k: patterns(v) for k, v in tensors_of(path).items()})
        require_same(found, oracle.logits(tuple(tokens)))
    if count < 44:
        with _engine(path) as engine:  # for short sequences, far from what is allowed above
            assert errors(engine.forward(tokens), found).max() > 10 * ONE_ROUNDING


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        (KINDS["phi3"], 512),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 256}, 512),
    ],
)
def test_replies_in_a_long_context_are_those_of_plain_decoding(
    changes: dict[str, Any], most: int
) -> None:
    config = {**SMALL, **changes}
    read = read_model_config(config)
    assert (read.positions, read.longest) == (256, most)
    tensors = packed(random_tensors(read))
    with make(config, tensors, context=300) as engine:
        assert engine.context == 300
        replies = [reply(engine, gamma=gamma, max_tokens=250) for gamma in (0, 3)]
        assert len(replies[0]) == 250  # behind a prompt, beyond 256
        assert replies[0] == replies[1]
    with make(config, tensors) as engine:
        line = f"fit the context of 256 positions, not need 271 .context can be set, up to {most}"
        with pytest.raises(CassandraError, match=line):
            reply(engine, max_tokens=250)
    with pytest.raises(CassandraError, match=f"from 1 to the model's {most} positions, not 513"):
        make(config, tensors, context=513)


def test_what_configs_of_other_models_say() -> None:
    gemma = read_model_config({**SMALL, **KINDS["gemma2"], "hidden_size": 3072})
    assert gemma.embedding_scale == 55.5  # the root is 55.43, which BF16 does not have
    assert gemma.windows == (9, 0, 9)
    gemma = read_model_config({**SMALL, **KINDS["gemma3_text"]})
    assert (gemma.windows, gemma.layer_ropes) == ((3, 0, 3), (1, 0, 1))
    assert gemma.ropes[0].frequencies[0] == np.float32(1 / 8)
    assert read_model_config({**SMALL, **KINDS["qwen2"]}).windows == (0, 5)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model_type": "gpt2"}, "model_type must be one of llama, qwen2, qwen3, phi3, gemma2, "),
        ({"hidden_act": "gelu"}, "hidden_act must be silu or gelu_pytorch_tanh for the native"),
        ({"rope_scaling": {"type": "proportional"}}, "rope_type must be one of default, linear, "),
        ({"rope_scaling": {"type": "yarn"}}, "factor must be a number from 1e-09 to 1e+15, not N"),
        ({"rope_scaling": {"type": "default", "mrope_section": [1]}}, "mrope_section must not be"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1 or null for llama, not"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1 f"),
        ({"logits_scaling": 8.0}, "logits_scaling must be 1 or null for llama, not 8.0 (scales"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention must be false or 0"),
        (
            {**KINDS["gemma3_text"], "attn_logit_softcapping": 5.0},
            "attn_logit_softcapping must be n",
        ),
        ({**KINDS["gemma2"], "layer_types": ["full_attention"]}, "layer_types must be a list of"),
        ({**KINDS["gemma2"], "sliding_window": 0}, "sliding_window must be an integer from 1 on,"),
        ({**KINDS["gemma3_text"], "rope_parameters": {"rope_theta": 9.0}}, "rope_parameters must"),
        ({**KINDS["phi3"], "partial_rotary_factor": 1.0}, "short_factor must be a list of 6 numb"),
        ({"num_key_value_heads": 4}, "heads must be a multiple of kv_heads (4), not 6"),
        ({"head_dim": 13}, "head_size must be even, not 13"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer from 1 to 4096, not 0"),
    ],
)
def test_other_models_are_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(CassandraError) as caught:
        Engine.from_tensors({**SMALL, **changes}, {})
    assert line in str(caught.value)


RARE = 76
"""A token that :data:`PROMPT` does not have."""


@pytest.mark.parametrize("power", [30, 90])
def test_soft_caps_bound_what_is_large(power: int, every_isa: str) -> None:
    """Scores and a logit times a power of two, beyond what the exponential function takes."""
    config, tensors = small("gemma2")
    for name in (f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(3)):
        tensors[name] = tensors[name] + np.uint16(power << 7)
    tensors[EMBEDDING].reshape(97, -1)[RARE] += np.uint16(power << 7)
    expected = ModelOracle(read_model_config(config), tensors).logits(PROMPT)
    with make(config, tensors) as engine:
        found = engine.forward(PROMPT)
    require_same(found, expected)
    assert set(np.abs(found[:, RARE])) == {np.float32(config["final_logit_softcapping"])}


@pytest.mark.parametrize("pattern", [0x7F80, 0xFF80, 0x7FC0])
def test_soft_caps_hide_nothing_that_is_not_finite(pattern: int, every_isa: str) -> None:
    config, tensors = small("gemma2")
    for name, place in ((EMBEDDING, RARE * 72), ("model.layers.2.self_attn.q_proj.weight", 0)):
        values = tensors[name].reshape(-1).copy()
        values[place] = pattern
        engine = make(config, {**tensors, name: values})
        with engine, pytest.raises(CassandraError, match="logits must be finite"):
            reply(engine, gamma=0)


def test_one_ahead_keeps_the_order_and_stops_at_an_error() -> None:
    made: list[int] = []

    def make_item(item: int) -> int:
        made.append(item)
        if item == 3:
            raise ValueError("3 cannot be made")
        return 10 * item

    found = one_ahead(make_item, range(9))
    assert [next(found) for _ in range(3)] == [0, 10, 20]
    with pytest.raises(ValueError, match="3 cannot"):
        next(found)
    assert made in ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    assert list(one_ahead(make_item, [])) == []
