"""Dithered weights, and files for llama.cpp read back."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.decode.gguf_file import write_gguf
from cassandra_spec.lab.decode.weights import BLOCK, STEPS, Dithered, dither
from cassandra_spec.model.weights.gguf import GgufSource
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import write_model


def floats(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32)


def quantised(seed: int, rows: int = 8, columns: int = 80) -> np.ndarray:
    """BF16 patterns of values on 16 levels a block."""
    random = np.random.default_rng(seed)
    levels = random.integers(0, STEPS + 1, (rows, columns)).astype(np.float32)
    step = random.random((rows, -(-columns // BLOCK)), np.float32).repeat(BLOCK, 1)[:, :columns]
    return ((levels * step - 8 * step).view(np.uint32) >> 16).astype(np.uint16)


def test_dithered_weights_stay_within_half_a_step() -> None:
    values = quantised(1)
    moved = floats(dither(values, 5)) - floats(values)
    for start in range(0, values.shape[1], BLOCK):
        part = floats(values)[:, start : start + BLOCK]
        step = (part.max(1, keepdims=True) - part.min(1, keepdims=True)) / STEPS
        rounding = 2**-8 * (np.abs(part) + step)
        assert (np.abs(moved[:, start : start + BLOCK]) <= step / 2 + rounding).all()
    assert (moved != 0).mean() > 0.9


def test_dither_fills_mantissas() -> None:
    values = quantised(2, rows=64, columns=32)
    assert max(len(np.unique(row)) for row in values) <= STEPS + 1
    assert np.mean([len(np.unique(row)) for row in dither(values, 1)]) > 28


def test_dither_is_repeatable_and_zero_blocks_stay() -> None:
    values = quantised(3)
    assert (dither(values, 7) == dither(values, 7)).all()
    assert (dither(values, 7) != dither(values, 8)).any()
    zeros = np.zeros((2, 40), np.uint16)
    assert (dither(zeros, 1) == zeros).all()


def test_a_dithered_source_gives_the_same_parts(tmp_path: Path) -> None:
    plain = open_source(write_model(tmp_path / "m"))
    source = Dithered(plain)
    for name, tensor in source.tensors.items():
        whole = source.read(name)
        assert whole.shape == (tensor.count,)
        assert (source.read(name, 7, 31) == whole[7:31]).all()
        assert (whole == plain.read(name)).all() == (len(tensor.shape) == 1)
        assert (source.read_raw(name).view("<u2") == whole).all()


@pytest.mark.parametrize("tied", [False, True])
def test_a_file_for_llama_cpp_has_the_weights(tmp_path: Path, tied: bool) -> None:
    folder = write_model(tmp_path / "m", tied=tied)
    source = open_source(folder)
    config = json.loads((folder / "config.json").read_text())
    write_gguf(source, config, tmp_path / "m.gguf")
    again = GgufSource(tmp_path / "m.gguf")
    assert set(again.tensors) == set(source.tensors)
    for name in source.tensors:
        assert (again.read(name) == source.read(name)).all(), name
    assert not list(tmp_path.glob("*.part"))


def test_other_models_are_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", model_type="qwen2")
    config = json.loads((folder / "config.json").read_text())
    with pytest.raises(CassandraError, match=r"model_type must be 'llama'.*not 'qwen2'"):
        write_gguf(open_source(folder), config, tmp_path / "m.gguf")
    config |= {"model_type": "llama", "rope_parameters": {"rope_type": "llama3"}}
    with pytest.raises(CassandraError, match="rope_type must be 'default', not 'llama3'"):
        write_gguf(open_source(folder), config, tmp_path / "m.gguf")


@pytest.mark.slow
def test_the_step_of_the_bundled_file_is_the_quantisers_own() -> None:
    """A step is the scale of the blocks of Q4_1, but for rounding to BF16."""
    source = open_source("smollm2")
    assert isinstance(source, GgufSource)
    stored = source._names["model.layers.0.mlp.up_proj.weight"]
    assert stored.tensor_type == gguf.GGMLQuantizationType.Q4_1
    blocks = stored.data.reshape(-1, 20)  # a scale and a minimum in F16, 16 bytes of values
    scales = np.abs(np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32))[:, 0]
    name = "model.layers.0.mlp.up_proj.weight"
    rows = floats(source.read(name)).reshape(-1, BLOCK)
    found = (rows.max(1) - rows.min(1)) / STEPS
    largest = np.abs(rows).max(1)
    assert (np.abs(found - scales) <= 2**-8 * largest / STEPS * 2 + 1e-6).mean() > 0.99
