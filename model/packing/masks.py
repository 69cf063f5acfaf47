"""Choose the values that a draft keeps: pruning masks by output row (paper, IV.A).

Every rule keeps exactly ``columns - round(prune * columns)`` values of each row; among equal scores
the lower index wins, and infinities and NaN count as the largest. Scores are compared exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.selection import check_prune

_MAGNITUDE = np.uint16(0x7FFF)
_INFINITY = 0x7F80
_IMPORTANCE_BITS = 63


def kept_by_magnitude(rows: NDArray[np.uint16], prune: float) -> NDArray[np.bool_]:
    """Keep the largest values of each row; ``rows`` is uint16 [rows, columns] of BF16 patterns."""
    check_prune(prune)
    return _largest(rows & _MAGNITUDE, _wanted(rows.shape[1], prune))


def kept_by_wanda(
    rows: NDArray[np.uint16], norms: NDArray[np.float32], prune: float
) -> NDArray[np.bool_]:
    """Keep the values of each row with the largest |W_ij| ||X_j||.

    ``rows`` is uint16 [rows, columns] of BF16 patterns, ``norms`` float32 [columns], the norms of
    the input channels. A score is a product of 8 and 24 significant bits, in float64 without error.
    """
    check_prune(prune)
    return _largest(_wanda_scores(rows, norms), _wanted(rows.shape[1], prune))


def kept_in_fours(rows: NDArray[np.uint16], norms: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Keep two of every four neighbours by Wanda's score (2:4 sparsity); columns in fours."""
    if rows.shape[1] % 4:
        raise CassandraError(f"rows must have a multiple of 4 columns, not {rows.shape[1]}")
    fours = _wanda_scores(rows, norms).reshape(-1, 4)
    return _largest(fours, 2).reshape(rows.shape)


def importance(norms: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return squares of norms as integers: floor(norm^2 2^k), with k such that the largest has 63
    bits.

    :func:`golden.choose_group_exponents` weighs errors by them. The squares are exact in float64
    and the scale is a power of two, so only the last step rounds. All are zero if all norms are.
    """
    squares = norms.astype(np.float64) ** 2
    _, exponent = np.frexp(squares.max(initial=0.0))
    return np.ldexp(squares, _IMPORTANCE_BITS - int(exponent)).astype(np.uint64)


def _wanda_scores(rows: NDArray[np.uint16], norms: NDArray[np.float32]) -> NDArray[np.float64]:
    magnitude = rows & _MAGNITUDE
    finite = magnitude < _INFINITY
    values = (np.where(finite, magnitude, 0).astype(np.uint32) << 16).view(np.float32)
    return np.where(finite, values.astype(np.float64) * norms.astype(np.float64), np.inf)


def _wanted(columns: int, prune: float) -> int:
    return columns - round(prune * columns)


def _largest(scores: NDArray[Any], keep: int) -> NDArray[np.bool_]:
    """Mark the ``keep`` largest scores of each row, the first ones among equals."""
    columns = scores.shape[1]
    if keep == columns or not scores.size:
        return np.ones(scores.shape, np.bool_)
    if keep == 0:
        return np.zeros(scores.shape, np.bool_)
    threshold = np.partition(scores, columns - keep, axis=1)[:, columns - keep, None]
    kept: NDArray[np.bool_] = scores > threshold
    ties = scores == threshold
    wanted = keep - kept.sum(axis=1, keepdims=True)
    kept |= ties & (np.cumsum(ties, axis=1, dtype=np.int32) <= wanted)
    return kept
