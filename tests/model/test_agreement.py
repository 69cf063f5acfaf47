"""Configs that their tensors contradict: every reader makes of them what transformers makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import cassandra_spec.model.huggingface as packed_models
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.model_types import EMBEDDING, HEAD, find_model_type
from cassandra_spec.model.packing.packer import Recipe, pack_model, unpack_model
from cassandra_spec.model.reply import build_model
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.weights.agreement import agree
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.native.engine import Engine
from tests.model.gguf_files import write_gguf
from tests.model.tiny import (
    MODEL_TYPES,
    SIZES,
    change_config,
    patterns,
    replace_tensors,
    tensors_of,
    write_model,
)

RECIPE = Recipe(format=Format(scheme="exact", group=16, truncated=4, fill="midpoint"))
TOKENS = list(range(2, 14))
BIASES = [f"model.layers.{n}.self_attn.{part}_proj.bias" for n in range(2) for part in "qkv"]
BIAS = BIASES[0]
OUTPUT_BIASES = [f"model.layers.{n}.self_attn.o_proj.bias" for n in range(2)]


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A model that is changed behind its config, and what is said of it."""

    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    change: Callable[[Path], object]
    note: str

    def write(self, path: Path) -> Path:
        """Return the model's directory."""
        write_model(path, max_position_embeddings=128, **self.model)
        self.change(path)
        return path


CASES = {
    "another head": Case(
        model={"tied": True},
        change=lambda path: replace_tensors(path, {HEAD: random(96, 48)}),
        note=f"{HEAD} and {EMBEDDING} are not tied, as their values differ"
        " (tie_word_embeddings is true in the config)",
    ),
    "a copied head": Case(
        model={"tied": True},
        change=lambda path: replace_tensors(path, {HEAD: tensors_of(path)[EMBEDDING].clone()}),
        note="",
    ),
    "no biases": Case(
        model={"model_type": "qwen2"},
        change=lambda path: replace_tensors(path, dict.fromkeys(BIASES)),
        note="model.layers.0.self_attn.k_proj.bias and 5 more are missing, and taken as zero",
    ),
    "no biases of the output": Case(
        model={"attention_bias": True},
        change=lambda path: replace_tensors(path, dict.fromkeys(OUTPUT_BIASES)),
        note=f"{OUTPUT_BIASES[0]} and 1 more are missing, and taken as zero",
    ),
    "all biases": Case(
        model={"attention_bias": True, "mlp_bias": True},
        change=lambda path: None,
        note="",
    ),
    "a bias that is not used": Case(
        change=lambda path: replace_tensors(path, {BIAS: random(48)}),
        note=f"{BIAS} is left out: the config's model has no such tensor",
    ),
    "a layer that is not used": Case(
        change=lambda path: change_config(path, num_hidden_layers=1),
        note="model.layers.1.input_layernorm.weight and 8 more are left out:"
        " the config's model has no such tensor",
    ),
    "a tensor that is unknown": Case(
        change=lambda path: replace_tensors(path, {"model.extra": random(4)}),
        note="model.extra is left out: the config's model has no such tensor",
    ),
}


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    """Return logits of a transformers model after each token."""
    found: torch.Tensor = model(torch.tensor([TOKENS])).logits[0].float()
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_reader_replies_as_transformers(tmp_path: Path, name: str) -> None:
    plain, packed = CASES[name].write(tmp_path / "plain"), tmp_path / "packed"
    expected = logits(AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16))
    source = open_source(plain)
    assert source.notes == ((CASES[name].note,) if CASES[name].note else ())
    assert torch.equal(logits(build_model(plain, source)), expected)
    pack_model(source, packed, RECIPE, jobs=1)
    unpack_model(packed, tmp_path / "unpacked", jobs=1)
    unpacked = AutoModelForCausalLM.from_pretrained(tmp_path / "unpacked", dtype=torch.bfloat16)
    assert torch.equal(logits(unpacked), expected)
    assert open_source(tmp_path / "unpacked").notes == ()
    found: Any = AutoModelForCausalLM.from_pretrained(packed)
    assert isinstance(found, packed_models.SpeculativeGeneration)
    torch.testing.assert_close(logits(found), expected, atol=0.03, rtol=0.03)
    run = CassandraForCausalLM.from_pretrained(packed).passes(len(TOKENS))
    ours = torch.tensor(run(TOKENS, 0, len(TOKENS)))
    torch.testing.assert_close(ours, expected, atol=0.03, rtol=0.03)
    with Engine.from_packed(packed, threads=1) as engine:
        native = torch.tensor(engine.forward(TOKENS))
    torch.testing.assert_close(native, expected, atol=0.06, rtol=0.06)


