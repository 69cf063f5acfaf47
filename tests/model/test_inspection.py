from __future__ import annotations

import json
from pathlib import Path

import pytest

from cassandra_spec.golden import Format
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.model.packing.inspection import inspect_file, kind_of_name, mean_bits
from cassandra_spec.model.packing.packer import Recipe, open_packed, pack_model
from cassandra_spec.model.weights.sources import open_source


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bits_are_those_of_the_packed_tensors(llama: Path, tmp_path: Path, scheme: str) -> None:
    recipe = Recipe(
        format=Format.from_dict({"scheme": scheme}), prune=0.25, prune_scores="magnitude"
    )
    pack_model(open_source(llama), tmp_path / "p", recipe, jobs=1)
    packed = open_packed(tmp_path / "p")
    report = json.loads(json.dumps(inspect_file(packed)))
    for name, tensor in report["tensors"].items():
        expected = packed.read_packed(name).bits()
        assert {key: tensor["bits"][key] for key in expected} == pytest.approx(expected, rel=1e-12)
        assert tensor["format"] == packed.tensors[name].format.to_dict()
        directory = tensor["bits"]["total"] - sum(
            tensor["bits"][region] for region in ("speculation", "verification")
        )
        assert tensor["bits"]["directory"] == pytest.approx(directory, abs=1e-9)
    q_proj = report["tensors"]["model.layers.0.self_attn.q_proj.weight"]
    if scheme == "unary":
        assert q_proj["kept"] <= 0.75
        assert 1 <= q_proj["code_bits"] <= 16
        codes = q_proj["code_bits"] * q_proj["kept"]
        assert codes == pytest.approx(q_proj["bits"]["exponent"], rel=1e-12)
    else:
        assert q_proj["kept"] == 0.75
        assert "codebook" not in q_proj


def test_sizes_are_those_of_the_files(llama: Path, tmp_path: Path) -> None:
    pack_model(open_source(llama), tmp_path / "p", Recipe(), jobs=1)
    report = inspect_file(open_packed(tmp_path / "p"))
    assert report["bytes"] == (tmp_path / "p/model.safetensors").stat().st_size
    source = open_source(llama)
    assert report["bf16_bytes"] == sum(tensor.nbytes for tensor in source.tensors.values())
    assert report["ratio"] == report["bf16_bytes"] / report["bytes"]
    assert set(report["others"]) | set(report["tensors"]) == set(source.tensors)


def test_means_weigh_tensors_by_their_values() -> None:
    tensors = [{"values": 1, "bits": {"low": 4.0}}, {"values": 3, "bits": {"low": 8.0}}]
    assert mean_bits(tensors) == {"low": 7.0}
    assert mean_bits([]) == {}


def test_names_of_one_kind_differ_in_the_layer() -> None:
    assert kind_of_name("model.layers.12.mlp.up_proj.weight") == "model.layers.*.mlp.up_proj.weight"
    assert kind_of_name("lm_head.weight") == "lm_head.weight"
