"""The register map: one table that makes the gateware, the documentation and the C header.

A register is 32 bits at a multiple of four bytes. Its fields have one access each:

``ro``   read only
``rw``   read and write; zero after reset
``w1c``  set by the hardware, cleared by writing ones
``wo``   acts when it is written; reads as zero
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Literal

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import (
    COMMAND_FIELDS,
    ENCODE_COMMAND_FIELDS,
    ENCODE_ERROR_CAUSES,
    ERROR_CAUSES,
)

__all__ = [
    "ADDRESS_BITS",
    "DMA_CAUSES",
    "ENCODE_CAUSES",
    "ID",
    "IRQ_SOURCES",
    "REGISTERS",
    "TOPS",
    "VERSION",
    "Access",
    "Field",
    "Register",
    "check",
    "field_of",
    "register_of",
    "registers_for",
]

Access = Literal["ro", "rw", "w1c", "wo"]

Top = Literal["decode", "encode"]

TOPS: tuple[Top, ...] = ("decode", "encode")
"""What has registers: decoders with their DMA (dma, array), the encoder with its (encoder-dma)."""

ADDRESS_BITS = 8
"""Bits of an address of the register port."""

ID = int.from_bytes(b"CASS", "big")
"""What the register ``id`` reads."""

VERSION = (0, 2, 0)
"""Of the register map: major (incompatible), minor (additions), patch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """Bits of a register."""

    name: str
    width: int
    access: Access
    meaning: str
    skip: int = 0  # reserved bits below it

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
    tops: tuple[Top, ...] = TOPS  # that have it
    latched: bool = False  # the upper half of a number: reads what it was when the lower was read

    def places(self) -> Iterator[tuple[Field, int]]:
        """Fields with their lowest bit."""
        low = 0
        for field in self.fields:
            low += field.skip
            yield field, low
            low += field.width


def _whole(
    name: str, offset: int, access: Access, meaning: str, *, tops: tuple[Top, ...] = TOPS
) -> Register:
    """A register that is one field."""
    field = Field(name="value", width=32, access=access, meaning=meaning)
    return Register(name=name, offset=offset, meaning=meaning, fields=(field,), tops=tops)


def _pair(name: str, offset: int, access: Access, meaning: str) -> tuple[Register, Register]:
    """A 64-bit number in two registers."""
    halves = ("bits 31:0", "bits 63:32")
    low, high = (
        _whole(f"{name}_{part}", offset + 4 * place, access, f"{meaning}, {halves[place]}")
        for place, part in enumerate(("low", "high"))
    )
    return low, dataclasses.replace(high, latched=access == "ro")


def _bits(access: Access, *names_and_meanings: tuple[str, str]) -> tuple[Field, ...]:
    return tuple(
        Field(name=name, width=1, access=access, meaning=meaning)
        for name, meaning in names_and_meanings
    )


DMA_CAUSES = (
    ("slave", "a read (encoder: a write) was answered with SLVERR"),
    ("decode", "a read (encoder: a write) was answered with DECERR"),
    ("descriptor", "a descriptor was not legal and is not queued"),
    ("overflow", "a descriptor was written while the queue was full and is lost"),
)
"""Causes of an error that the decoder does not know."""

ENCODE_CAUSES = (
    *((f"encode_{name}", f"encoder: {name} (docs/encoder.md)") for name in ENCODE_ERROR_CAUSES),
    ("room", "encoder: a region did not fit its room; what did not fit is not written"),
)
"""Causes of an error that only the encoder knows."""

IRQ_SOURCES = (
    ("segment", "a segment has left (encoder: its result waits)"),
    ("idle", "the last segment has left and the queue is empty"),
    ("error", "a bit of ERROR was set"),
)

_CAUSES = (
    *((name, f"decoder: {name} (docs/format.md, section 7)") for name in ERROR_CAUSES),
    *DMA_CAUSES,
    *ENCODE_CAUSES,
)

_FIRST_BITS = 27
"""Bits of the encoder's command word in ENCODE_COMMAND; the others are in ENCODE_VECTOR."""


def _encode_command() -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """The fields of the encoder's command word, cut between two of them."""
    parts: tuple[list[Field], list[Field]] = ([], [])
    low = 0
    for field in ENCODE_COMMAND_FIELDS:
        made = Field(name=field.name, width=field.width, access="rw", meaning=field.meaning)
        parts[low >= _FIRST_BITS].append(made)
        low += field.width
    return tuple(parts[0]), tuple(parts[1])


