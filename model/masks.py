"""Which values a draft keeps: pruning masks by output row (paper, IV.A)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from golden import CassandraError

__all__ = ["check_prune", "kept_by_magnitude"]

_MAGNITUDE = np.uint16(0x7FFF)


def check_prune(prune: float) -> None:
    """Hold a fraction of pruned values to its range, 0 <= prune < 1."""
    if not 0 <= prune < 1:
        raise CassandraError(f"prune must be a fraction from 0 to below 1, not {prune!r}")


def kept_by_magnitude(rows: NDArray[np.uint16], prune: float) -> NDArray[np.bool_]:
    """Keep the largest values of each row; ``rows`` is uint16 [rows, columns] of BF16 patterns.

    Exactly ``columns - round(prune * columns)`` values are kept in each row; among equal
    magnitudes the lower index wins. Infinities and NaN count as the largest.
    """
    check_prune(prune)
    columns = rows.shape[1]
    keep = columns - round(prune * columns)
    if keep == columns or not rows.size:
        return np.ones(rows.shape, np.bool_)
    if keep == 0:
        return np.zeros(rows.shape, np.bool_)
    magnitude = rows & _MAGNITUDE
    threshold = np.partition(magnitude, columns - keep, axis=1)[:, columns - keep, None]
    kept = magnitude > threshold
    ties = magnitude == threshold
    wanted = keep - kept.sum(axis=1, keepdims=True)
    kept |= ties & (np.cumsum(ties, axis=1, dtype=np.int32) <= wanted)
    return kept
