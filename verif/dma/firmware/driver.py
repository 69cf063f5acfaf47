"""The C driver (``drivers/cassandra.c``) as a library of this process, over any register port."""

from __future__ import annotations

import ctypes
import enum
import subprocess
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_bool, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

FLAGS = (
    *("-std=c11", "-ffreestanding", "-O2"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"),
)
"""Compiler flags for the driver."""


class Status(enum.IntEnum):
    """``cassandra_status``."""

    OK = 0
    BUSY = 1
    NOT_FOUND = 2
    VERSION_BAD = 3
    ARGUMENT = 4
    FAULT = 5
    NEEDS_RESET = 6
    STALE = 7
    LENGTH = 8
    LOST = 9
    UNSUPPORTED = 10


_READ = ctypes.CFUNCTYPE(c_uint32, c_void_p, c_uint32)
_WRITE = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_uint32)


class Bus(Structure):
    """``cassandra_bus``."""

    _fields_ = (("read", _READ), ("write", _WRITE), ("context", c_void_p))


class Fault(Structure):
    """``cassandra_fault``."""

    _fields_ = (("causes", c_uint32), ("segment", c_uint32), ("address", c_uint64))


def _words(*names: str) -> tuple[tuple[str, type[c_uint32]], ...]:
    return tuple((name, c_uint32) for name in names)


class Device(Structure):
    """``cassandra_device``."""

    _fields_ = (
        ("bus", Bus),
        ("fault", Fault),
        *_words("superblock", "word", "queue", "books", "entries", "schemes", "lanes", "vector"),
        *((name, c_bool) for name in ("encodes", "coded", "aborting")),
    )


class Entry(Structure):
    """``cassandra_entry``."""

    _fields_ = _words(
        "speculation_offset",
        "speculation_length",
        "verification_offset",
        "verification_length",
        "flags",
    )


class Layout(Structure):
    """``cassandra_layout``."""

    _fields_ = (
        ("values", c_uint64),
        *_words("segment_values", "scheme", "truncated", "log2_group", "slot"),
    )


class Decode(Structure):
    """``cassandra_decode``."""

    _fields_ = (
        ("layout", Layout),
        ("speculation", c_uint64),
        ("verification", c_uint64),
        ("directory", POINTER(Entry)),
        *_words("segments", "pruned_slot"),
        *((name, c_bool) for name in ("target", "midpoint", "coded")),
        ("next", c_uint32),
    )


class Encode(Structure):
    """``cassandra_encode``."""

    _fields_ = (
        ("layout", Layout),
        ("speculation", c_uint64),
        ("verification", c_uint64),
        *_words("speculation_room", "verification_room"),
        ("directory", POINTER(Entry)),
        *_words("segments", "vector", "keep"),
        *((name, c_bool) for name in ("saturate", "mask")),
        *_words("saturated", "next", "done"),
    )


def build(source: Path, out: Path, *flags: str) -> Path:
    """Compile the driver as a shared library, with additional flags."""
    command = ["gcc", *FLAGS, *flags, "-shared", "-fPIC", str(source), "-o", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return out


def bus_of(read: Callable[[int], int], write: Callable[[int, int], None]) -> Bus:
    """Return a bus whose registers two functions access."""
    return Bus(
        read=_READ(lambda _, offset: read(offset)),
        write=_WRITE(lambda _, offset, value: write(offset, value)),
    )


class Driver:
    """The driver's functions, on registers that two functions access."""

    def __init__(
        self,
        library: Path,
        read: Callable[[int], int],
        write: Callable[[int, int], None],
    ) -> None:
        self._library = ctypes.CDLL(str(library))
        self._bus = bus_of(read, write)
        self.device = Device()

    def probe(self) -> Status:
        """``cassandra_probe``."""
        return self._call("probe", ctypes.byref(self._bus))

    def load_codebook(self, slot: int, exponents: Sequence[int]) -> Status:
        """``cassandra_load_codebook``."""
        return self._call("load_codebook", slot, bytes(exponents), len(exponents))

    def start(self, job: Decode | Encode, *, interrupt: bool = False) -> Status:
        """``cassandra_decode_start`` or ``cassandra_encode_start``."""
        return self._call(f"{_kind(job)}_start", ctypes.byref(job), interrupt)

    def step(self, job: Decode | Encode) -> Status:
        """``cassandra_decode_step`` or ``cassandra_encode_step``."""
        return self._call(f"{_kind(job)}_step", ctypes.byref(job))

    def recover(self) -> Status:
        """``cassandra_recover``."""
        return self._call("recover")

    def abort(self, *, fresh: bool = False) -> Status:
        """``cassandra_abort``."""
        return self._call("abort", fresh)

    def _call(self, name: str, *arguments: Any) -> Status:
        function = getattr(self._library, f"cassandra_{name}")
        return Status(function(ctypes.byref(self.device), *arguments))


def _kind(job: Decode | Encode) -> str:
    return "decode" if isinstance(job, Decode) else "encode"
