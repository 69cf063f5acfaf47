"""What an encoder returns and a decoder takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from golden.format import DIRECTORY_FIELDS, FLAG_MASK, Format

__all__ = ["Codec", "Packed", "Segment"]

Bytes = NDArray[np.uint8]
Values = NDArray[np.uint16]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """One segment of a packed tensor: its regions and what a command word needs to know."""

    index: int  # place in the tensor
    count: int  # values, 1..65536
    has_mask: bool  # the segment has a ``mask`` stream
    speculation: Bytes  # uint8, a whole number of superblocks
    verification: Bytes  # uint8, a whole number of superblocks, possibly none


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """A packed tensor (docs/format.md, section 5).

    Offsets and lengths in ``directory`` are in superblocks; ``stream_bits`` counts the bits that
    each stream uses, without padding.
    """

    format: Format
    count: int  # values
    speculation: Bytes  # uint8 [bytes]: all that a draft reads
    verification: Bytes  # uint8 [bytes]: what a target reads in addition
    directory: NDArray[np.uint32]  # [segments, 5], columns DIRECTORY_FIELDS
    codebook: tuple[int, ...] = ()  # exponents by rank (unary)
    pruned_codebook: tuple[int, ...] = ()  # exponents of pruned values by rank (unary, coded)
    stream_bits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    saturated: int = 0  # values that were not finite and were replaced (mx, on request)

    def __len__(self) -> int:
        return self.count

    def segments(self) -> Iterator[Segment]:
        """Yield the segments in order; regions are views."""
        for index in range(len(self.directory)):
            yield self.segment(index)

    def segment(self, index: int) -> Segment:
        """One segment by its place in the tensor."""
        entry = dict(zip(DIRECTORY_FIELDS, map(int, self.directory[index]), strict=True))
        unit = self.format.superblock
        spec = entry["speculation_offset"] * unit
        ver = entry["verification_offset"] * unit
        return Segment(
            index=index,
            count=min(self.format.segment, self.count - index * self.format.segment),
            has_mask=bool(entry["flags"] & FLAG_MASK),
            speculation=self.speculation[spec : spec + entry["speculation_length"] * unit],
            verification=self.verification[ver : ver + entry["verification_length"] * unit],
        )

    def bits(self) -> dict[str, float]:
        """Bits per value by stream, then ``padding`` of both regions, ``speculation``,
        ``verification`` and ``total`` as stored (directory included in ``total``)."""
        count = max(self.count, 1)
        used = {name: bits / count for name, bits in self.stream_bits.items()}
        stored = 8 * (self.speculation.size + self.verification.size)
        used["padding"] = (stored - sum(self.stream_bits.values())) / count
        used["speculation"] = 8 * self.speculation.size / count
        used["verification"] = 8 * self.verification.size / count
        used["total"] = (stored + 8 * self.directory.nbytes) / count
        return used


class Codec(Protocol):
    """What the runtime needs of a codec; golden's functions and the gateware both offer it."""

    def decode_draft(self, packed: Packed) -> Values:
        """Draft values, uint16 [count]."""
        ...

    def decode_target(self, packed: Packed) -> Values:
        """Target values, uint16 [count]."""
        ...
