"""Figures with intervals over prompts, by a bootstrap."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.bench.study.acceptance import Ratio, counts_of
from cassandra_spec.drafting import Counters

_DRAWS = 2000  # of the bootstrap
_COVERAGE = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A figure with the bounds that a bootstrap over prompts gives it (95 %)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def bootstrap(counted: Sequence[Counters], figure: Ratio) -> Interval:
    """Return the figure over all prompts, and its interval over draws of prompts."""
    return interval(counts_of(counted), figure.of_counts)


def interval(
    counts: NDArray[np.float64], figure: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> Interval:
    """Return a figure of sums of ``counts`` [items, counts], and its interval over draws of items.

    Items are drawn with replacement, 2,000 times; the figure is computed from each draw's sum.
    """
    draws = np.random.default_rng(0).integers(len(counts), size=(_DRAWS, len(counts)))
    found = figure(counts[draws].sum(axis=1))
    tail = (1 - _COVERAGE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Interval(value=float(figure(counts.sum(axis=0))), low=float(low), high=float(high))
