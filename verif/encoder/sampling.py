"""Coverage bins that a segment of the encoder hits, computed from the request."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.encoder.model import Segment, records_of
from cassandra_spec.verif.library.coverage import Coverage


def share_of(chosen: NDArray[np.bool_]) -> str:
    """Return whether none, some or all values are kept."""
    if not chosen.any():
        return "none"
    return "all" if chosen.all() else "some"


def sample_segment(coverage: Coverage, segment: Segment) -> None:
    """Sample everything that one segment shows on its own, if it was encoded right."""
    fmt, values, chosen = segment.format, segment.values, segment.chosen
    for start in range(0, len(values), segment.vector):
        part = slice(start, start + segment.vector)
        share = share_of(chosen[part])
        coverage.sample(f"encode_setting.{fmt.scheme}.{share}.{fmt.truncated}")
        partial = ["partial"] if len(values[part]) < segment.vector else []
        for kind in (*_kinds(values[part], chosen[part]), *partial):
            coverage.sample(f"encode_vector.{fmt.scheme}.{share}.{kind}")
    coverage.sample(f"encode_last.{fmt.beat}.{(len(values) - 1) % fmt.beat + 1}")
    if fmt.scheme != "unary":
        coverage.sample_if(fmt.group <= 128, f"encode_group.{fmt.scheme}.{min(fmt.group, 128)}")
    coverage.sample_if(not segment.mask, "encode_mask.absent")
    coverage.sample_if(segment.mask and bool(chosen.all()), "encode_mask.all_kept")
    coverage.sample_if(_misses(segment, chosen), "encode_mask.miss")


def _kinds(values: NDArray[np.uint16], chosen: NDArray[np.bool_]) -> Iterator[str]:
    """Yield the special properties of a vector."""
    sizes = values & 0x7FFF
    exponents, fractions = sizes >> 7, sizes & 0x7F
    kinds = {
        "zeros": not sizes.any(),
        "nan": ((exponents == 255) & (fractions != 0)).any(),
        "infinity": ((exponents == 255) & (fractions == 0)).any(),
        "subnormal": ((exponents == 0) & (fractions != 0)).any(),
        "ties": share_of(chosen) == "some" and sizes[chosen].min() == sizes[~chosen].max(),
    }
    return (name for name, found in kinds.items() if found)


def _misses(segment: Segment, chosen: NDArray[np.bool_]) -> int:
    """Count the selected values that are pruned because their exponent is not in the codebook."""
    if segment.format.scheme != "unary" or not segment.mask:
        return 0
    exponents = segment.values[chosen] >> 7 & 0xFF
    return int((~np.isin(exponents, segment.codebook)).sum())


def sample_extremes(coverage: Coverage, segment: Segment, config: EncoderConfig) -> None:
    """Sample each sum, counter and queue that the segment took to its minimum or maximum."""
    fmt = segment.format
    totals = _totals(segment, config)
    totals |= _of_beats(segment, config)
    for name, (seen, least, most) in totals.items():
        for end, value in (("least", least), ("most", most)):
            coverage.sample_if(value in seen, f"encode_extreme.{fmt.beat}.{name}.{end}")


Range = tuple[set[int], int, int]
"""Observed values of a number, its minimum and its maximum."""


def _totals(segment: Segment, config: EncoderConfig) -> dict[str, Range]:
    """Return the ranges of the segment and its vectors."""
    length, most = segment.vector, config.vector
    found: dict[str, Range] = {
        "count": ({len(segment.values)}, 1, config.segment),
        "vector": ({length}, config.lanes, most),
    }
    if segment.format.scheme == "mx":
        found["replaced"] = ({segment.replaced()}, 0, config.segment)
    sizes, chosen = segment.values & 0x7FFF, segment.chosen
    above, ties = set(), set()
    for start in range(0, len(sizes), length):
        part, kept = sizes[start : start + length], chosen[start : start + length]
        if share_of(kept) == "some":
            threshold = part[kept].min()
            above.add(int((part > threshold).sum()))
            ties.add(int((part[kept] == threshold).sum()))
    return found | {"above": (above, 0, most - 2), "ties": (ties, 1, most - 1)}


def _of_beats(segment: Segment, config: EncoderConfig) -> dict[str, Range]:
    """Return the ranges of beats, and of the values that one leaves to the next."""
    lanes, records = config.lanes, records_of(segment)
    counts = np.array([record["count"] for record in records])
    stored = {record["stored"].bit_count() for record in records}
    found: dict[str, Range] = {
        "kept": (set(counts.tolist()), 0, lanes),
        "whole": (stored, 0, lanes),
        "left": (set((-counts.cumsum() % lanes).tolist()), 0, lanes - 1),
    }
    if segment.format.scheme == "exact":
        found["residue"] = ({sum(record["width"]) for record in records}, 0, 7 * lanes)
    if segment.format.scheme == "unary":
        codes = {sum(r + 1 for r in record["rank"] if r is not None) for record in records}
        found["codes"] = (codes, 0, config.codebook * lanes)
        found["waits"] = (_waits(counts, lanes), 0, config.segment // lanes - 1)
    return found


def _waits(counts: NDArray[np.int64], lanes: int) -> set[int]:
    """Return, for each block, the beats between its first value's and its last value's beat.

    The last block of a segment is complete when the segment is.
    """
    ends = counts.cumsum()
    firsts = range(0, int(ends[-1]), lanes)
    begins = [int(np.searchsorted(ends, first, side="right")) for first in firsts]
    lasts = np.searchsorted(ends, [first + lanes - 1 for first in firsts], side="right").tolist()
    return {min(last, len(counts) - 1) - begin for begin, last in zip(begins, lasts, strict=True)}
