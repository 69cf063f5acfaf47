"""Workers that are played by small programs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from cassandra_spec.bench.decode.workers import Worker
from cassandra_spec.golden import CassandraError

ECHO = """
import json, sys
print(json.dumps({"ready": True, "bytes": 7}), flush=True)
for line in sys.stdin:
    print(json.dumps({"tokens": json.loads(line)["prompt"]}), flush=True)
"""


def state(worker: Worker) -> str:
    """Return the state of a process in Linux: T is stopped."""
    status = Path(f"/proc/{worker._process.pid}/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("State:"))


def test_a_worker_answers_and_is_stopped_between_its_turns() -> None:
    with Worker("echo", [sys.executable, "-c", ECHO]) as worker:
        assert worker.about == {"ready": True, "bytes": 7}
        assert worker.resident > 1_000_000
        for prompt in ([1, 2], [3]):
            assert worker.ask({"prompt": prompt}) == {"tokens": prompt}
            for _ in range(10_000):  # the signal takes its time
                if state(worker) == "T":
                    break
                time.sleep(0.01)
            assert state(worker) == "T"
    assert worker._process.returncode == 0


def test_a_worker_that_ends_says_why() -> None:
    program = "import sys; sys.exit('no such model')"
    with pytest.raises(CassandraError, match=r"mine has ended \(code 1\): no such model"):
        Worker("mine", [sys.executable, "-c", program])


def test_a_worker_that_fails_in_its_turn_says_why() -> None:
    with (
        Worker("echo", [sys.executable, "-c", ECHO]) as worker,
        pytest.raises(CassandraError, match=r"echo has ended \(code 1\): .*KeyError: 'prompt'"),
    ):
        worker.ask({})
