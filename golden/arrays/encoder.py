"""Encode segments to regions, many segments at once (docs/format.md, sections 3 to 6)."""

from __future__ import annotations

import dataclasses

import numpy as np

from cassandra_spec.golden.arguments import Arguments
from cassandra_spec.golden.arrays import arithmetic, bitops
from cassandra_spec.golden.arrays.bitops import Flags, Ints, Octets, Rows
from cassandra_spec.golden.arrays.schedule import (
    Grid,
    Layout,
    coded_counts,
    exponent_needs,
    mask_counts,
    packed_counts,
    speculation_rules,
    verification_rules,
)
from cassandra_spec.golden.format import FLAG_MASK, Format
from cassandra_spec.golden.packed import Bytes, Packed

MISSING = 255
"""Rank of an exponent that is not in a codebook."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Codebooks:
    """The codebooks of a tensor."""

    codebook: tuple[int, ...] = ()
    pruned: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Coded:
    """A coded stream: its windows, and the rule and beat at which each is read."""

    rows: Rows  # [windows, rows per window]
    starve: Ints  # [segments, beats]
    prefetch: Ints
    bits: int


def ranks_of(book: tuple[int, ...], missing: int = MISSING) -> Octets:
    """Return the rank of each of the 256 exponents, ``missing`` for those not in the book."""
    table = np.full(256, missing, dtype=np.uint8)
    table[list(book)] = np.arange(len(book), dtype=np.uint8)
    return table


def _code(ranks: Octets, beat_counts: Ints, exists: Flags, format: Format) -> _Coded:
    """Code ``ranks`` (segment by segment); ``beat_counts`` is the number of codes per beat."""
    segments, _ = beat_counts.shape
    beat, window = format.beat, format.window_bits
    sizes = beat_counts.sum(axis=1)
    # A beat of rank 0 after each segment stands for the ones that pad its last windows.
    spread = np.zeros(ranks.size + segments * beat, dtype=np.int64)
    first = np.arange(segments) * beat + np.cumsum(sizes) - sizes
    spread[bitops.span_indices(first, sizes)] = ranks
    spread += 1
    ones = np.cumsum(spread) - 1
    before = np.zeros(segments, dtype=np.int64)
    before[1:] = ones[first[1:] - 1] + 1
    ones -= np.repeat(before, sizes + beat)  # position of each one in its segment's stream
    ends = first[:, None] + np.cumsum(beat_counts, axis=1)
    needed = np.where(ends > first[:, None], ones[ends - 1] // window + 1, 0)
    starve, prefetch = coded_counts(needed, ones[ends + beat - 1] // window + 1, exists)
    room = (starve.sum(axis=1) + prefetch.sum(axis=1)) * window
    lengths = np.where(sizes > 0, ones[first + sizes - 1] + 1, 0)
    bits = _place_ones(ones[bitops.span_indices(first, sizes)], sizes, lengths, room)
    rows = bitops.to_rows(bitops.pack_bits(bits), beat).reshape(-1, format.window)
    return _Coded(rows=rows, starve=starve, prefetch=prefetch, bits=int(lengths.sum()))


def _place_ones(ones: Ints, sizes: Ints, lengths: Ints, room: Ints) -> Octets:
    """Return the streams' bits, ``room`` bits each, padded with ones from ``lengths`` on."""
    bits = np.zeros(int(room.sum()), dtype=np.uint8)
    starts = np.cumsum(room) - room
    bits[ones + np.repeat(starts, sizes)] = 1
    for start, length, space in zip(starts, lengths, room, strict=True):
        bits[start + length : start + space] = 1
    return bits


