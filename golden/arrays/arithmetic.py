"""The arithmetic of docs/format.md, section 4, on arrays: integers and small tables only.

A shift ``d = E - max(e, 1)`` matters only from -1 (saturated) to 9 (everything shifted out), so
aligned significands are tables indexed by (d, significand), and ``value`` is a table
indexed by (E, magnitude), without the sign.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.arrays.bitops import Flags, Octets
from cassandra_spec.golden.format import SIGNIFICAND, Format, Scheme
from cassandra_spec.golden.packed import Values

ESCAPE_WINDOW = 255
"""Aligned significand that means "saturated" (scheme exact)."""

SHIFT_MAX = 9
"""Largest useful shift: 255 / 2^9 rounds to 0."""
SUBNORMAL_FLOOR = 9
"""Minimum group exponent of a group with a kept subnormal (exact)."""


def _leading_zeros() -> Octets:
    zeros = np.array([8 - n.bit_length() for n in range(256)], dtype=np.uint8)
    zeros[0] = 0  # no shift needed
    return zeros


LEADING_ZEROS = _leading_zeros()
"""Leading zeros of a magnitude in 8 bits, uint8 [256]; 0 for the magnitude 0."""

EFFECTIVE = np.maximum(np.arange(256), 1).astype(np.uint8)
"""Effective exponent of an exponent, uint8 [256]."""


def _residue_width() -> Octets:
    width = LEADING_ZEROS.copy()
    width[0] = 1  # zero flag
    width[ESCAPE_WINDOW] = 0
    return width


RESIDUE_WIDTH = _residue_width()
"""Number of ``residue`` bits of an aligned significand, uint8 [256] (section 4.3)."""


def _grid() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    shift = np.arange(SHIFT_MAX + 1, dtype=np.int64)[:, None]
    return shift, np.arange(256, dtype=np.int64)[None, :]


def _with_saturation(table: NDArray[np.int64]) -> Octets:
    """Prepend the row of shift -1; flat, indexed by ``(d + 1) * 256 + significand``."""
    saturated = np.full((1, 256), table.max())
    return np.concatenate([saturated, table]).astype(np.uint8).reshape(-1)


def _aligned_table(significand: int) -> Octets:
    """Build the table of aligned significands: nearest, ties to even, saturated (section 4.2)."""
    shift, sig = _grid()
    absent = SIGNIFICAND - significand
    shift = shift + absent
    whole, rest = sig >> shift, sig & ((1 << shift) - 1)
    up = (2 * rest > (1 << shift)) | ((2 * rest == (1 << shift)) & (shift > 0) & (whole % 2 == 1))
    return _with_saturation(np.minimum(whole + up, (1 << significand) - 1) << absent)


def _windowed_table() -> Octets:
    shift, sig = _grid()
    return _with_saturation(sig >> shift)


def _value_table() -> Values:
    """Tabulate ``value(0, E, A)`` at ``E * 256 + A``; E = 0 never occurs and gives 0."""
    group = np.arange(256, dtype=np.int64)[:, None]
    magnitude = np.arange(256, dtype=np.int64)[None, :]
    zeros = LEADING_ZEROS.astype(np.int64)[None, :]
    normal = ((group - zeros) << 7) | ((magnitude << zeros) & 0x7F)
    subnormal = magnitude << np.clip(group - 1, 0, 7)
    value = np.where(group > zeros, normal, subnormal)
    value = np.where((magnitude == 0) | (group == 0), 0, value)
    return value.astype(np.uint16).reshape(-1)


VALUE = _value_table()
"""``value(0, E, A)`` of section 4.2 at index ``E * 256 + A``, uint16 [65536]."""


@cache
def magnitude_table(scheme: Scheme, significand: int = SIGNIFICAND) -> Octets:
    """Tabulate the aligned significand (mx, exact) at ``(d + 1) * 256 + sig``, uint8.

    d is the shift, from -1 (saturated) to ``SHIFT_MAX``.
    """
    return _aligned_table(significand) if scheme == "mx" else _windowed_table()


def exponents_of(values: Values) -> Octets:
    """Return the exponent field of each value, uint8 of the same shape."""
    return ((values >> 7) & 0xFF).astype(np.uint8)


def magnitudes(values: Values, exponents: Octets, groups: Octets, format: Format) -> Octets:
    """Return the mantissa (unary) or aligned significand (mx, exact), uint8.

    ``exponents`` are the values' own, ``groups`` those of their groups (ignored in unary); all have
    one shape.
    """
    mantissa = (values & 0x7F).astype(np.uint8)
    if format.scheme == "unary":
        return mantissa
    shift = groups.astype(np.int16) - EFFECTIVE[exponents]
    np.clip(shift, -1, SHIFT_MAX, out=shift)
    if format.scheme == "exact":
        shift[exponents == 255] = -1
    shift += 1
    shift <<= 8
    shift |= mantissa
    shift |= (exponents > 0).astype(np.int16) << 7
    return magnitude_table(format.scheme, format.significand).take(shift)


def residues(values: Values, windows: Octets) -> tuple[Octets, Octets]:
    """Return residue fields and their widths; ``windows`` are the aligned significands (4.3)."""
    mantissa = (values & 0x7F).astype(np.uint8)
    width = RESIDUE_WIDTH.take(windows)
    field = mantissa & ((1 << width.astype(np.uint8)) - 1).astype(np.uint8)
    zero = windows == 0
    field[zero] = (values[zero] & 0x7FFF) == 0
    return field, width


def values_of(signs: Octets, groups: Octets, magnitude: Octets) -> Values:
    """Return ``value(s, E, A)`` of section 4.2, uint16."""
    index = groups.astype(np.uint16) << 8
    index |= magnitude
    result = VALUE.take(index)
    result |= signs.astype(np.uint16) << 15
    return result


def restore(signs: Octets, exponents: Octets, magnitude: Octets, scheme: Scheme) -> Values:
    """Restore values from their parts: concatenated in unary, normalized in mx and exact."""
    if scheme != "unary":
        return values_of(signs, exponents, magnitude)
    result = signs.astype(np.uint16)
    result <<= 8
    result |= exponents
    result <<= 7
    result |= magnitude
    return result


def restore_exact(
    signs: Octets, groups: Octets, windows: Octets, residue: Octets
) -> tuple[Values, Flags, Flags]:
    """Restore target values of scheme exact (section 4.3).

    Returns the values, a mask of escapes (whose value is undefined here), and a mask of format
    violations (cause ``window``).
    """
    zeros = LEADING_ZEROS.take(windows)
    result = signs.astype(np.uint16)
    result <<= 8
    result |= groups - zeros
    result <<= 7
    result |= ((windows << zeros) | residue) & 0x7F
    empty = windows == 0
    np.copyto(result, signs.astype(np.uint16) << 15, where=empty)
    escape = (windows == ESCAPE_WINDOW) | (empty & (residue == 0))
    broken = ~empty & (windows < ESCAPE_WINDOW) & (groups <= zeros)
    return result, escape, broken


def default_group_exponents(
    values: Values, kept: Flags, group: int, scheme: Scheme
) -> NDArray[np.uint8]:
    """Return the default exponents of whole groups (sections 4.2, 4.3), uint8 [values / group]."""
    exponents = exponents_of(values)
    if scheme == "mx":
        exponents = np.maximum(exponents, 1)
    else:
        finite = np.where(exponents == 255, 1, exponents)
        subnormal = (exponents == 0) & ((values & 0x7F) != 0)
        exponents = np.where(subnormal, SUBNORMAL_FLOOR, finite).astype(np.uint8)
    chosen = np.where(kept, exponents, 1).astype(np.uint8)
    return np.asarray(np.maximum(chosen.reshape(-1, group).max(axis=1), 1), dtype=np.uint8)
