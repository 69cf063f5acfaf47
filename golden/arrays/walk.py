"""Count the rows that each stream takes per beat, by walking the slots of section 6.

A decoder knows the needs of one stream only after decoding others, so these walks proceed slot by
slot, in step over all segments of a run: one array operation serves all. They produce only counts
(for :class:`cassandra_spec.golden.arrays.schedule.Layout`); most of the decoding is done
afterwards, in bulk.

Rows past the end of an array read as its last row, and rows past the end of a region as the next
region's. Only broken data reads them, and its layout then exceeds its region.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cassandra_spec.golden.arrays import arithmetic, bitops
from cassandra_spec.golden.arrays.bitops import Flags, Ints, Octets, Rows
from cassandra_spec.golden.arrays.schedule import Grid, exponent_needs, mask_counts, packed_counts
from cassandra_spec.golden.format import Format

Counts = dict[str, Ints]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegionRows:
    """Regions of consecutive segments as rows, one after another."""

    rows: Rows  # [rows]
    bases: Ints  # [segments] first row of each region
    limits: Ints  # [segments] row after the last
    sizes: Ints  # [segments] size in bytes

    def at(self, places: Ints) -> Rows:
        """Return the rows at ``places``, of the same shape."""
        if not self.rows.size:
            return np.zeros(places.shape, dtype=self.rows.dtype)
        return self.rows.take(places, mode="clip")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Windows:
    """Results of a walk of scheme exact."""

    windows: Octets  # [segments, blocks, beat] in order of the kept values
    offsets: Ints  # [segments, (blocks + 1) * beat] start of each value's residue
    residue: Rows  # [segments, rows]


class _Blocks:
    """Rule ``blocked``."""

    def __init__(self, segments: int, beat: int) -> None:
        self._beat = beat
        self._available = np.zeros(segments, dtype=np.int64)

    def take(self, needed: Ints) -> Flags:
        """Return a mask of the segments that read a block, and advance their counters."""
        taken = np.asarray(self._available < needed)
        self._available += self._beat * taken
        self._available -= needed
        return taken


def _window_ones(region: RegionRows, format: Format) -> Octets:
    """Return the number of ones in the window at each row."""
    ones = np.bitwise_count(region.rows).astype(np.uint8)
    total = ones.copy()
    for row in range(1, format.window):
        total[:-row] += ones[row:]
    return total if total.size else np.zeros(1, dtype=np.uint8)


class _Walk:
    """State shared by the walks of the regions.

    ``counters`` holds the units read per rule, [beats, segments], so that a slot is contiguous in
    memory.
    """

    def __init__(self, region: RegionRows, grid: Grid, *rules: str) -> None:
        self._region = region
        self._grid = grid
        self._format = grid.format
        self._blocks = _Blocks(grid.segments, grid.format.beat)
        self._cursor = region.bases.copy()
        self._pruned_bits = np.zeros(grid.segments, dtype=np.int64)
        self._counters = {rule: np.zeros((grid.beats, grid.segments), np.int64) for rule in rules}

    def _take_pruned(self, beat: int, bits: Ints) -> None:
        """Read rows of ``pruned`` for ``bits`` more bits in each segment."""
        rows = -(-self._pruned_bits // self._format.beat)
        self._pruned_bits += bits
        taken = -(-self._pruned_bits // self._format.beat) - rows
        self._counters["pruned"][beat] = taken
        self._cursor += taken

    def _counts(self) -> Counts:
        return {rule: counter.T for rule, counter in self._counters.items()}


class SpeculationWalk(_Walk):
    """Walk of the speculation region."""

    def __init__(self, region: RegionRows, grid: Grid, has_mask: Flags) -> None:
        super().__init__(region, grid, "starve", "prefetch", "sign_high")
        self._unary = grid.format.scheme == "unary"
        self._existing = np.ascontiguousarray(grid.existing.T)
        full = (1 << self._existing.astype(np.uint64)) - np.uint64(1)
        self._lanes = full.astype(bitops.row_dtype(grid.format.beat))  # one bit per position
        self._unmasked = np.where(has_mask, 0, -1).astype(np.int8).astype(self._lanes.dtype)
        self._queued = np.zeros(grid.segments, dtype=np.int64)
        self._fixed = {"mask": mask_counts(grid, has_mask)}
        if not self._unary:
            self._fixed["exponent"] = packed_counts(exponent_needs(grid), grid.format.beat)
        else:
            self._ones = _window_ones(region, grid.format)

    def _take_windows(self, need: Flags, rule: str, beat: int) -> None:
        got = self._ones.take(self._cursor, mode="clip")
        self._queued += got * need
        self._cursor += self._format.window * need
        self._counters[rule][beat] += need

    def _starve(self, beat: int, kept: Ints) -> None:
        while (need := (self._queued < kept) & (self._cursor <= self._region.limits)).any():
            self._take_windows(need, "starve", beat)
        self._queued -= kept

    def _prefetch(self, beat: int) -> None:
        need = (self._queued < self._format.beat) & (self._existing[beat] > 0)
        self._take_windows(need, "prefetch", beat)

    def run(self) -> Counts:
        """Return the units that each rule reads, [segments, beats]."""
        fixed = {name: np.ascontiguousarray(count.T) for name, count in self._fixed.items()}
        exponent = fixed.get("exponent")
        kept = np.zeros(self._grid.segments, dtype=np.int64)
        for slot in range(-1, self._grid.beats):
            follows = kept
            if self._unary and slot >= 0:
                self._starve(slot, kept)
            if slot + 1 < self._grid.beats:
                mask = (self._region.at(self._cursor) | self._unmasked) & self._lanes[slot + 1]
                follows = np.bitwise_count(mask).astype(np.int64)
                self._cursor += fixed["mask"][slot + 1]
                if self._unary:
                    self._prefetch(slot + 1)
            if slot >= 0:
                if exponent is not None:
                    self._cursor += exponent[slot]
                taken = self._blocks.take(kept)
                self._counters["sign_high"][slot] = taken
                self._cursor += self._format.high_planes * taken
            kept = follows
        counts = self._counts() | self._fixed
        if not self._unary:
            del counts["starve"], counts["prefetch"]
        return counts


class CodedWalk(_Walk):
    """Walk of the verification region in scheme unary with coded exponents of pruned values.

    ``kept`` and ``missing`` count values, [segments, beats]; ``escape`` is the rank of an escape.
    """

    def __init__(
        self, region: RegionRows, grid: Grid, kept: Ints, missing: Ints, escape: int
    ) -> None:
        super().__init__(region, grid, "starve", "prefetch", "low", "pruned")
        self._escape = escape
        self._kept = np.ascontiguousarray(kept.T)
        self._missing = np.ascontiguousarray(missing.T)
        self._exists = np.ascontiguousarray(grid.existing.T > 0)
        self._ones = np.zeros(grid.segments, dtype=np.int64)  # ones in the windows read
        self._used = np.zeros(grid.segments, dtype=np.int64)  # ones consumed
        self._zeros = np.zeros(grid.segments, dtype=np.int64)  # zeros after the last one
        room = int(missing.sum(axis=1).max()) + grid.format.beat + grid.format.window_bits + 1
        self._escapes = np.zeros((grid.segments, room), dtype=np.int32)  # escapes before each rank
        self._needs = np.zeros_like(self._missing)  # bits of pruned

    def _take_windows(self, need: Flags, rule: str, beat: int) -> None:
        if not need.any():
            return
        who = np.flatnonzero(need)
        places = self._cursor[who, None] + np.arange(self._format.window)
        octets = self._region.at(places).view(np.uint8)
        bits = np.unpackbits(octets, axis=1, bitorder="little")
        self._count_escapes(who, bits)
        self._cursor[who] += self._format.window
        self._counters[rule][beat] += need

    def _count_escapes(self, who: Ints, bits: Octets) -> None:
        width = bits.shape[1]
        last = np.empty((who.size, width + 1), dtype=np.int64)  # position of the previous one
        last[:, 0] = -1 - self._zeros[who]
        last[:, 1:] = np.where(bits, np.arange(width), last[:, :1])
        np.maximum.accumulate(last, axis=1, out=last)
        zeros = np.arange(width) - last[:, :-1] - 1
        escapes = np.cumsum((bits != 0) & (zeros >= self._escape), axis=1)
        ordinals = np.cumsum(bits, axis=1, dtype=np.int64)
        line, column = np.nonzero(bits)
        seg = who[line]
        before = self._escapes[who, self._ones[who]]
        target = self._ones[seg] + ordinals[line, column]
        self._escapes[seg, target] = before[line] + escapes[line, column]
        self._ones[who] += ordinals[:, -1]
        self._zeros[who] = width - 1 - last[:, -1]

    def _starve(self, beat: int) -> None:
        goal = self._used + self._missing[beat]
        while (need := (self._ones < goal) & (self._cursor <= self._region.limits)).any():
            self._take_windows(need, "starve", beat)
        segments = np.arange(self._grid.segments)
        escapes = self._escapes[segments, goal] - self._escapes[segments, self._used]
        self._needs[beat] = 8 * (self._missing[beat] + np.maximum(escapes, 0))
        self._used = goal

    def _prefetch(self, beat: int) -> None:
        need = (self._ones - self._used < self._format.beat) & self._exists[beat]
        self._take_windows(need, "prefetch", beat)

    def run(self) -> Counts:
        """Return the units that each rule reads, [segments, beats]."""
        beats, lead = self._grid.beats, self._format.lead
        for slot in range(-2 * lead, beats):
            if slot >= 0:
                self._take_pruned(slot, self._needs[slot])
            if 0 <= slot + lead < beats:
                self._starve(slot + lead)
            if 0 <= slot + lead + 1 < beats:
                self._prefetch(slot + lead + 1)
            if slot + 2 * lead < beats and self._format.truncated:
                taken = self._blocks.take(self._kept[slot + 2 * lead])
                self._counters["low"][slot + 2 * lead] = taken
                self._cursor += self._format.truncated * taken
        return self._counts()


class ExactWalk(_Walk):
    """Walk of the verification region in scheme exact.

    ``kept`` and ``missing`` count values, [segments, beats]; ``high`` holds the high bits of the
    kept values in order, [segments, blocks, beat].
    """

    def __init__(
        self, region: RegionRows, grid: Grid, kept: Ints, missing: Ints, high: Octets
    ) -> None:
        super().__init__(region, grid, "low", "residue", "pruned")
        segments, beat = grid.segments, grid.format.beat
        self._kept = np.ascontiguousarray(kept.T)
        self._starts = np.zeros((grid.beats + 1, segments), dtype=np.int64)
        np.cumsum(self._kept, axis=0, out=self._starts[1:])  # kept values before each beat
        self._stored = np.ascontiguousarray(missing.T)  # uncompressed values in pruned
        self._blocks_taken = np.zeros(segments, dtype=np.int64)
        self._windows = high.copy()  # [segments, blocks, beat]
        self._offsets = np.zeros((segments, high.shape[1] + 1, beat), dtype=np.int64)
        self._width = np.zeros(segments, dtype=np.int64)  # residue bits of the blocks read
        self._residue = np.zeros((segments, 8 * (high.shape[1] + 1)), dtype=region.rows.dtype)
        self._residue_rows = np.zeros(segments, dtype=np.int64)

    def _low(self, beat: int) -> None:
        taken = self._blocks.take(self._kept[beat])
        who = np.flatnonzero(taken)
        block = self._blocks_taken[who]
        windows = self._windows[who, block]
        if self._format.truncated:
            places = self._cursor[who, None] + np.arange(self._format.truncated)
            windows = windows | self._read_planes(places)
            self._windows[who, block] = windows
            self._counters["low"][beat] = taken
            self._cursor += self._format.truncated * taken
        ends = np.cumsum(arithmetic.RESIDUE_WIDTH.take(windows), axis=1, dtype=np.int64)
        ends += self._width[who, None]
        self._offsets[who, block, 1:] = ends[:, :-1]
        self._offsets[who, block + 1, 0] = ends[:, -1]
        self._width[who] = ends[:, -1]
        self._blocks_taken += taken

    def _read_planes(self, places: Ints) -> Octets:
        """Return the low bits of blocks; ``places`` [blocks, planes] are the rows of planes."""
        octets = self._region.at(places)[:, :, None].view(np.uint8)
        bits = np.unpackbits(octets, axis=2, bitorder="little")
        return np.packbits(bits, axis=1, bitorder="little")[:, 0]

    def _take_residue(self, beat: int) -> None:
        segments = np.arange(self._grid.segments)
        starts, ends = self._starts[beat], self._starts[beat + 1]
        offsets = self._offsets.reshape(segments.size, -1)
        bits = offsets[segments, ends]  # known: the blocks of the beat have been read
        rows = -(-bits // self._format.beat)
        taken = np.maximum(rows - self._residue_rows, 0)
        for row in range(int(taken.max())):
            who = np.flatnonzero(taken > row)
            content = self._region.at(self._cursor[who] + row)
            self._residue[who, self._residue_rows[who] + row] = content
        self._counters["residue"][beat] = taken
        self._cursor += taken
        self._residue_rows += taken
        self._count_escapes(beat, starts)

    def _count_escapes(self, beat: int, starts: Ints) -> None:
        segments, width = self._grid.segments, self._format.beat
        flat = self._windows.reshape(segments, -1)
        lanes = np.arange(width)
        valid = lanes < self._kept[beat][:, None]
        index = np.minimum(starts[:, None] + lanes, flat.shape[1] - 1)
        windows = np.take_along_axis(flat, index, axis=1)
        escapes = np.count_nonzero(valid & (windows == arithmetic.ESCAPE_WINDOW), axis=1)
        line, lane = np.nonzero(valid & (windows == 0))
        if line.size:
            offset = self._offsets.reshape(segments, -1)[line, index[line, lane]]
            row = self._residue[line, offset // width].astype(np.int64)
            flag = (row >> (offset % width)) & 1
            escapes += np.bincount(line[flag == 0], minlength=segments)
        self._stored[beat] += escapes

    def run(self) -> tuple[Counts, Windows]:
        """Return the units that each rule reads, [segments, beats], and the windows."""
        beats, lead = self._grid.beats, self._format.lead
        for slot in range(-2 * lead, beats):
            if slot >= 0:
                self._take_pruned(slot, 16 * self._stored[slot])
            if slot + 2 * lead < beats:
                self._low(slot + 2 * lead)
            if 0 <= slot + lead < beats:
                self._take_residue(slot + lead)
        decoded = Windows(
            windows=self._windows,
            offsets=self._offsets.reshape(self._grid.segments, -1),
            residue=self._residue,
        )
        return self._counts(), decoded