def test_a_packed_directory_with_a_head_of_its_own_is_not_tied(tmp_path: Path) -> None:
    """An earlier version packed such directories."""
    plain = CASES["another head"].write(tmp_path / "plain")
    expected = logits(AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16))
    pack_model(open_source(plain), tmp_path / "packed", RECIPE, jobs=1)
    change_config(tmp_path / "packed", tie_word_embeddings=True)
    found: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
    torch.testing.assert_close(logits(found), expected, atol=0.03, rtol=0.03)
    assert not found.config.tie_word_embeddings
    run = CassandraForCausalLM.from_pretrained(tmp_path / "packed").passes(len(TOKENS))
    ours = torch.tensor(run(TOKENS, 0, len(TOKENS)))
    torch.testing.assert_close(ours, expected, atol=0.03, rtol=0.03)
    with Engine.from_packed(tmp_path / "packed", threads=1) as engine:
        native = torch.tensor(engine.forward(TOKENS))
    torch.testing.assert_close(native, expected, atol=0.06, rtol=0.06)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda path: change_config(path, head_dim=6),
            r"q_proj.weight must have the shape \[24, 48\], as the config says, not \[48, 48\]",
        ),
        (
            lambda path: change_config(path, num_hidden_layers=3),
            "model.layers.2.self_attn.q_proj.weight must be a tensor of the model, and is missing",
        ),
        (
            lambda path: replace_tensors(path, {HEAD: None}),
            f"tie_word_embeddings must be true without a tensor {HEAD}, not false",
        ),
        (
            lambda path: replace_tensors(path, {HEAD: random(95, 48)}),
            rf"{HEAD} must have the shape \[96, 48\], as the config says, not \[95, 48\]",
        ),
    ],
)
def test_what_transformers_would_make_up_or_refuse_is_refused(
    tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    path = write_model(tmp_path / "m")
    change(path)
    with pytest.raises(CassandraError, match=message):
        open_source(path)


SWITCHES: tuple[dict[str, bool], ...] = (
    {},
    {"tie_word_embeddings": True},
    {"attention_bias": True, "mlp_bias": True},
)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_tensors_of_a_model_are_those_of_transformers(
    model_type: str, switches: dict[str, bool]
) -> None:
    entries = {**SIZES, "tie_word_embeddings": False, **switches}
    config = AutoConfig.for_model(model_type, **entries)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    shapes = {name: tuple(found.shape) for name, found in model.named_parameters()}
    architecture = find_model_type(model_type, field="name", where="")

    def settle(shapes: Mapping[str, tuple[int, ...]]) -> Any:
        stated = config.to_dict()
        return agree(architecture, stated, shapes, same_head=lambda: False, where="m")

    found = settle(shapes)
    assert (found.unused, found.zeros, found.notes) == (set(), {}, ())
    for name, shape in shapes.items():
        others = {other: shape for other, shape in shapes.items() if other != name}
        if name.endswith(".bias"):
            assert settle(others).zeros == {name: shape}
        else:
            with pytest.raises(CassandraError):
                settle(others)
        with pytest.raises(CassandraError, match="must have the shape"):
            settle({**shapes, name: (*shape[1:], shape[0] + 1)})


def test_biases_that_a_gguf_file_lacks_are_zero(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", model_type="qwen2")
    kept = replace_tensors(model, {BIAS: None})
    source = open_source(write_gguf(tmp_path / "m.gguf", kept))
    assert source.notes == (f"{BIAS} is missing, and taken as zero",)
    assert not source.read(BIAS).any()
    assert source.read_raw(BIAS).tobytes() == bytes(2 * 48)
    np.testing.assert_array_equal(source.read(BIASES[1]), patterns(tensors_of(model)[BIASES[1]]))
