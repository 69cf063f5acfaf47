"""Configuration of the encoder, and layouts of the streams between its blocks."""

from __future__ import annotations

import dataclasses

from amaranth.hdl import Shape
from amaranth.lib import data

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import (
    ENCODE_COMMAND_FIELDS,
    ENCODE_ERROR_CAUSES,
    Format,
    Scheme,
)
from cassandra_spec.rtl.common.command import DecoderConfig, EngineConfig

ENCODE_COMMAND_WIDTH = 64
"""Bits of a command word on the bus."""

COUNT_WIDTH = 17
"""Bits of a segment's number of values, 0 to 65,536."""

_VECTOR_MAX = 256
_GROUP_MAX = 256

EncodeCommandLayout = data.StructLayout(
    {field.name: field.width for field in ENCODE_COMMAND_FIELDS}
)
"""The command word that starts a segment."""

EncodeErrorLayout = data.StructLayout(dict.fromkeys(ENCODE_ERROR_CAUSES, 1))
"""One bit per error cause."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(EngineConfig):
    """Parameters that are fixed when an encoder is elaborated; the rest comes with the command
    word.

    Raises CassandraError that names the field, the value and what was expected.
    """

    vector: int = 128  # maximum values in a vector
    group: int = 128  # maximum values in a group
    segment: int = 16384  # maximum values in a segment; sizes the back end's memories
    values_per_cycle: int | None = None  # input values per cycle; None: one per lane

    kind = "encoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("vector", _VECTOR_MAX), ("group", _GROUP_MAX)):
            value = getattr(self, name)
            power = isinstance(value, int) and value > 0 and value & (value - 1) == 0
            if not power or not self.lanes <= value <= most:
                expected = f"a power of two from {self.lanes} (lanes) to {most}"
                raise CassandraError(f"{name} must be {expected}, not {value!r}")
        Format(segment=self.segment, group=max(32, self.lanes))
        paces = [pace for pace in (4, 8, 16, 32) if pace <= self.lanes]
        if self.values_per_cycle not in (None, *paces):
            choices = f"{', '.join(map(str, paces))} or None at {self.lanes} lanes"
            given = self.values_per_cycle
            raise CassandraError(f"values_per_cycle must be {choices}, not {given!r}")
        if self.values_per_cycle == self.lanes:
            object.__setattr__(self, "values_per_cycle", None)

    @classmethod
    def of(cls, fmt: Format, *, schemes: tuple[Scheme, ...] | None = None) -> EncoderConfig:
        """Return the configuration that writes ``fmt`` (with ``schemes``, these as well).

        Raises CassandraError for formats that the gateware does not handle.
        """
        if fmt.pruned_exponent != "raw":
            raise CassandraError("pruned_exponent must be 'raw' for the encoder, not 'coded'")
        decoder = DecoderConfig.of(fmt, schemes=schemes)
        if fmt.lead != 1:
            raise CassandraError(f"lead must be 1 for the encoder, not {fmt.lead!r}")
        return cls(**decoder.shared, group=max(fmt.group, cls.group))

    @property
    def pace(self) -> int:
        """Input values per cycle: a beat, or a piece of one. A beat is a whole number of pieces."""
        return self.values_per_cycle or self.lanes

    @property
    def value_rows(self) -> int:
        """Rows that a single pruned value takes."""
        return max(16 // self.lanes, 1)


def TensorWord(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """A beat of BF16 values at the input; ``keep`` has one bit per lane."""
    return data.StructLayout({"values": data.ArrayLayout(16, lanes), "keep": lanes, "last": 1})


def RecordBeat(config: EncoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """A piece of a segment (``pace`` lanes), ready to be packed: each lane's bits for each stream.

    The fields of the command (``scheme``, ``truncated``, ``mask``) are the same in all pieces of a
    segment. Lanes that are not ``kept`` have arbitrary ``field`` and ``rank``, and in exact
    ``width`` 0; in other schemes ``residue`` and ``width`` are arbitrary. Lanes that are not
    ``present`` are neither ``kept`` nor ``stored``.

    ``abort`` comes alone: a segment whose command is refused is one record with ``last`` and
    ``abort`` set and no lane present. It has a result but no regions.
    """
    lanes = config.pace
    return data.StructLayout(
        {
            "raw": data.ArrayLayout(16, lanes),  # the value (saturated in mx); bit 15 is its sign
            "field": data.ArrayLayout(8, lanes),  # mantissa (7 bits), significand or window
            "rank": data.ArrayLayout(range(config.codebook), lanes),  # unary: rank of the exponent
            "residue": data.ArrayLayout(7, lanes),  # exact: zero from bit ``width`` on
            "width": data.ArrayLayout(3, lanes),  # exact: bits of residue, 1 for a zero flag
            "kept": lanes,  # the row of ``mask``
            "stored": lanes,  # pruned values and escapes: ``raw`` goes to ``pruned``
            "present": lanes,  # contiguous from lane 0; all but in the last piece
            "count": Shape.cast(range(lanes + 1)),  # number of kept lanes
            "shared": 8,  # mx, exact: the group's exponent
            "begins": 1,  # first piece of a group
            "last": 1,  # last piece of the segment
            "abort": 1,
            "scheme": 2,
            "truncated": 3,
            "mask": 1,  # the segment gets a ``mask`` stream
            "errors": EncodeErrorLayout,  # of the segment; valid in its last piece
            "saturated": COUNT_WIDTH,  # values replaced; valid in the last piece
        }
    )
