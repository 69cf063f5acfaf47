"""F32 and F16 to BF16, on bit patterns; F16 is widened to F32 first, which is exact.

Rounding is to nearest, ties to even, as in IEEE 754: what exceeds the range becomes an infinity,
and a NaN stays a (quiet) NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError

__all__ = ["ITEM_BYTES", "from_bytes", "from_f16", "from_f32"]

ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
"""Bytes of a value in the dtypes (safetensors' names) that can be made BF16."""

_F32_INFINITY = 0x7F800000
_F32_MAGNITUDE = 0x7FFFFFFF
_QUIET = 0x0040  # the mantissa bit that makes a BF16 NaN quiet


def from_bytes(dtype: str, data: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """BF16 patterns (uint16) of the bytes (uint8, little-endian) of values of another dtype."""
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
    return from_f32(patterns.view(np.float16).astype(np.float32).view(np.uint32))
