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

    numpy's maximum of 64-bit words reads a few words a cycle, so on a machine that has memory of
    less than some 40 GB/s a core it is memory that it waits for.
    """

    def __init__(self, threads: int) -> None:
        self._parts = np.array_split(np.ones(_BYTES // 8, np.int64), threads)
        self._threads = threads

    def __call__(self) -> float:
        """Bytes a second, the best of three passes."""
        best = 0.0
        with ThreadPoolExecutor(self._threads) as threads:
            for _ in range(_PASSES):
                begin = time.perf_counter()
                list(threads.map(np.max, self._parts))
                best = max(best, _BYTES / (time.perf_counter() - begin))
        return best
