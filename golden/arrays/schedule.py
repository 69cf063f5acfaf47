"""The demand schedule (docs/format.md, section 6) in closed form, for many segments at once.

A region is described by the number of *units* (rows, blocks or windows) that each rule reads for
each beat: arrays [segments, beats]. :class:`Layout` computes the place of every unit from them. The
encoder gets the counts from its values; the decoder gets them by walking the slots
(:mod:`cassandra_spec.golden.arrays.walk`), and then uses the same layout.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from cassandra_spec.golden.arrays.bitops import Flags, Ints
from cassandra_spec.golden.format import Format


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of section 6: at slot s it reads units of ``rows`` for beat ``s + offset``."""

    name: str
    offset: int
    rows: int


def speculation_rules(format: Format) -> tuple[Rule, ...]:
    """Return the rules of the speculation region, in order within a slot; slots start at -1."""
    unary = format.scheme == "unary"
    return (
        Rule(name="starve", offset=0, rows=format.window),
        Rule(name="mask", offset=1, rows=1),
        Rule(name="prefetch", offset=1, rows=format.window)
        if unary
        else Rule(name="exponent", offset=0, rows=1),
        Rule(name="sign_high", offset=0, rows=format.high_planes),
    )


def verification_rules(format: Format) -> tuple[Rule, ...]:
    """Return the rules of the verification region, in order; slots start at -2 lead."""
    lead = format.lead
    return (
        Rule(name="pruned", offset=0, rows=1),
        Rule(name="starve", offset=lead, rows=format.window),
        Rule(name="prefetch", offset=lead + 1, rows=format.window),
        Rule(name="low", offset=2 * lead, rows=len(format.low_places)),
        Rule(name="residue", offset=lead, rows=1),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
    """Consecutive segments as an array of positions [segments, beats, beat].

    The last segment may be short; the array then contains positions that do not exist.
    """

    format: Format
    count: int  # number of values, at least 1

    @property
    def segments(self) -> int:
        """Number of segments, including a short last one."""
        return -(-self.count // self.format.segment)

    @property
    def beats(self) -> int:
        """Beats per segment, a whole number of groups; the last ones may not exist."""
        values = min(self.count, self.format.segment)
        return -(-values // self.format.group) * (self.format.group // self.format.beat)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Segments, beats, and positions per beat."""
        return self.segments, self.beats, self.format.beat

    @property
    def padded(self) -> int:
        """Number of positions, including those that do not exist."""
        return math.prod(self.shape)

    def count_by_beat(self, chosen: Flags) -> Ints:
        """Return the number of chosen positions per beat, [segments, beats]; ``chosen`` is flat."""
        counts: Ints = np.count_nonzero(chosen.reshape(self.shape), axis=2).astype(np.int64)
        return counts

    @property
    def sizes(self) -> Ints:
        """Number of values per segment."""
        starts = np.arange(self.segments, dtype=np.int64) * self.format.segment
        return np.asarray(np.minimum(self.count - starts, self.format.segment))

    @property
    def existing(self) -> Ints:
        """Number of existing positions, [segments, beats]; 0 for beats that do not exist."""
        before = np.arange(self.beats, dtype=np.int64) * self.format.beat
        return np.asarray(np.clip(self.sizes[:, None] - before, 0, self.format.beat))


class Layout:
    """Place of each rule's units in the regions of a grid's segments.

    ``counts`` maps rule names to units read, [segments, beats]; rules not in it read nothing.
    ``lengths`` is the number of rows of each region.
    """

    def __init__(self, rules: tuple[Rule, ...], counts: Mapping[str, Ints]) -> None:
        segments, beats = next(iter(counts.values())).shape
        first = -max(rule.offset for rule in rules)
        taken = np.zeros((segments, beats - first, len(rules)), dtype=np.int64)
        for column, rule in enumerate(rules):
            if rule.name in counts:
                slot = -rule.offset - first
                taken[:, slot : slot + beats, column] = counts[rule.name]
        rows = taken * np.array([rule.rows for rule in rules])
        ends = np.cumsum(rows.reshape(segments, -1), axis=1)
        self.lengths: Ints = ends[:, -1].copy()
        self._taken = taken
        self._starts = ends.reshape(rows.shape) - rows
        self._rules = rules

    def taken(self, *names: str) -> Ints:
        """Return the number of units that the rules ``names`` read, [segments]."""
        columns = [i for i, rule in enumerate(self._rules) if rule.name in names]
        return np.asarray(self._taken[:, :, columns].sum(axis=(1, 2)))

    def places(self, bases: Ints, *names: str) -> Ints:
        """Return the first row of every unit of a stream, segment by segment in stream order.

        ``names`` are the rules that read the stream, ``bases`` the first row of each region.
        """
        columns = [i for i, rule in enumerate(self._rules) if rule.name in names]
        rows = self._rules[columns[0]].rows
        counts = self._taken[:, :, columns].reshape(-1)
        starts = (self._starts[:, :, columns] + bases[:, None, None]).reshape(-1)
        cells = np.flatnonzero(counts)
        counts, starts = counts[cells], starts[cells]
        if (counts == 1).all():
            return np.asarray(starts)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        places: Ints = np.repeat(starts, counts) + rows * within
        return places


def packed_counts(needs: Ints, beat: int) -> Ints:
    """Return the rows that rule ``packed`` reads per beat; ``needs`` in bits, [segments, beats].

    With ``needs`` in values, return the blocks that rule ``blocked`` reads.
    """
    rows: Ints = -(-np.cumsum(needs, axis=1) // beat)
    return np.asarray(np.diff(rows, axis=1, prepend=0))


def mask_counts(grid: Grid, has_mask: Flags) -> Ints:
    """Return the rows of ``mask`` per beat: one where the segment has a mask."""
    present: Ints = ((grid.existing > 0) & has_mask[:, None]).astype(np.int64)
    return present


def exponent_needs(grid: Grid) -> Ints:
    """Return the bits of ``exponent`` that each beat adds in mx and exact."""
    first = np.arange(grid.beats) % (grid.format.group // grid.format.beat) == 0
    return np.where((grid.existing > 0) & first, 8, 0).astype(np.int64)


def coded_counts(needed: Ints, wanted: Ints, exists: Flags) -> tuple[Ints, Ints]:
    """Return the windows that rules ``starve`` and ``prefetch`` read per beat.

    ``needed`` is the number of windows that hold the codes through each beat, ``wanted`` the number
    that hold ``beat`` more codes; ``exists`` is a mask of the beats that exist. All are [segments,
    beats].
    """
    segments, beats = needed.shape
    starve = np.zeros((beats, segments), dtype=np.int64)
    prefetch = np.zeros((beats, segments), dtype=np.int64)
    need, want = np.ascontiguousarray(needed.T), np.ascontiguousarray(wanted.T)
    prefetch[0] = 1  # the queue is empty before the first beat
    taken = prefetch[0].copy()
    for beat in range(beats):
        np.maximum(need[beat] - taken, 0, out=starve[beat])
        taken += starve[beat]
        if beat + 1 < beats:
            prefetch[beat + 1] = (taken < want[beat]) & exists[:, beat + 1]
            taken += prefetch[beat + 1]
    return starve.T, prefetch.T
