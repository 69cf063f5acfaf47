"""Planted faults on a cluster, one of whose workers is killed at work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cassandra_spec.verif.mutation.__main__ import main
from cassandra_spec.verif.mutation.catalogue import mutations
from cassandra_spec.verif.mutation.trial import SCRATCH, SETTINGS
from tests.toolkit.workers.on_cluster import killing, local_cluster

FAULTS = ("mantissa.*",)


@pytest.mark.slow
def test_a_cluster_finds_the_same_though_a_worker_is_killed(tmp_path: Path) -> None:
    def run(name: str, *flags: str) -> list[tuple[str, str, str]]:
        assert main([*FAULTS, "--out", str(tmp_path / name), *flags]) == 0
        assert not (tmp_path / name / SCRATCH).exists()
        rows = json.loads((tmp_path / name / "results.json").read_text())
        return [(row["name"], row["caught_by"], row["digest"]) for row in rows]

    def at_work() -> bool:
        return len(list((tmp_path / "there").glob(f"{SCRATCH}/*/tree/{SETTINGS}"))) == 2

    with local_cluster() as address, killing(address, at_work):
        there = run("there", "--cluster", address)
    assert [name for name, *_ in there] == [fault.name for fault in mutations(FAULTS)]
    assert there == run("here", "--jobs", "2")


def test_jobs_and_a_cluster_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "2", "--cluster", "tcp://127.0.0.1:1"]) == 2
    assert "jobs must be left out with a cluster, not 2" in capsys.readouterr().err
