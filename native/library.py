"""The native library, loaded once per process, and its instruction set."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cassandra_spec.native.build import ISA_FLAGS, NativeError, build_library, seal_of
from cassandra_spec.native.prebuilt import find_prebuilt

Signature = tuple[Any, tuple[Any, ...]]
"""Result type and argument types of a native function."""

ISAS: tuple[str, ...] = tuple(ISA_FLAGS)
"""Names of the instruction sets, least capable first."""


_SIGNATURES: Mapping[str, Signature] = {
    "error": (ctypes.c_char_p, ()),
    "isa": (ctypes.c_int, ()),
    "isa_best": (ctypes.c_int, ()),
    "set_isa": (None, (ctypes.c_int,)),
    "attention_rounded": (ctypes.c_int, ()),
}


def declare(library: ctypes.CDLL, signatures: Mapping[str, Signature]) -> None:
    """Declare the types of functions for ctypes, by name without ``cassandra_``."""
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"cassandra_{name}")
        function.restype, function.argtypes = result, arguments


def require_done(done: object) -> None:
    """Raise :class:`NativeError` with native code's message if a call failed."""
    if not done:
        raise NativeError(load().cassandra_error().decode())


_prebuilt = cache(find_prebuilt)  # its line is printed once


def library_path() -> Path:
    """Return the path of the library: of the prebuilt one, or of one that is compiled if needed.

    Raises :class:`NativeError` if it cannot be compiled.
    """
    if os.environ.get("CASSANDRA_NATIVE_SANITIZE", "") == "1":
        return build_library(sanitize=True)
    return _prebuilt() or build_library()


@cache
def load() -> ctypes.CDLL:
    """Return the native library; compile it first if needed.

    ``CASSANDRA_NATIVE_SANITIZE=1`` loads the build with sanitizers (``make sanitize``).
    ``CASSANDRA_NATIVE_ISA`` selects the instruction set; the default is the best that machine and
    compiler support.

    Raises:
        NativeError: it cannot be compiled or loaded, or the machine lacks the instruction set.
    """
    try:
        library = ctypes.CDLL(str(library_path()))
    except OSError as error:
        raise NativeError(f"the native library cannot be loaded: {error}") from error
    declare(library, _SIGNATURES)
    _choose(library, os.environ.get("CASSANDRA_NATIVE_ISA") or None)
    return library


def library_digest() -> str:
    """Return the SHA-256 of the library, in hexadecimal: that of the file beside it."""
    return seal_of(Path(load()._name)).read_text("ascii")


def _choose(library: ctypes.CDLL, name: str | None) -> None:
    here = ISAS[: library.cassandra_isa_best() + 1]
    chosen = here[-1] if name is None else name
    if chosen not in here:
        raise NativeError(f"instruction set must be {' or '.join(here)} here, not {name!r}")
    library.cassandra_set_isa(ISAS.index(chosen))


def available_isas() -> tuple[str, ...]:
    """Return the instruction sets that this machine can run, least capable first."""
    return ISAS[: load().cassandra_isa_best() + 1]


def set_isa(name: str | None) -> None:
    """Select the instruction set of the whole process; None selects the best.

    Must not be called while other threads run native code. Raises :class:`NativeError` if machine
    or compiler do not support it.
    """
    _choose(load(), name)


def isa() -> str:
    """Return the instruction set in use."""
    return ISAS[load().cassandra_isa()]


def rounds_attention() -> bool:
    """Return True if attention rounds queries and weights to BF16 with this instruction set."""
    return bool(load().cassandra_attention_rounded())
