"""Which coverage bins a segment of the encoder hits, computed from what it was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.verif.encoder.model import Segment
from cassandra_spec.verif.library.coverage import Coverage


def share_of(chosen: NDArray[np.bool_]) -> str:
    """Whether none, some or all values are kept."""
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
    """What is special about a vector."""
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
    """Chosen values that are pruned because their exponent is not in the codebook."""
    if segment.format.scheme != "unary" or not segment.mask:
        return 0
    exponents = segment.values[chosen] >> 7 & 0xFF
    return int((~np.isin(exponents, segment.codebook)).sum())
