"""Planted faults on a cluster, one of whose workers is killed at work."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.verif.mutation.__main__ import SCRATCH, main
from cassandra_spec.verif.mutation.catalogue import mutations

distributed: Any = pytest.importorskip("distributed")
FAULTS = ("mantissa.*",)


def _kill_at_work(address: str, out: Path, killed: list[int]) -> None:
    """Kill a worker when two checks run."""
    with distributed.Client(address, set_as_default=False) as client:
        while sum(1 for _ in out.glob(f"{SCRATCH}/*/tree/pyproject.toml")) < 2:
            time.sleep(0.05)
        number = next(iter(client.run(os.getpid).values()))
        os.kill(number, signal.SIGKILL)
        killed.append(number)


@pytest.mark.slow
def test_a_cluster_finds_the_same_though_a_worker_is_killed(tmp_path: Path) -> None:
    def run(name: str, *flags: str) -> list[tuple[str, str, str]]:
        assert main([*FAULTS, "--out", str(tmp_path / name), *flags]) == 0
        assert not (tmp_path / name / SCRATCH).exists()
        rows = json.loads((tmp_path / name / "results.json").read_text())
        return [(row["name"], row["caught_by"], row["digest"]) for row in rows]

    killed: list[int] = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    ) as local:
        arguments = (local.scheduler_address, tmp_path / "there", killed)
        killer = threading.Thread(target=_kill_at_work, args=arguments)
        killer.start()
        there = run("there", "--cluster", local.scheduler_address)
        killer.join()
    assert killed
    assert [name for name, *_ in there] == [fault.name for fault in mutations(FAULTS)]
    assert there == run("here", "--jobs", "2")


def test_jobs_and_a_cluster_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "2", "--cluster", "tcp://127.0.0.1:1"]) == 2
    assert "jobs must be left out with a cluster, not 2" in capsys.readouterr().err