REGISTERS = (
    _whole("id", 0x00, "ro", '"CASS", first letter in the highest byte'),
    Register(
        name="version",
        offset=0x04,
        meaning="version of this map",
        fields=(
            Field(name="patch", width=8, access="ro", meaning="corrections"),
            Field(name="minor", width=8, access="ro", meaning="additions"),
            Field(name="major", width=8, access="ro", meaning="incompatible changes"),
        ),
    ),
    Register(
        name="decoder",
        tops=("decode",),
        offset=0x08,
        meaning="what the decoders can do",
        fields=(
            Field(name="lanes", width=8, access="ro", meaning="values in a cycle of one decoder"),
            Field(name="schemes", width=4, access="ro", meaning="bit i: scheme i of COMMAND"),
            Field(name="window", width=4, access="ro", meaning="rows in a window of unary codes"),
            Field(name="codebook", width=8, access="ro", meaning="entries of a codebook"),
            Field(name="decoders", width=8, access="ro", meaning="decoders behind this port"),
        ),
    ),
    Register(
        name="fetch",
        tops=("decode",),
        offset=0x0C,
        meaning="how the read master is built",
        fields=(
            Field(
                name="bus",
                width=8,
                access="ro",
                meaning="bytes of a bus word: bases and lengths are multiples of it",
            ),
            Field(name="queue", width=8, access="ro", meaning="descriptors in the queue"),
            Field(name="books", width=8, access="ro", meaning="codebooks that are kept"),
            Field(
                name="superblock",
                width=8,
                access="ro",
                meaning="superblock in cache blocks of 128 bytes",
            ),
        ),
    ),
    Register(
        name="control",
        offset=0x10,
        meaning="what runs",
        fields=(
            Field(
                name="enable",
                width=1,
                access="rw",
                meaning="descriptors leave the queue; what has left it is finished in any case",
            ),
            Field(
                name="drop",
                width=1,
                access="wo",
                meaning="empty the queue; only while enable is 0, else it does nothing",
            ),
            Field(
                name="clear",
                width=1,
                access="wo",
                meaning="set the counters, and the number of the next segment, to zero",
            ),
        ),
    ),
    Register(
        name="status",
        offset=0x14,
        meaning="what happens now",
        fields=(
            *_bits("ro", ("busy", "a segment is in the queue or on its way")),
            *_bits("ro", ("full", "the queue takes no descriptor")),
            Field(name="waiting", width=7, access="ro", meaning="descriptors in the queue", skip=6),
            Field(
                name="flying",
                width=16,
                access="ro",
                meaning="segments between queue and output",
                skip=1,
            ),
        ),
    ),
    Register(
        name="irq",
        offset=0x18,
        meaning="interrupts that wait; irq is high while one waits that is enabled",
        fields=_bits("w1c", *IRQ_SOURCES),
    ),
    Register(
        name="irq_enable",
        offset=0x1C,
        meaning="interrupts that reach irq",
        fields=_bits("rw", *((name, f"enable {name}") for name, _ in IRQ_SOURCES)),
    ),
    Register(
        name="error",
        offset=0x20,
        meaning="sticky causes of errors",
        fields=_bits("w1c", *_CAUSES),
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
    Register(
        name="command",
        tops=("decode",),
        offset=0x30,
        meaning="command word of the segment",
        fields=tuple(
            Field(name=field.name, width=field.width, access="rw", meaning=field.meaning)
            for field in COMMAND_FIELDS
        ),
    ),
    Register(
        name="book",
        offset=0x34,
        meaning="codebook of the segment (unary)",
        fields=(
            Field(
                name="slot",
                width=4,
                access="rw",
                meaning="a codebook that CODEBOOK has written",
            ),
        ),
    ),
    *_pair("speculation_base", 0x38, "rw", "address of the speculation region"),
    *_pair("verification_base", 0x40, "rw", "address of the verification region"),
    _whole("speculation_length", 0x48, "rw", "bytes of the speculation region (encoder: its room)"),
    _whole(
        "verification_length",
        0x4C,
        "rw",
        "bytes of the verification region (encoder: its room); a decoder does not look at it unless"
        " COMMAND has target and verification set",
    ),
    Register(
        name="start",
        offset=0x50,
        meaning="puts the segment that 0x30 to 0x4c (encoder: 0x34 to 0x4c, 0x90, 0x94) describe in"
        " the queue; they keep their values",
        fields=_bits(
            "wo",
            ("push", "1: queue the segment"),
            (
                "follow",
                "encoder: the regions go behind those of the segment before, with what is left of"
                " their room; bases and lengths are not looked at",
            ),
        ),
    ),
    Register(
        name="codebook",
        offset=0x54,
        meaning="writes an entry of a codebook, from entry 0 up; not while a segment that uses the"
        " slot is in the queue or on its way",
        fields=(
            Field(name="exponent", width=8, access="wo", meaning="the exponent"),
            Field(name="entry", width=5, access="wo", meaning="its rank"),
            Field(name="slot", width=4, access="wo", meaning="the codebook", skip=3),
            Field(
                name="last",
                width=1,
                access="wo",
                meaning="the codebook ends with this entry; without it the slot is not defined",
                skip=4,
            ),
        ),
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
    Register(
        name="encoder",
        tops=("encode",),
        offset=0x8C,
        meaning="what the encoder can do",
        fields=(
            Field(name="lanes", width=8, access="ro", meaning="values in a cycle"),
            Field(
                name="schemes", width=4, access="ro", meaning="bit i: scheme i of ENCODE_COMMAND"
            ),
            Field(name="window", width=4, access="ro", meaning="rows in a window of unary codes"),
            Field(name="codebook", width=8, access="ro", meaning="entries of a codebook"),
            Field(
                name="vector",
                width=8,
                access="ro",
                meaning="values in the longest vector, minus one",
            ),
        ),
    ),
    Register(
        name="encode_command",
        tops=("encode",),
        offset=0x90,
        meaning="command word of the segment, first part",
        fields=_encode_command()[0],
    ),
    Register(
        name="encode_vector",
        tops=("encode",),
        offset=0x94,
        meaning="command word of the segment, the rest",
        fields=_encode_command()[1],
    ),
    Register(
        name="store",
        tops=("encode",),
        offset=0x98,
        meaning="how the write master is built",
        fields=(
            Field(
                name="bus",
                width=8,
                access="ro",
                meaning="bytes of a bus word: bases and rooms are multiples of it",
            ),
            Field(name="queue", width=8, access="ro", meaning="descriptors in the queue"),
            Field(name="books", width=8, access="ro", meaning="codebooks that are kept"),
            Field(
                name="superblock",
                width=8,
                access="ro",
                meaning="superblock in cache blocks of 128 bytes",
            ),
        ),
    ),
    Register(
        name="result",
        tops=("encode",),
        offset=0x9C,
        meaning="the oldest segment that is in memory and has not been popped, with 0xa0 to 0xb0",
        fields=(
            *_bits("ro", ("valid", "there is one; without, 0xa0 to 0xb0 mean nothing")),
            *_bits("ro", ("mask", "it has a mask stream (bit 0 of its flags in the directory)")),
            *_bits("ro", ("failed", "a write was answered with an error")),
            *_bits("ro", ("room", "a region did not fit its room")),
            Field(
                name="errors",
                width=len(ENCODE_ERROR_CAUSES),
                access="ro",
                meaning="causes of docs/encoder.md",
                skip=4,
            ),
            *_bits("wo", ("pop", "1: go on to the next; nothing happens if there is none")),
            Field(name="waiting", width=7, access="ro", meaning="segments that wait", skip=10),
        ),
    ),
    *(
        _whole(name, offset, "ro", meaning, tops=("encode",))
        for name, offset, meaning in (
            (
                "result_speculation_offset",
                0xA0,
                "superblocks from the base of the first segment that it follows to its speculation"
                " region",
            ),
            ("result_speculation_length", 0xA4, "superblocks of its speculation region"),
            ("result_verification_offset", 0xA8, "likewise, to its verification region"),
            ("result_verification_length", 0xAC, "superblocks of its verification region"),
            ("result_saturated", 0xB0, "values of it that were replaced (mx)"),
        )
    ),
)
"""The map."""


def registers_for(top: Top) -> tuple[Register, ...]:
    """The registers that a top has."""
    return tuple(register for register in REGISTERS if top in register.tops)


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
    """The register of a name; KeyError if there is none."""
    return {register.name: register for register in REGISTERS}[name]


def field_of(register: str, field: str) -> tuple[Field, int]:
    """A field and its lowest bit; KeyError if there is none."""
    return {found.name: (found, low) for found, low in register_of(register).places()}[field]
