"""Measure the current memory bandwidth, which is stated beside every timing."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_BYTES = 256 << 20
_PASSES = 3


def memory_speed(threads: int) -> float:
    """Return the bytes per second of reading 256 MiB in several threads, the best of three passes.

    Reads by the native library's plain loop (:func:`cassandra_spec.native.linear.time_reading`);
    without a compiler by numpy, whose maximum of 64-bit words may be slower than the memory.
    """
    from cassandra_spec.native.build import NativeError
    from cassandra_spec.native.linear import time_reading

    try:
        return _BYTES / min(time_reading(_BYTES, _PASSES, threads))
    except NativeError:
        return _BYTES / min(time_numpy(_BYTES, _PASSES, threads))


def time_numpy(nbytes: int, repeats: int, threads: int) -> list[float]:
    """Return the seconds of several readings of memory, divided among threads."""
    parts = np.array_split(np.ones(nbytes // 8, np.int64), threads)
    found = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats):
            begin = time.perf_counter()
            list(pool.map(np.max, parts))
            found.append(time.perf_counter() - begin)
    return found