class _Run:
    """Values of consecutive segments on their grid, and the streams built from them."""

    def __init__(self, args: Arguments, books: Codebooks) -> None:
        self.format = format = args.format
        self.grid = Grid(format=format, count=args.values.size)
        self._books = books
        self.values = np.zeros(self.grid.padded, dtype=np.uint16)
        self.values[: args.values.size] = args.values
        self.exponents = arithmetic.exponents_of(self.values)
        self.kept = self._choose_kept(args.kept)
        self.existing = self.grid.existing
        self.kept_counts = self.grid.count_by_beat(self.kept)
        self.kept_sizes: Ints = self.kept_counts.sum(axis=1)
        self.missing: Ints = self.existing - self.kept_counts
        self.has_mask: Flags = np.asarray(self.missing.any(axis=1) | args.always_mask)
        self.groups = self._choose_groups(args.group_exponents)
        per_value = np.repeat(self.groups, format.group) if self.groups.size else self.exponents
        self.magnitudes = arithmetic.magnitudes(self.values, self.exponents, per_value, format)

    def _choose_kept(self, kept: Flags | None) -> Flags:
        chosen = np.zeros(self.grid.padded, dtype=np.bool_)
        chosen[: self.grid.count] = True if kept is None else kept
        if self.format.scheme == "unary":
            chosen &= (ranks_of(self._books.codebook) != MISSING)[self.exponents]
        return chosen

    def _choose_groups(self, groups: Octets | None) -> Octets:
        if self.format.scheme == "unary":
            return np.zeros(0, dtype=np.uint8)
        if groups is None:
            return arithmetic.default_group_exponents(
                self.values, self.kept, self.format.group, self.format.scheme
            )
        chosen = np.ones(self.grid.padded // self.format.group, dtype=np.uint8)
        chosen[: groups.size] = groups
        return chosen

    # -- speculation ------------------------------------------------------------------------------

    def mask_rows(self) -> Rows:
        rows = bitops.to_rows(bitops.pack_bits(self.kept), self.format.beat)
        rows = rows.reshape(self.grid.segments, self.grid.beats)
        return rows[(self.existing > 0) & self.has_mask[:, None]]

    def exponent_codes(self) -> _Coded:
        ranks = ranks_of(self._books.codebook).take(self.exponents[self.kept])
        return _code(ranks, self.kept_counts, self.existing > 0, self.format)

    def exponent_rows(self) -> Rows:
        sizes = -(-self.grid.sizes // self.format.group)
        return self._octet_rows(self.groups[: int(sizes.sum())], sizes)

    def _blocks(self, fields: Octets) -> Octets:
        """Return fields of kept values, segment by segment, padded to whole blocks."""
        return bitops.completed(fields[self.kept], self.kept_sizes, self.format.beat)

    def sign_high_rows(self) -> Rows:
        top, beat = self.format.magnitude_bits - 1, self.format.beat
        signs = self._blocks((self.values >> 15).astype(np.uint8))
        high = self._blocks(self.magnitudes)
        if signs.size % beat:  # the last segment does not fill its block
            signs, high = self._padded(signs), self._padded(high)
        places = range(top, self.format.truncated - 1, -1)
        planes = bitops.planes_from_fields(high, places, beat)
        sign = bitops.planes_from_fields(signs, (0,), beat)
        return np.concatenate([sign, planes], axis=1)

    def _padded(self, fields: Octets) -> Octets:
        return np.pad(fields, (0, -fields.size % self.format.beat))

    # -- verification -----------------------------------------------------------------------------

    def low_rows(self) -> Rows:
        low = self._padded(self._blocks(self.magnitudes))
        return bitops.planes_from_fields(low, self.format.low_places, self.format.beat)

    def escapes(self) -> Flags:
        """Return a mask of kept values that are stored uncompressed (exact)."""
        window = self.magnitudes
        tiny = (window == 0) & ((self.values & 0x7FFF) != 0)
        return np.asarray(self.kept & (tiny | (window == arithmetic.ESCAPE_WINDOW)))

    def residue(self) -> tuple[Rows, Ints]:
        """Return the rows, and the number of bits per beat."""
        fields, widths = arithmetic.residues(self.values, self.magnitudes)
        widths[~self.kept] = 0
        needs = widths.reshape(self.grid.shape).sum(axis=2, dtype=np.int64)
        bits = bitops.pack_fields(fields, widths)
        bits = bitops.completed(bits, needs.sum(axis=1), self.format.beat)
        return bitops.to_rows(bitops.pack_bits(bits), self.format.beat), needs

    def pruned_positions(self) -> Flags:
        """Return a mask of pruned positions."""
        pruned = ~self.kept
        pruned[self.grid.count :] = False
        return pruned

    def raw(self) -> tuple[Rows, Ints]:
        """Return the rows of ``pruned`` with uncompressed values, and the bits per beat."""
        stored = self.pruned_positions()
        if self.format.scheme == "exact":
            stored |= self.escapes()
        counts = self.grid.count_by_beat(stored)
        octets = bitops.to_bytes(self.values[stored].astype("<u2"))
        return self._octet_rows(octets, 2 * counts.sum(axis=1)), 16 * counts

    def _octet_rows(self, octets: Octets, sizes: Ints) -> Rows:
        unit = self.format.beat // 8
        return bitops.to_rows(bitops.completed(octets, sizes, unit), self.format.beat)

    def coded(self) -> tuple[_Coded, Rows, Ints]:
        """Return ``pruned_exponent``, then the rows of ``pruned`` and their bits per beat."""
        stored = self.pruned_positions()
        values = self.values[stored]
        escape = len(self._books.pruned)
        ranks = ranks_of(self._books.pruned, escape).take(self.exponents[stored])
        codes = _code(ranks, self.missing, self.existing > 0, self.format)
        pairs = np.empty((values.size, 2), dtype=np.uint8)
        pairs[:, 0] = (values & 0x7F) | (values >> 15) << 7
        pairs[:, 1] = self.exponents[stored]
        present = np.ones(pairs.shape, dtype=np.bool_)
        present[:, 1] = ranks == escape
        wide = np.zeros(self.grid.padded, dtype=np.int64)
        wide[stored] = present.sum(axis=1)
        needs = wide.reshape(self.grid.shape).sum(axis=2)
        return codes, self._octet_rows(pairs[present], needs.sum(axis=1)), 8 * needs


class _Region:
    """Place the rows of streams into regions according to a layout."""

    def __init__(self, layout: Layout, format: Format) -> None:
        self._layout = layout
        self._format = format
        in_superblock = format.superblock * 8 // format.beat
        self.lengths: Ints = -(-layout.lengths // in_superblock)
        self.offsets: Ints = np.cumsum(self.lengths) - self.lengths
        self._bases = self.offsets * in_superblock
        total = int(self.lengths.sum()) * in_superblock
        self._rows = np.zeros(total, dtype=bitops.row_dtype(format.beat))

    def put(self, rows: Rows, *names: str) -> None:
        """Store the rows [units, rows per unit] or [rows] of the stream that these rules read."""
        places = self._layout.places(self._bases, *names)
        if rows.ndim == 1:
            self._rows[places] = rows
            return
        for row in range(rows.shape[1]):
            self._rows[places + row] = rows[:, row]

    @property
    def octets(self) -> Bytes:
        return bitops.to_bytes(self._rows)


def _speculation(run: _Run, bits: dict[str, int]) -> _Region:
    format, grid = run.format, run.grid
    counts = {
        "mask": mask_counts(grid, run.has_mask),
        "sign_high": packed_counts(run.kept_counts, format.beat),
    }
    bits["mask"] = int(grid.sizes[run.has_mask].sum())
    bits["sign_high"] = int(run.kept_sizes.sum()) * format.high_planes
    codes = run.exponent_codes() if format.scheme == "unary" else None
    if codes is not None:
        counts |= {"starve": codes.starve, "prefetch": codes.prefetch}
        bits["exponent"] = codes.bits
    else:
        needs = exponent_needs(grid)
        counts["exponent"] = packed_counts(needs, format.beat)
        bits["exponent"] = int(needs.sum())
    region = _Region(Layout(speculation_rules(format), counts), format)
    if run.has_mask.any():
        region.put(run.mask_rows(), "mask")
    region.put(run.sign_high_rows(), "sign_high")
    if codes is not None:
        region.put(codes.rows, "starve", "prefetch")
    else:
        region.put(run.exponent_rows(), "exponent")
    return region


def _verification(run: _Run, bits: dict[str, int]) -> _Region:
    format = run.format
    counts: dict[str, Ints] = {}
    rows: dict[tuple[str, ...], Rows] = {}
    if format.pruned_exponent == "coded":
        codes, pruned, needs = run.coded()
        counts |= {"starve": codes.starve, "prefetch": codes.prefetch}
        rows["starve", "prefetch"] = codes.rows
        bits["pruned_exponent"] = codes.bits
    else:
        pruned, needs = run.raw()
    counts["pruned"], rows["pruned",] = packed_counts(needs, format.beat), pruned
    bits["pruned"] = int(needs.sum())
    if format.low_places:
        counts["low"] = packed_counts(run.kept_counts, format.beat)
        rows["low",] = run.low_rows()
        bits["low"] = int(run.kept_sizes.sum()) * len(format.low_places)
    if format.scheme == "exact":
        rows["residue",], needs = run.residue()
        counts["residue"] = packed_counts(needs, format.beat)
        bits["residue"] = int(needs.sum())
    region = _Region(Layout(verification_rules(format), counts), format)
    for names, stream in rows.items():
        region.put(stream, *names)
    return region


def encode_run(args: Arguments, books: Codebooks) -> Packed:
    """Encode at least one value; ``args`` is a slice of a tensor's that starts a segment."""
    run = _Run(args, books)
    bits: dict[str, int] = {}
    spec, ver = _speculation(run, bits), _verification(run, bits)
    flags = run.has_mask * FLAG_MASK
    columns = (spec.offsets, spec.lengths, ver.offsets, ver.lengths, flags)
    return Packed(
        format=args.format,
        count=args.values.size,
        speculation=spec.octets,
        verification=ver.octets,
        directory=np.stack(columns, axis=1).astype(np.uint32),
        codebook=books.codebook,
        pruned_codebook=books.pruned,
        stream_bits={stream.name: bits[stream.name] for stream in args.format.streams},
    )
