"""Rotary embeddings: angles by position, as transformers computes them, in tables that stay.

A type whose angles depend on the length of the sequence is run up to the length where they change.
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError

Floats = NDArray[np.float32]

_KNOWN = {
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"),
    *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
    *("mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor"),
    *("low_freq_factor", "high_freq_factor"),
}
"""Entries that one of the types has; one that a type does not have changes nothing there."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rope:
    """A rotary embedding."""

    frequencies: Floats  # angle by position of each pair of dimensions [pairs]
    scale: float = 1.0  # of cosines and sines
    positions: int | None = None  # where the angles would become others


def read_rope(entries: Mapping[str, Any], *, head_size: int, positions: int) -> Rope:
    """A rotary embedding by the entries of a config, ``rope_theta`` and ``rope_type`` included.

    ``positions`` are those of the model. Raises :class:`CassandraError` for a type or an entry that
    the engine does not know, and for numbers that are missing or out of range.
    """
    kind = entries["rope_type"]
    if kind not in _TYPES:
        known = ", ".join(_TYPES)
        raise CassandraError(
            f"rope_type must be one of {known} for the native engine, not {kind!r}"
        )
    for name in entries:
        if name not in _KNOWN:
            raise CassandraError(f"{name} must not be in the rotary embedding's entries")
    numbers = _Numbers({"original_max_position_embeddings": positions, **entries})
    dimensions = int(head_size * numbers.number("partial_rotary_factor", 1.0, most=1.0))
    if dimensions < 2:
        raise CassandraError(f"the dimensions that are rotated must be from 2 on, not {dimensions}")
    powers = np.arange(0, dimensions, 2, dtype=np.float32) / np.float32(dimensions)
    waves = (np.float32(numbers.number("rope_theta")) ** powers).astype(np.float32)
    return _TYPES[kind](waves, numbers, dimensions, positions)


class _Numbers:
    """Entries that must be numbers."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries

    def number(
        self, name: str, default: float | None = None, *, least: float = 1e-9, most: float = 1e15
    ) -> float:
        """A number; ``default`` if it is missing or null."""
        value: Any = self._entries.get(name)
        value = default if value is None else value
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not (right and least <= value <= most):
            raise CassandraError(
                f"{name} must be a number from {least:g} to {most:g}, not {reprlib.repr(value)}"
            )
        return float(value)

    def given(self, name: str) -> bool:
        """Whether an entry has a value."""
        return self._entries.get(name) is not None

    def numbers(self, name: str, count: int) -> Floats:
        """A list of ``count`` numbers."""
        values = self._entries.get(name)
        if not isinstance(values, list) or len(values) != count:
            raise CassandraError(f"{name} must be a list of {count} numbers")
        each = [_Numbers({name: value}).number(name) for value in values]
        return np.array(each, np.float32)

    def truncate(self) -> bool:
        """Whether yarn's limits are whole dimensions."""
        return self._entries.get("truncate", True) is not False


def _default(waves: Floats, numbers: _Numbers, dimensions: int, positions: int) -> Rope:
    return Rope((1.0 / waves).astype(np.float32))


def _dynamic(waves: Floats, numbers: _Numbers, dimensions: int, positions: int) -> Rope:
    """Angles become others beyond the model's positions, where the engine does not go."""
    numbers.number("factor")
    return _default(waves, numbers, dimensions, positions)


def _linear(waves: Floats, numbers: _Numbers, dimensions: int, positions: int) -> Rope:
    plain = (1.0 / waves).astype(np.float32)
    return Rope((plain / np.float32(numbers.number("factor"))).astype(np.float32))


def _llama3(waves: Floats, numbers: _Numbers, dimensions: int, positions: int) -> Rope:
    """Slow frequencies by a factor, fast ones as they were."""
    plain = (1.0 / waves).astype(np.float32)
    original = numbers.number("original_max_position_embeddings")
    low, high = numbers.number("low_freq_factor"), numbers.number("high_freq_factor")
    share = np.clip((original / (2 * np.pi / plain) - low) / (high - low), 0, 1)
    slow = (1 - share) * plain / numbers.number("factor")
    return Rope((slow + share * plain).astype(np.float32))


def _yarn(waves: Floats, numbers: _Numbers, dimensions: int, positions: int) -> Rope:
    """Slow frequencies by a factor, fast ones as they were; a ramp over dimensions between them."""
    theta, factor = numbers.number("rope_theta", least=1 + 1e-6), numbers.number("factor")
    original = numbers.number("original_max_position_embeddings")

    def dimension(rotations: float) -> float:
        return dimensions * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = dimension(numbers.number("beta_fast", 32))
    high = dimension(numbers.number("beta_slow", 1))
    if numbers.truncate():
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dimensions - 1)
    places = np.arange(len(waves), dtype=np.float32)
    ramp = np.clip((places - low) / ((high - low) or 0.001), 0, 1)
    found = ramp / (np.float32(factor) * waves) + (1 - ramp) / waves
    return Rope(found.astype(np.float32), _yarn_scale(numbers, factor))


def _yarn_scale(numbers: _Numbers, factor: float) -> float:
    if numbers.given("attention_factor"):
        return numbers.number("attention_factor")

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if numbers.given("mscale") and numbers.given("mscale_all_dim"):
        return scale(numbers.number("mscale")) / scale(numbers.number("mscale_all_dim"))
    return scale(1.0)


def _longrope(waves: Floats, numbers: _Numbers, dimensions: int, positions: int) -> Rope:
    """The factors of short sequences; beyond the original positions all angles are others."""
    original = int(numbers.number("original_max_position_embeddings", least=2))
    factor = numbers.number("factor", positions / original)
    scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    short = numbers.numbers("short_factor", len(waves))
    return Rope(
        (1.0 / (short * waves)).astype(np.float32),
        numbers.number("attention_factor", scale),
        min(original, positions),
    )


_TYPES: dict[str, Callable[[Floats, _Numbers, int, int], Rope]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
}
