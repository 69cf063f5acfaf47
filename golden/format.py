"""The frozen dataclass that describes a format, used by codecs and to elaborate the gateware.

Names, widths and orders are those of docs/format.md, sections 2, 3 and 5.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeGuard, get_args

from cassandra_spec.golden.errors import CassandraError

Scheme = Literal["unary", "mx", "exact"]
Fill = Literal["zero", "midpoint"]
PrunedExponent = Literal["raw", "coded"]

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
"""Scheme names; the index is the number in a command word."""

CACHE_BLOCK = 128
"""Bytes in a cache block; superblocks are whole numbers of them (paper, V.C)."""

FLAG_MASK = 1
"""Directory flag: the segment has a ``mask`` stream."""

DIRECTORY_FIELDS = (
    "speculation_offset",
    "speculation_length",
    "verification_offset",
    "verification_length",
    "flags",
)
"""Columns of a segment directory (uint32); offsets and lengths in superblocks."""


@dataclasses.dataclass(frozen=True)
class Stream:
    """One stream of the format: its reader, its row layout and its contents."""

    name: str
    region: Literal["speculation", "verification"]
    schemes: tuple[Scheme, ...]
    contents: str


STREAMS = (
    Stream("mask", "speculation", SCHEMES, "1 bit per position, 1 = kept"),
    Stream(
        "exponent",
        "speculation",
        SCHEMES,
        "unary: rank of each kept value's exponent; mx, exact: 8 bits per group",
    ),
    Stream("sign_high", "speculation", SCHEMES, "sign and high bits of each kept value"),
    Stream("low", "verification", SCHEMES, "the truncated low bits of each kept value"),
    Stream(
        "residue", "verification", ("exact",), "bits that alignment shifted out, or a zero flag"
    ),
    Stream("pruned_exponent", "verification", ("unary",), "rank of each pruned value's exponent"),
    Stream("pruned", "verification", SCHEMES, "pruned values and escapes"),
)
"""Every stream, in the order of docs/format.md section 3."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandField:
    """A bit field of the command word that starts a segment in the gateware."""

    name: str
    width: int
    meaning: str


_FIRST_FIELDS = (
    CommandField(name="count", width=16, meaning="values in the segment, minus one"),
    CommandField(name="scheme", width=2, meaning="0 unary, 1 mx, 2 exact"),
    CommandField(name="truncated", width=3, meaning="t: low bits that only the target reads"),
)

COMMAND_FIELDS = (
    *_FIRST_FIELDS,
    CommandField(name="target", width=1, meaning="1 = target values, 0 = draft values"),
    CommandField(name="midpoint", width=1, meaning="fill of a draft: 1 = midpoint, 0 = zero"),
    CommandField(name="mask", width=1, meaning="the segment has a mask stream"),
    CommandField(
        name="verification", width=1, meaning="the segment has a non-empty verification region"
    ),
    CommandField(name="log2_group", width=4, meaning="values in a group, as a power of two"),
    CommandField(name="coded", width=1, meaning="pruned exponents are coded (unary)"),
)
"""The command word, least significant field first; unused high bits are zero."""

ERROR_CAUSES = ("short", "long", "code", "rank", "group", "window", "command")
"""Causes of a decoding error (docs/format.md, section 7); the index is the bit in the gateware."""

ENCODE_COMMAND_FIELDS = (
    *_FIRST_FIELDS,
    CommandField(
        name="saturate", width=1, meaning="mx: replace values that are not finite, and count them"
    ),
    CommandField(name="mask", width=1, meaning="write a mask stream, even if all is kept"),
    CommandField(name="log2_group", width=4, meaning="values in a group, as a power of two"),
    CommandField(name="vector", width=8, meaning="values in a vector, minus one"),
    CommandField(
        name="keep", width=9, meaning="k: values kept of each vector; all if not fewer than it has"
    ),
)
"""The command word that starts a segment in the encoder, least significant field first."""

ENCODE_ERROR_CAUSES = ("command", "short", "long", "nonfinite", "miss")
"""Causes of an encoding error (docs/hardware/encoder.md); the index is the bit in the gateware."""

SIGNIFICAND = 8
"""Significand bits; an mx target may have fewer."""

SIGNIFICAND_MIN = 2
"""Minimum significand bits of an mx target."""

_GROUP_MAX = 256
_SEGMENT_MAX = 1 << 16
_SUPERBLOCK_MAX = 4096


def _require(condition: bool, field: str, expected: str, value: object) -> None:
    if not condition:
        raise CassandraError(f"{field} must be {expected}, not {value!r}")


