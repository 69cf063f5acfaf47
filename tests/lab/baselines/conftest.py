"""A small packed model of six layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.weights.sources import open_source
from tests.model.speculative.conftest import RECIPE
from tests.model.tiny import write_model


@pytest.fixture(scope="session")
def six_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a packed Llama of six layers with room for 256 positions; not to be changed."""
    folder = tmp_path_factory.mktemp("drafters")
    source = write_model(
        folder / "plain", tied=True, num_hidden_layers=6, max_position_embeddings=256
    )
    pack_model(open_source(source), folder / "packed", RECIPE, jobs=1)
    return folder / "packed"


@pytest.fixture(scope="session")
def lm(six_layers: Path) -> CassandraForCausalLM:
    return CassandraForCausalLM.from_pretrained(six_layers)
