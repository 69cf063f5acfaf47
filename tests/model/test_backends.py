"""Backends that can run a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.golden.model_types import MODEL_TYPES
from cassandra_spec.model.backends import native_obstacle
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.weights.sources import open_source
from tests.model.test_agreement import RECIPE
from tests.model.tiny import write_model


@pytest.mark.parametrize("model_type", [each.name for each in MODEL_TYPES])
def test_native_code_runs_what_has_just_been_packed(model_type: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "plain", model_type=model_type)
    pack_model(open_source(source), tmp_path / "packed", RECIPE, jobs=1)
    assert native_obstacle(source) == ""
    assert native_obstacle(tmp_path / "packed") == ""
