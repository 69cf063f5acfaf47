"""``casspec tune --cluster``: the same file, though a worker is killed."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import pytest

from cassandra_spec.bench.study import shared
from cassandra_spec.bench.study.drafts import Study
from cassandra_spec.bench.study.shared import SharedStudy
from cassandra_spec.bench.study.tuning import Candidate
from cassandra_spec.commands.__main__ import main
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.weights.sources import open_source
from tests.lab.study.test_command import folder
from tests.toolkit.workers.on_cluster import killing, local_cluster

__all__ = ["folder"]


LEFT = 4
"""Candidates that the cluster looks at."""


@pytest.mark.slow
def test_a_cluster_finds_the_same_though_a_worker_is_killed(folder: Path, tmp_path: Path) -> None:
    def files(name: str) -> tuple[Path, Path]:
        out = tmp_path / name / "tuned.toml"
        out.parent.mkdir(exist_ok=True)
        return out, out.with_name("tuned.toml.state.json")

    def tune(name: str, *flags: str) -> list[bytes]:
        found = files(name)
        command = [
            *("tune", str(folder / "model"), str(found[0]), "--quiet", "--schemes", "exact"),
            *("--prompts", str(folder / "prompts.txt"), "--max-tokens", "40"),
            *("--calibration", str(folder / "norms.safetensors"), *flags),
        ]
        assert main(command) == 0
        assert set(found[0].parent.iterdir()) == set(found)
        return [file.read_bytes() for file in found]

    here = tune("here", "--jobs", "1")
    begun = json.loads(here[1])
    del begun["scores"][-LEFT:]
    state = files("there")[1]
    state.write_text(json.dumps(begun))
    before = state.read_bytes()
    with local_cluster() as address, killing(address, lambda: state.read_bytes() != before):
        assert tune("there", "--cluster", address) == here


def test_a_study_goes_by_its_files_and_is_opened_once(folder: Path, tmp_path: Path) -> None:
    norms = tmp_path / "norms.safetensors"
    norms.write_bytes((folder / "norms.safetensors").read_bytes())
    source = open_source(folder / "model")
    study = Study(source, ("word5 word9",), norms=Norms.load(norms), max_tokens=40, jobs=1)
    sent = pickle.dumps(SharedStudy(study, norms=norms))
    assert len(sent) < 2000  # no data
    opened = pickle.loads(sent)
    assert opened is pickle.loads(sent)
    candidate = Candidate(scheme="exact")
    assert opened.score(candidate) == SharedStudy(study).score(candidate)
    shared._reopen.cache_clear()
    changed = Norms.load(norms)
    values = {name: 2 * each for name, each in changed.values.items()}
    dataclasses.replace(changed, values=values).save(norms)
    with pytest.raises(CassandraError, match="must be the same everywhere, and are not"):
        pickle.loads(sent)


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--jobs", "2", "--cluster", "tcp://127.0.0.1:1"]
    assert main(["tune", "smollm2", str(tmp_path / "tuned.toml"), *flags]) == 2
    assert capsys.readouterr().err.endswith("jobs must be left out with a cluster, not 2\n")
    assert not list(tmp_path.iterdir())
