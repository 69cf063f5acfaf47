"""A stand-in for ``ctypes.CDLL`` whose functions run in another process (caller.cpp)."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.native import arrays
from cassandra_spec.native.build import CROSS_COMPILER

COMPILER = CROSS_COMPILER.format(machine="aarch64")
EMULATOR = "qemu-aarch64-static"
SYSROOT = "/usr/aarch64-linux-gnu"
CALLER = Path(__file__).with_name("caller.cpp")
PEEK = 1 << 16
"""Bytes that are read behind a pointer that a function returns."""

KEEPING = ("cassandra_engine_new", "cassandra_engine_set_table")
"""Functions that keep pointers to arguments, which their caller keeps alive."""


def missing_program() -> str | None:
    """Return the name of a program that the emulation needs and this machine lacks."""
    return next((name for name in (COMPILER, EMULATOR) if not shutil.which(name)), None)


def compile_caller(folder: Path, compiler: Sequence[str]) -> Path:
    """Compile caller.cpp into a folder; return the program."""
    program = folder / "caller"
    flags = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run([*compiler, *flags, str(CALLER), "-o", str(program), "-ldl"], check=True)
    return program


_known: WeakValueDictionary[int, NDArray[Any]] = WeakValueDictionary()
"""Arrays by address, for pointers inside structures."""


class KnownPointer(arrays.Pointer):
    """Pointer whose array can be found by its address."""

    @property
    def address(self) -> int:
        """Return the address and remember the array."""
        _known[super().address] = self._array
        return super().address


def remember_arrays() -> None:
    """Make all pointers for native functions KnownPointers."""
    arrays.Pointer = KnownPointer  # type: ignore[misc]


def _number(value: int) -> bytes:
    return struct.pack("<Q", value % 2**64)


def _sized(octets: bytes) -> bytes:
    return _number(len(octets)) + octets


def _object_of(argument: Any) -> Any:
    """Return the array or ctypes object behind an argument; None for an integer."""
    if isinstance(argument, arrays.Pointer):
        return argument._array
    if isinstance(argument, ctypes.Structure | ctypes.Array):
        return argument
    if isinstance(argument, bytes):
        return ctypes.create_string_buffer(argument)
    return getattr(argument, "_obj", None)  # of byref


def _pointers(found: Any) -> list[tuple[int, NDArray[Any]]]:
    """Return offsets and arrays of the pointers in a structure, or in an array of structures."""
    if isinstance(found, ctypes.Array) and issubclass(found._type_, ctypes.Structure):
        size = ctypes.sizeof(found._type_)
        return [(size * i + at, to) for i, each in enumerate(found) for at, to in _pointers(each)]
    if not isinstance(found, ctypes.Structure):
        return []
    fields = [field[0] for field in found._fields_ if field[1] is ctypes.c_void_p]
    places = {getattr(type(found), name).offset: getattr(found, name) for name in fields}
    return [(offset, _known[address]) for offset, address in places.items() if address]


def _octets_of(found: Any) -> bytes:
    return found.tobytes() if isinstance(found, np.ndarray) else bytes(found)


def _write_back(found: Any, octets: bytes) -> None:
    if not isinstance(found, np.ndarray):
        ctypes.memmove(ctypes.addressof(found), octets, len(octets))
    elif found.flags.writeable:
        found.reshape(-1).view(np.uint8)[:] = np.frombuffer(octets, np.uint8)


class _Function:
    """A function of the library, with the types that ``native.library.declare`` gives it."""

    restype: Any = ctypes.c_int
    argtypes: Sequence[Any] = ()

    def __init__(self, library: EmulatedLibrary, name: str) -> None:
        self._library, self._name = library, name

    def __call__(self, *arguments: Any) -> Any:
        is_double = self.restype is ctypes.c_double
        integer, number = self._library.call(self._name, arguments, is_double)
        if is_double or self.restype is None:
            return number if is_double else None
        if self.restype is ctypes.c_char_p:
            return self._library.peek(integer).split(b"\0")[0]
        if self.restype is ctypes.c_void_p:
            return integer or None
        if hasattr(self.restype, "contents"):
            octets = ctypes.create_string_buffer(self._library.peek(integer), PEEK)
            return ctypes.cast(octets, self.restype)
        size = ctypes.sizeof(self.restype)
        return self.restype.from_buffer_copy(_number(integer)[:size]).value


class EmulatedLibrary:
    """The library at a path, called by a program that ``compiler`` compiles and ``run`` runs."""

    def __init__(
        self,
        path: str,
        compiler: Sequence[str] = (COMPILER,),
        run: Sequence[str] = (EMULATOR, "-L", SYSROOT),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        program = compile_caller(Path(self._folder.name), compiler)
        pipe = subprocess.PIPE
        # Without the sanitizers of this process: peek reads beyond variables.
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            [*run, str(program), path], stdin=pipe, stdout=pipe, bufsize=1 << 20, env=environment
        )

    def __getattr__(self, name: str) -> _Function:
        function = _Function(self, name)
        setattr(self, name, function)
        return function

    def call(self, name: str, arguments: Sequence[Any], is_double: bool) -> tuple[int, float]:
        """Call a function; return its result as an integer and as a double."""
        objects = [_object_of(argument) for argument in arguments]
        parts = [_sized(name.encode()), _number(len(arguments))]
        for argument, found in zip(arguments, objects, strict=True):
            if found is None:
                parts += [_number(0), _number(argument or 0)]
                continue
            inner = _pointers(found)
            parts += [_number(1), _sized(_octets_of(found)), _number(len(inner))]
            parts += [_number(at) + _sized(_octets_of(to)) for at, to in inner]
        parts += [_number(is_double), _number(name in KEEPING)]
        self._send(b"".join(parts))
        integer, number = struct.unpack("<Qd", self._receive(16))
        for found in objects:
            if found is not None:
                self._take_back(found)
        return integer, number

    def _take_back(self, found: Any) -> None:
        octets = bytearray(self._receive(len(_octets_of(found))))
        own = _octets_of(found)
        for at, _ in _pointers(found):  # addresses of the other process
            octets[at : at + 8] = own[at : at + 8]
        _write_back(found, bytes(octets))

    def peek(self, address: int) -> bytes:
        """Return up to PEEK bytes of the other process."""
        arguments = [_number(0), _number(address), _number(0), _number(PEEK)]
        self._send(_sized(b"peek") + _number(2) + b"".join(arguments))
        return self._receive(struct.unpack("<Q", self._receive(8))[0])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._folder.cleanup()

    def _send(self, octets: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(octets)
        self._process.stdin.flush()

    def _receive(self, size: int) -> bytes:
        assert self._process.stdout is not None
        octets = self._process.stdout.read(size)
        if len(octets) != size:
            raise RuntimeError(f"the emulated process ended with status {self._process.wait()}")
        return octets
