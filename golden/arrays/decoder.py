"""Decode regions to values, many segments at once (docs/format.md, sections 3 to 7)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from cassandra_spec.golden.arrays import arithmetic, bitops
from cassandra_spec.golden.arrays.bitops import Flags, Ints, Octets, Rows
from cassandra_spec.golden.arrays.schedule import (
    Grid,
    Layout,
    Rule,
    exponent_needs,
    packed_counts,
    speculation_rules,
    verification_rules,
)
from cassandra_spec.golden.arrays.walk import (
    CodedWalk,
    ExactWalk,
    RegionRows,
    SpeculationWalk,
    Windows,
)
from cassandra_spec.golden.errors import DecodeError
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.packed import Bytes, Packed, Segment, Values


def _gather(regions: Sequence[Bytes], beat: int) -> RegionRows:
    octets = beat // 8
    sizes = np.array([region.size for region in regions], dtype=np.int64)
    counts = sizes // octets
    whole = [region[: count * octets] for region, count in zip(regions, counts, strict=True)]
    limits = np.cumsum(counts)
    rows = bitops.to_rows(np.concatenate(whole), beat)
    return RegionRows(rows=rows, bases=limits - counts, limits=limits, sizes=sizes)


class _Region:
    """The regions of one kind for a run of segments, with the layout found by the walk.

    The constructor checks their lengths: causes ``short`` and ``long``.
    """

    def __init__(
        self, rows: RegionRows, rules: tuple[Rule, ...], counts: dict[str, Ints], run: _Run
    ) -> None:
        self._rows = rows
        self._layout = Layout(rules, counts)
        self._run = run
        self._format = run.format
        self._check_length()

    def _check_length(self) -> None:
        room = self._rows.limits - self._rows.bases
        short = self._layout.lengths > room
        if short.size == 1 and short[0]:
            self._check_codes_in_region()
        self._run.reject(
            "short",
            short,
            lambda s: f"needs {self._layout.lengths[s]} rows of a region of {room[s]}",
        )
        extra = self._rows.sizes - self._layout.lengths * (self._format.beat // 8)
        self._run.reject(
            "long",
            extra >= self._format.superblock,
            lambda s: f"leaves {extra[s]} bytes of a region of {self._rows.sizes[s]}",
        )

    def _check_codes_in_region(self) -> None:
        """Raise cause ``code`` if runaway zeros, not truncation, make a region too short."""
        places = self._layout.places(self._rows.bases, "starve", "prefetch")
        places = places[places + self._format.window <= self._rows.limits[0]]
        rows = self._rows.at(places[:, None] + np.arange(self._format.window))
        taken = np.array([places.size * self._format.window_bits])
        self._run.ranks(bitops.unpack_bits(bitops.to_bytes(rows)), taken, np.zeros(1, np.int64))

    def rows(self, unit: int, *names: str) -> Rows:
        """Return the rows [units, unit] of the stream that these rules read."""
        places = self._layout.places(self._rows.bases, *names)
        return self._rows.at(places[:, None] + np.arange(unit))

    def coded(self, beat_counts: Ints) -> Octets:
        """Decode a coded stream, segment by segment; each beat uses ``beat_counts`` ranks."""
        taken = self._layout.taken("starve", "prefetch") * self._format.window_bits
        bits = bitops.unpack_bits(
            bitops.to_bytes(self.rows(self._format.window, "starve", "prefetch"))
        )
        return self._run.ranks(bits, taken, beat_counts.sum(axis=1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Draft:
    """Decoded contents of speculation data."""

    kept: Flags  # [padded positions]
    counts: Ints  # [segments, beats] number of kept values
    signs: Octets  # [kept]
    exponents: Octets  # [kept] exponent of the value (unary) or group
    high: Octets  # [kept] magnitudes; truncated bits are 0
    blocks: Octets  # [blocks, beat] magnitudes with padding


class _Run:
    """A run of segments that are decoded together."""

    def __init__(self, packed: Packed, segments: Sequence[Segment]) -> None:
        self.format: Format = packed.format
        self._packed = packed
        self._segments = segments
        self.grid = Grid(format=packed.format, count=sum(segment.count for segment in segments))
        self.existing = self.grid.existing
        self.has_mask = np.array([segment.has_mask for segment in segments], dtype=np.bool_)

    def reject(self, cause: str, bad: Flags, detail: Callable[[int], str]) -> None:
        """Raise if any segment is bad; ``detail`` is called with its index in the run."""
        if bad.any():
            first = int(np.argmax(bad))
            raise DecodeError(cause, self._segments[first].index, detail(first))

    def ranks(self, bits: Octets, taken: Ints, used: Ints) -> Octets:
        """Decode ``taken`` bits of each segment's codes into ranks; return the first ``used``."""
        ends = np.cumsum(taken)
        ones = np.flatnonzero(bits)
        # Treat the end of each segment's codes as a one.
        owner = np.searchsorted(ones, ends)  # ones before the end of each segment
        first = np.concatenate([np.zeros(1, dtype=np.int64), owner[:-1]])
        zeros = np.diff(ones, prepend=-1) - 1
        starts = ends - taken
        not_empty = owner > first
        zeros[first[not_empty]] = ones[first[not_empty]] - starts[not_empty]
        tail = np.where(not_empty, ends - 1 - ones[owner - 1] if ones.size else 0, taken)
        limit = self.format.codebook
        long_runs = np.zeros(ends.size, dtype=np.bool_)
        long_runs[np.searchsorted(owner, np.flatnonzero(zeros >= limit), side="right")] = True
        bad = long_runs | (tail >= limit)
        self.reject("code", bad, lambda s: f"{limit} or more zeros in a row")
        return zeros[bitops.span_indices(first, used)].astype(np.uint8)

    def _reject_any(self, cause: str, bad: Flags, sizes: Ints, detail: str) -> None:
        """Raise if any of a segment's ``sizes`` elements is bad."""
        if bad.any():
            hit = np.zeros(sizes.size, dtype=np.bool_)
            hit[np.searchsorted(np.cumsum(sizes), np.flatnonzero(bad), side="right")] = True
            self.reject(cause, hit, lambda s: detail)

    # -- speculation ------------------------------------------------------------------------------

    def draft(self) -> _Draft:
        """Decode the speculation regions."""
        rows = _gather([segment.speculation for segment in self._segments], self.format.beat)
        if self.format.scheme == "unary" or self.has_mask.any():
            counts = SpeculationWalk(rows, self.grid, self.has_mask).run()
        else:
            counts = {
                "exponent": packed_counts(exponent_needs(self.grid), self.format.beat),
                "sign_high": packed_counts(self.existing, self.format.beat),
            }
        region = _Region(rows, speculation_rules(self.format), counts, self)
        kept = self._kept(region)
        kept_counts = self.grid.count_by_beat(kept)
        exponents = self._exponents(region, kept, kept_counts)
        planes = region.rows(self.format.high_planes, "sign_high")
        top = self.format.magnitude_bits - 1
        places = range(top, self.format.truncated - 1, -1)
        high = bitops.fields_from_planes(planes[:, 1:], places)
        sizes = kept_counts.sum(axis=1)
        return _Draft(
            kept=kept,
            counts=kept_counts,
            signs=self._unblocked(bitops.fields_from_planes(planes[:, :1], (0,)), sizes),
            exponents=exponents,
            high=self._unblocked(high, sizes),
            blocks=high.reshape(-1, self.format.beat),
        )

    def _unblocked(self, fields: Octets, sizes: Ints) -> Octets:
        return bitops.trimmed(fields, sizes, self.format.beat)

    def _kept(self, region: _Region) -> Flags:
        kept = np.ones(self.grid.shape, dtype=np.bool_)
        if self.has_mask.any():
            bits = bitops.unpack_bits(bitops.to_bytes(region.rows(1, "mask")))
            masked = (self.existing > 0) & self.has_mask[:, None]
            kept[masked] = bits.reshape(-1, self.format.beat) != 0
        flat = kept.reshape(-1)
        flat[self.grid.count :] = False
        return flat

    def _exponents(self, region: _Region, kept: Flags, kept_counts: Ints) -> Octets:
        if self.format.scheme == "unary":
            ranks = region.coded(kept_counts)
            return self._looked_up(ranks, self._packed.codebook, kept_counts.sum(axis=1))
        groups = self._groups(region)
        return np.repeat(groups, self.format.group)[: kept.size][kept]

    def _looked_up(
        self, ranks: Octets, book: tuple[int, ...], sizes: Ints, *, pruned: bool = False
    ) -> Octets:
        """Look up exponents by rank; for pruned values the rank past the last is an escape (0)."""
        kind = "pruned rank" if pruned else "rank"
        detail = f"a {kind} with no entry in a codebook of {len(book)}"
        self._reject_any("rank", ranks >= len(book) + pruned, sizes, detail)
        table = np.zeros(256, dtype=np.uint8)
        table[: len(book)] = book
        return table.take(ranks)

    def _groups(self, region: _Region) -> Octets:
        """Return the exponent of each group of the grid, including groups that do not exist."""
        sizes = -(-self.grid.sizes // self.format.group)
        octets = bitops.to_bytes(region.rows(1, "exponent"))
        groups = bitops.trimmed(octets, sizes, self.format.beat // 8)
        bad = groups == 0
        if self.format.scheme == "mx":
            bad |= groups == 255
        self._reject_any("group", bad, sizes, "a group exponent of 0 or 255")
        result = np.ones(self.grid.padded // self.format.group, dtype=np.uint8)
        result[: groups.size] = groups
        return result

    def draft_values(self) -> Values:
        """Return draft values, uint16 [count]."""
        draft = self.draft()
        magnitude = draft.high | np.uint8(self.format.fill_pattern)
        values = arithmetic.restore(draft.signs, draft.exponents, magnitude, self.format.scheme)
        return self._spread(draft.kept, values)

    def _spread(self, kept: Flags, values: Values) -> Values:
        kept = kept[: self.grid.count]
        if values.size == kept.size:
            return values
        result = np.zeros(kept.size, dtype=np.uint16)
        result[kept] = values
        return result

    # -- verification -----------------------------------------------------------------------------

    def target_values(self) -> Values:
        """Return target values, uint16 [count]."""
        draft = self.draft()
        rows = _gather([segment.verification for segment in self._segments], self.format.beat)
        if self.format.scheme == "exact":
            return self._exact(draft, rows)
        missing = self.existing - draft.counts
        if self.format.pruned_exponent == "coded":
            escape = len(self._packed.pruned_codebook)
            counts = CodedWalk(rows, self.grid, draft.counts, missing, escape).run()
        else:
            counts = {"pruned": packed_counts(16 * missing, self.format.beat)}
            if self.format.low_places:
                counts["low"] = packed_counts(draft.counts, self.format.beat)
        region = _Region(rows, verification_rules(self.format), counts, self)
        magnitude = draft.high
        if self.format.low_places:
            magnitude = draft.high | self._low(region, draft)
        values = self._spread(
            draft.kept,
            arithmetic.restore(draft.signs, draft.exponents, magnitude, self.format.scheme),
        )
        pruned = ~draft.kept[: self.grid.count]
        sizes = missing.sum(axis=1)
        if self.format.pruned_exponent == "coded":
            values[pruned] = self._coded_pruned(region, missing, sizes)
        elif sizes.any():
            values[pruned] = self._raw(region, sizes)
        return values

    def _low(self, region: _Region, draft: _Draft) -> Octets:
        places = self.format.low_places
        fields = bitops.fields_from_planes(region.rows(len(places), "low"), places)
        return self._unblocked(fields, draft.counts.sum(axis=1))

    def _raw(self, region: _Region, sizes: Ints) -> Values:
        """Read uncompressed values, ``sizes`` of them per segment."""
        octets = bitops.to_bytes(region.rows(1, "pruned"))
        return bitops.trimmed(octets, 2 * sizes, self.format.beat // 8).view("<u2")

    def _coded_pruned(self, region: _Region, missing: Ints, sizes: Ints) -> Values:
        book = self._packed.pruned_codebook
        ranks = region.coded(missing)
        exponents = self._looked_up(ranks, book, sizes, pruned=True)
        escape = ranks == len(book)
        widths = 1 + escape.astype(np.int64)
        owners = np.repeat(np.arange(sizes.size), sizes)
        totals = np.bincount(owners, weights=widths, minlength=sizes.size).astype(np.int64)
        octets = bitops.to_bytes(region.rows(1, "pruned"))
        octets = bitops.trimmed(octets, totals, self.format.beat // 8)
        first = np.cumsum(widths) - widths
        low = octets[first]
        exponents[escape] = octets[first[escape] + 1]
        return arithmetic.restore(low >> 7, exponents, low & 0x7F, self.format.scheme)

    def _exact(self, draft: _Draft, rows: RegionRows) -> Values:
        missing = self.existing - draft.counts
        sizes = draft.counts.sum(axis=1)
        high = self._dense(draft.blocks, sizes)
        counts, decoded = ExactWalk(rows, self.grid, draft.counts, missing, high).run()
        region = _Region(rows, verification_rules(self.format), counts, self)
        windows, residue = self._windows(decoded, sizes)
        values, escape, broken = arithmetic.restore_exact(
            draft.signs, draft.exponents, windows, residue
        )
        self._reject_any("window", broken, sizes, "a window below the exponent of its group")
        stored = ~draft.kept[: self.grid.count]
        stored[draft.kept[: self.grid.count]] = escape
        result = self._spread(draft.kept, values)
        starts = np.arange(0, self.grid.count, self.format.segment)
        result[stored] = self._raw(region, np.add.reduceat(stored, starts, dtype=np.int64))
        return result

    def _dense(self, blocks: Octets, sizes: Ints) -> Octets:
        """Return the blocks of all segments as [segments, blocks, beat]."""
        counts = -(-sizes // self.format.beat)
        if (counts == self.grid.beats).all():
            return blocks.reshape(self.grid.shape)
        dense = np.zeros(self.grid.shape, dtype=np.uint8)
        dense[np.arange(self.grid.beats) < counts[:, None]] = blocks
        return dense

    def _windows(self, decoded: Windows, sizes: Ints) -> tuple[Octets, Octets]:
        """Return the aligned significands and the residue fields of the kept values."""
        segments = self.grid.segments
        room = decoded.windows.size // segments
        index = bitops.span_indices(np.arange(segments) * room, sizes)
        windows = decoded.windows.reshape(-1)[index]
        stride = decoded.offsets.shape[1]
        within = decoded.offsets.reshape(-1)[
            bitops.span_indices(np.arange(segments) * stride, sizes)
        ]
        octets = bitops.to_bytes(decoded.residue)
        start = np.repeat(np.arange(segments) * (octets.size // segments), sizes) + (within >> 3)
        pair = octets[start] | octets.take(start + 1, mode="clip").astype(np.uint16) << 8
        pair >>= (within & 7).astype(np.uint16)
        mask = (1 << arithmetic.RESIDUE_WIDTH.take(windows).astype(np.uint16)) - 1
        return windows, (pair & mask).astype(np.uint8)


def decode_run(packed: Packed, segments: Sequence[Segment], target: bool) -> Values:
    """Decode consecutive segments of a tensor; all but the last must be whole.

    Raises :class:`cassandra_spec.golden.errors.DecodeError` for the first segment that breaks the
    format.
    """
    try:
        run = _Run(packed, segments)
        return run.target_values() if target else run.draft_values()
    except DecodeError:
        # Decoding all together detects an error; one by one finds the first bad segment and cause.
        for segment in segments if len(segments) > 1 else ():
            decode_run(packed, [segment], target)
        raise
