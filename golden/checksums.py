"""CRC-32 checksums of data, in files and in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.packed import Bytes


def wrong_checksum(name: str, data: Bytes, expected: int) -> str:
    """A line that says how the CRC-32 of contiguous data differs; empty if it does not."""
    return checksum_error(name, zlib.crc32(data.data), expected)


def checksum_error(name: str, found: int, expected: int) -> str:
    """The same line for a CRC-32 that was computed."""
    if found == expected:
        return ""
    return f"{name} must have the CRC-32 {expected:08x}, not {found:08x}"


class Checksums:
    """Checksums of named arrays in memory (uint8), to be compared on demand with those of later."""

    def __init__(self, arrays: Iterable[tuple[str, Bytes]]) -> None:
        self._expected = {name: zlib.crc32(data.data) for name, data in arrays}

    def check(self, arrays: Iterable[tuple[str, Bytes]]) -> None:
        """Raise :class:`CassandraError` with the name of the first array that has changed."""
        for name, data in arrays:
            if wrong := wrong_checksum(f"{name} in memory", data, self._expected[name]):
                raise CassandraError(wrong)
