"""The arithmetic of sections 4.2 to 4.4 in exact rationals, independent of codec and oracle.

Nothing here knows of significands, shifts or leading zeros: a pattern is a rational number (by way
of float32), a shared exponent is a unit, and rounding is that of rationals.
"""

from __future__ import annotations

import struct
from fractions import Fraction

from cassandra_spec.golden import Format


def rational(pattern: int) -> Fraction:
    """Return the number that a finite BF16 pattern stands for."""
    (number,) = struct.unpack("<f", struct.pack("<I", pattern << 16))
    return Fraction(number)


def unit(group: int) -> Fraction:
    """Return the number of a magnitude of 1 in a group of exponent ``group``."""
    return Fraction(2) ** (group - 134)


def magnitude(number: Fraction, group: int, format: Format) -> int:
    """Return the number in units, rounded (mx) or cut off (exact), and saturated."""
    step = 2 ** (8 - format.significand)
    steps = abs(number) / (step * unit(group))
    return step * min(round(steps) if format.scheme == "mx" else int(steps), 256 // step - 1)


def draft_magnitude(number: Fraction, group: int, format: Format) -> int:
    """Return the magnitude with the fill in place of its low bits."""
    step = 1 << format.truncated
    fill = step // 2 if format.fill == "midpoint" else 0
    return magnitude(number, group, format) // step * step + fill


def draft(number: Fraction, group: int, format: Format) -> Fraction:
    """Return the draft's distance from zero."""
    return draft_magnitude(number, group, format) * unit(group)
