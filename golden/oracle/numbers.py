"""The arithmetic of sections 1 and 4 of docs/format.md, one value at a time."""

from __future__ import annotations

import dataclasses

Bits = list[int]  # in bit order


@dataclasses.dataclass(frozen=True)
class Number:
    """Sign, exponent and mantissa of a value (section 4)."""

    sign: int
    exponent: int
    mantissa: int

    @classmethod
    def of(cls, pattern: int) -> Number:
        """Split a BF16 pattern into its fields."""
        return cls(pattern >> 15, (pattern >> 7) & 0xFF, pattern & 0x7F)

    @property
    def pattern(self) -> int:
        """BF16 pattern of the number."""
        return self.sign << 15 | self.exponent << 7 | self.mantissa

    @property
    def finite(self) -> bool:
        """True if neither infinite nor NaN."""
        return self.exponent < 255

    @property
    def subnormal(self) -> bool:
        """True if below the smallest normal number and not zero."""
        return self.exponent == 0 and self.mantissa > 0

    @property
    def zero(self) -> bool:
        """True for zero of either sign."""
        return self.exponent == 0 and self.mantissa == 0

    @property
    def significand(self) -> int:
        """Mantissa with its leading bit."""
        return 128 + self.mantissa if self.exponent > 0 else self.mantissa

    @property
    def effective(self) -> int:
        """Exponent that scales the significand."""
        return max(self.exponent, 1)


def to_bits(number: int, width: int) -> Bits:
    """Return a field of ``width`` bits, least significant first."""
    return [(number >> i) & 1 for i in range(width)]


def from_bits(bits: Bits) -> int:
    """Return the number that a field encodes; the inverse of :func:`to_bits`."""
    return sum(bit << i for i, bit in enumerate(bits))


def leading_zeros(magnitude: int) -> int:
    """Count the leading zeros of ``magnitude``, 1..255, in 8 bits."""
    return 8 - magnitude.bit_length()


def value_of(sign: int, group: int, magnitude: int) -> int:
    """Return ``value(s, E, A)`` of section 4.2."""
    if magnitude == 0:
        return sign << 15
    zeros = leading_zeros(magnitude)
    if group > zeros:
        return sign << 15 | (group - zeros) << 7 | (magnitude << zeros) & 0x7F
    return sign << 15 | magnitude << (group - 1)


def aligned(number: Number, group: int, significand: int = 8) -> int:
    """Return the aligned significand of section 4.2: nearest, ties to even, saturated."""
    unit, limit = 1 << (8 - significand), (1 << significand) - 1
    shift = group - number.effective + 8 - significand
    if group < number.effective:
        return limit * unit
    whole, rest = divmod(number.significand, 1 << shift)
    if 2 * rest > 1 << shift or (2 * rest == 1 << shift and whole % 2 == 1):
        whole += 1
    return min(whole, limit) * unit


def windowed(number: Number, group: int) -> int:
    """Return the aligned significand w of section 4.3: cut, saturated."""
    shift = group - number.effective
    if not number.finite or shift < 0:
        return 255
    return number.significand >> shift


def residue_bits(number: Number, window: int) -> Bits:
    """Return the residue field of section 4.3."""
    if window == 255:
        return []
    if window == 0:
        return [int(number.zero)]
    shift = leading_zeros(window)
    return to_bits(number.significand % 2**shift, shift)
