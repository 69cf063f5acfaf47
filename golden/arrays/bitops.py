"""Bits, planes, rows and unary codes of arrays (docs/format.md, sections 1 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Octets = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Rows = NDArray[Any]
"""Rows of a region, one little-endian unsigned integer of ``beat`` bits each."""


def row_dtype(beat: int) -> np.dtype[Any]:
    """Return the integer type of a row."""
    return np.dtype(f"<u{beat // 8}")


def to_rows(octets: Octets, beat: int) -> Rows:
    """View bytes (a whole number of rows) as rows."""
    return np.ascontiguousarray(octets).view(row_dtype(beat))


def to_bytes(rows: Rows) -> Octets:
    """View rows of any shape as flat bytes."""
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8)


def pack_bits(bits: NDArray[Any]) -> Octets:
    """Pack flat bits (0/1, a multiple of 8) into bytes; bit i is bit i mod 8 of byte i // 8."""
    return np.packbits(bits, bitorder="little")


def unpack_bits(octets: Octets) -> Octets:
    """Unpack bytes into flat bits, uint8 0/1; the inverse of :func:`pack_bits`."""
    return np.unpackbits(octets, bitorder="little")


def span_indices(starts: Ints, lengths: Ints) -> Ints:
    """Concatenate ``range(start, start + length)`` for each span."""
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    result = np.arange(total, dtype=np.int64)
    result += np.repeat(starts - before, lengths)
    return result


def completed(flat: NDArray[Any], sizes: Ints, unit: int) -> NDArray[Any]:
    """Pad each run of ``sizes`` elements of ``flat`` with zeros to whole units."""
    whole = -(-sizes // unit) * unit
    if (whole == sizes).all():
        return flat
    result = np.zeros(int(whole.sum()), dtype=flat.dtype)
    source, target = 0, 0
    for size, room in zip(sizes.tolist(), whole.tolist(), strict=True):
        result[target : target + size] = flat[source : source + size]
        source, target = source + size, target + room
    return result


def trimmed(flat: NDArray[Any], sizes: Ints, unit: int) -> NDArray[Any]:
    """Remove the padding that :func:`completed` added."""
    whole = -(-sizes // unit) * unit
    if (whole == sizes).all():
        return flat[: int(sizes.sum())]
    starts = (np.cumsum(whole) - whole).tolist()
    pieces = [flat[at : at + n] for at, n in zip(starts, sizes.tolist(), strict=True)]
    return np.concatenate(pieces)


def planes_from_fields(fields: NDArray[Any], places: Sequence[int], beat: int) -> Rows:
    """Return the rows [blocks, planes] of a blocked stream.

    ``fields`` has ``blocks * beat`` elements; plane j holds their bit ``places[j]``.
    """
    blocks = fields.size // beat
    rows = np.empty((blocks, len(places)), dtype=row_dtype(beat))
    for plane, place in enumerate(places):
        bits = (fields & fields.dtype.type(1 << place)) != 0
        rows[:, plane] = to_rows(pack_bits(bits), beat)
    return rows


def fields_from_planes(rows: Rows, places: Sequence[int]) -> Octets:
    """Return fields of up to 8 bits from planes [blocks, planes]; uint8 [blocks * beat]."""
    beat = 8 * rows.dtype.itemsize
    fields = np.zeros(rows.shape[0] * beat, dtype=np.uint8)
    for plane, place in enumerate(places):
        bits = unpack_bits(to_bytes(rows[:, plane]))
        fields |= bits << np.uint8(place) if place else bits
    return fields


def pack_fields(fields: Octets, widths: Octets) -> Octets:
    """Return the flat bits (uint8 0/1) of fields of ``widths`` 0..8 bits, LSB first."""
    bits = unpack_bits(fields).reshape(-1, 8)
    return bits[np.arange(8, dtype=np.uint8) < widths[:, None]]
