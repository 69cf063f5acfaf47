"""Configurations of decoder and encoder with their DMA."""

from __future__ import annotations

import abc
import dataclasses
import functools

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.common.command import DecoderConfig, EngineConfig
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.encode.types import EncoderConfig

PAGE = 4096
"""Page size in bytes; no burst crosses a multiple of it (AXI)."""

LENGTH_BITS = 24
"""Bits of the length of a region in bytes; the longest segment needs 19."""

IN_FLIGHT = 4
"""Maximum number of segments in an engine, between the queue and the last beat or the entry."""

MAX_DECODERS = 8

REGIONS = ("speculation", "verification")
"""Regions of a segment. The index of a region is the low bit of the AXI ID of its bursts."""

_MAX_BUS = 128  # bytes: the widest data bus of AXI
_MAX_BEATS = 256  # beats of a burst
_MAX_BUFFER = 1 << 16  # bytes
_MAX_REORDER = 4096  # output beats in the buffer of a decoder
_CHOICES = {
    "decoders": (1, 2, 4, MAX_DECODERS),
    "bus": (8, 16, 32, 64, _MAX_BUS),
    "burst": (128, 256, 512, 1024, 2048, PAGE),
    "outstanding": (1, 2, 4, 8, 16, 32),
    "queue": (2, 4, 8, 16, 32, 64),
    "results": (1, 2, 4, 8, 16, 32, 64),
    "books": (1, 2, 4, 8, 16),
    "address": (32, 40, 48, 56, 64),
    "attributes": (False, True),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BusConfig(abc.ABC):
    """Parameters that decoders and an encoder behind an AXI4 master share.

    Raises CassandraError that names the field, the value and what was expected.
    """

    bus: int = 0  # bytes of the AXI data bus; 0: as many as the engine moves per cycle, at most 128
    burst: int = 256  # bytes of the longest burst
    buffer: int = 2048  # bytes per region between engine and memory
    queue: int = 8  # descriptors
    books: int = 4  # codebooks that descriptors can name
    address: int = 64  # bits of an address
    attributes: bool = False  # AxCACHE and AxPROT are inputs, which must not change during a job

    def __post_init__(self) -> None:
        if not self.bus:
            object.__setattr__(self, "bus", min(_MAX_BUS, self._keeps_up))
        for name, choices in _CHOICES.items():
            if hasattr(self, name) and getattr(self, name) not in choices:
                text = ", ".join(map(str, choices))
                raise CassandraError(f"{name} must be one of {text}, not {getattr(self, name)!r}")
        least = self.widest
        _require(self.bus >= least, "bus", f"at least {least} bytes, a word of a region", self.bus)
        most = _MAX_BEATS * self.bus
        _require(self.burst <= most, "burst", f"at most {most}, 256 bus words", self.burst)
        _require_power("buffer", self.buffer, self.burst, _MAX_BUFFER)

    @property
    @abc.abstractmethod
    def engine(self) -> EngineConfig:
        """The decoder or encoder."""

    @property
    def beat_values(self) -> int:
        """Values in a beat of the value stream."""
        return self.engine.lanes

    @property
    def widest(self) -> int:
        """Maximum number of bytes that the engine moves per cycle of one region, verification."""
        return self.engine.lanes

    @property
    def _keeps_up(self) -> int:
        """Bytes of a bus that supplies or takes one such word per beat of values."""
        return self.beat_values // self.engine.lanes * self.widest

    @property
    def word_bits(self) -> int:
        """Low bits that are zero in the address of a bus word."""
        return (self.bus - 1).bit_length()

    @property
    def count_bits(self) -> int:
        """Bits of the length of a region in bus words."""
        return LENGTH_BITS - self.word_bits

    @property
    def longest(self) -> int:
        """Bus words of the longest burst."""
        return self.burst // self.bus

    @property
    def depth(self) -> int:
        """Bus words per region in the buffer between engine and memory."""
        return self.buffer // self.bus

    @property
    @abc.abstractmethod
    def _marks(self) -> dict[str, str]:
        """Fields, and their letters in the module name if they differ from the default."""

    @property
    @abc.abstractmethod
    def _kind(self) -> str:
        """Name of the kind of module."""

    @functools.cached_property
    def module_name(self) -> str:
        """Name of the exported top, unique per configuration."""
        name = self.engine.module_name.replace(self.engine.kind, self._kind, 1)
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        parts = [
            f"{mark}{int(getattr(self, field))}"
            for field, mark in self._marks.items()
            if getattr(self, field) != usual[field]
        ]
        return "_".join([name, f"d{8 * self.bus}", *parts])


@dataclasses.dataclass(frozen=True, kw_only=True)
class DmaConfig(BusConfig):
    """Decoders behind one read master (docs/hardware/dma.md).

    Raises CassandraError that names the field, the value and what was expected.
    """

    decoder: DecoderConfig = dataclasses.field(default_factory=DecoderConfig)
    decoders: int = 1  # decoders that share the read master
    reorder: int = Format().segment  # values that each decoder may be ahead of the output

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_power("reorder", self.reorder, self.beat_values, _MAX_REORDER * self.beat_values)

    @property
    def engine(self) -> DecoderConfig:
        """The configuration of each decoder."""
        return self.decoder

    @property
    def widest(self) -> int:
        """Bytes of a verification word: at full rate twice as many as of a speculation word."""
        return self.decoder.lanes * self.decoder.verification_rows // BUS_ROWS

    @property
    def regions(self) -> int:
        """Regions that are read at once; each has its own AXI ID."""
        return len(REGIONS) * self.decoders

    @property
    def id_bits(self) -> int:
        """Bits of an AXI ID: twice the number of the decoder, plus one for verification."""
        return (self.regions - 1).bit_length()

    @property
    def beat_values(self) -> int:
        """Values in a beat of the output."""
        return self.decoders * self.decoder.lanes

    @property
    def _marks(self) -> dict[str, str]:
        marks = {"burst": "t", "buffer": "f", "queue": "q", "books": "k", "address": "a"}
        marks["attributes"] = "p"
        return marks | ({"reorder": "o"} if self.decoders > 1 else {})

    @property
    def _kind(self) -> str:
        return "dma" if self.decoders == 1 else f"array_n{self.decoders}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreConfig(BusConfig):
    """An encoder in front of a write master (docs/hardware/encoder.md).

    Raises CassandraError that names the field, the value and what was expected.
    """

    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    buffer: int = 1024
    outstanding: int = 8  # bursts per region without a response
    results: int = 8  # results that may wait for software

    @property
    def engine(self) -> EncoderConfig:
        """The encoder's configuration."""
        return self.encoder

    @property
    def _marks(self) -> dict[str, str]:
        return {
            "burst": "t",
            "buffer": "f",
            "outstanding": "o",
            "queue": "q",
            "results": "r",
            "books": "k",
            "address": "a",
            "attributes": "p",
        }

    @property
    def _kind(self) -> str:
        return "encoder_dma"


def _require(condition: bool, field: str, expected: str, value: object) -> None:
    if not condition:
        raise CassandraError(f"{field} must be {expected}, not {value!r}")


def _require_power(field: str, value: int, unit: int, most: int) -> None:
    """Require that ``value`` is ``unit`` times a power of two, so addresses have no gaps."""
    times = value // unit
    fits = value == times * unit and 0 < value <= most and times & (times - 1) == 0
    _require(fits, field, f"{unit} times a power of two, at most {most}", value)
