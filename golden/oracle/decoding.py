"""Decode a packed tensor: the machine reads its stored regions."""

from __future__ import annotations

import numpy as np

from cassandra_spec.golden.arguments import check_packed
from cassandra_spec.golden.errors import DecodeError
from cassandra_spec.golden.format import DIRECTORY_FIELDS
from cassandra_spec.golden.oracle.machine import Shape, Verifier, draft_value, read_speculation
from cassandra_spec.golden.oracle.numbers import Bits
from cassandra_spec.golden.packed import Packed, Segment, Values


class _Reader:
    """A stored region as a source of rows."""

    def __init__(self, packed: Packed, segment: Segment, name: str) -> None:
        region = getattr(segment, name)
        bits = [(byte >> i) & 1 for byte in region.tolist() for i in range(8)]
        beat, self._superblock = packed.format.beat, packed.format.superblock
        self._rows = [bits[i : i + beat] for i in range(0, len(bits) - beat + 1, beat)]
        self._next = 0
        self._bytes = len(region)
        self._row_bytes = beat // 8
        self._segment = segment.index
        length = packed.directory[segment.index][DIRECTORY_FIELDS.index(f"{name}_length")]
        if self._bytes != int(length) * self._superblock:
            raise self.fail("short", f"region ends after {self._bytes} bytes")

    def fail(self, cause: str, detail: str) -> DecodeError:
        return DecodeError(cause, self._segment, detail)

    def row(self, stream: str) -> Bits:
        if self._next >= len(self._rows):
            raise self.fail("short", f"region ends at row {self._next}, in stream {stream}")
        self._next += 1
        return self._rows[self._next - 1]

    def finish(self) -> None:
        used = self._next * self._row_bytes
        if self._bytes - used >= self._superblock:
            raise self.fail("long", f"{self._bytes} bytes in a region that needs {used}")


def decode_draft(packed: Packed) -> Values:
    """Return draft values, like :func:`cassandra_spec.golden.codec.decode_draft`."""
    return _decode(packed, target=False)


def decode_target(packed: Packed) -> Values:
    """Return target values, like :func:`cassandra_spec.golden.codec.decode_target`."""
    return _decode(packed, target=True)


def _decode(packed: Packed, *, target: bool) -> Values:
    check_packed(packed)
    result: list[int] = []
    for segment in packed.segments():
        shape = Shape(
            packed.format, segment.count, segment.has_mask, packed.codebook, packed.pruned_codebook
        )
        reader = _Reader(packed, segment, "speculation")
        drafts = read_speculation(shape, reader)
        reader.finish()
        if target:
            reader = _Reader(packed, segment, "verification")
            result += Verifier(shape, drafts, reader).values()
            reader.finish()
        else:
            result += [draft_value(d, packed.format) for beat in drafts.values() for d in beat]
    return np.array(result, dtype=np.uint16)
