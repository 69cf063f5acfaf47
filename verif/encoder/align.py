"""Alignment in the encoder: every significand at every distance, every pair of exponents."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import cocotb

from cassandra_spec.rtl.encode.align import OUT, Aligner, Distance
from cassandra_spec.verif.library.bank import Bank, Case, play
from cassandra_spec.verif.library.models import kept_field

COPIES = 16  # each takes a share of the inputs
MODES = ((1, 0), (0, 0), (0, 1))  # round (mx); truncate, and not finite (exact)


def design() -> Bank:
    """Build copies of both blocks, so that all inputs take fewer steps."""
    parts: dict[str, Any] = {f"aligner_{i}": Aligner() for i in range(COPIES)}
    return Bank(parts | {f"distance_{i}": Distance() for i in range(COPIES)})


def distances(first: int) -> Iterator[Case]:
    """Drive group exponents ``first``, ``first + COPIES``, ... with every smaller or equal
    exponent.
    """
    for shared in range(first or COPIES, 256, COPIES):
        for exponent in range(shared + 1):
            far = shared - max(exponent, 1)
            yield Case({"shared": shared, "exponent": exponent}, {"distance": min(far, OUT)})


def significands(first: int) -> Iterator[Case]:
    """Drive mantissas ``first``, ``first + COPIES``, ... of subnormal and normal values."""
    mantissas = range(first, 128, COPIES)
    for mantissa, normal, far, mode in itertools.product(
        mantissas, (0, 1, 77), range(OUT + 1), MODES
    ):
        if normal or mode[0] or far >= 8:  # windows of subnormals must be empty (format, 4.3)
            yield _aligned(normal << 7 | mantissa, far, *mode)


def _aligned(magnitude: int, far: int, nearest: int, saturated: int) -> Case:
    exponent = magnitude >> 7
    shared = far + max(exponent, 1)
    scheme = "mx" if nearest else "exact"
    _, field, _ = kept_field(scheme, 0x7F80 if saturated else magnitude, shared)
    inputs = {"magnitude": magnitude, "distance": far, "round": nearest, "saturated": saturated}
    if nearest:
        return Case(inputs, {"field": field})
    zero = int(magnitude == 0)
    width = {0: 1, 255: 0}.get(field, far)
    residue = zero if field == 0 else magnitude & ((1 << width) - 1)
    escape = int(field == 255 or (field == 0 and not zero))
    return Case(inputs, {"field": field, "width": width, "residue": residue, "escape": escape})


@cocotb.test()
async def every_significand_and_distance(dut: Any) -> None:
    """Exhaustive over the inputs of the blocks."""
    scripts: dict[str, Any] = {f"aligner_{i}": significands(i) for i in range(COPIES)}
    scripts |= {f"distance_{i}": distances(i) for i in range(COPIES)}
    await play(dut, design(), scripts, clocked=False)
