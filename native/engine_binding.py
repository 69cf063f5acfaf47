"""The engine's entry points (native/src/engine/api.cpp), with their types."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_float, c_int, c_int32, c_size_t, c_void_p
from functools import cache

from cassandra_spec.native.arrays import CheckedStructure
from cassandra_spec.native.library import declare, load

MAX_ROWS = 8
"""Positions of one pass, at most."""

MOST = MAX_ROWS - 1
"""The largest gamma: a round is verified in one pass."""

NOT_FINITE = -3
"""What a pass returns whose logits are NaN or infinite."""


class ModelShape(CheckedStructure):
    """``ModelShape`` of engine.h."""

    _fields_ = (
        *((name, c_int32) for name in ("layers", "hidden", "intermediate", "heads", "kv_heads")),
        *((name, c_int32) for name in ("head_size", "vocabulary", "context")),
        ("epsilon", c_float),
    )


class RoundRequest(CheckedStructure):
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


class RoundResult(CheckedStructure):
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
    "engine_new": (c_void_p, (POINTER(ModelShape), c_void_p, c_void_p, c_int, c_int)),
    "engine_free": (None, (c_void_p,)),
    "engine_set_matrix": (
        c_int,
        (c_void_p, c_int, c_int, c_int, c_void_p, c_int, c_int, c_int, c_int),
    ),
    "engine_part": (c_void_p, (c_void_p, c_int, c_int, c_int, c_int, POINTER(c_size_t))),
    "engine_weight_bytes": (c_size_t, (c_void_p, c_int)),
    "engine_set_vector": (c_int, (c_void_p, c_int, c_int, c_void_p, c_int)),
    "engine_forward": (
        c_int,
        (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p),
    ),
    "engine_round": (
        c_int,
        (c_void_p, c_void_p, c_int, POINTER(RoundRequest), POINTER(RoundResult)),
    ),
    "engine_look_up": (c_int, (c_void_p, c_int, POINTER(RoundRequest), c_void_p)),
    "engine_position_bytes": (c_size_t, (c_void_p,)),
}


@cache
def engine_library() -> ctypes.CDLL:
    """The native library, the engine's functions declared.

    Raises :class:`native.NativeError` if it cannot be compiled or loaded here.
    """
    library = load()
    declare(library, _SIGNATURES)
    return library
