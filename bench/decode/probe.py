"""How fast memory can be read right now: stated beside every timing, since it changes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

__all__ = ["Probe"]

_BYTES = 256 << 20
_PASSES = 3


class Probe:
    """Reads 256 MiB in several threads, and says how many bytes a second that was.

    By the native library's plain reading loop (:func:`cassandra_spec.native.linear.time_reading`);
    without a compiler by numpy, whose maximum of 64-bit words may not be as fast as memory is.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __call__(self) -> float:
        """Bytes a second, the best of three passes."""
        from cassandra_spec.native.errors import NativeError
        from cassandra_spec.native.linear import time_reading

        try:
            return _BYTES / min(time_reading(_BYTES, _PASSES, self._threads))
        except NativeError:
            return _BYTES / min(time_numpy(_BYTES, _PASSES, self._threads))


def time_numpy(nbytes: int, repeats: int, threads: int) -> list[float]:
    """Seconds of each of several readings of memory, divided among threads."""
    parts = np.array_split(np.ones(nbytes // 8, np.int64), threads)
    found = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats):
            begin = time.perf_counter()
            list(pool.map(np.max, parts))
            found.append(time.perf_counter() - begin)
    return found
