"""The engine's KV cache in the format: target and draft values of committed chunks.

Golden's codec packs a chunk of positions and decodes the values that each pass reads. The engine
stores both bit for bit in planes of its own (native/src/attention/sealed.h) and frees the BF16
originals.
"""

from __future__ import annotations

import dataclasses
from ctypes import c_int32
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError
from cassandra_spec.native.arrays import CheckedStructure
from cassandra_spec.native.limits import CHUNK

GROUP_MIN = 16
"""Smallest group size that the engine's planes support."""

Patterns = NDArray[np.uint16]
DraftRule = Literal["same", "truncated", "aligned"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SealedForm:
    """Layout of a chunk in the engine's planes, and the relation of draft to target values.

    ``same``: the draft reads the target's values. ``truncated``: the draft drops low bits of the
    mantissa (scheme unary). ``aligned``: it drops low bits of the significand, aligned to the
    largest exponent of a group (schemes exact and mx).

    The form affects only size: values that do not fit it are stored beside the planes. Raises
    :class:`CassandraError` that names the field.
    """

    rule: DraftRule
    dropped: int = 0  # dropped low bits
    midpoint: bool = False  # value of the highest dropped bit
    by_token: bool = False  # groups run over a position's dimensions, not a channel
    group: int = 32  # values per group

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
        """Raise unless groups that share an exponent fit the model's head size."""
        if self.rule == "aligned" and self.by_token and head_size % self.group:
            raise CassandraError(
                f"group must divide the head size {head_size} in the order token, not {self.group}"
            )

    def structure(self) -> SealedFormStructure:
        """Return the form as a C structure."""
        rule = get_args(DraftRule).index(self.rule)
        return SealedFormStructure(
            rule, self.dropped, int(self.midpoint), int(self.by_token), self.group
        )

    def read_bits(self, *, draft: bool) -> float:
        """Return the bits per value that a pass reads, without masks and unusual values."""
        low = 4 * (not draft or self.rule == "same" or self.dropped < 4)
        return 8 + low + 8 / self.group


class SealedFormStructure(CheckedStructure):
    """``SealedForm`` of sealed.h."""

    _fields_ = tuple(
        (name, c_int32) for name in ("rule", "dropped", "midpoint", "by_token", "group")
    )


class ChunkSealer(Protocol):
    """Pack chunks of keys or values."""

    @property
    def form(self) -> SealedForm:
        """Layout of the values returned by :meth:`seal`."""

    def seal(self, patterns: Patterns) -> tuple[Patterns, Patterns]:
        """Return the target's and the draft's values of uint16 [layers, CHUNK, heads, head size].

        The target's values are the patterns themselves.
        """
