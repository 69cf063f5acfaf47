"""Packed tensors: the output of an encoder and the input of a decoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import DIRECTORY_FIELDS, FLAG_MASK, Format

Bytes = NDArray[np.uint8]
Values = NDArray[np.uint16]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """One segment of a packed tensor: its regions and the fields of its command word."""

    index: int  # index in the tensor
    count: int  # number of values, 1..65536
    has_mask: bool  # the segment has a ``mask`` stream
    speculation: Bytes  # uint8, a whole number of superblocks
    verification: Bytes  # uint8, a whole number of superblocks; may be empty


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """A packed tensor (docs/format.md, section 5).

    Offsets and lengths in ``directory`` are in superblocks; ``stream_bits`` counts the bits that
    each stream uses, without padding.
    """

    format: Format
    count: int  # number of values
    speculation: Bytes  # uint8 [bytes]: read by draft and target
    verification: Bytes  # uint8 [bytes]: read by the target only
    directory: NDArray[np.uint32]  # [segments, 5], columns DIRECTORY_FIELDS
    codebook: tuple[int, ...] = ()  # exponents by rank (unary)
    pruned_codebook: tuple[int, ...] = ()  # exponents of pruned values by rank (unary, coded)
    stream_bits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    saturated: int = 0  # values that were replaced because they were not finite (mx, on request)

    def __len__(self) -> int:
        return self.count

    def segments(self) -> Iterator[Segment]:
        """Yield the segments in order; regions are views."""
        for index in range(len(self.directory)):
            yield self.segment(index)

    def segment(self, index: int) -> Segment:
        """Return the segment with this index."""
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

    def part(self, start: int, stop: int) -> Packed:
        """Return segments ``start`` to ``stop`` as a packed tensor, for decoding in pieces.

        Regions are views. ``stream_bits`` is empty, because it is counted for whole tensors only.
        """
        directory = self.directory[start:stop].copy()
        unit = self.format.superblock
        regions = []
        for column, region in ((0, self.speculation), (2, self.verification)):
            first = int(directory[0, column]) if len(directory) else 0
            length = int(directory[:, column + 1].sum(dtype=np.int64))
            directory[:, column] -= np.uint32(first)
            regions.append(region[first * unit : (first + length) * unit])
        return dataclasses.replace(
            self,
            count=max(min(stop * self.format.segment, self.count) - start * self.format.segment, 0),
            speculation=regions[0],
            verification=regions[1],
            directory=directory,
            stream_bits={},
        )

    def bits(self) -> dict[str, float]:
        """Return bits per value by stream, then ``padding`` of both regions, ``speculation``,
        ``verification`` and ``total`` as stored (``total`` includes the directory).
        """
        count = max(self.count, 1)
        used = {name: bits / count for name, bits in self.stream_bits.items()}
        stored = 8 * (self.speculation.size + self.verification.size)
        used["padding"] = (stored - sum(self.stream_bits.values())) / count
        used["speculation"] = 8 * self.speculation.size / count
        used["verification"] = 8 * self.verification.size / count
        used["total"] = (stored + 8 * self.directory.nbytes) / count
        return used


def concatenate(parts: Sequence[Packed]) -> Packed:
    """Join consecutive parts that were encoded with the same codebooks into one packed tensor.

    Every part but the last must consist of whole segments; at least one part is needed.
    """
    first = parts[0]
    for place, part in enumerate(parts, start=1):
        _check_part(first, part, last=place == len(parts))
    directories, offsets = [], np.zeros(2, np.uint32)
    for part in parts:
        moved = part.directory.copy()
        moved[:, [0, 2]] += offsets
        offsets += part.directory[:, [1, 3]].sum(axis=0, dtype=np.uint32)
        directories.append(moved)
    return dataclasses.replace(
        first,
        count=sum(part.count for part in parts),
        speculation=np.concatenate([part.speculation for part in parts]),
        verification=np.concatenate([part.verification for part in parts]),
        directory=np.concatenate(directories),
        stream_bits=_sum_bits([part.stream_bits for part in parts]),
        saturated=sum(part.saturated for part in parts),
    )


def _sum_bits(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for count in counts for name in count)
    return {name: sum(count.get(name, 0) for count in counts) for name in names}


def _check_part(first: Packed, part: Packed, *, last: bool) -> None:
    same = (part.format, part.codebook, part.pruned_codebook)
    if same != (first.format, first.codebook, first.pruned_codebook):
        raise CassandraError("parts of a tensor must share one format and its codebooks")
    if part.count % first.format.segment and not last:
        raise CassandraError(
            f"count of a part before the last must be a multiple of {first.format.segment}, "
            f"not {part.count}"
        )


class EncodeOptions(TypedDict, total=False):
    """Options of ``encode``; an option that is absent or None has its default.

    Attributes:
        kept: bool [count], the values that a draft reads; all by default (section 4).
        codebook: exponents by rank (unary); by default the most frequent kept ones.
        pruned_codebook: exponents of pruned values (unary with coded pruned exponents); by default
            the most frequent ones.
        group_exponents: uint8 [groups] (mx, exact); by default the largest exponents.
        nonfinite: NaN and infinite values in scheme mx: ``"error"`` (the default), ``"saturate"``.
        always_mask: write a ``mask`` stream also for segments that keep every value (section 4).
    """

    kept: NDArray[np.bool_] | None
    codebook: Sequence[int] | None
    pruned_codebook: Sequence[int] | None
    group_exponents: NDArray[np.uint8] | None
    nonfinite: str
    always_mask: bool


class Codec(Protocol):
    """The runtime's interface to a codec, implemented by golden and by the gateware."""

    def decode_draft(self, packed: Packed) -> Values:
        """Return draft values, uint16 [count]."""

    def decode_target(self, packed: Packed) -> Values:
        """Return target values, uint16 [count]."""


class Packer(Codec, Protocol):
    """A codec that also encodes: golden's and the native one. Picklable, for worker processes."""

    def encode(self, values: Values, format: Format, **options: Unpack[EncodeOptions]) -> Packed:
        """Pack a tensor; options are those of :class:`EncodeOptions`."""

    def choose_group_exponents(
        self,
        values: Values,
        format: Format,
        *,
        kept: NDArray[np.bool_] | None = None,
        importance: NDArray[np.unsignedinteger] | None = None,
    ) -> NDArray[np.uint8]:
        """Choose group exponents by the draft's error: :func:`golden.choose_group_exponents`."""
