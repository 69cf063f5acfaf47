"""The counts of a GGUF file, held to its size before the gguf package allocates by them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from cassandra_spec.golden.errors import FileError

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by type
_ENTRIES, _TENSORS, _DIMENSIONS = 1 << 16, 1 << 16, 8
_ELEMENTS = 1 << 21
"""Elements of all arrays, at most: the reader takes a kilobyte for each; vocabularies of 256k
tokens have 1.3 million with their merges."""


def check_counts(path: Path) -> dict[int, int]:
    """Walk through the header of a GGUF file: every count and length must fit what is left of it.

    Takes time in proportion to the header, and no memory. Returns the bytes of each array by its
    place in the file. Raises :class:`FileError`.
    """
    with path.open("rb") as file:
        return _Walk(file, path).run()


class _Walk:
    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = self._left = path.stat().st_size
        self._arrays: dict[int, int] = {}
        self._elements = 0
        self._order = "<"

    def run(self) -> dict[int, int]:
        magic, version = self._take(4), self._take(4)
        self._order = "<" if version[2:] == b"\0\0" else ">"
        known = struct.unpack(f"{self._order}I", version)[0] in _VERSIONS
        self._require(magic == _MAGIC and known, "version 2 or 3 is needed")
        tensors, entries = self._numbers("QQ")
        self._require(tensors <= _TENSORS, f"{tensors} tensors are more than {_TENSORS}")
        self._require(entries <= _ENTRIES, f"{entries} entries are more than {_ENTRIES}")
        for _ in range(entries):
            self._string()
            (kind,) = self._numbers("I")
            self._value(kind)
        for _ in range(tensors):
            self._string()
            (dimensions,) = self._numbers("I")
            reason = f"{dimensions} dimensions are more than {_DIMENSIONS}"
            self._require(dimensions <= _DIMENSIONS, reason)
            self._take(8 * dimensions + 12)  # sizes, type and offset
        return self._arrays

    def _value(self, kind: int) -> None:
        if kind == _STRING:
            self._string()
        elif kind == _ARRAY:
            start = self._left
            self._array()
            self._arrays[self._size - start] = start - self._left
        else:
            self._skip(self._bytes_of(kind))

    def _array(self) -> None:
        (inner,), (count,) = self._numbers("I"), self._numbers("Q")
        self._elements += count
        reason = f"{self._elements} elements in arrays are more than {_ELEMENTS}"
        self._require(self._elements <= _ELEMENTS, reason)
        if inner == _STRING:
            for _ in range(count):
                self._string()
        else:
            self._skip(count * self._bytes_of(inner))

    def _bytes_of(self, kind: int) -> int:
        self._require(kind in _SIZES, f"type {kind} is unknown, or nested")
        return _SIZES[kind]

    def _string(self) -> None:
        (length,) = self._numbers("Q")
        self._skip(length)

    def _numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"{self._order}{form}", self._take(struct.calcsize(f"<{form}")))

    def _take(self, size: int) -> bytes:
        self._count(size)
        return self._file.read(size)

    def _skip(self, size: int) -> None:
        self._count(size)
        self._file.seek(size, 1)

    def _count(self, size: int) -> None:
        self._left -= size
        self._require(self._left >= 0, "it ends before its counts and lengths do")

    def _require(self, condition: bool, reason: str) -> None:
        if not condition:
            raise FileError(f"{self._path} must be a whole GGUF file of a known kind ({reason})")
