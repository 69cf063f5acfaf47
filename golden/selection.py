"""Select the k largest values of each vector for a draft (paper, V.A, top-k of keys and values)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.packed import Values


def check_prune(prune: float) -> None:
    """Hold a fraction of pruned values to its range, 0 <= prune < 1."""
    number = isinstance(prune, int | float) and not isinstance(prune, bool)
    if not number or not 0 <= prune < 1:
        raise CassandraError(f"prune must be a fraction from 0 to below 1, not {prune!r}")


def keep_largest(values: Values, vector: int, keep: int) -> NDArray[np.bool_]:
    """Return a mask of the ``keep`` largest magnitudes of each run of ``vector`` values.

    Magnitudes are compared as the integers in bits 14..0: infinities are larger than finite values,
    and NaN larger than infinities (by its payload). Among equals the lowest index wins. A shorter
    last vector keeps all of its values if it has no more than ``keep``.

    Args:
        values: BF16 patterns, uint16 [count].
        vector: number of values per vector, at least 1.
        keep: number of values kept per vector, at least 0; all if the vector has no more.

    Returns:
        bool [count], for ``golden.encode(..., kept=...)``.

    Raises:
        CassandraError: ``vector`` or ``keep`` is invalid.
    """
    if vector < 1:
        raise CassandraError(f"vector must be at least 1, not {vector!r}")
    if keep < 0:
        raise CassandraError(f"keep must be at least 0, not {keep!r}")
    magnitudes = (values & 0x7FFF).astype(np.int32)
    kept = np.zeros(values.size, dtype=np.bool_)
    whole = values.size // vector * vector
    rows = magnitudes[:whole].reshape(-1, vector)
    order = np.argsort(-rows, axis=1, kind="stable")[:, :keep]
    np.put_along_axis(kept[:whole].reshape(-1, vector), order, True, axis=1)
    kept[whole + np.argsort(-magnitudes[whole:], kind="stable")[:keep]] = True
    return kept
