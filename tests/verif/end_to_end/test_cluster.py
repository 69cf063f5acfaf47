"""The main job's check of weights on a cluster, each worker with a Verilated decoder of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.model.weights.sources import open_source, packed_tensors
from cassandra_spec.verif.end_to_end.weights import DecodedWeights, Work, gateware, pack_and_check
from tests.model.tiny import write_model
from tests.toolkit.workers.on_cluster import local_cluster


@pytest.mark.slow
def test_a_cluster_finds_what_this_process_finds(tmp_path: Path) -> None:
    source = open_source(write_model(tmp_path / "m"))
    gateware()  # built once, before the workers want it
    found = []
    with local_cluster() as address:
        for name, cluster in (("here", None), ("there", address)):
            work = Work(jobs=None if cluster else 1, cluster=cluster)
            folder = tmp_path / name
            folder.mkdir()
            keep = DecodedWeights(folder, packed_tensors(source))
            found.append(pack_and_check(source, "exact", folder / "exact", work, keep))
            for tensor in packed_tensors(source):
                np.testing.assert_array_equal(keep.read(tensor.name), source.read(tensor.name))
    assert found[0] == found[1]
    assert found[0].total.mismatches == 0
    assert found[0].total.values == sum(tensor.count for tensor in packed_tensors(source))
