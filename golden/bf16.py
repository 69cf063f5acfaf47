"""Convert F32 and F16 to BF16 on bit patterns, with integers only.

Rounds to nearest, ties to even, as in IEEE 754: overflow gives infinity, and a NaN becomes a quiet
NaN.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError

ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
"""Bytes per value of the dtypes (safetensors' names) that convert to BF16."""

_F32_INFINITY = 0x7F800000
_F32_MAGNITUDE = 0x7FFFFFFF
_QUIET = 0x0040  # the mantissa bit that makes a BF16 NaN quiet


def from_bytes(dtype: str, data: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Convert the bytes (uint8, little-endian) of values of another dtype to BF16 (uint16)."""
    if dtype not in ITEM_BYTES:
        raise CassandraError(f"dtype must be one of {', '.join(ITEM_BYTES)}, not {dtype}")
    if dtype == "F32":
        return from_f32(data.view("<u4"))
    return from_f16(data.view("<u2")) if dtype == "F16" else data.view("<u2")


def from_f32(patterns: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Round F32 patterns (uint32, any shape) to BF16 patterns (uint16, same shape)."""
    high = patterns >> np.uint32(16)
    rounded = (patterns + np.uint32(0x7FFF) + (high & np.uint32(1))) >> np.uint32(16)
    nan = (patterns & np.uint32(_F32_MAGNITUDE)) > _F32_INFINITY
    return np.where(nan, high | np.uint32(_QUIET), rounded).astype(np.uint16)


def from_f16(patterns: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Round F16 patterns (uint16, any shape) to BF16 patterns (uint16, same shape)."""
    return _f16_table()[patterns]


@functools.cache
def _f16_table() -> NDArray[np.uint16]:
    return from_f32(np.array([_widen(pattern) for pattern in range(1 << 16)], np.uint32))


def _widen(pattern: int) -> int:
    """Return the F32 pattern of an F16 pattern; always exact."""
    sign, exponent, mantissa = pattern >> 15, pattern >> 10 & 31, pattern & 1023
    if exponent == 31:
        magnitude = _F32_INFINITY | mantissa << 13
    elif exponent:
        magnitude = (exponent + 127 - 15) << 23 | mantissa << 13
    elif mantissa:  # subnormal: mantissa * 2**-24
        place = mantissa.bit_length() - 1
        magnitude = (place - 24 + 127) << 23 | (mantissa << (23 - place)) & 0x7FFFFF
    else:
        magnitude = 0
    return sign << 31 | magnitude
