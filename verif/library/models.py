"""Naive models of the blocks: plain numbers, one bit or one lane at a time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence


def bits_of(number: int, width: int) -> list[int]:
    """Return the bits of a number, least significant first."""
    return [(number >> i) & 1 for i in range(width)]


def number_of_bits(bits: Iterable[int]) -> int:
    """Return the number with these bits, least significant first."""
    return sum(bit << i for i, bit in enumerate(bits))


def names_of_bits(number: int, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the set bits, least significant first."""
    return tuple(name for bit, name in enumerate(names) if number >> bit & 1)


def unary_bits(ranks: Iterable[int]) -> list[int]:
    """Return the codes of ranks: ``r`` zeros and a one (docs/format.md, section 3)."""
    return [bit for rank in ranks for bit in [0] * rank + [1]]


@dataclasses.dataclass(frozen=True)
class Zeros:
    """The outputs of a zero counter for a run of bits."""

    runs: list[int]  # zeros between each bit and the one before it
    ones: int
    carry_out: int
    overflow: int


def count_zeros(bits: Sequence[int], carry: int, limit: int) -> Zeros:
    """Count bit by bit; counts saturate at ``limit``, which no legal code reaches."""
    zeros, runs, overflow = carry, [], carry >= limit
    for bit in bits:
        runs.append(zeros)
        zeros = 0 if bit else min(zeros + 1, limit)
        overflow |= zeros >= limit
    return Zeros(runs, sum(bits), zeros, int(overflow))


def bitmap_expand(elements: Iterable[int], mask: int, lanes: int) -> list[int | None]:
    """Give elements in order to the set lanes; None (any value) to the others."""
    queue = iter(elements)
    return [next(queue) if mask >> lane & 1 else None for lane in range(lanes)]


def lane_choices(lanes: int, places: int, mask: int, used: int) -> dict[str, int]:
    """Return an expansion's selection bits after ``used`` elements of a stream.

    Element ``n`` is at place ``n`` modulo ``places``. Where the first lane of a half-block takes
    element ``start``, each place of ``half`` holds one of the next ``half`` elements, which
    determines its half in the previous level.
    """
    starts = [used + (mask & (1 << lane) - 1).bit_count() for lane in range(lanes)]
    levels, half = {}, places // 2
    while half:
        bits = []
        for start, place in itertools.product(starts[:: min(half, lanes)], range(half)):
            element = next(n for n in range(start, start + half) if n % half == place)
            bits.append(element // half % 2)
        levels[f"by_{half}"] = number_of_bits(bits)
        half //= 2
    return levels


def concatenate(
    *, unary: int, target: int, midpoint: int, truncated: int, high: Sequence[int], low: int
) -> tuple[int, int]:
    """Return sign and magnitude of a value from its planes (docs/format.md, sections 3 and 4.4)."""
    top = 7 if unary else 8
    magnitude = 0
    for plane in range(1, 1 + top - truncated):
        magnitude |= high[plane] << (top - plane)
    if target:
        magnitude |= low
    elif midpoint and truncated:
        magnitude |= 1 << (truncated - 1)
    return high[0], magnitude


def join_fields(fields: Sequence[int], widths: Sequence[int]) -> int:
    """Concatenate fields, the first in the least significant bits."""
    bits = [
        bit for field, width in zip(fields, widths, strict=True) for bit in bits_of(field, width)
    ]
    return number_of_bits(bits)


def kept_field(scheme: str, value: int, group: int) -> tuple[int, int, int]:
    """Return sign, magnitude and exponent (own or shared) of a kept value (docs/format.md, 4).

    The magnitude is the mantissa (unary), the aligned significand (mx) or the window (exact).
    """
    sign, exponent, mantissa = value >> 15, value >> 7 & 0xFF, value & 0x7F
    if scheme == "unary":
        return sign, mantissa, exponent
    significand = mantissa + (128 if exponent else 0)
    shift = group - max(exponent, 1)
    if shift < 0 or (scheme == "exact" and exponent == 255):
        return sign, 255, group
    whole, rest = divmod(significand, 1 << shift)
    if scheme == "mx":
        twice = 2 * rest - (1 << shift)  # above, at or below the middle
        whole += twice > 0 or (twice == 0 and whole % 2 == 1)
    return sign, min(whole, 255), group
