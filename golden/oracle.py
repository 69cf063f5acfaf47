"""Naive oracle of the format: one value at a time, written straight from docs/format.md.

It shares nothing with :mod:`cassandra_spec.golden.codec` but the checks of arguments, and no
arithmetic at all. A decoder machine steps through the demand schedule of section 6 and asks a
source for rows. To read, the source is the region. To write, the source holds the rows of each
stream apart and records the order in which the same machine asks for them: that order is the
format.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.arguments import check_arguments, check_packed
from cassandra_spec.golden.errors import DecodeError
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.packed import Bytes, Packed, Segment, Values

__all__ = ["decode_draft", "decode_target", "encode"]

Bits = list[int]  # in bit order


# ---- numbers: sections 1 and 4 ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Number:
    """Sign, exponent and mantissa of a value (section 4)."""

    sign: int
    exponent: int
    mantissa: int

    @classmethod
    def of(cls, pattern: int) -> _Number:
        return cls(pattern >> 15, (pattern >> 7) & 0xFF, pattern & 0x7F)

    @property
    def pattern(self) -> int:
        return self.sign << 15 | self.exponent << 7 | self.mantissa

    @property
    def finite(self) -> bool:
        return self.exponent < 255

    @property
    def subnormal(self) -> bool:
        return self.exponent == 0 and self.mantissa > 0

    @property
    def zero(self) -> bool:
        return self.exponent == 0 and self.mantissa == 0

    @property
    def significand(self) -> int:
        return 128 + self.mantissa if self.exponent > 0 else self.mantissa

    @property
    def effective(self) -> int:
        return max(self.exponent, 1)


def _field(number: int, width: int) -> Bits:
    """A field of ``width`` bits, least significant first."""
    return [(number >> i) & 1 for i in range(width)]


def _number(bits: Bits) -> int:
    return sum(bit << i for i, bit in enumerate(bits))


def _leading_zeros(magnitude: int) -> int:
    """Leading zeros of ``magnitude``, 1..255, in 8 bits."""
    return 8 - magnitude.bit_length()


def _value(sign: int, group: int, magnitude: int) -> int:
    """``value(s, E, A)`` of section 4.2."""
    if magnitude == 0:
        return sign << 15
    zeros = _leading_zeros(magnitude)
    if group > zeros:
        return sign << 15 | (group - zeros) << 7 | (magnitude << zeros) & 0x7F
    return sign << 15 | magnitude << (group - 1)


def _aligned(number: _Number, group: int) -> int:
    """The aligned significand of section 4.2: nearest, ties to even, saturated."""
    shift = group - number.effective
    if shift < 0:
        return 255
    whole, rest = divmod(number.significand, 1 << shift)
    if 2 * rest > 1 << shift or (2 * rest == 1 << shift and whole % 2 == 1):
        whole += 1
    return min(whole, 255)


def _windowed(number: _Number, group: int) -> int:
    """The window of section 4.3."""
    shift = group - number.effective
    if not number.finite or shift < 0:
        return 255
    return number.significand >> shift


def _residue(number: _Number, window: int) -> Bits:
    """The residue field of section 4.3."""
    if window == 255:
        return []
    if window == 0:
        return [int(number.zero)]
    shift = _leading_zeros(window)
    return _field(number.significand % 2**shift, shift)


# ---- the user's choices and their defaults ------------------------------------------------------


def _most_frequent(exponents: Iterable[int], limit: int) -> tuple[int, ...]:
    counts = collections.Counter(exponents)
    return tuple(sorted(counts, key=lambda e: (-counts[e], e))[:limit])


def _default_group_exponent(format: Format, kept: Sequence[_Number]) -> int:
    if format.scheme == "mx":
        return max([1] + [n.effective for n in kept])
    floor = 9 if any(n.subnormal for n in kept) else 1
    return max([floor] + [n.exponent for n in kept if n.finite])


# ---- the three classes of streams: sections 3 and 6 ---------------------------------------------


class _Source(Protocol):
    """Where the rows of a region come from."""

    def row(self, stream: str) -> Bits:
        """Give the next row; the machine says for which stream it wants it."""
        ...

    def fail(self, cause: str, detail: str) -> DecodeError:
        """An error of this segment."""
        ...


class _PackedStream:
    def __init__(self, name: str, source: _Source) -> None:
        self._name = name
        self._source = source
        self._bits: Bits = []

    def take(self, need: int) -> Bits:
        """Rule ``packed``; gives the bits of the beat."""
        while len(self._bits) < need:
            self._bits += self._source.row(self._name)
        used, self._bits = self._bits[:need], self._bits[need:]
        return used


class _BlockedStream:
    def __init__(self, name: str, planes: int, beat: int, source: _Source) -> None:
        self._name = name
        self._planes = planes
        self._beat = beat
        self._source = source
        self._values: list[Bits] = []

    def take(self, count: int) -> list[Bits]:
        """Rule ``blocked``; gives for each value its bits in plane order."""
        if len(self._values) < count:
            rows = [self._source.row(self._name) for _ in range(self._planes)]
            self._values += [[row[k] for row in rows] for k in range(self._beat)]
        used, self._values = self._values[:count], self._values[count:]
        return used


class _CodedStream:
    def __init__(self, name: str, format: Format, source: _Source) -> None:
        self._name = name
        self._format = format
        self._source = source
        self._zeros = 0
        self._ranks: list[int] = []

    def _window(self) -> None:
        rows = [self._source.row(self._name) for _ in range(self._format.window)]
        for bit in (bit for row in rows for bit in row):
            if bit:
                self._ranks.append(self._zeros)
                self._zeros = 0
                continue
            self._zeros += 1
            if self._zeros >= self._format.codebook:
                raise self._source.fail("code", f"{self._name} has {self._zeros} zeros in a row")

    def starve(self, count: int) -> list[int]:
        """Rule ``starve``; gives the ranks."""
        while len(self._ranks) < count:
            self._window()
        used, self._ranks = self._ranks[:count], self._ranks[count:]
        return used

    def prefetch(self) -> None:
        """Rule ``prefetch`` for a beat that exists."""
        if len(self._ranks) < self._format.beat:
            self._window()


# ---- the decoder machine ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Shape:
    """What a decoder is told of a segment."""

    format: Format
    count: int
    has_mask: bool
    codebook: tuple[int, ...]
    pruned_codebook: tuple[int, ...]

    @property
    def beats(self) -> int:
        return -(-self.count // self.format.beat)

    def existing(self, beat: int) -> int:
        return min(self.format.beat, self.count - beat * self.format.beat)

    def is_beat(self, beat: int) -> bool:
        return 0 <= beat < self.beats


@dataclasses.dataclass(frozen=True)
class _Draft:
    """What speculation data say of one position; ``None`` in its place means pruned."""

    sign: int
    exponent: int  # of the value (unary) or its group (mx, exact)
    high: int  # high bits of the magnitude, the truncated ones 0


Beats = dict[int, list[_Draft | None]]


def _read_high(planes: Bits, format: Format) -> tuple[int, int]:
    """Sign and high bits, from the planes of one value."""
    high = 0
    for j, bit in enumerate(planes[1:], start=1):
        high |= bit << ((7 if format.scheme == "unary" else 8) - j)
    return planes[0], high


def _speculation(shape: _Shape, source: _Source) -> Beats:
    """The speculation region, slot by slot (section 6)."""
    format = shape.format
    unary = format.scheme == "unary"
    mask = _PackedStream("mask", source)
    codes = _CodedStream("exponent", format, source)
    exponents = _PackedStream("exponent", source)
    sign_high = _BlockedStream("sign_high", format.high_planes, format.beat, source)
    kept: dict[int, Bits] = {}
    drafts: Beats = {}
    group = 0
    for slot in range(-1, shape.beats):
        ranks: list[int] = []
        if unary and shape.is_beat(slot):
            ranks = codes.starve(sum(kept[slot]))
        if shape.is_beat(slot + 1):
            flags = mask.take(format.beat) if shape.has_mask else [1] * format.beat
            kept[slot + 1] = flags[: shape.existing(slot + 1)]
        if unary and shape.is_beat(slot + 1):
            codes.prefetch()
        if not unary and shape.is_beat(slot) and slot * format.beat % format.group == 0:
            group = _number(exponents.take(8))
            if group == 0 or (group == 255 and format.scheme == "mx"):
                raise source.fail("group", f"exponent {group} of the group at beat {slot}")
        if shape.is_beat(slot):
            fields = sign_high.take(sum(kept[slot]))
            own = [_exponent_of(rank, shape, source) for rank in ranks]
            shared = [group] * len(fields)
            drafts[slot] = _place(kept[slot], fields, own if unary else shared, shape)
    return drafts


def _exponent_of(rank: int, shape: _Shape, source: _Source) -> int:
    if rank >= len(shape.codebook):
        raise source.fail("rank", f"rank {rank} in a codebook of {len(shape.codebook)}")
    return shape.codebook[rank]


def _place(
    kept: Bits, fields: list[Bits], exponents: list[int], shape: _Shape
) -> list[_Draft | None]:
    values: list[_Draft | None] = []
    queue = list(zip(fields, exponents, strict=True))
    for flag in kept:
        if not flag:
            values.append(None)
            continue
        planes, exponent = queue.pop(0)
        sign, high = _read_high(planes, shape.format)
        values.append(_Draft(sign, exponent, high))
    return values


def _draft_value(draft: _Draft | None, format: Format) -> int:
    """The draft value of section 4, with the fill of section 4.4."""
    if draft is None:
        return 0
    fill = 0
    if format.fill == "midpoint" and format.truncated > 0:
        fill = 1 << (format.truncated - 1)
    return _restore(draft, draft.high | fill, format)


def _restore(draft: _Draft, magnitude: int, format: Format) -> int:
    if format.scheme == "unary":
        return _Number(draft.sign, draft.exponent, magnitude).pattern
    return _value(draft.sign, draft.exponent, magnitude)


class _Verifier:
    """The verification region, slot by slot (section 6)."""

    def __init__(self, shape: _Shape, drafts: Beats, source: _Source) -> None:
        format = shape.format
        self._shape = shape
        self._drafts = drafts
        self._source = source
        self._pruned = _PackedStream("pruned", source)
        self._codes = _CodedStream("pruned_exponent", format, source)
        self._low = _BlockedStream("low", format.truncated, format.beat, source)
        self._residue = _PackedStream("residue", source)
        self._ranks: dict[int, list[int]] = {}  # of the pruned values of a beat (coded)
        self._magnitudes: dict[int, list[int | None]] = {}  # None: pruned
        self._targets: dict[int, list[int | None]] = {}  # None: pruned or escape

    def values(self) -> list[int]:
        """All target values of the segment."""
        format, shape = self._shape.format, self._shape
        lead = format.lead
        result: list[int] = []
        for slot in range(-2 * lead, shape.beats):
            if shape.is_beat(slot):
                result += self._complete(slot)
            if format.pruned_exponent == "coded":
                if shape.is_beat(slot + lead):
                    missing = self._drafts[slot + lead].count(None)
                    self._ranks[slot + lead] = self._codes.starve(missing)
                if shape.is_beat(slot + lead + 1):
                    self._codes.prefetch()
            if shape.is_beat(slot + 2 * lead):
                self._take_low(slot + 2 * lead)
            if shape.is_beat(slot + lead):
                self._take_residue(slot + lead)
        return result

    def _take_low(self, beat: int) -> None:
        drafts = self._drafts[beat]
        kept = len(drafts) - drafts.count(None)
        nothing: list[Bits] = [[] for _ in range(kept)]
        lows = iter(self._low.take(kept) if self._shape.format.truncated else nothing)
        self._magnitudes[beat] = [
            None if draft is None else draft.high | _number(next(lows)) for draft in drafts
        ]

    def _residue_width(self, magnitude: int | None) -> int:
        """Bits that a position has in ``residue``: from its window alone."""
        if self._shape.format.scheme != "exact" or magnitude is None or magnitude == 255:
            return 0
        return 1 if magnitude == 0 else _leading_zeros(magnitude)

    def _take_residue(self, beat: int) -> None:
        magnitudes = self._magnitudes[beat]
        bits = self._residue.take(sum(map(self._residue_width, magnitudes)))
        targets: list[int | None] = []
        for draft, magnitude in zip(self._drafts[beat], magnitudes, strict=True):
            width = self._residue_width(magnitude)
            field, bits = bits[:width], bits[width:]
            targets.append(self._target(draft, magnitude, field))
        self._targets[beat] = targets

    def _target(self, draft: _Draft | None, magnitude: int | None, residue: Bits) -> int | None:
        """The target value, or None if it comes from ``pruned``."""
        if draft is None or magnitude is None:
            return None
        if self._shape.format.scheme != "exact":
            return _restore(draft, magnitude, self._shape.format)
        if magnitude == 255:
            return None
        if magnitude == 0:
            return draft.sign << 15 if residue[0] else None
        zeros = _leading_zeros(magnitude)
        if draft.exponent <= zeros:
            raise self._source.fail(
                "window", f"window {magnitude} in a group of exponent {draft.exponent}"
            )
        mantissa = (magnitude << zeros | _number(residue)) & 0x7F
        return _Number(draft.sign, draft.exponent - zeros, mantissa).pattern

    def _complete(self, beat: int) -> list[int]:
        """Rule 1: the pruned values and escapes of a beat complete it."""
        targets = self._targets[beat]
        coded = self._shape.format.pruned_exponent == "coded"
        widths = [self._coded_width(r) for r in self._ranks[beat]] if coded else []
        widths = widths if coded else [16] * targets.count(None)
        bits = self._pruned.take(sum(widths))
        restored = []
        for place, width in enumerate(widths):
            field, bits = bits[:width], bits[width:]
            restored.append(self._coded_value(beat, place, field) if coded else _number(field))
        queue = iter(restored)
        return [next(queue) if target is None else target for target in targets]

    def _coded_width(self, rank: int) -> int:
        book = self._shape.pruned_codebook
        if rank > len(book):
            raise self._source.fail("rank", f"pruned rank {rank} in a codebook of {len(book)}")
        return 16 if rank == len(book) else 8

    def _coded_value(self, beat: int, place: int, field: Bits) -> int:
        rank, book = self._ranks[beat][place], self._shape.pruned_codebook
        exponent = _number(field[8:]) if rank == len(book) else book[rank]
        return _Number(field[7], exponent, _number(field[:7])).pattern


# ---- reading ------------------------------------------------------------------------------------


class _Reader:
    """A stored region as a source of rows."""

    def __init__(self, region: Bytes, format: Format, segment: int) -> None:
        bits = [(byte >> i) & 1 for byte in region.tolist() for i in range(8)]
        whole = len(bits) // format.beat
        self._rows = [bits[i * format.beat : (i + 1) * format.beat] for i in range(whole)]
        self._next = 0
        self._bytes = len(region)
        self._format = format
        self._segment = segment

    def fail(self, cause: str, detail: str) -> DecodeError:
        return DecodeError(cause, self._segment, detail)

    def row(self, stream: str) -> Bits:
        if self._next >= len(self._rows):
            raise self.fail("short", f"region ends at row {self._next}, in stream {stream}")
        self._next += 1
        return self._rows[self._next - 1]

    def finish(self) -> None:
        used = self._next * self._format.beat // 8
        if self._bytes - used >= self._format.superblock:
            raise self.fail("long", f"{self._bytes} bytes in a region that needs {used}")


def _shape_of(packed: Packed, segment: Segment) -> _Shape:
    return _Shape(
        packed.format, segment.count, segment.has_mask, packed.codebook, packed.pruned_codebook
    )


def _read_speculation(packed: Packed, segment: Segment) -> Beats:
    reader = _Reader(segment.speculation, packed.format, segment.index)
    drafts = _speculation(_shape_of(packed, segment), reader)
    reader.finish()
    return drafts


def decode_draft(packed: Packed) -> Values:
    """Draft values, uint16 [count]; as :func:`cassandra_spec.golden.codec.decode_draft`."""
    check_packed(packed)
    result: list[int] = []
    for segment in packed.segments():
        drafts = _read_speculation(packed, segment)
        result += [_draft_value(d, packed.format) for beat in drafts.values() for d in beat]
    return np.array(result, dtype=np.uint16)


def decode_target(packed: Packed) -> Values:
    """Target values, uint16 [count]; as :func:`cassandra_spec.golden.codec.decode_target`."""
    check_packed(packed)
    result: list[int] = []
    for segment in packed.segments():
        drafts = _read_speculation(packed, segment)
        reader = _Reader(segment.verification, packed.format, segment.index)
        result += _Verifier(_shape_of(packed, segment), drafts, reader).values()
        reader.finish()
    return np.array(result, dtype=np.uint16)


# ---- writing ------------------------------------------------------------------------------------


class _Recorder:
    """Rows of each stream apart; records the order in which they are asked for."""

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
        """The region, completed to whole superblocks."""
        size = format.superblock * 8
        bits = self.region + [0] * (-len(self.region) % size)
        return bytes(_number(bits[i : i + 8]) for i in range(0, len(bits), 8))


def _rows(bits: Bits, beat: int, fill: int = 0, unit: int = 1) -> list[Bits]:
    """Cut into rows of ``beat`` bits, completed to whole units of rows with ``fill``."""
    bits = bits + [fill] * (-len(bits) % (beat * unit))
    return [bits[i : i + beat] for i in range(0, len(bits), beat)]


def _blocks(values: list[Bits], planes: int, beat: int) -> list[Bits]:
    """Rows of a blocked stream: ``values`` has the bits of each value in plane order."""
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
    numbers: list[_Number]
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

    def _magnitude(self, number: _Number, group: int) -> int:
        if self.format.scheme == "unary":
            return number.mantissa
        if self.format.scheme == "mx":
            return _aligned(number, group)
        return _windowed(number, group)

    def mask(self) -> Bits:
        return [int(flag) for flag in self.kept] if self.has_mask else []

    def exponent(self) -> Bits:
        if self.format.scheme == "unary":
            return _unary(self.codebook.index(n.exponent) for n, _ in self._kept_numbers)
        return [bit for group in self.groups for bit in _field(group, 8)]

    def sign_high(self) -> list[Bits]:
        top = 6 if self.format.scheme == "unary" else 7
        places = range(top, self.format.truncated - 1, -1)
        return [
            [n.sign] + [(self._magnitude(n, group) >> place) & 1 for place in places]
            for n, group in self._kept_numbers
        ]

    def low(self) -> list[Bits]:
        return [
            _field(self._magnitude(n, group), self.format.truncated)
            for n, group in self._kept_numbers
        ]

    def residue(self) -> Bits:
        return [
            bit for n, group in self._kept_numbers for bit in _residue(n, self._magnitude(n, group))
        ]

    def _pruned_rank(self, number: _Number) -> int:
        book = self.pruned_codebook
        return book.index(number.exponent) if number.exponent in book else len(book)

    def pruned_exponent(self) -> Bits:
        pruned = [n for n, flag in zip(self.numbers, self.kept, strict=True) if not flag]
        return _unary(map(self._pruned_rank, pruned))

    def _is_escape(self, number: _Number, group: int) -> bool:
        window = _windowed(number, group)
        return window == 255 or (window == 0 and not number.zero)

    def pruned(self) -> Bits:
        bits: Bits = []
        for i, number in enumerate(self.numbers):
            if self.kept[i] and self.format.scheme == "exact":
                if self._is_escape(number, self.groups[i // self.format.group]):
                    bits += _field(number.pattern, 16)
            elif not self.kept[i]:
                bits += self._pruned_field(number)
        return bits

    def _pruned_field(self, number: _Number) -> Bits:
        if self.format.pruned_exponent == "raw":
            return _field(number.pattern, 16)
        field = _field(number.mantissa, 7) + [number.sign]
        escape = self._pruned_rank(number) == len(self.pruned_codebook)
        return field + (_field(number.exponent, 8) if escape else [])

    def rows(self, name: str) -> list[Bits]:
        """The rows of one stream (section 3)."""
        format = self.format
        if name == "sign_high":
            return _blocks(self.sign_high(), format.high_planes, format.beat)
        if name == "low":
            return _blocks(self.low(), format.truncated, format.beat)
        coded = name == "pruned_exponent" or (name == "exponent" and format.scheme == "unary")
        bits: Bits = getattr(self, name)()
        return _rows(bits, format.beat, 1, format.window) if coded else _rows(bits, format.beat)

    def bits(self, name: str) -> int:
        """Bits that one stream uses, padding excluded."""
        fields = getattr(self, name)()
        return sum(map(len, fields)) if name in ("sign_high", "low") else len(fields)


def _encode_segment(fields: _SegmentFields) -> tuple[bytes, bytes]:
    """Regions of a segment."""
    format, has_mask = fields.format, fields.has_mask
    shape = _Shape(format, len(fields.numbers), has_mask, fields.codebook, fields.pruned_codebook)
    names = [stream.name for stream in format.streams]
    spec = _Recorder({name: fields.rows(name) for name in names}, format.beat)
    drafts = _speculation(shape, spec)
    ver = _Recorder({name: fields.rows(name) for name in names}, format.beat)
    _Verifier(shape, drafts, ver).values()
    return spec.stored(format), ver.stored(format)


def encode(
    values: Values,
    format: Format,
    *,
    kept: NDArray[np.bool_] | None = None,
    codebook: Sequence[int] | None = None,
    pruned_codebook: Sequence[int] | None = None,
    group_exponents: NDArray[np.uint8] | None = None,
    nonfinite: str = "error",
    always_mask: bool = False,
) -> Packed:
    """Pack a tensor; as :func:`cassandra_spec.golden.codec.encode`, byte for byte."""
    args = check_arguments(
        values,
        format,
        kept=kept,
        codebook=codebook,
        pruned_codebook=pruned_codebook,
        group_exponents=group_exponents,
        nonfinite=nonfinite,
        always_mask=always_mask,
    )
    numbers = [_Number.of(pattern) for pattern in args.values.tolist()]
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
        unit = format.superblock
        directory.append(
            [
                len(spec) // unit,
                len(region) // unit,
                len(ver) // unit,
                len(verification) // unit,
                int(fields.has_mask),
            ]
        )
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
    numbers: list[_Number],
    flags: list[bool],
    book: tuple[int, ...] | None,
    pruned_book: tuple[int, ...] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The codebooks of section 4.1."""
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
    numbers: list[_Number],
    flags: list[bool],
    chosen: NDArray[np.uint8] | None,
) -> list[int]:
    """The group exponents of sections 4.2 and 4.3."""
    if format.scheme == "unary":
        return []
    if chosen is not None:
        return [int(exponent) for exponent in chosen]
    groups = []
    for start in range(0, len(numbers), format.group):
        places = range(start, min(start + format.group, len(numbers)))
        groups.append(_default_group_exponent(format, [numbers[i] for i in places if flags[i]]))
    return groups
