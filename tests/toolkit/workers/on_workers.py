"""Functions that tests run on workers: importable there, and quick."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

from cassandra_spec.golden import CassandraError, GoldenCodec


def square(number: int) -> int:
    return number * number


def fail_at_three(number: int) -> int:
    if number == 3:
        raise CassandraError("three must not be used")
    return number


def worker_id(number: int) -> int:
    return os.getpid()


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@dataclasses.dataclass(frozen=True)
class DyingCodec(GoldenCodec):
    """Kills the first worker that packs with it."""

    marker: Path

    def encode(self, values: Any, *rest: Any, **options: Any) -> Any:
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return super().encode(values, *rest, **options)
        return die(0)
