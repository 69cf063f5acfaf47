"""Arguments of native functions: checked array addresses and 32-bit integers."""

from __future__ import annotations

import ctypes
import operator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cassandra_spec.golden.errors import CassandraError

_LIMIT = 2**31


class Pointer:
    """Array address as a ctypes argument; keeps the array alive during the call."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array  # must not be freed before the call ends
        self._as_parameter_ = ctypes.c_void_p(array.ctypes.data)

    @property
    def address(self) -> int:
        """Address for a field of a structure; the caller must keep the array alive."""
        return int(self._array.ctypes.data)


def pointer(
    name: str, array: NDArray[Any], dtype: DTypeLike, *shape: int, writable: bool = False
) -> Pointer:
    """Return the address of an array that native code reads as ``dtype`` [``shape``].

    Raises :class:`CassandraError` if the array has another dtype or shape, is not C-contiguous or
    aligned, or is read-only where native code writes.
    """
    fits = array.dtype == np.dtype(dtype) and array.dtype.isnative and array.shape == shape
    usable = array.flags.c_contiguous and array.flags.aligned
    if not fits or not usable or (writable and not array.flags.writeable):
        kind = "contiguous, writable" if writable else "contiguous"
        raise CassandraError(
            f"{name} must be {kind} {np.dtype(dtype)} {list(shape)}, "
            f"not {array.dtype} {list(array.shape)} with strides {list(array.strides)}"
        )
    return Pointer(array)


def int32(name: str, value: int, low: int = -_LIMIT, high: int = _LIMIT - 1) -> int:
    """Return an integer for an ``int32_t`` argument, checked against its limits."""
    number = operator.index(value)
    if not low <= number <= high:
        raise CassandraError(f"{name} must be from {low} to {high}, not {number}")
    return number


class CheckedStructure(ctypes.Structure):
    """Structure whose 32-bit fields raise on overflow, where ctypes would wrap around."""

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = {field[0]: field[1] for field in self._fields_}
        for name, value in (dict(zip(fields, values, strict=False)) | named).items():
            if fields[name] is ctypes.c_int32:
                int32(name, value)
        super().__init__(*values, **named)