def is_integer(value: object, low: int, high: int) -> TypeGuard[int]:
    """Return True for an integer from ``low`` to ``high``; False for booleans."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _require_range(field: str, value: object, low: int, high: int) -> None:
    ok = is_integer(value, low, high)
    _require(ok, field, f"an integer from {low} to {high}", value)


def _require_choice(field: str, value: object, choices: tuple[object, ...]) -> None:
    ok = any(value == choice and type(value) is type(choice) for choice in choices)
    _require(ok, field, " or ".join(repr(choice) for choice in choices), value)


def _require_multiple(field: str, value: object, of: int, high: int, why: str) -> None:
    ok = is_integer(value, 1, high) and value % of == 0
    _require(ok, field, f"a multiple of {of} ({why}), at most {high}", value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """Parameters of a packed tensor (docs/format.md, section 2).

    Raises :class:`CassandraError` (a ``ValueError``) that names the field, the value and what was
    expected.
    """

    scheme: Scheme = "unary"
    truncated: int = 4  # t: low bits of each kept value that a draft does not read
    significand: int = SIGNIFICAND  # bits of an mx target's significand; 7: MXINT8
    fill: Fill = "zero"  # replacement of the truncated bits in a draft
    group: int = 32  # values that share an exponent (mx, exact)
    segment: int = 16384  # values whose data start at a new superblock
    codebook: int = 16  # maximum entries of an exponent codebook = longest code (unary)
    pruned_exponent: PrunedExponent = "raw"  # encoding of the exponents of pruned values (unary)
    beat: int = 16  # bits per row, positions per beat, lanes of a matching decoder
    window: int = 2  # rows of a unary-coded stream that are read at a time
    lead: int = 1  # beats between dependent verification streams
    superblock: int = CACHE_BLOCK  # bytes

    def __post_init__(self) -> None:
        _require_choice("scheme", self.scheme, SCHEMES)
        _require_range("truncated", self.truncated, 0, 7)
        _require_range("significand", self.significand, SIGNIFICAND_MIN, SIGNIFICAND)
        narrow_ok = self.significand == SIGNIFICAND or self.scheme == "mx"
        _require(narrow_ok, "significand", f"8 in scheme {self.scheme}", self.significand)
        absent = self.absent_bits
        expected = f"at least {absent} with a significand of {self.significand} bits"
        _require(self.truncated >= absent, "truncated", expected, self.truncated)
        _require_choice("fill", self.fill, get_args(Fill))
        _require_choice("beat", self.beat, (8, 16, 32))
        _require_multiple("group", self.group, self.beat, _GROUP_MAX, "the beat")
        power = self.group & (self.group - 1) == 0
        _require(power, "group", "a power of two", self.group)
        _require_multiple("segment", self.segment, self.group, _SEGMENT_MAX, "the group")
        _require_choice("codebook", self.codebook, (16, 32))
        _require_choice("pruned_exponent", self.pruned_exponent, get_args(PrunedExponent))
        coded_ok = self.pruned_exponent == "raw" or self.scheme == "unary"
        _require(coded_ok, "pruned_exponent", f"'raw' in scheme {self.scheme}", "coded")
        _require_range("window", self.window, 1, 4)
        _require_range("lead", self.lead, 1, 4)
        _require_multiple(
            "superblock", self.superblock, CACHE_BLOCK, _SUPERBLOCK_MAX, "the cache block"
        )

    @property
    def magnitude_bits(self) -> int:
        """Bits of the mantissa (unary: 7), aligned significand (mx, exact: 8)."""
        return 7 if self.scheme == "unary" else 8

    @property
    def absent_bits(self) -> int:
        """Low bits of the aligned significand that are 0 in a target and not stored."""
        return SIGNIFICAND - self.significand

    @property
    def low_places(self) -> range:
        """Bit positions of the planes of ``low`` in the magnitude, in order."""
        return range(self.absent_bits, self.truncated)

    @property
    def high_planes(self) -> int:
        """Number of planes of ``sign_high``: the sign and the magnitude bits that a draft reads."""
        return 1 + self.magnitude_bits - self.truncated

    @property
    def fill_pattern(self) -> int:
        """Value of the ``truncated`` bits in a draft."""
        if self.fill == "midpoint" and self.truncated:
            return 1 << (self.truncated - 1)
        return 0

    @property
    def window_bits(self) -> int:
        """Number of bits in a window of a unary-coded stream."""
        return self.window * self.beat

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Streams that a tensor of this format can have, in the order of section 3."""
        return tuple(stream for stream in STREAMS if self._has(stream))

    def _has(self, stream: Stream) -> bool:
        if stream.name == "low" and not self.low_places:
            return False
        if stream.name == "pruned_exponent" and self.pruned_exponent == "raw":
            return False
        return self.scheme in stream.schemes

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as a JSON-serializable dict; :meth:`from_dict` is the inverse.

        A ``significand`` of 8 is omitted, because readers of earlier files reject the field.
        """
        fields = dataclasses.asdict(self)
        if self.significand == SIGNIFICAND:
            del fields["significand"]
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Format:
        """Build a format from a mapping; raise CassandraError for unknown or invalid fields."""
        known = {field.name for field in dataclasses.fields(cls)}
        for name in fields:
            _require(name in known, "format field", f"one of {', '.join(sorted(known))}", name)
        return cls(**dict(fields))
