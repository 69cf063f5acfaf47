"""Encode a tensor: record the order in which the machine requests the rows of each stream."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.arguments import check_arguments
from cassandra_spec.golden.errors import DecodeError
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.oracle.machine import Shape, Verifier, read_speculation
from cassandra_spec.golden.oracle.numbers import (
    Bits,
    Number,
    aligned,
    from_bits,
    residue_bits,
    to_bits,
    windowed,
)
from cassandra_spec.golden.packed import EncodeOptions, Packed, Values


class _Recorder:
    """Source that holds each stream's rows separately and records the order of requests."""

    def __init__(self, streams: dict[str, list[Bits]], beat: int) -> None:
        self._streams = streams
        self._beat = beat
        self.region: Bits = []

    def fail(self, cause: str, detail: str) -> DecodeError:
        return DecodeError(cause, -1, f"the encoder wrote {detail}")

    def row(self, stream: str) -> Bits:
        rows = self._streams[stream]
        row = rows.pop(0) if rows else [1] * self._beat  # past the end of a coded stream
        self.region += row
        return row

    def stored(self, format: Format) -> bytes:
        """Return the region, padded to whole superblocks."""
        size = format.superblock * 8
        bits = self.region + [0] * (-len(self.region) % size)
        return bytes(from_bits(bits[i : i + 8]) for i in range(0, len(bits), 8))


def _rows(bits: Bits, beat: int, fill: int = 0, unit: int = 1) -> list[Bits]:
    """Cut bits into rows of ``beat`` bits, padded with ``fill`` to whole units of rows."""
    bits = bits + [fill] * (-len(bits) % (beat * unit))
    return [bits[i : i + beat] for i in range(0, len(bits), beat)]


def _blocks(values: list[Bits], planes: int, beat: int) -> list[Bits]:
    """Return the rows of a blocked stream; ``values`` has each value's bits in plane order."""
    values = values + [[0] * planes] * (-len(values) % beat)
    return [
        [value[plane] for value in values[start : start + beat]]
        for start in range(0, len(values), beat)
        for plane in range(planes)
    ]


def _unary(ranks: Iterable[int]) -> Bits:
    return [bit for rank in ranks for bit in [0] * rank + [1]]


