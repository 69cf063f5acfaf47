"""The counts of a GGUF file, held to its size before the gguf package allocates by them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from cassandra_spec.golden.errors import FileError

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_UINT32, _STRING, _ARRAY = 4, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by type
_ENTRIES, _TENSORS, _DIMENSIONS, _KEY = 1 << 16, 1 << 16, 8, 1 << 16
_ELEMENTS = 1 << 21
"""Elements of all arrays, at most: the reader takes a kilobyte for each; vocabularies of 256k
tokens have 1.3 million with their merges."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the header, by its bytes in the file."""

    key: bytes
    start: int
    value: int  # where the value begins, behind its type
    stop: int
    elements: int | None  # of an array


def read_entries(path: Path) -> list[Entry]:
    """Walk through the header of a GGUF file: every count and length must fit what is left of it.

    Takes time in proportion to the header, and memory for its keys. Raises :class:`FileError`.
    """
    with path.open("rb") as file:
        return _Walk(file, path).run()


class _Walk:
    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = self._left = path.stat().st_size
        self._elements = 0
        self._order = "<"

    def run(self) -> list[Entry]:
        magic, version = self._take(4), self._take(4)
        self._order = "<" if version[2:] == b"\0\0" else ">"
        known = struct.unpack(f"{self._order}I", version)[0] in _VERSIONS
        self._require(magic == _MAGIC and known, "version 2 or 3 is needed")
        tensors, entries = self._numbers("QQ")
        self._require(tensors <= _TENSORS, f"{tensors} tensors are more than {_TENSORS}")
        self._require(entries <= _ENTRIES, f"{entries} entries are more than {_ENTRIES}")
        found = [self._entry() for _ in range(entries)]
        for _ in range(tensors):
            self._string()
            (dimensions,) = self._numbers("I")
            reason = f"{dimensions} dimensions are more than {_DIMENSIONS}"
            self._require(dimensions <= _DIMENSIONS, reason)
            self._take(8 * dimensions + 12)  # sizes, type and offset
        return found

    @property
    def _place(self) -> int:
        return self._size - self._left

    def _entry(self) -> Entry:
        start = self._place
        (length,) = self._numbers("Q")
        self._require(length < _KEY, f"a key of {length} bytes is longer than {_KEY - 1}")
        key = self._take(length)
        (kind,) = self._numbers("I")
        value, elements = self._place, self._value(kind)
        return Entry(key=key, start=start, value=value, stop=self._place, elements=elements)

    def _value(self, kind: int) -> int | None:
        if kind == _ARRAY:
            return self._array()
        if kind == _STRING:
            self._string()
        else:
            self._skip(self._bytes_of(kind))
        return None

    def _array(self) -> int:
        (inner,), (count,) = self._numbers("I"), self._numbers("Q")
        self._elements += count
        reason = f"{self._elements} elements in arrays are more than {_ELEMENTS}"
        self._require(self._elements <= _ELEMENTS, reason)
        if inner == _STRING:
            for _ in range(count):
                self._string()
        else:
            self._skip(count * self._bytes_of(inner))
        return count

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


def without_vocabulary(path: Path, entries: Sequence[Entry], size_key: str) -> bytes:
    """Return a GGUF file with a model's entries, without the tokenizer's arrays and tensors.

    transformers makes the same config of both, but reads this one in milliseconds. ``size_key`` is
    the entry for the size of the vocabulary; if the file lacks it, it is the number of tokens.
    """
    kept = [
        entry
        for entry in entries
        if entry.elements is None or not entry.key.startswith(b"tokenizer.")
    ]
    tokens = [each.elements for each in entries if each.key == b"tokenizer.ggml.tokens"]
    size = size_key.encode()
    with path.open("rb") as file:
        version = file.read(8)
        order = "<" if version[6:] == b"\0\0" else ">"
        parts = []
        for entry in kept:
            file.seek(entry.start)
            parts.append(file.read(entry.stop - entry.start))
    if tokens and size not in {entry.key for entry in kept}:
        form = f"{order}Q{len(size)}sII"
        parts.append(struct.pack(form, len(size), size, _UINT32, tokens[0]))
    return b"".join([version, struct.pack(f"{order}QQ", 0, len(parts)), *parts])
