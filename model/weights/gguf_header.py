"""The header of a GGUF file: its counts, held to the file's size, and the values of its keys."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any, BinaryIO

from cassandra_spec.golden.errors import FileError

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
STRING, _ARRAY = 8, 9
_FORMS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))  # by type
NUMBER_TYPES = frozenset(_FORMS) - {7}  # without truth values
_SIZES = {kind: struct.calcsize(f"<{form}") for kind, form in _FORMS.items()}
_ENTRIES, _TENSORS, _DIMENSIONS, _KEY = 1 << 16, 1 << 16, 8, 1 << 16
_ELEMENTS = 1 << 21
"""Elements of all arrays, at most: the reader takes a kilobyte for each; vocabularies of 256k
tokens have 1.3 million with their merges."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the header, by its bytes in the file."""

    kind: int  # type of its value, or of an array's elements
    value: int  # where the value begins, behind its type
    stop: int
    elements: int | None  # of an array


class Header:
    """The keys of a GGUF file and their values, which are read when they are asked for.

    Opening takes time in proportion to the header, and memory for its keys: every count and length
    must fit what is left of the file. Raises :class:`FileError`, also for a key that comes twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            walk = _Walk(file, path)
            self.entries = walk.run()
        self._order = walk.order
        self.tensors = walk.tensors
        """Number of tensors in the file."""
        self._values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value: a number, a string, or a list of these; ``default`` without the key."""
        if key not in self.entries:
            return default
        if key not in self._values:
            self._values[key] = self._read(key)
        return self._values[key]

    def need(self, key: str) -> Any:
        """Return the value of a key that the file must have."""
        if key not in self.entries:
            raise FileError(f"{self.path} must have an entry {key}, and has none")
        return self.get(key)

    def _read(self, key: str) -> Any:
        entry = self.entries[key]
        with self.path.open("rb") as file:
            file.seek(entry.value)
            data = file.read(entry.stop - entry.value)
        try:
            return self._decode(data, entry)
        except UnicodeDecodeError as error:
            raise FileError(f"{self.path}: {key} must be text in UTF-8 ({error})") from error

    def _decode(self, data: bytes, entry: Entry) -> Any:
        if entry.elements is None:
            return self._several(data, entry.kind, 1)[0]
        return self._several(data[12:], entry.kind, entry.elements)  # behind type and count

    def _several(self, data: bytes, kind: int, count: int) -> list[Any]:
        if kind != STRING:
            return list(struct.unpack(f"{self._order}{count}{_FORMS[kind]}", data))
        found, at = list[str](), 0
        for _ in range(count):
            (length,) = struct.unpack_from(f"{self._order}Q", data, at)
            at += 8 + length
            found.append(data[at - length : at].decode())
        return found


class _Walk:
    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = self._left = path.stat().st_size
        self._elements = 0
        self.order = "<"
        self.tensors = 0

    def run(self) -> dict[str, Entry]:
        magic, version = self._take(4), self._take(4)
        self.order = "<" if version[2:] == b"\0\0" else ">"
        known = struct.unpack(f"{self.order}I", version)[0] in _VERSIONS
        self._require(magic == _MAGIC and known, "version 2 or 3 is needed")
        tensors, entries = self._numbers("QQ")
        self.tensors = tensors
        self._require(tensors <= _TENSORS, f"{tensors} tensors are more than {_TENSORS}")
        self._require(entries <= _ENTRIES, f"{entries} entries are more than {_ENTRIES}")
        found = dict[str, Entry]()
        for _ in range(entries):
            key, entry = self._entry()
            self._require(key not in found, f"it has the key {key} twice")
            found[key] = entry
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

    def _entry(self) -> tuple[str, Entry]:
        (length,) = self._numbers("Q")
        self._require(length < _KEY, f"a key of {length} bytes is longer than {_KEY - 1}")
        key = self._take(length).decode(errors="replace")
        (kind,) = self._numbers("I")
        value = self._place
        inner, elements = kind, None
        if kind == _ARRAY:
            inner, elements = self._array()
        else:
            self._single(kind)
        return key, Entry(kind=inner, value=value, stop=self._place, elements=elements)

    def _single(self, kind: int) -> None:
        if kind == STRING:
            self._string()
        else:
            self._skip(self._bytes_of(kind))

    def _array(self) -> tuple[int, int]:
        (inner,), (count,) = self._numbers("I"), self._numbers("Q")
        self._elements += count
        reason = f"{self._elements} elements in arrays are more than {_ELEMENTS}"
        self._require(self._elements <= _ELEMENTS, reason)
        if inner == STRING:
            for _ in range(count):
                self._string()
        else:
            self._skip(count * self._bytes_of(inner))
        return inner, count

    def _bytes_of(self, kind: int) -> int:
        self._require(kind in _SIZES, f"type {kind} is unknown, or nested")
        return _SIZES[kind]

    def _string(self) -> None:
        (length,) = self._numbers("Q")
        self._skip(length)

    def _numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"{self.order}{form}", self._take(struct.calcsize(f"<{form}")))

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
