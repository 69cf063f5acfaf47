"""Work on a cluster: the same bytes, whatever dies on the way."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.weights import sources
from cassandra_spec.model.weights.sources import Shared, open_source
from cassandra_spec.toolkit.workers.pool import Workers
from tests.commands.status import status_of
from tests.model.test_packing import RECIPES, norms_of
from tests.model.tiny import write_model
from tests.toolkit.workers.on_cluster import local_cluster
from tests.toolkit.workers.on_workers import DyingCodec, fail_at_three, square, worker_id

distributed: Any = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with local_cluster() as address:
        yield address


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("cluster") / "model", shard="50KB")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_results_come_in_order_from_other_processes(cluster: str) -> None:
    with Workers(cluster=cluster) as workers:
        assert workers.jobs == 2
        assert list(workers.map(square, range(20))) == [n * n for n in range(20)]
        assert os.getpid() not in set(workers.map(worker_id, range(8)))
        with pytest.raises(CassandraError, match=r"^three must not be used$"):
            list(workers.map(fail_at_three, range(10)))


@pytest.mark.parametrize("name", ["unary by wanda", "exact"])
def test_the_bytes_are_the_same_and_a_killed_worker_costs_nothing(
    cluster: str, sharded: Path, tmp_path: Path, name: str
) -> None:
    source, recipe = open_source(sharded), RECIPES.get(name, Recipe())
    norms = norms_of(source)
    pack_model(source, tmp_path / "here", recipe, norms=norms, jobs=1)
    codec = DyingCodec(tmp_path / "died")
    pack_model(source, tmp_path / "there", recipe, norms=norms, cluster=cluster, codec=codec)
    assert codec.marker.exists()
    here, there = contents(tmp_path / "here"), contents(tmp_path / "there")
    assert here == there
    assert "model.safetensors" in here


def test_packing_and_verifying_by_command(
    cluster: str, sharded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, at = tmp_path / "p", ["--cluster", cluster]
    assert main(["pack", str(sharded), str(packed), "--scheme", "exact", "--quiet", *at]) == 0
    assert main(["inspect", str(packed), "--verify", *at]) == 0
    alone = capsys.readouterr().out
    assert main(["inspect", str(packed), "--verify"]) == 0
    assert capsys.readouterr().out == alone
    file = packed / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    assert main(["inspect", str(packed), "--verify", *at]) == 2
    assert re.search(r"checksum|CRC", capsys.readouterr().err)


def test_a_source_is_known_by_its_files(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m")
    source = open_source(path)
    name = next(iter(source.tensors))
    sent = pickle.dumps(Shared(source))
    assert len(sent) < 1000  # no data
    np.testing.assert_array_equal(pickle.loads(sent).source.read(name), source.read(name))
    sources._reopen.cache_clear()
    os.utime(path / "model.safetensors", (1, 1))
    with pytest.raises(FileError, match="must be the same files on every machine, and is not"):
        pickle.loads(sent)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--cluster", "nonsense"], "cluster must be the address of a Dask scheduler that runs"),
        (["--cluster", "tcp://127.0.0.1:1"], "cluster must be the address of a Dask scheduler"),
        (["--cluster", "tcp://127.0.0.1:1", "--jobs", "2"], "jobs must be left out with a cluster"),
    ],
)
def test_bad_input_is_one_line(
    sharded: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    expected: str,
) -> None:
    command = ["pack", str(sharded), str(tmp_path / "p"), "--scheme", "exact", "--quiet"]
    assert status_of(*command, *options) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not (tmp_path / "p").exists()


def test_workers_with_several_threads_are_refused() -> None:
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as local,
        pytest.raises(CassandraError, match="cluster must have workers of 1 thread"),
        Workers(cluster=local.scheduler_address),
    ):
        pass
