"""Rotary embeddings: tables of angles by position, computed as in transformers.

Two types have other angles in long sequences: ``longrope`` beyond its original positions, and
``dynamic`` beyond the model's. The choice is made once, by the requested context.
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
_Angles = tuple[Floats, float]  # frequencies and scale of a Rope

_KNOWN = {
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"),
    *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
    *("mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor"),
    *("low_freq_factor", "high_freq_factor"),
}
"""Entries that are used by one type and ignored by the others."""

ROPES_BY_LENGTH = ("longrope", "dynamic")
"""Types whose angles depend on the context."""


@dataclasses.dataclass(frozen=True)
class Reach:
    """Sequence lengths that a rotary embedding supports."""

    model: int  # positions that the model was trained for
    context: int  # positions that the angles are for
    positions: int  # maximum positions with these angles
    longest: int  # maximum positions with the angles of any context


@dataclasses.dataclass(frozen=True, eq=False)
class Rope:
    """A rotary embedding."""

    frequencies: Floats  # radians per position, by pair of dimensions [pairs]
    scale: float  # multiplies cosines and sines
    reach: Reach


def rope_reach(entries: Mapping[str, Any], *, positions: int, context: int | None) -> Reach:
    """Return the lengths supported by the angles of a context; None: short sequences.

    ``entries`` are those of :func:`read_rope`, ``positions`` those of the model. Raises
    :class:`CassandraError` for numbers that are missing or out of range.
    """
    numbers = _Numbers({"original_max_position_embeddings": positions, **entries})
    kind, model = entries["rope_type"], positions
    if kind == "longrope":
        original = int(numbers.number("original_max_position_embeddings", least=2))
        short, longest = min(original, model), model
    elif kind == "dynamic":
        short, longest = model, max(model, int(model * numbers.number("factor")))
    else:
        short = longest = model
    if context is None or context <= short:
        return Reach(model, short, short, longest)
    most = longest if kind == "longrope" else min(context, longest)
    return Reach(model, context, most, longest)


def read_rope(
    entries: Mapping[str, Any], *, head_size: int, positions: int, context: int | None = None
) -> Rope:
    """Return a rotary embedding from config entries, including ``rope_theta`` and ``rope_type``.

    ``positions`` and ``context`` are those of :func:`rope_reach`. Raises :class:`CassandraError`
    for a type or an entry that the engine does not support, and for numbers that are missing or out
    of range.
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
    reach = rope_reach(entries, positions=positions, context=context)
    return Rope(*_TYPES[kind](waves, numbers, dimensions, reach), reach)


class _Numbers:
    """Entries that must be numbers."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries

    def number(
        self, name: str, default: float | None = None, *, least: float = 1e-9, most: float = 1e15
    ) -> float:
        """Return a number; ``default`` if it is missing or null."""
        value: Any = self._entries.get(name)
        value = default if value is None else value
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not (right and least <= value <= most):
            raise CassandraError(
                f"{name} must be a number from {least:g} to {most:g}, not {reprlib.repr(value)}"
            )
        return float(value)

    def given(self, name: str) -> bool:
        """Return True if an entry has a value."""
        return self._entries.get(name) is not None

    def numbers(self, name: str, count: int) -> Floats:
        """Return a list of ``count`` numbers."""
        values = self._entries.get(name)
        if not isinstance(values, list) or len(values) != count:
            raise CassandraError(f"{name} must be a list of {count} numbers")
        each = [_Numbers({name: value}).number(name) for value in values]
        return np.array(each, np.float32)

    def truncate(self) -> bool:
        """Return True if yarn's limits are rounded to whole dimensions."""
        return self._entries.get("truncate", True) is not False


def _default(waves: Floats, numbers: _Numbers, dimensions: int, reach: Reach) -> _Angles:
    return (1.0 / waves).astype(np.float32), 1.0


def _dynamic(waves: Floats, numbers: _Numbers, dimensions: int, reach: Reach) -> _Angles:
    """Increase theta for a context beyond the model's positions."""
    factor = numbers.number("factor")
    if reach.context > reach.model:
        growth = factor * reach.context / reach.model - (factor - 1)
        places = np.arange(0, dimensions, 2, dtype=np.float32)  # the last grows by the full factor
        waves = waves * np.float32(growth) ** (places / np.float32(max(dimensions - 2, 1)))
    return _default(waves, numbers, dimensions, reach)


def _linear(waves: Floats, numbers: _Numbers, dimensions: int, reach: Reach) -> _Angles:
    plain = (1.0 / waves).astype(np.float32)
    return (plain / np.float32(numbers.number("factor"))).astype(np.float32), 1.0


def _llama3(waves: Floats, numbers: _Numbers, dimensions: int, reach: Reach) -> _Angles:
    """Scale low frequencies by a factor; keep high ones."""
    plain = (1.0 / waves).astype(np.float32)
    original = numbers.number("original_max_position_embeddings")
    low, high = numbers.number("low_freq_factor"), numbers.number("high_freq_factor")
    share = np.clip((original / (2 * np.pi / plain) - low) / (high - low), 0, 1)
    slow = (1 - share) * plain / numbers.number("factor")
    return (slow + share * plain).astype(np.float32), 1.0


def _yarn(waves: Floats, numbers: _Numbers, dimensions: int, reach: Reach) -> _Angles:
    """Scale low frequencies by a factor, keep high ones, and ramp between them."""
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
    frequencies = ramp / (np.float32(factor) * waves) + (1 - ramp) / waves
    return frequencies.astype(np.float32), _yarn_scale(numbers, factor)


def _yarn_scale(numbers: _Numbers, factor: float) -> float:
    if numbers.given("attention_factor"):
        return numbers.number("attention_factor")

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if numbers.given("mscale") and numbers.given("mscale_all_dim"):
        return scale(numbers.number("mscale")) / scale(numbers.number("mscale_all_dim"))
    return scale(1.0)


def _longrope(waves: Floats, numbers: _Numbers, dimensions: int, reach: Reach) -> _Angles:
    """Select the factors for short or long sequences; the scale is that of the model."""
    original = int(numbers.number("original_max_position_embeddings", least=2))
    factor = numbers.number("factor", reach.model / original)
    scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    names = ("short_factor", "long_factor")
    factors = [numbers.numbers(name, len(waves)) for name in names][reach.context > original]
    return (1.0 / (factors * waves)).astype(np.float32), numbers.number("attention_factor", scale)


_TYPES: dict[str, Callable[[Floats, _Numbers, int, Reach], _Angles]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
}
