"""Measure the paper's statistics of exponents: entropy and mean length of the unary code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.codec import frequent_exponents

__all__ = [
    "codebook_exponents",
    "entropy_bits",
    "exponent_counts",
    "frequent_exponents",
    "mean_unary_length",
]

Counts = NDArray[np.int64]


def exponent_counts(values: NDArray[np.uint16], kept: NDArray[np.bool_] | None = None) -> Counts:
    """Count each exponent (int64 [256]) among BF16 patterns, or among the kept ones."""
    chosen = values if kept is None else values[kept]
    exponents = ((chosen >> 7) & 0xFF).astype(np.uint8)
    return np.bincount(exponents, minlength=256).astype(np.int64)


def codebook_exponents(counts: Counts, entries: int) -> tuple[int, ...]:
    """Choose a codebook for a close draft, in the order of :func:`frequent_exponents`.

    Values whose exponent is not in it are pruned, and the few largest of a matrix matter more than
    many small ones. So half of the entries are the most frequent exponents, and the others those
    with the most energy, count times 4^exponent, the larger exponent on ties.
    """
    frequent = frequent_exponents(counts, counts.size)
    often, rest = frequent[: entries // 2], frequent[entries // 2 :]
    energy = {exponent: int(counts[exponent]) << 2 * exponent for exponent in rest}
    heavy = sorted(rest, key=lambda exponent: (-energy[exponent], -exponent))
    chosen = {*often, *heavy[: entries - len(often)]}
    return tuple(exponent for exponent in frequent if exponent in chosen)


def entropy_bits(counts: Counts) -> float:
    """Return the Shannon entropy of counts, in bits per value (0 for no values)."""
    total = int(counts.sum())
    shares = counts[counts > 0] / max(total, 1)
    return float(-(shares * np.log2(shares)).sum()) if total else 0.0


def mean_unary_length(counts: Counts, codebook: tuple[int, ...]) -> float:
    """Return the mean length in bits of the codes (rank + 1) of values whose exponent has one."""
    used = counts[list(codebook)]
    lengths = np.arange(1, len(codebook) + 1)
    return float((used * lengths).sum() / max(int(used.sum()), 1))
