"""What is fixed when a decoder with its DMA is elaborated."""

from __future__ import annotations

import dataclasses
import functools

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.common.command import DecoderConfig

__all__ = ["IN_FLIGHT", "LENGTH_BITS", "MAX_DECODERS", "PAGE", "DmaConfig"]

PAGE = 4096
"""Bytes; no burst crosses a multiple of it (AXI)."""

LENGTH_BITS = 24
"""Bits of the length of a region in bytes; the longest segment needs 19."""

IN_FLIGHT = 4
"""Segments that each decoder may have between the queue and the last beat of its values."""

MAX_DECODERS = 8

_MAX_BUS = 128  # bytes: the widest data bus of AXI
_MAX_BEATS = 256  # in a burst
_MAX_BUFFER = 1 << 16  # bytes
_MAX_REORDER = 4096  # beats of the output in the buffer of a decoder
_CHOICES = {
    "decoders": (1, 2, 4, MAX_DECODERS),
    "bus": (8, 16, 32, 64, _MAX_BUS),
    "burst": (128, 256, 512, 1024, 2048, PAGE),
    "queue": (2, 4, 8, 16, 32, 64),
    "books": (1, 2, 4, 8, 16),
    "address": (32, 40, 48, 56, 64),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DmaConfig:
    """Decoders behind one read master (docs/integration.md).

    Raises CassandraError that names the field, the value and what was expected.
    """

    decoder: DecoderConfig = dataclasses.field(default_factory=DecoderConfig)
    decoders: int = 1  # that share the read master
    bus: int = 0  # bytes of the AXI data bus; 0: what the decoders take in a cycle, at most 128
    burst: int = 256  # bytes of the longest burst
    buffer: int = 2048  # bytes of read data that each region of each decoder may have ahead
    queue: int = 8  # descriptors
    books: int = 4  # codebooks that are kept for descriptors to name
    reorder: int = Format().segment  # values that each decoder may be ahead of the output
    address: int = 64  # bits of an address

    def __post_init__(self) -> None:
        if self.decoder.coded:
            raise CassandraError("decoder must be without coded pruned exponents behind a DMA")
        if not self.bus:
            object.__setattr__(self, "bus", min(_MAX_BUS, self.decoders * self.decoder.lanes))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                text = ", ".join(map(str, choices))
                raise CassandraError(f"{name} must be one of {text}, not {getattr(self, name)!r}")
        rate = self.decoder.target_rate
        _require(rate == "half", "target_rate", "half for a decoder behind a DMA", rate)
        lanes = self.decoder.lanes
        _require(self.bus >= lanes, "bus", f"at least {lanes} bytes, one for each lane", self.bus)
        most = _MAX_BEATS * self.bus
        _require(self.burst <= most, "burst", f"at most {most}, 256 bus words", self.burst)
        _require_power("buffer", self.buffer, self.burst, _MAX_BUFFER)
        _require_power("reorder", self.reorder, self.beat_values, _MAX_REORDER * self.beat_values)

    @property
    def regions(self) -> int:
        """Regions that are read at once; each has an AXI ID of its own."""
        return 2 * self.decoders

    @property
    def id_bits(self) -> int:
        """Bits of an AXI ID: twice the number of the decoder, plus one for verification."""
        return (self.regions - 1).bit_length()

    @property
    def word_bits(self) -> int:
        """Low bits of an address that a bus word's address has zero."""
        return (self.bus - 1).bit_length()

    @property
    def count_bits(self) -> int:
        """Bits of the length of a region in bus words."""
        return LENGTH_BITS - self.word_bits

    @property
    def beat_values(self) -> int:
        """Values in a beat of the output."""
        return self.decoders * self.decoder.lanes

    @functools.cached_property
    def module_name(self) -> str:
        """Name of the exported top; one for each configuration."""
        kind = "dma" if self.decoders == 1 else f"array_n{self.decoders}"
        name = self.decoder.module_name.replace("decoder", kind, 1)
        plain = DmaConfig(decoder=self.decoder, decoders=self.decoders, bus=self.bus)
        marks = {"burst": "t", "buffer": "f", "queue": "q", "books": "k", "address": "a"}
        if self.decoders > 1:
            marks["reorder"] = "o"
        parts = [
            f"{mark}{getattr(self, field)}"
            for field, mark in marks.items()
            if getattr(self, field) != getattr(plain, field)
        ]
        return "_".join([name, f"d{8 * self.bus}", *parts])


def _require(condition: bool, field: str, expected: str, value: object) -> None:
    if not condition:
        raise CassandraError(f"{field} must be {expected}, not {value!r}")


def _require_power(field: str, value: int, unit: int, most: int) -> None:
    """``value`` is ``unit`` times a power of two: every address of a memory has a word."""
    times = value // unit
    fits = value == times * unit and 0 < value <= most and times & (times - 1) == 0
    _require(fits, field, f"{unit} times a power of two, at most {most}", value)
