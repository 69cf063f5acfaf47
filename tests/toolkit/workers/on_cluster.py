"""A cluster of this machine, and the sudden death of one of its workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def _distributed() -> Any:
    return pytest.importorskip("distributed")


@contextmanager
def local_cluster() -> Iterator[str]:
    """Yield the address of a scheduler with two workers."""
    with _distributed().LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    ) as local:
        yield local.scheduler_address


@contextmanager
def killing(address: str, when: Callable[[], bool]) -> Iterator[None]:
    """Kill one worker as soon as ``when()`` is true, which must happen within the block."""
    left, killed = threading.Event(), []

    def wait() -> None:
        with _distributed().Client(address, set_as_default=False) as client:
            while not (ready := when()) and not left.is_set():
                time.sleep(0.05)
            if ready:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=wait)
    killer.start()
    try:
        yield
    finally:
        left.set()
        killer.join()
    assert killed
