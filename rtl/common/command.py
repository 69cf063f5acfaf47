"""Configurations of decoder and encoder, and layouts of the streams between their blocks."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, get_args

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import COMMAND_FIELDS, ERROR_CAUSES, SCHEMES, Format, Scheme
from cassandra_spec.rtl.common.mantissa import HIGH_PLANES, LOW_PLANES
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS

TargetRate = Literal["half", "full"]
"""Rate of target beats: one in two cycles, or one per cycle."""

COMMAND_WIDTH = 32
"""Bits of a command word on the bus."""

VALUE = 16
"""Bits of a BF16 value."""

CommandLayout = data.StructLayout({field.name: field.width for field in COMMAND_FIELDS})
"""The command word that starts a segment."""


def ErrorLayout(*causes: str) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """One bit per error cause; by default for all causes."""
    return data.StructLayout(dict.fromkeys(causes or ERROR_CAUSES, 1))


NARROW = 4
"""The smallest t for which the upper planes of ``sign_high`` are not clocked; the paper's drafts
use it."""

_RATES: dict[int, TargetRate] = {1: "half", 2: "full"}  # by the format's lead

_MARKS = {
    "window": "w{}",
    "superblock": "s{}",
    "target_rate": "{}",
    "coded": "coded",
    "truncated": "t{0[0]}to{0[1]}",
    "vector": "v{}",
    "group": "g{}",
    "segment": "n{}",
    "values_per_cycle": "c{}",
}
"""Suffix of the module name for each field that differs from its default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Parameters that are fixed when a decoder or encoder is elaborated; the rest comes with the
    command.

    Raises CassandraError that names the field, the value and what was expected.
    """

    lanes: int = 16  # values per cycle; the format's beat
    schemes: tuple[Scheme, ...] = SCHEMES
    codebook: int = 16  # codebook entries = longest code
    window: int = 2  # rows of a unary-coded stream per cycle
    superblock: int = 128  # bytes

    kind: ClassVar[str]
    """The kind of engine: decoder or encoder."""

    def __post_init__(self) -> None:
        Format(
            beat=self.lanes,
            codebook=self.codebook,
            window=self.window,
            superblock=self.superblock,
            group=max(32, self.lanes),
        )
        known = bool(self.schemes) and all(name in SCHEMES for name in self.schemes)
        if not known or len(set(self.schemes)) != len(self.schemes):
            names = ", ".join(SCHEMES)
            raise CassandraError(f"schemes must be distinct names of {names}, not {self.schemes!r}")

    @property
    def module_name(self) -> str:
        """Name of the exported top, unique per configuration."""
        parts = [f"cassandra_{self.kind}_l{self.lanes}", *self.schemes, f"b{self.codebook}"]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _MARKS and value != field.default:
                parts.append(_MARKS[field.name].format(value))
        return "_".join(parts)

    @property
    def shared(self) -> dict[str, Any]:
        """The fields that decoders and encoders share."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(EngineConfig)}

    def has(self, scheme: Scheme) -> bool:
        """Return True if the scheme is built in."""
        return scheme in self.schemes

    def selects(self, scheme: Value, name: Scheme) -> Value:
        """Return 1 if ``scheme``, a field of a command, is the one called ``name``.

        The result is a constant if only one scheme is built in. Commands for other schemes are
        rejected elsewhere.
        """
        if self.schemes == (name,):
            return Const(1, 1)
        if not self.has(name):
            return Const(0, 1)
        return scheme == SCHEMES.index(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderConfig(EngineConfig):
    """Parameters that are fixed when a decoder is elaborated; the rest comes with the command word.

    Raises CassandraError that names the field, the value and what was expected.
    """

    target_rate: TargetRate = "half"
    coded: bool = False  # pruned exponents may be coded as well as raw
    truncated: tuple[int, int] = (0, LOW_PLANES)  # smallest and largest t of a command

    kind = "decoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_rate not in get_args(TargetRate):
            raise CassandraError(f"target_rate must be half or full, not {self.target_rate!r}")
        if not isinstance(self.coded, bool) or (self.coded and "unary" not in self.schemes):
            expected = "False or, with scheme unary, True"
            raise CassandraError(f"coded must be {expected}, not {self.coded!r}")
        if self.coded and self.target_rate != "half":
            raise CassandraError("coded must be False at full rate, not True")
        if not _is_range(self.truncated, LOW_PLANES):
            expected = f"two integers from 0 to {LOW_PLANES}, the least and the most"
            raise CassandraError(f"truncated must be {expected}, not {self.truncated!r}")

    @classmethod
    def of(cls, fmt: Format, *, schemes: tuple[Scheme, ...] | None = None) -> DecoderConfig:
        """Return the configuration that reads ``fmt`` (with ``schemes``, these as well).

        A lead of 1 gives targets at half rate, a lead of 2 at full rate. Raises CassandraError for
        formats that the gateware does not decode: leads above 2, and coded pruned exponents with a
        lead of 2. A narrow significand is decoded as a draft only.
        """
        if fmt.lead not in _RATES:
            raise CassandraError(f"lead must be 1 or 2 for the gateware, not {fmt.lead!r}")
        return cls(
            lanes=fmt.beat,
            schemes=(fmt.scheme,) if schemes is None else schemes,
            codebook=fmt.codebook,
            window=fmt.window,
            superblock=fmt.superblock,
            target_rate=_RATES[fmt.lead],
            coded=fmt.pruned_exponent == "coded",
        )

    @property
    def lead(self) -> int:
        """The lead of the formats that this decoder reads (docs/format.md, section 6)."""
        return next(lead for lead, rate in _RATES.items() if rate == self.target_rate)

    @property
    def high_planes(self) -> int:
        """Maximum number of planes of ``sign_high``: the sign and a draft's magnitude bits."""
        bits = HIGH_PLANES - (self.schemes == ("unary",))
        return bits - self.truncated[0]

    @property
    def narrow_planes(self) -> int:
        """Maximum number of planes of ``sign_high`` in segments that are not :meth:`wide`."""
        return self.high_planes + self.truncated[0] - max(NARROW, self.truncated[0])

    def wide(self, command: data.View) -> Value:
        """Return 1 if a segment's t is below :data:`NARROW`: ``sign_high`` has more planes."""
        return self.truncated_of(command) < NARROW

    @property
    def low_planes(self) -> int:
        """Maximum number of planes of ``low``."""
        return self.truncated[1]

    def truncated_of(self, command: data.View) -> Value:
        """Return the t of a command; bits that are the same for every t built in are constants."""
        least, most = self.truncated
        free = (least ^ most).bit_length()
        return Cat(command.truncated[:free], Const(least >> free, 3 - free))

    @property
    def verification_rows(self) -> int:
        """Rows in a word of the verification bus; full rate needs twice as many."""
        return BUS_ROWS * (2 if self.target_rate == "full" else 1)


def _is_range(pair: object, most: int) -> bool:
    """Return True if ``pair`` is two integers from 0 to ``most`` in ascending order."""
    if not isinstance(pair, tuple) or len(pair) != 2 or any(type(one) is not int for one in pair):
        return False
    return 0 <= pair[0] <= pair[1] <= most


def ChoicesLayout(lanes: int, places: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """Selection bits of each level of an expansion, by distance (networks.py, ``expand``)."""
    halves = [places >> level for level in range(1, places.bit_length())]
    return data.StructLayout({f"by_{half}": max(half, lanes) for half in halves})


def SpeculationBeat(config: DecoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """One beat at the output of the speculation path.

    ``high`` has the planes of ``sign_high`` (zero past the last), ``exponent`` the exponents of
    unary values; both are arbitrary in lanes that are not ``kept``. ``shared`` is the exponent of
    the group (mx, exact). ``begins`` marks a beat that takes a new block of ``sign_high``, and
    therefore one of ``low``. ``choices`` selects the values of two blocks that the lanes take
    (arbitrary in drafts). ``abort`` ends the segment; the other fields then do not count.
    """
    lanes = config.lanes
    return data.StructLayout(
        {
            "high": data.ArrayLayout(config.high_planes, lanes),
            "exponent": data.ArrayLayout(8, lanes),
            "shared": 8,
            "kept": lanes,
            "begins": 1,
            "choices": ChoicesLayout(lanes, 2 * lanes),
            "last": 1,
            "abort": 1,
        }
    )


def ValueBeat(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """One beat of decoded values.

    ``present`` marks the lanes that have a value, contiguous from lane 0. ``last`` ends the
    segment. ``error`` marks a segment that broke the format (then no lane is present).
    """
    return data.StructLayout(
        {
            "values": data.ArrayLayout(VALUE, lanes),
            "present": lanes,
            "last": 1,
            "error": 1,
        }
    )


def present_lanes(command: data.View, last: Value, lanes: int) -> Value:
    """Return the lanes that have a value: all, or those of the tail in the last beat."""
    tail = command.count[: (lanes - 1).bit_length()]
    return Cat(Const(1, 1), *(~last | (tail >= lane) for lane in range(1, lanes)))
