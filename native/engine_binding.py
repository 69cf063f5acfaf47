"""The engine's entry points (native/src/engine/api.cpp), with their types."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.native.library import load

__all__ = ["MAX_ROWS", "ModelShape", "RoundRequest", "RoundResult", "engine_library", "pointer"]

MAX_ROWS = 8
"""Positions of one pass, at most."""


class ModelShape(ctypes.Structure):
    """``ModelShape`` of engine.h."""

    _fields_ = (
        ("layers", c_int32),
        ("hidden", c_int32),
        ("intermediate", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_size", c_int32),
        ("vocabulary", c_int32),
        ("context", c_int32),
        ("epsilon", c_float),
    )


class RoundRequest(ctypes.Structure):
    """``RoundRequest`` of engine.h."""

    _fields_ = (
        ("gamma", c_int32),
        ("copied", c_int32),
        ("shortest", c_int32),
        ("longest", c_int32),
        ("min_margin", c_float),
        ("stop_count", c_int32),
        ("stops", c_void_p),
    )


class RoundResult(ctypes.Structure):
    """``RoundResult`` of engine.h."""

    _fields_ = (
        ("tokens", c_int32 * MAX_ROWS),
        ("count", c_int32),
        ("drafted", c_int32),
        ("accepted", c_int32),
        ("copied", c_int32),
        ("stopped", c_int32),
        ("draft_seconds", c_double),
        ("verify_seconds", c_double),
    )


_SIGNATURES = {
    "error": (c_char_p, ()),
    "new": (c_void_p, (POINTER(ModelShape), c_void_p, c_float, c_void_p, c_int, c_int)),
    "free": (None, (c_void_p,)),
    "set_matrix": (
        c_int,
        (c_void_p, c_int, c_int, c_int, c_void_p, c_int, c_int, c_int, c_int),
    ),
    "weight_bytes": (c_size_t, (c_void_p, c_int)),
    "set_vector": (c_int, (c_void_p, c_int, c_int, c_void_p, c_int)),
    "forward": (
        c_int,
        (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p),
    ),
    "round": (None, (c_void_p, c_void_p, c_int, POINTER(RoundRequest), POINTER(RoundResult))),
    "position_bytes": (c_size_t, (c_void_p,)),
}


@cache
def engine_library() -> ctypes.CDLL:
    """The native library, the engine's functions declared.

    Raises :class:`native.NativeError` if it cannot be compiled or loaded here.
    """
    library = load()
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, f"cassandra_engine_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def pointer(array: NDArray[np.generic] | None) -> int | None:
    """Address of the values of a contiguous array; the caller keeps the array."""
    return None if array is None else array.ctypes.data
