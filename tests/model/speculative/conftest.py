"""Packed small models."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.golden import Format
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import write_model

RECIPE = Recipe(format=Format(scheme="exact", group=32, segment=1024, truncated=4, fill="midpoint"))


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a packed Llama with room for 256 positions; not to be changed."""
    folder = tmp_path_factory.mktemp("speculative")
    source = write_model(folder / "plain", max_position_embeddings=256)
    pack_model(open_source(source), folder / "packed", RECIPE, jobs=1)
    return folder / "packed"


@pytest.fixture(scope="session")
def lm(packed: Path) -> CassandraForCausalLM:
    return CassandraForCausalLM.from_pretrained(packed)
