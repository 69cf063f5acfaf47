"""Inputs for the suites of several blocks: masks, ranks and paces of every kind."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import numpy as np

from cassandra_spec.verif.library.patterns import PATTERNS

Pace = Callable[[], bool]
"""Returns, once per cycle, whether this side may move."""

PACES = ("always", "half", "rare", "burst", "alternate")
"""Names of the patterns in :data:`cassandra_spec.verif.library.patterns.PATTERNS` for blocks."""

MASKS = ("full", "empty", "single", "alternating", "half", "sparse", "dense")
"""Kinds of masks of the beats of a segment."""

RANKS = ("zero", "longest", "swing", "weights", "uniform")
"""Kinds of ranks: codes of one bit, the longest codes, both alternating, and random ones."""

_DENSITIES = {"half": 0.5, "sparse": 0.1, "dense": 0.9}


def masks_of(rng: random.Random, kind: str, lanes: int, beats: int) -> list[int]:
    """Return the lane masks of the beats of a segment."""
    every = (1 << lanes) - 1
    match kind:
        case "full":
            return [every] * beats
        case "empty":
            return [0] * beats
        case "single":
            return [1 << rng.randrange(lanes) for _ in range(beats)]
        case "alternating":
            return [every if beat % 2 else 0 for beat in range(beats)]
    density = _DENSITIES[kind]
    return [sum((rng.random() < density) << lane for lane in range(lanes)) for _ in range(beats)]


def ranks_of(rng: random.Random, kind: str, limit: int, count: int) -> list[int]:
    """Return legal ranks, below ``limit``."""
    match kind:
        case "zero":
            return [0] * count
        case "longest":
            return [limit - 1] * count
        case "swing":
            return [(limit - 1) * (place % 2) for place in range(count)]
        case "weights":
            return [min(int(rng.expovariate(0.6)), limit - 1) for _ in range(count)]
        case "uniform":
            return [rng.randrange(limit) for _ in range(count)]
    raise ValueError(f"kind must be one of {', '.join(RANKS)}, not {kind!r}")


def paces(rng: random.Random) -> Iterator[tuple[Pace, Pace]]:
    """Yield every pair of patterns, for the two sides of a block."""
    for names in itertools.product(PACES, PACES):
        first, second = (
            PATTERNS[name].cycles(np.random.default_rng(rng.getrandbits(64))) for name in names
        )
        yield first.__next__, second.__next__
