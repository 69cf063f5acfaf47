from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.weights.sources import (
    EMBEDDING,
    HEAD,
    DirectorySource,
    open_source,
    packed_tensors,
    weights,
)
from tests.model.tiny import (
    MODEL_TYPES,
    change_config,
    patterns,
    replace_tensors,
    tensors_of,
    write_model,
)

LINEAR = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_linear_weights_and_the_head_are_packed(
    tmp_path: Path, model_type: str, tied: bool
) -> None:
    source = open_source(write_model(tmp_path / "m", model_type=model_type, tied=tied))
    expected = tensors_of(tmp_path / "m")
    assert set(source.tensors) == set(expected)
    kinds = {name: tensor.kind for name, tensor in source.tensors.items()}
    assert [kinds.get(EMBEDDING), kinds.get(HEAD)] == (
        ["head", None] if tied else ["other", "head"]
    )
    linear = [name for name, kind in kinds.items() if kind == "linear"]
    assert len(linear) == 2 * (4 if model_type == "phi3" else 7)
    assert all(name.endswith("_proj.weight") for name in linear)
    assert source.notes == ()


def test_every_value_is_that_of_the_file(llama: Path) -> None:
    expected = tensors_of(llama)
    source = open_source(llama)
    assert [tensor.name for tensor, _ in weights(source)] == [
        tensor.name for tensor in packed_tensors(source)
    ]
    for tensor, values in weights(source):
        np.testing.assert_array_equal(values, patterns(expected[tensor.name]))
        assert tensor.shape == tuple(expected[tensor.name].shape)
    np.testing.assert_array_equal(source.read_raw(NORM).view(np.uint16), patterns(expected[NORM]))


def test_parts_of_a_tensor(llama: Path) -> None:
    source = open_source(llama)
    whole = source.read(LINEAR)
    np.testing.assert_array_equal(source.read(LINEAR, 5, 77), whole[5:77])
    np.testing.assert_array_equal(source.read(LINEAR, 100), whole[100:])


def test_shards(tmp_path: Path, llama: Path) -> None:
    path = write_model(tmp_path / "m", shard="50KB")
    assert len(list(path.glob("model-*.safetensors"))) > 1
    whole, sharded = open_source(llama), open_source(path)
    assert set(whole.tensors) == set(sharded.tensors)
    for name in whole.tensors:
        np.testing.assert_array_equal(whole.read(name), sharded.read(name))


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "F16"), (torch.float32, "F32")])
def test_other_floats_are_rounded_and_it_is_said(
    tmp_path: Path, dtype: torch.dtype, name: str
) -> None:
    source = open_source(write_model(tmp_path / "m", dtype=dtype))
    expected = tensors_of(tmp_path / "m")
    assert source.notes == (f"15 tensors of {name} are rounded to BF16 (to nearest, ties to even)",)
    for tensor, values in weights(source):
        np.testing.assert_array_equal(values, patterns(expected[tensor.name].to(torch.bfloat16)))
    np.testing.assert_array_equal(
        source.read(LINEAR, 3, 50), patterns(expected[LINEAR].to(torch.bfloat16))[3:50]
    )
    assert source.read_raw(NORM).tobytes() == expected[NORM].numpy().tobytes()
    (tmp_path / "out").mkdir()
    source.save_companions(tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "bfloat16"


def test_companions_are_copied_and_weights_are_not(llama: Path, tmp_path: Path) -> None:
    open_source(llama).save_companions(tmp_path)
    names = {file.name for file in tmp_path.iterdir()}
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} <= names
    assert not any(name.endswith(".safetensors") for name in names)
    for name in names:
        assert (tmp_path / name).read_bytes() == (llama / name).read_bytes()


def test_without_a_word_in_the_config_a_missing_head_means_a_tied_one(own_llama: Path) -> None:
    change_config(own_llama, tie_word_embeddings=None)
    assert open_source(own_llama).tensors[EMBEDDING].kind == "other"
    replace_tensors(own_llama, {HEAD: None})
    assert open_source(own_llama).tensors[EMBEDDING].kind == "head"


