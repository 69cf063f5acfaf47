"""The three classes of streams: sections 3 and 6 of docs/format.md."""

from __future__ import annotations

from typing import Protocol

from cassandra_spec.golden.errors import DecodeError
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.oracle.numbers import Bits


class Source(Protocol):
    """Source of the rows of a region."""

    def row(self, stream: str) -> Bits:
        """Return the next row; the machine requests it for ``stream``."""

    def fail(self, cause: str, detail: str) -> DecodeError:
        """Return a decode error of this segment."""


class PackedStream:
    """Bits of consecutive values without gaps."""

    def __init__(self, name: str, source: Source) -> None:
        self._name = name
        self._source = source
        self._bits: Bits = []

    def take(self, need: int) -> Bits:
        """Apply rule ``packed``; return the bits of the beat."""
        while len(self._bits) < need:
            self._bits += self._source.row(self._name)
        used, self._bits = self._bits[:need], self._bits[need:]
        return used


class BlockedStream:
    """Blocks of ``beat`` values, one row for each plane of bits."""

    def __init__(self, name: str, planes: int, beat: int, source: Source) -> None:
        self._name = name
        self._planes = planes
        self._beat = beat
        self._source = source
        self._values: list[Bits] = []

    def take(self, count: int) -> list[Bits]:
        """Apply rule ``blocked``; return each value's bits in plane order."""
        if len(self._values) < count:
            rows = [self._source.row(self._name) for _ in range(self._planes)]
            self._values += [[row[k] for row in rows] for k in range(self._beat)]
        used, self._values = self._values[:count], self._values[count:]
        return used


class CodedStream:
    """Unary codes, read in windows of several rows."""

    def __init__(self, name: str, format: Format, source: Source) -> None:
        self._name = name
        self._format = format
        self._source = source
        self._zeros = 0
        self._ranks: list[int] = []

    def _window(self) -> None:
        rows = [self._source.row(self._name) for _ in range(self._format.window)]
        for bit in (bit for row in rows for bit in row):
            if bit:
                self._ranks.append(self._zeros)
                self._zeros = 0
                continue
            self._zeros += 1
            if self._zeros >= self._format.codebook:
                raise self._source.fail("code", f"{self._name} has {self._zeros} zeros in a row")

    def starve(self, count: int) -> list[int]:
        """Apply rule ``starve``; return the ranks."""
        while len(self._ranks) < count:
            self._window()
        used, self._ranks = self._ranks[:count], self._ranks[count:]
        return used

    def prefetch(self) -> None:
        """Apply rule ``prefetch`` for a beat that exists."""
        if len(self._ranks) < self._format.beat:
            self._window()
