from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NoReturn

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.toolkit.workers import pool
from cassandra_spec.toolkit.workers.pool import Workers
from tests.toolkit.workers.on_workers import die, fail_at_three, square, worker_id


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order(jobs: int) -> None:
    with Workers(jobs) as workers:
        assert list(workers.map(square, range(20))) == [n * n for n in range(20)]
        assert list(workers.map(square, [])) == []


def test_the_work_is_done_elsewhere() -> None:
    with Workers(2) as workers:
        assert os.getpid() not in set(workers.map(worker_id, range(8)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bounded_number_of_items_is_taken(jobs: int) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(50):
            taken += 1
            yield number

    with Workers(jobs) as workers:
        for done, _ in enumerate(workers.map(square, items()), start=1):
            assert taken - done < 2 * jobs


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_the_function_is_raised_here(jobs: int) -> None:
    with (
        Workers(jobs) as workers,
        pytest.raises(CassandraError, match=r"^three must not be used$"),
    ):
        list(workers.map(fail_at_three, range(10)))


def test_a_killed_worker_is_an_error() -> None:
    with Workers(2) as workers, pytest.raises(CassandraError, match="a worker process was killed"):
        list(workers.map(die, range(3)))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (BrokenProcessPool("it is broken"), "a worker process was killed"),
        (OSError("handle is closed"), "a worker process was killed"),
        (OSError(errno.EAGAIN, "no more processes"), "no more processes"),
    ],
)
def test_a_pool_that_breaks_while_it_takes_an_item_is_an_error(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    expected = OSError if "no more" in message else CassandraError
    with Workers(2) as workers, pytest.raises(expected, match=message):
        list(workers.map(square, range(3)))


def test_jobs_must_be_positive() -> None:
    with pytest.raises(CassandraError, match="jobs must be at least 1, not 0"):
        Workers(0)


PARENT = """
import sys, time
from cassandra_spec.toolkit.workers.pool import Workers
from tests.toolkit.workers.on_workers import worker_id
if __name__ == "__main__":
    with Workers(2) as workers:
        print(*set(workers.map(worker_id, range(9))), flush=True)
        time.sleep(60)
"""


def is_running(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may end while the file is read
        return False
    return text.rsplit(")", 1)[1].split()[0] != "Z"


def test_workers_end_with_their_parent() -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(number) for number in parent.stdout.readline().split()]
        assert workers
        assert all(map(is_running, workers))
        parent.kill()
    deadline = time.monotonic() + 120
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, workers))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_until_a_process_has_started(number: signal.Signals) -> None:
    """Whichever thread receives it: here one that does not block it."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    before = signal.signal(number, interrupt)
    reached = []

    def start() -> None:
        with pool._interrupts_deferred():
            os.kill(os.getpid(), number)
            time.sleep(0.05)
            reached.append(True)

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert signal.getsignal(number) is interrupt
    finally:
        signal.signal(number, before)
        done.set()
        other.join()
    assert reached == [True]