# --- bad input ----------------------------------------------------------------------------------


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="must be a directory of a model, and is missing"):
        open_source(tmp_path / "m")
    (tmp_path / "m").write_text("")
    with pytest.raises(CassandraError, match="must be a directory of a model, and is a file"):
        open_source(tmp_path / "m")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"config\.json must be JSON"),
        ("[]", r"config\.json must hold a JSON object, not list"),
        ("{}", "model_type must be one of llama, .*, olmo2, not None"),
        ('{"model_type": "mamba"}', "one of llama, .*, olmo2, not 'mamba'"),
        ('{"model_type": ["llama"]}', r"not \['llama'\]"),
        ('{"attention_bias": "yes"}', "attention_bias must be true or false, not 'yes'"),
        (
            '{"layer_types": ["linear_attention"]}',
            "layer_types must be a list of",
        ),
    ],
)
def test_a_wrong_config(own_llama: Path, content: str, message: str) -> None:
    (own_llama / "config.json").write_text(content)
    with pytest.raises(CassandraError, match=message):
        open_source(own_llama)


def test_a_config_that_is_no_text(own_llama: Path) -> None:
    (own_llama / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(CassandraError, match=r"config\.json must be JSON"):
        open_source(own_llama)


def test_missing_files(own_llama: Path) -> None:
    (own_llama / "model.safetensors").unlink()
    with pytest.raises(CassandraError, match=r"must have a file model\.safetensors or .*neither"):
        open_source(own_llama)
    (own_llama / "config.json").unlink()
    with pytest.raises(CassandraError, match=r"config\.json must be a file, and is missing"):
        open_source(own_llama)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (torch.zeros(48, 48, dtype=torch.int8), "must have a dtype of BF16, F16, F32, not I8"),
        (
            torch.zeros(48, 48).to(torch.float8_e4m3fn),
            "must have a dtype of BF16, F16, F32, not F8_E4M3",
        ),
        (torch.zeros(48, 4, 12, dtype=torch.bfloat16), "must have 2 dimensions, not 3"),
    ],
)
def test_a_weight_that_cannot_be_packed(
    own_llama: Path, change: torch.Tensor, message: str
) -> None:
    with pytest.raises(CassandraError, match=f"model.safetensors: {LINEAR} {message}"):
        open_source(replace_tensors(own_llama, {LINEAR: change}))


@pytest.mark.parametrize("keep", ["linear", "head"])
def test_a_model_without_weights_to_pack(own_llama: Path, keep: str) -> None:
    source = open_source(own_llama)
    others = {t.name: None for t in packed_tensors(source) if t.kind != keep}
    line = "must have linear weights and a head|must be true without a tensor lm_head"
    with pytest.raises(CassandraError, match=line):
        open_source(replace_tensors(own_llama, others))


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map must be an object of file names"),
        ({"weight_map": {"a": 1}}, "weight_map must be an object of file names"),
        ({"weight_map": {"a": "../model.safetensors"}}, "weight_map must be an object of file"),
        ({"weight_map": {"a": "gone.safetensors"}}, r"gone\.safetensors must be a file, and is"),
        ({"weight_map": {"a": "shard.safetensors"}}, f"must have a tensor a, as {INDEX} says"),
    ],
)
def test_a_wrong_index(own_llama: Path, index: object, message: str) -> None:
    (own_llama / "model.safetensors").unlink()
    save_file({"b": torch.zeros(2)}, own_llama / "shard.safetensors")
    (own_llama / INDEX).write_text(json.dumps(index))
    with pytest.raises(CassandraError, match=message):
        open_source(own_llama)


def test_a_tensor_in_another_dtype_is_not_read_as_values(own_llama: Path) -> None:
    source = DirectorySource(replace_tensors(own_llama, {NORM: torch.zeros(48).long()}))
    assert source.tensors[NORM].kind == "other"
    with pytest.raises(CassandraError, match=f"{NORM} must have a dtype of .*, not I64"):
        source.read(NORM)
