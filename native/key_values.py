"""Keys and values of an engine in the format: what target and draft read of committed chunks.

Golden's codec packs a chunk of positions and says what each pass reads of it. The engine keeps both
bit for bit in planes of its own (native/src/attention/sealed.h) and frees the BF16 originals.
"""

from __future__ import annotations

import dataclasses
from ctypes import c_int32
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError
from cassandra_spec.native.arrays import CheckedStructure

CHUNK = 128
"""Positions of a chunk."""

GROUP_MIN = 16
"""Smallest group whose exponents the engine's planes hold."""

Patterns = NDArray[np.uint16]
DraftRule = Literal["same", "truncated", "aligned"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SealedForm:
    """How the engine's planes hold a chunk, and how its draft follows from its target.

    ``same``: the draft reads what the target reads. ``truncated``: the draft drops low bits of the
    mantissa (scheme unary). ``aligned``: it drops low bits of the significand, aligned to the
    largest exponent of a group (schemes exact and mx).

    A form makes chunks small. It never makes them wrong: values that it does not describe are kept
    beside the planes. Raises :class:`CassandraError` that names the field.
    """

    rule: DraftRule
    dropped: int = 0  # bits
    midpoint: bool = False  # whether the highest dropped bit reads as 1
    by_token: bool = False  # groups are of dimensions of a position, else of positions of a channel
    group: int = 32  # values

    def __post_init__(self) -> None:
        if self.rule not in get_args(DraftRule):
            raise CassandraError(f"rule must be same, truncated or aligned, not {self.rule!r}")
        if not 0 <= self.dropped <= 7:
            raise CassandraError(f"dropped must be from 0 to 7, not {self.dropped}")
        if not GROUP_MIN <= self.group <= CHUNK or self.group & (self.group - 1):
            raise CassandraError(
                f"group must be a power of two from {GROUP_MIN} to {CHUNK}, not {self.group}"
            )

    def check_size(self, head_size: int) -> None:
        """Raise unless groups that share an exponent fit the heads of a model."""
        if self.rule == "aligned" and self.by_token and head_size % self.group:
            raise CassandraError(
                f"group must divide the head size {head_size} in the order token, not {self.group}"
            )

    def structure(self) -> SealedFormStructure:
        """Return the form as the engine takes it."""
        rule = get_args(DraftRule).index(self.rule)
        return SealedFormStructure(
            rule, self.dropped, int(self.midpoint), int(self.by_token), self.group
        )

    def read_bits(self, *, draft: bool) -> float:
        """Return the bits of a value that a pass reads, masks and unusual values left out."""
        low = 4 * (not draft or self.rule == "same" or self.dropped < 4)
        return 8 + low + 8 / self.group


class SealedFormStructure(CheckedStructure):
    """``SealedForm`` of sealed.h."""

    _fields_ = tuple(
        (name, c_int32) for name in ("rule", "dropped", "midpoint", "by_token", "group")
    )


class ChunkSealer(Protocol):
    """Packs chunks of keys or values."""

    @property
    def form(self) -> SealedForm:
        """How the engine holds what :meth:`seal` returns."""

    def seal(self, patterns: Patterns) -> tuple[Patterns, Patterns]:
        """Return what target and draft read of uint16 [layers, CHUNK, heads, head size] patterns.

        The target reads the patterns themselves.
        """
