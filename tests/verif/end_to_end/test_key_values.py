"""Keys and values through the gateware's encoder and decoder, with a small model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cassandra_spec.golden import Format
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.verif.end_to_end import key_values as kv_sim
from tests.model.tiny import write_model

RECIPE = Recipe(format=Format(scheme="exact", truncated=4, fill="midpoint"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("kv")
    source = write_model(where / "plain", max_position_embeddings=256, head_dim=64)
    pack_model(open_source(source), where / "packed", RECIPE, jobs=1)
    return where / "packed"


@pytest.mark.slow
def test_replies_are_those_of_golden(folder: Path) -> None:
    checks = kv_sim.check_key_values(folder, "word1 word2 word3", 64)
    assert [check.scheme for check in checks] == ["unary", "exact", "mx"]
    for check in checks:
        assert check.good, check
        assert check.tokens >= 64
        assert check.tail <= (8 + 32) * 2 * 2 * 2
        assert check.vectors + check.tail == checks[0].vectors  # all of them
    assert all(check.vectors >= 64 * 8 for check in checks[:2])  # every token's
    assert "identical" in kv_sim.key_value_table(checks).text()


def test_what_differs_is_not_good() -> None:
    right = kv_sim.KeyValueCheck(
        scheme="mx", layout="", tokens=64, vectors=1, tail=0, same_tokens=True, different_regions=0
    )
    assert right.good
    assert not dataclasses.replace(right, same_tokens=False).good
    assert not dataclasses.replace(right, different_regions=1).good
