"""The decoder machine: both regions of a segment, slot by slot (section 6 of docs/format.md)."""

from __future__ import annotations

import dataclasses

from cassandra_spec.golden.format import Format
from cassandra_spec.golden.oracle.numbers import Bits, Number, from_bits, leading_zeros, value_of
from cassandra_spec.golden.oracle.streams import BlockedStream, CodedStream, PackedStream, Source


@dataclasses.dataclass(frozen=True)
class Shape:
    """Parameters of a segment that a decoder gets."""

    format: Format
    count: int
    has_mask: bool
    codebook: tuple[int, ...]
    pruned_codebook: tuple[int, ...]

    @property
    def beats(self) -> int:
        """Number of beats in the segment."""
        return -(-self.count // self.format.beat)

    def existing(self, beat: int) -> int:
        """Return the number of existing positions of a beat."""
        return min(self.format.beat, self.count - beat * self.format.beat)

    def is_beat(self, beat: int) -> bool:
        """Return True if the segment has a beat of this number."""
        return 0 <= beat < self.beats


@dataclasses.dataclass(frozen=True)
class Draft:
    """Speculation data of one position; a pruned position has ``None`` instead."""

    sign: int
    exponent: int  # the value's own (unary) or its group's (mx, exact)
    high: int  # high bits of the magnitude; truncated bits are 0


Beats = dict[int, list[Draft | None]]


def _read_high(planes: Bits, format: Format) -> tuple[int, int]:
    """Return the sign and the high bits from the planes of one value."""
    high = 0
    for j, bit in enumerate(planes[1:], start=1):
        high |= bit << ((7 if format.scheme == "unary" else 8) - j)
    return planes[0], high


def read_speculation(shape: Shape, source: Source) -> Beats:
    """Read the speculation region, slot by slot (section 6)."""
    format = shape.format
    unary = format.scheme == "unary"
    mask = PackedStream("mask", source)
    codes = CodedStream("exponent", format, source)
    exponents = PackedStream("exponent", source)
    sign_high = BlockedStream("sign_high", format.high_planes, format.beat, source)
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
            group = from_bits(exponents.take(8))
            if group == 0 or (group == 255 and format.scheme == "mx"):
                raise source.fail("group", f"exponent {group} of the group at beat {slot}")
        if shape.is_beat(slot):
            fields = sign_high.take(sum(kept[slot]))
            own = [_exponent_of(rank, shape, source) for rank in ranks]
            shared = [group] * len(fields)
            drafts[slot] = _place(kept[slot], fields, own if unary else shared, shape)
    return drafts


def _exponent_of(rank: int, shape: Shape, source: Source) -> int:
    if rank >= len(shape.codebook):
        raise source.fail("rank", f"rank {rank} in a codebook of {len(shape.codebook)}")
    return shape.codebook[rank]


def _place(
    kept: Bits, fields: list[Bits], exponents: list[int], shape: Shape
) -> list[Draft | None]:
    values: list[Draft | None] = []
    queue = list(zip(fields, exponents, strict=True))
    for flag in kept:
        if not flag:
            values.append(None)
            continue
        planes, exponent = queue.pop(0)
        sign, high = _read_high(planes, shape.format)
        values.append(Draft(sign, exponent, high))
    return values


def draft_value(draft: Draft | None, format: Format) -> int:
    """Return the draft value of section 4, with the fill of section 4.4."""
    if draft is None:
        return 0
    fill = 0
    if format.fill == "midpoint" and format.truncated > 0:
        fill = 1 << (format.truncated - 1)
    return _restore(draft, draft.high | fill, format)


def _restore(draft: Draft, magnitude: int, format: Format) -> int:
    if format.scheme == "unary":
        return Number(draft.sign, draft.exponent, magnitude).pattern
    return value_of(draft.sign, draft.exponent, magnitude)


class Verifier:
    """Read the verification region, slot by slot (section 6)."""

    def __init__(self, shape: Shape, drafts: Beats, source: Source) -> None:
        format = shape.format
        self._shape = shape
        self._drafts = drafts
        self._source = source
        self._pruned = PackedStream("pruned", source)
        self._codes = CodedStream("pruned_exponent", format, source)
        self._absent = 8 - format.significand  # low magnitude bits that are always 0
        low_planes = format.truncated - self._absent
        self._low = BlockedStream("low", low_planes, format.beat, source)
        self._residue = PackedStream("residue", source)
        self._ranks: dict[int, list[int]] = {}  # by beat, of pruned values (coded)
        self._magnitudes: dict[int, list[int | None]] = {}  # None: pruned
        self._targets: dict[int, list[int | None]] = {}  # None: pruned or escape

    def values(self) -> list[int]:
        """Return all target values of the segment."""
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
        stored = self._shape.format.truncated > self._absent
        lows = iter(self._low.take(kept) if stored else nothing)
        self._magnitudes[beat] = [
            None if draft is None else draft.high | from_bits(next(lows)) << self._absent
            for draft in drafts
        ]

    def _residue_width(self, magnitude: int | None) -> int:
        """Return the number of bits of a position in ``residue``, from its aligned significand."""
        if self._shape.format.scheme != "exact" or magnitude is None or magnitude == 255:
            return 0
        return 1 if magnitude == 0 else leading_zeros(magnitude)

    def _take_residue(self, beat: int) -> None:
        magnitudes = self._magnitudes[beat]
        bits = self._residue.take(sum(map(self._residue_width, magnitudes)))
        targets: list[int | None] = []
        for draft, magnitude in zip(self._drafts[beat], magnitudes, strict=True):
            width = self._residue_width(magnitude)
            field, bits = bits[:width], bits[width:]
            targets.append(self._target(draft, magnitude, field))
        self._targets[beat] = targets

    def _target(self, draft: Draft | None, magnitude: int | None, residue: Bits) -> int | None:
        """Return the target value, or None if it comes from ``pruned``."""
        if draft is None or magnitude is None:
            return None
        if self._shape.format.scheme != "exact":
            return _restore(draft, magnitude, self._shape.format)
        if magnitude == 255:
            return None
        if magnitude == 0:
            return draft.sign << 15 if residue[0] else None
        zeros = leading_zeros(magnitude)
        if draft.exponent <= zeros:
            raise self._source.fail(
                "window", f"window {magnitude} in a group of exponent {draft.exponent}"
            )
        mantissa = (magnitude << zeros | from_bits(residue)) & 0x7F
        return Number(draft.sign, draft.exponent - zeros, mantissa).pattern

    def _complete(self, beat: int) -> list[int]:
        """Apply rule 1: complete a beat with its pruned values and escapes."""
        targets = self._targets[beat]
        coded = self._shape.format.pruned_exponent == "coded"
        widths = [self._coded_width(r) for r in self._ranks[beat]] if coded else []
        widths = widths if coded else [16] * targets.count(None)
        bits = self._pruned.take(sum(widths))
        restored = []
        for place, width in enumerate(widths):
            field, bits = bits[:width], bits[width:]
            restored.append(self._coded_value(beat, place, field) if coded else from_bits(field))
        queue = iter(restored)
        return [next(queue) if target is None else target for target in targets]

    def _coded_width(self, rank: int) -> int:
        book = self._shape.pruned_codebook
        if rank > len(book):
            raise self._source.fail("rank", f"pruned rank {rank} in a codebook of {len(book)}")
        return 16 if rank == len(book) else 8

    def _coded_value(self, beat: int, place: int, field: Bits) -> int:
        rank, book = self._ranks[beat][place], self._shape.pruned_codebook
        exponent = from_bits(field[8:]) if rank == len(book) else book[rank]
        return Number(field[7], exponent, from_bits(field[:7])).pattern
