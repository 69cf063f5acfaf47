"""CRC-32 checksums of data, in files and in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.packed import Bytes


def wrong_checksum(name: str, data: Bytes, expected: int) -> str:
    """Return an error line if the CRC-32 of contiguous data differs, else an empty string."""
    return checksum_error(name, zlib.crc32(data.data), expected)


def checksum_error(name: str, found: int, expected: int) -> str:
    """Return an error line if a computed CRC-32 differs, else an empty string."""
    if found == expected:
        return ""
    return f"{name} must have the CRC-32 {expected:08x}, not {found:08x}"


class Checksums:
    """Checksums of named arrays in memory (uint8), for later comparison."""

    def __init__(self, arrays: Iterable[tuple[str, Bytes]]) -> None:
        self._expected = {name: zlib.crc32(data.data) for name, data in arrays}

    def check(self, arrays: Iterable[tuple[str, Bytes]]) -> None:
        """Raise :class:`CassandraError` that names the first array that has changed."""
        for name, data in arrays:
            if wrong := wrong_checksum(f"{name} in memory", data, self._expected[name]):
                raise CassandraError(wrong)
