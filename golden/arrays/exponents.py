"""Choose group exponents by the error of the draft (docs/format.md, 4.2 and 4.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.arguments import check_arguments, check_importance, group_count
from cassandra_spec.golden.arrays import arithmetic
from cassandra_spec.golden.arrays.bitops import Flags, Ints, Octets
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.packed import Values

_RUN_GROUPS = 1 << 14  # groups evaluated at a time
_FRACTION = 8  # fractional bits below the unit of the default exponent
_IMPORTANCE_BITS = 22  # squares take 32 bits, sums over 256 values 8 more


def _bounded(importance: NDArray[np.unsignedinteger] | None, shape: tuple[int, int]) -> Ints:
    """Shift importance [groups, group] right, per group, to at most 22 bits."""
    if importance is None:
        return np.ones(shape, dtype=np.int64)
    weights = importance.astype(np.uint64).reshape(shape)
    largest = weights.max(axis=1)
    shift = np.zeros(shape[0], dtype=np.uint64)
    for bit in range(_IMPORTANCE_BITS, 64):
        shift += (largest >> np.uint64(bit)) > 0
    return (weights >> shift[:, None]).astype(np.int64)


def _fixed_point(values: Values, exponents: Octets, default: Octets) -> Ints:
    """Return truncated magnitudes in units of 2^-8 of the default exponent's unit."""
    significand = (values & 0x7F).astype(np.int64) | (exponents > 0).astype(np.int64) << 7
    shift = default.astype(np.int64) - arithmetic.EFFECTIVE[exponents]
    return np.asarray((significand << _FRACTION) >> np.clip(shift, 0, 2 * _FRACTION))


def _errors(
    values: Values, exponents: Octets, groups: Octets, exact: Ints, step: int, format: Format
) -> Ints:
    """Return the squared errors of drafts encoded with the group exponents ``groups``."""
    magnitude = arithmetic.magnitudes(values, exponents, groups, format).astype(np.int64)
    truncated = format.truncated
    draft = (magnitude >> truncated << truncated) | format.fill_pattern
    return np.asarray(((draft << (_FRACTION - step)) - exact) ** 2)


def _choose(values: Values, kept: Flags, weights: Ints, format: Format) -> Octets:
    """Choose exponents of whole groups; ``values``, ``kept`` flat, ``weights`` [groups, group]."""
    default = arithmetic.default_group_exponents(values, kept, format.group, format.scheme)
    exponents = arithmetic.exponents_of(values)
    counted = kept & (exponents < 255)
    subnormal = (kept & (exponents == 0) & ((values & 0x7F) != 0)).reshape(-1, format.group)
    minimum = np.ones(default.size, dtype=np.uint8)
    if format.scheme == "exact":
        minimum[subnormal.any(axis=1)] = arithmetic.SUBNORMAL_FLOOR
    lower = np.maximum(default - 1, minimum).astype(np.uint8)
    per_value = np.repeat(default, format.group)
    exact = _fixed_point(values, exponents, per_value)
    weights = np.where(counted.reshape(weights.shape), weights, 0)
    costs = []
    for step, choice in ((0, per_value), (1, np.repeat(lower, format.group))):
        errors = _errors(values, exponents, choice, exact, step, format)
        costs.append((errors.reshape(weights.shape) * weights).sum(axis=1))
    better = (costs[1] < costs[0]) & (lower < default)
    return np.where(better, lower, default).astype(np.uint8)


def choose_group_exponents(
    values: Values,
    format: Format,
    *,
    kept: Flags | None = None,
    importance: NDArray[np.unsignedinteger] | None = None,
    nonfinite: str = "error",
) -> NDArray[np.uint8]:
    """Return the default group exponents, or one less where that reduces the draft's error.

    The error is the sum, over the group's kept finite values, of importance times the squared error
    of the draft. It is computed in 64-bit integers. With E the default exponent, values are
    truncated below 2^(E - 142), 8 bits under the unit of a magnitude; this changes only values
    whose own exponent is more than 8 below E. An error then has at most 16 bits. Importance is
    shifted right in each group until its largest has at most 22 bits, so a sum over 256 values
    stays below 2^(32 + 22 + 8) = 2^62.

    Args:
        values: BF16 patterns, uint16 [count].
        format: scheme mx or exact.
        kept: bool [count]; all by default.
        importance: unsigned integers [count], the weight of each value's error; equal by default.
        nonfinite: as for :func:`golden.encode`.

    Returns:
        uint8 [groups], for ``golden.encode(..., group_exponents=...)``.

    Raises:
        CassandraError: an argument is invalid.
    """
    if format.scheme == "unary":
        raise CassandraError("format must be of scheme mx or exact, not unary")
    args = check_arguments(values, format, kept=kept, nonfinite=nonfinite)
    weights = check_importance(importance, args.values.size)
    result = np.empty(group_count(args.values.size, format), dtype=np.uint8)
    for first in range(0, result.size, _RUN_GROUPS):
        span = slice(first * format.group, (first + _RUN_GROUPS) * format.group)
        chosen = args.values[span]
        room = -(-chosen.size // format.group) * format.group
        padding = (0, room - chosen.size)
        mask = np.ones(chosen.size, dtype=np.bool_) if args.kept is None else args.kept[span]
        shape = (room // format.group, format.group)
        bounded = _bounded(None if weights is None else np.pad(weights[span], padding), shape)
        part = _choose(np.pad(chosen, padding), np.pad(mask, padding), bounded, format)
        result[first : first + part.size] = part
    return result