@dataclasses.dataclass
class _SegmentFields:
    """The bits of each stream of a segment, before they become rows."""

    format: Format
    numbers: list[Number]
    kept: list[bool]
    groups: list[int]  # exponents of the groups (mx, exact)
    codebook: tuple[int, ...]
    pruned_codebook: tuple[int, ...]
    has_mask: bool

    def __post_init__(self) -> None:
        self._kept_numbers = [
            (n, self.groups[i // self.format.group] if self.groups else 0)
            for i, n in enumerate(self.numbers)
            if self.kept[i]
        ]

    def _magnitude(self, number: Number, group: int) -> int:
        if self.format.scheme == "unary":
            return number.mantissa
        if self.format.scheme == "mx":
            return aligned(number, group, self.format.significand)
        return windowed(number, group)

    def mask(self) -> Bits:
        return [int(flag) for flag in self.kept] if self.has_mask else []

    def exponent(self) -> Bits:
        if self.format.scheme == "unary":
            return _unary(self.codebook.index(n.exponent) for n, _ in self._kept_numbers)
        return [bit for group in self.groups for bit in to_bits(group, 8)]

    def sign_high(self) -> list[Bits]:
        top = 6 if self.format.scheme == "unary" else 7
        places = range(top, self.format.truncated - 1, -1)
        return [
            [n.sign] + [(self._magnitude(n, group) >> place) & 1 for place in places]
            for n, group in self._kept_numbers
        ]

    def low(self) -> list[Bits]:
        absent = 8 - self.format.significand
        return [
            to_bits(self._magnitude(n, group) >> absent, self.format.truncated - absent)
            for n, group in self._kept_numbers
        ]

    def residue(self) -> Bits:
        return [
            bit
            for n, group in self._kept_numbers
            for bit in residue_bits(n, self._magnitude(n, group))
        ]

    def _pruned_rank(self, number: Number) -> int:
        book = self.pruned_codebook
        return book.index(number.exponent) if number.exponent in book else len(book)

    def pruned_exponent(self) -> Bits:
        pruned = [n for n, flag in zip(self.numbers, self.kept, strict=True) if not flag]
        return _unary(map(self._pruned_rank, pruned))

    def _is_escape(self, number: Number, group: int) -> bool:
        window = windowed(number, group)
        return window == 255 or (window == 0 and not number.zero)

    def pruned(self) -> Bits:
        bits: Bits = []
        for i, number in enumerate(self.numbers):
            if self.kept[i] and self.format.scheme == "exact":
                if self._is_escape(number, self.groups[i // self.format.group]):
                    bits += to_bits(number.pattern, 16)
            elif not self.kept[i]:
                bits += self._pruned_field(number)
        return bits

    def _pruned_field(self, number: Number) -> Bits:
        if self.format.pruned_exponent == "raw":
            return to_bits(number.pattern, 16)
        field = to_bits(number.mantissa, 7) + [number.sign]
        escape = self._pruned_rank(number) == len(self.pruned_codebook)
        return field + (to_bits(number.exponent, 8) if escape else [])

    def rows(self, name: str) -> list[Bits]:
        """Return the rows of one stream (section 3)."""
        format = self.format
        if name == "sign_high":
            return _blocks(self.sign_high(), format.high_planes, format.beat)
        if name == "low":
            return _blocks(self.low(), len(format.low_places), format.beat)
        coded = name == "pruned_exponent" or (name == "exponent" and format.scheme == "unary")
        bits: Bits = getattr(self, name)()
        return _rows(bits, format.beat, 1, format.window) if coded else _rows(bits, format.beat)

    def bits(self, name: str) -> int:
        """Return the number of bits that one stream uses, without padding."""
        fields = getattr(self, name)()
        return sum(map(len, fields)) if name in ("sign_high", "low") else len(fields)


def _encode_segment(fields: _SegmentFields) -> tuple[bytes, bytes]:
    """Return the two regions of a segment."""
    format, has_mask = fields.format, fields.has_mask
    shape = Shape(format, len(fields.numbers), has_mask, fields.codebook, fields.pruned_codebook)
    names = [stream.name for stream in format.streams]
    spec = _Recorder({name: fields.rows(name) for name in names}, format.beat)
    drafts = read_speculation(shape, spec)
    ver = _Recorder({name: fields.rows(name) for name in names}, format.beat)
    Verifier(shape, drafts, ver).values()
    return spec.stored(format), ver.stored(format)


def encode(values: Values, format: Format, **options: Unpack[EncodeOptions]) -> Packed:
    """Pack a tensor, like :func:`cassandra_spec.golden.codec.encode`, byte for byte."""
    args = check_arguments(values, format, **options)
    numbers = [Number.of(pattern) for pattern in args.values.tolist()]
    flags = [True] * len(numbers) if args.kept is None else args.kept.tolist()
    book, pruned_book = _books(format, numbers, flags, args.codebook, args.pruned_codebook)
    if format.scheme == "unary":
        flags = [f and n.exponent in book for f, n in zip(flags, numbers, strict=True)]
    groups = _groups(format, numbers, flags, args.group_exponents)
    spec, ver = b"", b""
    directory: list[list[int]] = []
    used = dict.fromkeys((stream.name for stream in format.streams), 0)
    for start in range(0, len(numbers), format.segment):
        stop = start + format.segment
        fields = _SegmentFields(
            format=format,
            numbers=numbers[start:stop],
            kept=flags[start:stop],
            groups=groups[start // format.group : stop // format.group],
            codebook=book,
            pruned_codebook=pruned_book,
            has_mask=args.always_mask or not all(flags[start:stop]),
        )
        region, verification = _encode_segment(fields)
        sizes = [len(spec), len(region), len(ver), len(verification)]
        directory.append([*(size // format.superblock for size in sizes), int(fields.has_mask)])
        spec, ver = spec + region, ver + verification
        used = {name: bits + fields.bits(name) for name, bits in used.items()}
    return Packed(
        format=format,
        count=len(numbers),
        speculation=np.frombuffer(spec, dtype=np.uint8),
        verification=np.frombuffer(ver, dtype=np.uint8),
        directory=np.array(directory, dtype=np.uint32).reshape(-1, 5),
        codebook=book,
        pruned_codebook=pruned_book,
        stream_bits=used,
        saturated=args.saturated,
    )


def _books(
    format: Format,
    numbers: list[Number],
    flags: list[bool],
    book: tuple[int, ...] | None,
    pruned_book: tuple[int, ...] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the codebooks of section 4.1."""
    if format.scheme != "unary":
        return (), ()
    if book is None:
        chosen = [n.exponent for n, flag in zip(numbers, flags, strict=True) if flag]
        book = _most_frequent(chosen, format.codebook)
    if format.pruned_exponent == "raw":
        return book, ()
    if pruned_book is None:
        pruned = [
            n.exponent
            for n, flag in zip(numbers, flags, strict=True)
            if not (flag and n.exponent in book)
        ]
        pruned_book = _most_frequent(pruned, format.codebook - 1)
    return book, pruned_book


def _groups(
    format: Format,
    numbers: list[Number],
    flags: list[bool],
    chosen: NDArray[np.uint8] | None,
) -> list[int]:
    """Return the group exponents of sections 4.2 and 4.3."""
    if format.scheme == "unary":
        return []
    if chosen is not None:
        return [int(exponent) for exponent in chosen]
    groups = []
    for start in range(0, len(numbers), format.group):
        places = range(start, min(start + format.group, len(numbers)))
        groups.append(_default_group_exponent(format, [numbers[i] for i in places if flags[i]]))
    return groups


def _most_frequent(exponents: Iterable[int], limit: int) -> tuple[int, ...]:
    counts = collections.Counter(exponents)
    return tuple(sorted(counts, key=lambda e: (-counts[e], e))[:limit])


def _default_group_exponent(format: Format, kept: Sequence[Number]) -> int:
    if format.scheme == "mx":
        return max([1] + [n.effective for n in kept])
    floor = 9 if any(n.subnormal for n in kept) else 1
    return max([floor] + [n.exponent for n in kept if n.finite])
