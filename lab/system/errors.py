"""The error that bad input to the system model raises, and the checks that raise it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NoReturn


class SystemModelError(ValueError):
    """Bad input, in one line: what it is, what it must be and what it was."""


def check_number(name: str, value: Any, *, low: float = 0.0, zero: bool = False) -> None:
    """Raise unless ``value`` is a finite number above ``low`` (or equal to it with ``zero``)."""
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not right or value < low or (value == low and not zero):
        sign = "at least" if zero else "above"
        raise SystemModelError(f"{name} must be a number {sign} {low:g}, not {value!r}")


def check_count(name: str, value: Any, low: int, high: int | None = None) -> None:
    """Raise unless ``value`` is an integer in low..high."""
    right = isinstance(value, int) and not isinstance(value, bool) and value >= low
    if not right or (high is not None and value > high):
        allowed = f"at least {low}" if high is None else f"{low} to {high}"
        raise SystemModelError(f"{name} must be an integer, {allowed}, not {value!r}")


def unknown(kind: str, name: str, known: Iterable[str]) -> NoReturn:
    """Raise: the name is not one of the known ones, which the error lists."""
    raise SystemModelError(f"{kind} must be one of {', '.join(sorted(known))}, not {name!r}")
