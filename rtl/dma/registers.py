"""The register map: one table that defines the gateware, the documentation and the C header.

A register is 32 bits at a multiple of four bytes. Each field has one kind of access:

``ro``   read only
``rw``   read and write; zero after reset
``w1c``  set by the hardware, cleared by writing ones
``wo``   acts when it is written; reads as zero
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Literal

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import (
    COMMAND_FIELDS,
    ENCODE_COMMAND_FIELDS,
    ENCODE_ERROR_CAUSES,
    ERROR_CAUSES,
    CommandField,
)

Access = Literal["ro", "rw", "w1c", "wo"]

Top = Literal["decode", "encode"]

TOPS: tuple[Top, ...] = ("decode", "encode")
"""Tops with registers: decoders with their DMA (dma, array), the encoder with its (encoder-dma)."""

ADDRESS_BITS = 8
"""Bits of a register port address."""

ID = int.from_bytes(b"CASS", "big")
"""The value of the register ``id``."""

VERSION = (1, 0, 0)
"""The version of the register map: major (incompatible), minor (additions), patch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """Bits of a register."""

    name: str
    width: int
    access: Access
    meaning: str
    skip: int = 0  # reserved bits below it
    known: bool = True  # it has a value after reset: zero or one of the configuration
    only: Top | None = None  # the top that uses it; in the other it reads as zero

    def __post_init__(self) -> None:
        if not 1 <= self.width <= 32:
            raise CassandraError(f"width of {self.name} must be 1 to 32, not {self.width!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Register:
    """A 32-bit register; fields from bit 0 up. Bits in no field read as zero."""

    name: str
    offset: int
    meaning: str
    fields: tuple[Field, ...]
    tops: tuple[Top, ...] = TOPS  # tops that have it
    latched: bool = False  # upper half: keeps its value from the last read of the lower half
    whole: bool = False  # acts only when all of its bytes are written
    guarded: bool = False  # for rw fields; START has no effect after a soft error in it

    def places(self) -> Iterator[tuple[Field, int]]:
        """Yield the fields with their lowest bit."""
        low = 0
        for field in self.fields:
            low += field.skip
            yield field, low
            low += field.width


def _fields(
    access: Access, *entries: tuple[str, int, str] | tuple[str, int, str, int]
) -> tuple[Field, ...]:
    """Make fields of one access: name, width, meaning, and the number of reserved bits below."""
    made = []
    for name, width, meaning, *skip in entries:
        field = Field(name=name, width=width, access=access, meaning=meaning, skip=sum(skip))
        made.append(field)
    return tuple(made)


def _unknown(*fields: Field) -> tuple[Field, ...]:
    """Mark fields that may read anything until the hardware gives them a value."""
    return tuple(dataclasses.replace(field, known=False) for field in fields)


def _only(top: Top, *fields: Field) -> tuple[Field, ...]:
    """Mark fields that one top uses."""
    return tuple(dataclasses.replace(field, only=top) for field in fields)


def _bits(access: Access, *names_and_meanings: tuple[str, str]) -> tuple[Field, ...]:
    """Make fields of one bit."""
    return _fields(access, *((name, 1, meaning) for name, meaning in names_and_meanings))


def _register(
    name: str,
    offset: int,
    meaning: str,
    *fields: tuple[Field, ...],
    only: Top | None = None,
    whole: bool = False,
    guarded: bool = False,
) -> Register:
    """Make a register of named fields."""
    return Register(
        name=name,
        offset=offset,
        meaning=meaning,
        fields=tuple(itertools.chain(*fields)),
        tops=TOPS if only is None else (only,),
        whole=whole,
        guarded=guarded,
    )


def _whole(
    name: str,
    offset: int,
    access: Access,
    meaning: str,
    *,
    only: Top | None = None,
    guarded: bool = False,
) -> Register:
    """Make a register that is one field."""
    fields = _fields(access, ("value", 32, meaning))
    return _register(name, offset, meaning, fields, only=only, guarded=guarded)


def _pair(
    name: str, offset: int, access: Access, meaning: str, *, guarded: bool = False
) -> tuple[Register, Register]:
    """Make two registers for a 64-bit number."""
    halves = (("low", f"{meaning}, bits 31:0"), ("high", f"{meaning}, bits 63:32"))
    low, high = (
        _whole(f"{name}_{part}", offset + 4 * place, access, text, guarded=guarded)
        for place, (part, text) in enumerate(halves)
    )
    return low, dataclasses.replace(high, latched=access == "ro")


DMA_CAUSES = (
    ("slave", "a read (encoder: a write) was answered with SLVERR"),
    ("decode", "a read (encoder: a write) was answered with DECERR"),
    ("descriptor", "a descriptor was not legal and is not queued"),
    ("overflow", "a descriptor was written while the queue was full and is lost"),
)
"""Error causes of the DMA."""

ENCODE_CAUSES = (
    *(
        (f"encode_{name}", f"encoder: {name} (docs/hardware/encoder.md)")
        for name in ENCODE_ERROR_CAUSES
    ),
    ("room", "encoder: a region did not fit its room; the rest is not written"),
)
"""Error causes that only the encoder has."""

_BUS_CAUSES = (
    (
        "guard",
        "soft error in a descriptor; memory is not accessed any more until CONTROL.reset",
    ),
    ("stray", "a beat or response that answers no open burst came and was ignored"),
)

IRQ_SOURCES = (
    ("segment", "a segment has left (encoder: its result waits)"),
    ("idle", "STATUS.busy has cleared"),
    ("error", "a bit of ERROR was set"),
)

_DECODE_CAUSES = tuple(
    (name, f"decoder: {name} (docs/format.md, section 7)") for name in ERROR_CAUSES
)

_FIRST_BITS = 27
"""Bits of the encoder's command word in ENCODE_COMMAND; the others are in ENCODE_VECTOR."""


def _command(fields: Iterable[CommandField]) -> tuple[Field, ...]:
    """Return the fields of a command word."""
    return _fields("rw", *((field.name, field.width, field.meaning) for field in fields))


def _encode_command() -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """Return the fields of the encoder's command word, split into two registers."""
    ends = list(itertools.accumulate(field.width for field in ENCODE_COMMAND_FIELDS))
    cut = ends.index(_FIRST_BITS) + 1
    return _command(ENCODE_COMMAND_FIELDS[:cut]), _command(ENCODE_COMMAND_FIELDS[cut:])


def _engine(command: str, lanes: str, *more: tuple[str, int, str]) -> tuple[Field, ...]:
    """Return the fields that describe a decoder or encoder."""
    return _fields(
        "ro",
        ("lanes", 8, lanes),
        ("schemes", 4, f"bit i: scheme i of {command}"),
        ("window", 4, "rows in a window of unary codes"),
        ("codebook", 8, "entries of a codebook"),
        *more,
    )


def _master(lengths: str) -> tuple[Field, ...]:
    """Return the fields that describe the read or write master."""
    return _fields(
        "ro",
        ("bus", 8, f"bytes of a bus word: bases and {lengths} are multiples of it"),
        ("queue", 8, "descriptors in the queue"),
        ("books", 8, "codebooks that are kept"),
        ("superblock", 8, "superblock in cache blocks of 128 bytes"),
    )


_RESULTS = (
    (
        "speculation_offset",
        "superblocks from the base of the first segment that it follows to its speculation region",
    ),
    ("speculation_length", "superblocks of its speculation region"),
    ("verification_offset", "superblocks from the same base to its verification region"),
    ("verification_length", "superblocks of its verification region"),
    ("saturated", "values of it that were replaced (mx)"),
)

REGISTERS = (
    _whole("id", 0x00, "ro", '"CASS", first letter in the highest byte'),
    _register(
        "version",
        0x04,
        "version of this map",
        _fields(
            "ro",
            ("patch", 8, "corrections"),
            ("minor", 8, "additions"),
            ("major", 8, "incompatible changes"),
            ("encodes", 1, "1: an encoder; 0: decoders"),
        ),
    ),
    _register(
        "decoder",
        0x08,
        "capabilities of the decoders",
        _engine(
            "COMMAND",
            "values in a cycle of one decoder",
            ("decoders", 8, "decoders behind this port"),
        ),
        only="decode",
    ),
    _register("fetch", 0x0C, "parameters of the read master", _master("lengths"), only="decode"),
    _register(
        "control",
        0x10,
        "operation of the device",
        _bits(
            "rw",
            (
                "enable",
                "descriptors leave the queue; segments that have left it are finished in any case",
            ),
        ),
        _bits(
            "wo",
            ("drop", "empty the queue; without effect while enable is 1"),
            ("clear", "set the counters, and the number of the next segment, to zero"),
            (
                "reset",
                "drop all segments and set all registers to zero, while the bus is drained; ends "
                "with IRQ.idle",
            ),
        ),
        _only(
            "encode",
            *_bits(
                "wo",
                (
                    "fresh",
                    "encoder: with reset, the next beat of values begins a packet; otherwise the "
                    "rest of a packet that has begun is discarded",
                ),
            ),
        ),
    ),
    _register(
        "status",
        0x14,
        "current state",
        _fields(
            "ro",
            (
                "busy",
                1,
                "a segment is in the queue or on its way, or reads are outstanding, which outlast "
                "a segment that failed, or draining is set",
            ),
            ("full", 1, "the queue takes no descriptor"),
            ("draining", 1, "a reset waits for the bus to answer"),
            ("open", 1, "a burst waits for its address, its data or its response"),
            ("quiet", 1, "quiesce_done: no burst is open, and none begins"),
        ),
        _only(
            "encode",
            *_bits(
                "ro",
                ("discards", "encoder: the rest of a packet that a reset has cut is discarded"),
            ),
        ),
        _fields(
            "ro",
            ("waiting", 7, "descriptors in the queue", 2),
            ("flying", 16, "segments between queue and output", 1),
        ),
    ),
    _register(
        "irq",
        0x18,
        "interrupts that wait; irq is high while one waits that is enabled",
        _bits("w1c", *IRQ_SOURCES),
    ),
    _register(
        "irq_enable",
        0x1C,
        "interrupts that reach irq",
        _bits("rw", *((name, f"enable {name}") for name, _ in IRQ_SOURCES)),
    ),
    _register(
        "error",
        0x20,
        "sticky causes of errors",
        _only("decode", *_bits("w1c", *_DECODE_CAUSES)),
        _bits("w1c", *DMA_CAUSES),
        _only("encode", *_bits("w1c", *ENCODE_CAUSES)),
        _bits("w1c", *_BUS_CAUSES),
    ),
    _whole(
        "error_segment",
        0x24,
        "ro",
        "number of the first flagged segment since ERROR was written: those that left before it",
    ),
    *_pair(
        "error_address",
        0x28,
        "ro",
        "address of the first burst that was answered with an error since ERROR was written",
    ),
    _register(
        "command",
        0x30,
        "command word of the segment",
        _command(COMMAND_FIELDS),
        only="decode",
        guarded=True,
    ),
    _register(
        "book",
        0x34,
        "codebook of the segment (unary)",
        _fields(
            "rw",
            ("slot", 4, "a codebook that CODEBOOK has written"),
            ("pruned", 4, "decoder: likewise, of pruned values (targets, COMMAND.coded)", 4),
        ),
    ),
    *_pair("speculation_base", 0x38, "rw", "address of the speculation region", guarded=True),
    *_pair("verification_base", 0x40, "rw", "address of the verification region", guarded=True),
    _whole(
        "speculation_length",
        0x48,
        "rw",
        "bytes of the speculation region (encoder: its room)",
        guarded=True,
    ),
    _whole(
        "verification_length",
        0x4C,
        "rw",
        "bytes of the verification region (encoder: its room); a decoder does not look at it unless"
        " COMMAND has target and verification set",
        guarded=True,
    ),
    _register(
        "start",
        0x50,
        "puts the segment that 0x30 to 0x4c (encoder: 0x34 to 0x4c, 0x90, 0x94) describe in"
        " the queue; they keep their values",
        _bits("wo", ("push", "1: queue the segment")),
        _only(
            "encode",
            *_bits(
                "wo",
                (
                    "follow",
                    "encoder: the regions follow those of the previous segment, in the rest of"
                    " their room; bases and lengths are ignored",
                ),
            ),
        ),
    ),
    _register(
        "codebook",
        0x54,
        "writes an entry of a codebook, from entry 0 up; not while a segment that uses the"
        " slot is in the queue or on its way; a write without all byte strobes is ignored",
        _fields(
            "wo",
            ("exponent", 8, "the exponent"),
            ("entry", 5, "its rank"),
            ("slot", 4, "the codebook", 3),
            (
                "last",
                1,
                "the codebook ends with this entry; without it the slot is not defined",
                4,
            ),
            ("empty", 1, "with last and entry 0: the codebook has no entry (pruned values alone)"),
        ),
        whole=True,
    ),
    _register(
        "formats",
        0x58,
        "which formats the decoders read, beside DECODER",
        _fields(
            "ro",
            ("lead", 4, "lead of the format: 1 at half rate, 2 at full"),
            ("coded", 1, "1: pruned exponents may be coded"),
        ),
        only="decode",
    ),
    _whole(
        "outstanding",
        0x5C,
        "ro",
        "bus words (encoder: bursts) that memory has been asked for and has not answered",
    ),
    *_pair(
        "count_values",
        0x60,
        "ro",
        "values that left (encoder: came), those of flagged segments included",
    ),
    *_pair("count_cycles", 0x68, "ro", "cycles in which STATUS.busy was set"),
    *_pair("count_words", 0x70, "ro", "bus words read (encoder: written)"),
    *_pair(
        "count_stalls", 0x78, "ro", "cycles in which values (encoder: words) waited for their taker"
    ),
    *_pair(
        "count_idle",
        0x80,
        "ro",
        "cycles in which STATUS.busy was set and no values waited (encoder: came)",
    ),
    _whole("count_segments", 0x88, "ro", "segments that left"),
    _register(
        "encoder",
        0x8C,
        "capabilities of the encoder",
        _engine(
            "ENCODE_COMMAND",
            "values in a cycle",
            ("vector", 8, "values in the longest vector, minus one"),
        ),
        only="encode",
    ),
    _register(
        "encode_command",
        0x90,
        "command word of the segment, first part",
        _encode_command()[0],
        only="encode",
    ),
    _register(
        "encode_vector",
        0x94,
        "command word of the segment, the rest",
        _encode_command()[1],
        only="encode",
    ),
    _register("store", 0x98, "parameters of the write master", _master("rooms"), only="encode"),
    _register(
        "result",
        0x9C,
        "the oldest segment that is in memory and has not been popped, with 0xa0 to 0xb0",
        _bits(
            "ro",
            ("valid", "a result is there; if 0, mask to errors and 0xa0 to 0xb0 are undefined"),
        ),
        _unknown(
            *_bits(
                "ro",
                ("mask", "it has a mask stream (bit 0 of its flags in the directory)"),
                ("failed", "a write was answered with an error"),
                ("room", "a region did not fit its room"),
            ),
            *_fields(
                "ro", ("errors", len(ENCODE_ERROR_CAUSES), "causes of docs/hardware/encoder.md", 4)
            ),
        ),
        _bits("wo", ("pop", "1: advance to the next result; no effect without one")),
        _fields("ro", ("waiting", 7, "segments that wait", 10)),
        only="encode",
    ),
    *(
        _register(
            f"result_{name}",
            0xA0 + 4 * place,
            meaning,
            _unknown(*_fields("ro", ("value", 32, meaning))),
            only="encode",
        )
        for place, (name, meaning) in enumerate(_RESULTS)
    ),
)
"""The register map."""


def registers_for(top: Top) -> tuple[Register, ...]:
    """Return the registers that a top has."""
    return tuple(register for register in REGISTERS if top in register.tops)


def described_for(top: Top) -> tuple[Register, ...]:
    """Return the registers that a top has, without the fields that only the other top uses."""
    return tuple(_without(register, top) for register in registers_for(top))


def _without(register: Register, top: Top) -> Register:
    """Leave out fields of the other top; their bits become reserved ones."""
    fields, end = [], 0
    for field, low in register.places():
        if field.only in (None, top):
            fields.append(dataclasses.replace(field, skip=low - end))
            end = low + field.width
    return dataclasses.replace(register, fields=tuple(fields))


def check(registers: tuple[Register, ...] = REGISTERS) -> None:
    """Raise CassandraError if registers overlap, or fields do not fit or share a name."""
    for one, other in itertools.pairwise(registers):
        if other.offset <= one.offset:
            raise CassandraError(f"offset of {other.name} must be above {one.offset:#x}")
    for register in registers:
        if register.offset % 4 or not 0 <= register.offset < 1 << ADDRESS_BITS:
            raise CassandraError(f"offset of {register.name} must be a multiple of 4, in range")
        names = [field.name for field in register.fields]
        end = max(low + field.width for field, low in register.places())
        if end > 32 or len(set(names)) != len(names):
            raise CassandraError(f"fields of {register.name} must fit in 32 bits, names distinct")
    if len({register.name for register in registers}) != len(registers):
        raise CassandraError("names of registers must be distinct")


def register_of(name: str) -> Register:
    """Return the register with this name; raise KeyError if it does not exist."""
    return {register.name: register for register in REGISTERS}[name]


def guarded_of(top: Top) -> list[str]:
    """Return the names of a top's registers that determine which memory is accessed."""
    return [register.name for register in registers_for(top) if register.guarded]


def names_of(name: str) -> list[str]:
    """Return the names of the fields of a register, from bit 0 up."""
    return [field.name for field in register_of(name).fields]


def field_of(register: str, field: str) -> tuple[Field, int]:
    """Return a field and its lowest bit; raise KeyError if it does not exist."""
    return {found.name: (found, low) for found, low in register_of(register).places()}[field]
