"""What is fixed when an encoder with its DMA is elaborated."""

from __future__ import annotations

import dataclasses
import functools

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.dma.config import LENGTH_BITS
from cassandra_spec.rtl.encode.types import EncoderConfig

__all__ = ["REGIONS", "StoreConfig"]

REGIONS = ("speculation", "verification")
"""Regions of a segment; the place is the AXI ID of their bursts."""

_MAX_BUS = 128  # bytes: the widest data bus of AXI
_MAX_BEATS = 256  # in a burst
_MAX_BUFFER = 1 << 16  # bytes
_CHOICES = {
    "bus": (8, 16, 32, 64, _MAX_BUS),
    "burst": (128, 256, 512, 1024, 2048, 4096),
    "outstanding": (1, 2, 4, 8, 16, 32),
    "queue": (2, 4, 8, 16, 32, 64),
    "results": (1, 2, 4, 8, 16, 32, 64),
    "books": (1, 2, 4, 8, 16),
    "address": (32, 40, 48, 56, 64),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """An encoder in front of a write master (docs/encoder.md).

    Raises CassandraError that names the field, the value and what was expected.
    """

    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    bus: int = 0  # bytes of the AXI data bus; 0: a word of a region, as many as lanes
    burst: int = 256  # bytes of the longest burst
    buffer: int = 1024  # bytes of each region that may wait for the memory
    outstanding: int = 8  # bursts of each region that may wait for their response
    queue: int = 8  # descriptors
    results: int = 8  # results that may wait for software
    books: int = 4  # codebooks that are kept for descriptors to name
    address: int = 64  # bits of an address

    def __post_init__(self) -> None:
        if not self.bus:
            object.__setattr__(self, "bus", self.encoder.lanes)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                text = ", ".join(map(str, choices))
                raise CassandraError(f"{name} must be one of {text}, not {getattr(self, name)!r}")
        lanes = self.encoder.lanes
        if self.bus < lanes:
            expected = f"at least {lanes} bytes, one for each lane"
            raise CassandraError(f"bus must be {expected}, not {self.bus}")
        if self.burst > _MAX_BEATS * self.bus:
            most = _MAX_BEATS * self.bus
            raise CassandraError(f"burst must be at most {most}, 256 bus words, not {self.burst}")
        times = self.buffer // self.burst
        if self.buffer != times * self.burst or times & (times - 1) or not times <= _MAX_BUFFER:
            expected = f"{self.burst} times a power of two, at most {_MAX_BUFFER}"
            raise CassandraError(f"buffer must be {expected}, not {self.buffer}")

    @property
    def word_bits(self) -> int:
        """Low bits of an address that a bus word's address has zero."""
        return (self.bus - 1).bit_length()

    @property
    def count_bits(self) -> int:
        """Bits of the room of a region in bus words."""
        return LENGTH_BITS - self.word_bits

    @property
    def longest(self) -> int:
        """Bus words of the longest burst."""
        return self.burst // self.bus

    @property
    def depth(self) -> int:
        """Bus words of each region that may wait for the memory."""
        return self.buffer // self.bus

    @functools.cached_property
    def module_name(self) -> str:
        """Name of the exported top; one for each configuration."""
        name = self.encoder.module_name.replace("encoder", "encoder_dma", 1)
        plain = StoreConfig(encoder=self.encoder, bus=self.bus)
        marks = {
            "burst": "t",
            "buffer": "f",
            "outstanding": "o",
            "queue": "q",
            "results": "r",
            "books": "k",
            "address": "a",
        }
        parts = [
            f"{mark}{getattr(self, field)}"
            for field, mark in marks.items()
            if getattr(self, field) != getattr(plain, field)
        ]
        return "_".join([name, f"d{8 * self.bus}", *parts])
