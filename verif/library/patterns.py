"""Patterns of port activity: idle patterns of sources and back-pressure patterns of sinks.

The same patterns drive the cycle-by-cycle testbenches (:meth:`Pattern.cycles`) and the bulk harness
(``verif/tools/bulk.cpp`` reads ``kind``, ``on`` and ``off``).
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Iterator

import numpy as np

from cassandra_spec.golden.errors import CassandraError


class Kind(enum.IntEnum):
    """The meaning of a pattern's ``on`` and ``off``; the numbers are those of ``bulk.cpp``."""

    ALWAYS = 0
    RANDOM = 1
    BURST = 2
    PERIODIC = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pattern:
    """Cycles in which a source may offer a transfer, or a sink takes one.

    A source that has offered a transfer holds it, whatever the pattern says.
    """

    kind: Kind = Kind.ALWAYS
    on: int = 1  # random: active with probability on / (on + off); burst: longest run of active
    off: int = 0  # cycles, longest run of idle ones; periodic: the exact length, idle ones first

    def __post_init__(self) -> None:
        if self.on < 1 or self.off < 0:
            raise CassandraError(
                f"pattern must be at least one cycle on and none off, not {self.on}, {self.off}"
            )
        if self.off == 0 and self.kind is not Kind.ALWAYS:
            raise CassandraError(f"off must be at least 1 for {self.kind.name.lower()}, not 0")

    def cycles(self, rng: np.random.Generator) -> Iterator[bool]:
        """Yield, endlessly, whether each cycle is active; only the random kinds use ``rng``."""
        if self.kind is Kind.ALWAYS:
            return itertools.repeat(True)
        if self.kind is Kind.RANDOM:
            return self._random(rng)
        return self._runs(rng)

    def _random(self, rng: np.random.Generator) -> Iterator[bool]:
        while True:
            yield from (rng.integers(self.on + self.off, size=256) < self.on).tolist()

    def _runs(self, rng: np.random.Generator) -> Iterator[bool]:
        while True:
            yield from itertools.repeat(False, self._length(rng, self.off))
            yield from itertools.repeat(True, self._length(rng, self.on))

    def _length(self, rng: np.random.Generator, longest: int) -> int:
        return longest if self.kind is Kind.PERIODIC else int(rng.integers(1, longest + 1))


ALWAYS = Pattern()
NEVER = Pattern(kind=Kind.PERIODIC, on=1, off=1 << 30)
"""No idle cycle, no back-pressure."""

PATTERNS = {
    "always": ALWAYS,
    "half": Pattern(kind=Kind.RANDOM, on=1, off=1),
    "rare": Pattern(kind=Kind.RANDOM, on=1, off=7),
    "burst": Pattern(kind=Kind.BURST, on=12, off=12),
    "alternate": Pattern(kind=Kind.PERIODIC, on=1, off=1),
    "stall": Pattern(kind=Kind.PERIODIC, on=40, off=160),
}
"""The patterns that suites cross, by the names that failing tests print."""
