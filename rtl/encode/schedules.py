"""The demand schedules (docs/format.md, section 6), played from the side that writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.mantissa import HIGH_PLANES, LOW_PLANES
from cassandra_spec.rtl.common.networks import rotate, shift
from cassandra_spec.rtl.common.residue import FIELD_MAX
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.encode.packers import WindowLayout
from cassandra_spec.rtl.encode.region_writer import RowsLayout
from cassandra_spec.rtl.encode.types import EncoderConfig

__all__ = ["SpeculationRecord", "SpeculationWriter", "VerificationRecord", "VerificationWriter"]

_VALUE_ROWS = 16  # of a block of pruned values: lanes values of 16 bits, in rows of lanes bits


def SpeculationRecord(config: EncoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """What the schedule of the speculation region needs to know of a beat."""
    return data.StructLayout(
        {
            "kept": config.lanes,
            "count": Shape.cast(range(config.lanes + 1)),
            "begins": 1,
            "last": 1,
            "abort": 1,
            "unary": 1,
            "mask": 1,
            "planes": range(HIGH_PLANES + 1),  # of a block
        }
    )


def VerificationRecord(config: EncoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """What the schedule of the verification region needs to know of a beat."""
    count = Shape.cast(range(config.lanes + 1))
    return data.StructLayout(
        {
            "count": count,  # kept values
            "stored": count,  # values in ``pruned``
            "need": range(FIELD_MAX * config.lanes + 1),  # bits of residue
            "last": 1,
            "abort": 1,
            "truncated": 3,
        }
    )


def _behind(
    m: Module, first: Sequence[Value], count: Value, then: Sequence[Value], name: str
) -> list[Value]:
    """``count`` rows of ``first``, and behind them those of ``then``; zero past the last."""
    size = len(first) + len(then)
    bits = len(first).bit_length()
    gap = [*[Const(0, len(then[0]))] * ((1 << bits) - 1), *then]
    moved = shift(m, gap, ~count[:bits], size, name)
    own = [Mux(count > i, row, 0) for i, row in enumerate(first)]
    return [row | new for row, new in zip(own, moved, strict=False)] + list(moved[len(own) :])


class _Pieces:
    """Rows of a slot, sent eight at a time.

    ``rows`` and ``count`` must hold until ``done``, which says that the last of them leave. A slot
    without rows takes a cycle, too.
    """

    def __init__(self, m: Module, name: str) -> None:
        self.second = Signal(name=f"{name}_second")
        self.count = Signal(range(3 * BUS_ROWS), name=f"{name}_count")
        self.final = self.second | (self.count <= BUS_ROWS)
        self._m = m

    def rows(self, rows: Sequence[Value]) -> list[Value]:
        """The eight rows to send now."""
        rest = [*rows[BUS_ROWS:], *[Const(0)] * BUS_ROWS][:BUS_ROWS]
        return [Mux(self.second, rest[i], rows[i]) for i in range(BUS_ROWS)]

    @property
    def size(self) -> Value:
        """How many of them count."""
        return Mux(self.second, self.count - BUS_ROWS, Mux(self.final, self.count, BUS_ROWS))[:4]

    def moves(self, move: Value) -> Value:
        """``move``: the eight are taken. Returns whether the slot is done."""
        with self._m.If(move):
            self._m.d.sync += self.second.eq(~self.final)
        return move & self.final


@dataclasses.dataclass(frozen=True)
class _Ring:
    """Rows of a unit; ``count`` of them go, from ``head`` on and round, once they are ``there``."""

    rows: Sequence[Value]  # eight
    head: Value
    count: Value
    there: Value


class SpeculationWriter(wiring.Component):
    """The schedule of the speculation region: takes units from the memories, slot by slot.

    Latency: none. Throughput: a slot in each cycle, or in two if it has more than eight rows. A
    window for which the exponents starve leaves with its slot, but in a cycle of its own if another
    one must follow it (or always, where a window has more than three rows); two cycles between
    segments. Buffering: one beat.

    Members
    -------
    beats : In(stream of SpeculationRecord)
    exponents : In(stream of WindowLayout)
        Windows of a unary segment, up to and with its last; rows of shared exponents of others.
    following : In(stream of WindowLayout), if the encoder has scheme unary
        The one behind it, if that is there; taken only with it.
    blocks : In(stream of array of 9, lanes)
        Planes of ``sign_high``, the sign first.
    rows : Out(stream of RowsLayout)
    busy : Out(1)
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        # Whether two windows, the mask and all planes are two pieces at most.
        self.pairs = 2 * config.window + HIGH_PLANES <= 2 * BUS_ROWS
        windows = In(stream.Signature(WindowLayout(config.window * lanes)))
        members = {
            "beats": In(stream.Signature(SpeculationRecord(config))),
            "exponents": windows,
            "blocks": In(stream.Signature(data.ArrayLayout(lanes, HIGH_PLANES))),
            "rows": Out(stream.Signature(RowsLayout(lanes))),
            "busy": Out(1),
        }
        if config.has("unary"):
            members["following"] = windows
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._state()
        self._windows(m)
        self._decide(m)
        self._rows(m, _Pieces(m, "slot"))
        self._begin(m)
        self._count(m)
        return m

    def _state(self) -> None:
        lanes, window = self.config.lanes, self.config.window
        self.running, self.inside, self.tidy = Signal(), Signal(), Signal()
        self.count = Signal(range(lanes + 1))  # of the beat in hand
        self.begins, self.last = Signal(), Signal()
        self.unary, self.mask = Signal(), Signal()  # of the segment
        self.planes = Signal(range(HIGH_PLANES + 1))
        self.lack = Signal(range(-(2 + window) * lanes, lanes + 1))  # count - q of the format
        self.fields = Signal(range(2 * lanes))  # avail of the format
        self.shared = Signal(range(max(lanes // 8, 2)))  # exponents left in the latest row
        self.exhausted = Signal()  # the segment's last window is taken: ones follow
        self.starve, self.alone, self.more = Signal(), Signal(), Signal()
        self.done, self.step = Signal(), Signal()  # what is shown has left; the slot
        self.take_mask, self.take_window = Signal(), Signal()
        self.take_shared, self.take_block = Signal(), Signal()

    def _windows(self, m: Module) -> None:
        """The next two windows of codes: whether they are there, their rows and their ones."""
        lanes, size = self.config.lanes, self.config.window * self.config.lanes
        first = self.exponents
        self.coded, self.bits, self.ones = Signal(2), Signal(2 * size), Signal(range(size + 1))
        self.next_ones, self.ends = Signal(range(size + 1)), Signal(2)  # the last one is taken
        second, past = Const(0, size), Signal()
        m.d.comb += past.eq(self.exhausted | first.payload.last)
        if self.config.has("unary"):
            second = self.following.payload.bits
            m.d.comb += [
                self.coded[1].eq(self.coded[0] & (past | self.following.valid)),
                self.next_ones.eq(Mux(past, size, self.following.payload.ones)),
                self.ends[1].eq(past | self.following.payload.last),
            ]
        m.d.comb += [
            self.coded[0].eq(self.exhausted | first.valid),
            self.ones.eq(Mux(self.exhausted, size, first.payload.ones)),
            self.ends[0].eq(past),
            self.bits.eq(
                Cat(
                    first.payload.bits | self.exhausted.replicate(size),
                    second | past.replicate(size),
                )
            ),
        ]
        self.codes = [self.bits.word_select(i, lanes) for i in range(2 * self.config.window)]

    def _decide(self, m: Module) -> None:
        """What leaves now: the slot, and first a window for which it starves; or that alone."""
        lanes, starve = self.config.lanes, self.starve
        ends = Signal()  # the window of the slot is due
        m.d.comb += [
            self.more.eq(~(self.inside & self.last)),
            starve.eq(self.unary & self.inside & (self.lack > 0)),
            self.alone.eq(starve & (self.lack > self.ones if self.pairs else 1)),
            ends.eq(Mux(starve, self.lack + lanes > self.ones, self.lack + lanes > 0)),
            self.take_mask.eq(self.mask & self.more & ~self.alone),
            self.take_window.eq(self.unary & self.more & ends & ~self.alone),
            self.take_shared.eq(~self.unary & self.inside & self.begins & (self.shared == 0)),
            self.take_block.eq(self.inside & (self.fields < self.count) & ~self.alone),
        ]

    def _rows(self, m: Module, pieces: _Pieces) -> None:
        """The rows that leave now."""
        window, more, payload = self.config.window, self.more & ~self.alone, self.rows.payload
        both = self.starve & self.take_window
        codes = Mux(both, 2 * window, Mux(self.starve | self.take_window, window, self.take_shared))
        head = self._head()
        size = Signal(range(len(head) + 1))
        planes = [self.blocks.payload[i] for i in range(HIGH_PLANES)]
        slot = pieces.rows(_behind(m, head, size, planes, "slot"))
        ready = (
            (~more | self.beats.valid)
            & (~(self.starve | self.take_window) | self.coded[0])
            & (~both | self.coded[1])
            & (~self.take_shared | self.exponents.valid)
            & (~self.take_block | self.blocks.valid)
        )
        aborts = ~self.running & ~self.tidy & self.beats.valid & self.beats.payload.abort
        move = self.rows.valid & self.rows.ready
        m.d.comb += [
            size.eq(self.take_mask + codes),
            pieces.count.eq(size + Mux(self.take_block, self.planes, 0)),
            *(row.eq(new) for row, new in zip(payload.rows, slot, strict=True)),
            self.rows.valid.eq(Mux(self.running, ready, aborts)),
            payload.count.eq(Mux(self.running, pieces.size, 0)),
            payload.end.eq(Mux(self.running, ~self.more & ~self.alone & pieces.final, 1)),
            self.done.eq(pieces.moves(move & self.running)),
            self.step.eq(self.done & ~self.alone),
            self.beats.ready.eq(Mux(self.running, self.step & self.more, aborts & move)),
            self.blocks.ready.eq(self.step & self.take_block),
        ]
        self._take(m, both)

    def _head(self) -> list[Value]:
        """Rows of codes, and the mask before those of the slot."""
        window, mask = self.config.window, self.beats.payload.kept
        behind = [mask, *self.codes]  # the order of a slot that does not starve
        between = [*self.codes[:window], mask, *self.codes[window:]]
        masked = [Mux(self.starve, *rows) for rows in zip(between, behind, strict=True)]
        plain = [*self.codes, Const(0, 1)]
        return [Mux(self.take_mask, *rows) for rows in zip(masked, plain, strict=True)]

    def _take(self, m: Module, both: Value) -> None:
        """Windows and rows of exponents go with the slot."""
        taken = self.done & (self.starve | self.take_window)
        m.d.comb += self.exponents.ready.eq(
            (taken & ~self.exhausted) | (self.step & self.take_shared) | self.tidy
        )
        if self.config.has("unary"):
            m.d.comb += self.following.ready.eq(self.done & both & ~self.ends[0])
        with m.If(taken & Mux(both, self.ends[1], self.ends[0])):
            m.d.sync += self.exhausted.eq(1)

    def _begin(self, m: Module) -> None:
        """From segment to segment; the window that nobody asked for is dropped between them."""
        beat = self.beats.payload
        m.d.comb += self.busy.eq(self.running | self.tidy)
        with m.If(self.tidy):
            m.d.sync += self.tidy.eq(~self.exponents.valid)
        with m.Elif(~self.running & self.beats.valid & ~beat.abort):
            m.d.sync += [
                *(self.running.eq(1), self.inside.eq(0), self.exhausted.eq(0)),
                *(self.lack.eq(0), self.fields.eq(0), self.shared.eq(0), self.count.eq(0)),
                *(self.unary.eq(beat.unary), self.mask.eq(beat.mask), self.planes.eq(beat.planes)),
            ]
        with m.If(self.step):
            m.d.sync += [
                *(self.inside.eq(1), self.count.eq(beat.count)),
                *(self.begins.eq(beat.begins), self.last.eq(beat.last)),
            ]
            with m.If(~self.more):
                ended = self.exhausted | (self.starve & self.ends[0])
                m.d.sync += [self.running.eq(0), self.tidy.eq(self.unary & ~ended)]

    def _count(self, m: Module) -> None:
        """Ranks, values and shared exponents that were taken and not used yet."""
        lanes = self.config.lanes
        got = Mux(self.starve, self.ones, 0) + Mux(
            self.take_window, Mux(self.starve, self.next_ones, self.ones), 0
        )
        next_count = Mux(self.alone | ~self.more, 0, self.beats.payload.count)
        with m.If(self.done):
            m.d.sync += self.lack.eq(self.lack + next_count - got)
        with m.If(self.step):
            m.d.sync += self.fields.eq(self.fields + Mux(self.take_block, lanes, 0) - self.count)
            with m.If(self.inside & self.begins):
                left = Mux(self.shared == 0, lanes // 8, self.shared) - 1
                m.d.sync += self.shared.eq(left)


class VerificationWriter(wiring.Component):
    """The schedule of the verification region: takes units from the memories, slot by slot.

    Latency: none. Throughput: a slot in each cycle, one more for each eight rows (or part of a
    half block) of pruned values, and one more if low bits and residue have more than eight rows.
    The rows of a single pruned value leave with the slot if there is room in its eight rows; four
    cycles between segments. Buffering: two beats, and a word of residue.

    Members
    -------
    beats : In(stream of VerificationRecord)
    blocks : In(stream of array of 7, lanes)
        Planes of ``low``, bit 0 first.
    pruned : In(stream of array of lanes, 16)
    begun : In(array of lanes, 16), begun_count : In(range(lanes))
        The values, so many, of the block that comes next in ``pruned``, while that is not complete
        and ``pruned`` is empty. Without them a value would wait for ``lanes`` others.
    residue : In(stream of array of 8, lanes), if the encoder has scheme exact
    rows : Out(stream of RowsLayout)
        Those of ``begun`` are withdrawn when their block is completed before they are taken, and
        come again from ``pruned``: whoever takes rows must not count on their staying.
    busy : Out(1)
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        self.unit = max(16 // lanes, 1)  # rows of a value
        members = {
            "beats": In(stream.Signature(VerificationRecord(config))),
            "blocks": In(stream.Signature(data.ArrayLayout(lanes, LOW_PLANES))),
            "pruned": In(stream.Signature(data.ArrayLayout(16, lanes))),
            "begun": In(data.ArrayLayout(16, lanes)),
            "begun_count": In(range(lanes)),
            "rows": Out(stream.Signature(RowsLayout(lanes))),
            "busy": Out(1),
        }
        if config.has("exact"):
            members["residue"] = In(stream.Signature(data.ArrayLayout(lanes, BUS_ROWS)))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._state()
        pieces = _Pieces(m, "slot")
        values = self._pruned(m)
        residue = self._residue(m)
        self._slot(m, pieces, values, residue)
        self._begin(m)
        return m

    def _state(self) -> None:
        lanes = self.config.lanes
        self.running, self.more = Signal(), Signal()
        self.tidy = Signal()  # the segment's last block of pruned values is to be dropped
        self.follows = Signal()  # there is a beat after the one of ``pruned``
        self.stored = Signal(range(lanes + 1))  # of that beat
        self.truncated = Signal(3)
        self.fields = Signal(range(2 * lanes))  # avail of the format
        self.step, self.finish = Signal(), Signal()
        self.move_values = Signal()
        self.single = Signal()  # what is left of the beat's pruned values is one of them

    def _pruned(self, m: Module) -> _Ring:
        """The rows of pruned values that may go now: of the half block in hand."""
        lanes = self.config.lanes
        whole = self.pruned.valid
        bits = Mux(whole, Value.cast(self.pruned.payload), Value.cast(self.begun))
        begun_rows = (self.begun_count * 16)[(lanes - 1).bit_length() :]  # complete ones
        self.left = Signal(range(_VALUE_ROWS + 1))  # rows of the beat that are to be sent
        head, half = Signal(range(_VALUE_ROWS)), Signal()
        place = head[:3]
        chunk, room = Signal(range(BUS_ROWS + 1)), Signal(range(BUS_ROWS + 1))
        side = Signal(BUS_ROWS * lanes)
        after = (head + chunk)[:4]
        ends, drop = Signal(), self.finish & (Mux(self.move_values, after, head) != 0)
        self.values_ready = whole | (head + chunk <= begun_rows)
        m.d.comb += [
            side.eq(Mux(head[3], bits[BUS_ROWS * lanes :], bits[: BUS_ROWS * lanes])),
            room.eq(BUS_ROWS - place),
            chunk.eq(Mux(self.left < room, self.left, room)),
            ends.eq(head + chunk == _VALUE_ROWS),
            self.single.eq((self.left != 0) & (self.left <= self.unit)),
            self.pruned.ready.eq((self.move_values & ends) | drop | self.tidy),
        ]
        with m.If(self.move_values):
            m.d.sync += [head.eq(after), self.left.eq(self.left - chunk)]
        with m.If(self.step):  # the beat of ``residue`` is next
            rows: Value = self.stored << 1 if lanes == 8 else self.stored
            if lanes == 32:  # a row has two values
                rows = (self.stored + 1 - half)[: len(self.stored)] >> 1
                m.d.sync += half.eq((half + self.stored)[0])
            m.d.sync += self.left.eq(rows)
        with m.If(self.finish):
            m.d.sync += [head.eq(0), half.eq(0), self.left.eq(0)]
        m.d.sync += self.tidy.eq((drop | self.tidy) & ~whole)  # the rest of the block
        rows_of_side = [side.word_select(i, lanes) for i in range(BUS_ROWS)]
        return _Ring(rows_of_side, place, chunk, self.values_ready)

    def _residue(self, m: Module) -> _Ring:
        """The rows of residue from ``head`` on: of the word in hand, and behind it of the next."""
        lanes = self.config.lanes
        if not self.config.has("exact"):
            return _Ring([Const(0, lanes)] * BUS_ROWS, Const(0, 3), Const(0, 1), Const(1, 1))
        held, valid = Signal(BUS_ROWS * lanes, reset_less=True), Signal()
        head, end = Signal(3), Signal(range(2 * BUS_ROWS))
        rows, level = Signal(3), Signal(range(lanes))  # of the beat; bits left in its last row
        need = Mux(self.more, self.beats.payload.need, 0)  # of the next beat
        after = self.residue
        bits = (lanes - 1).bit_length()
        m.d.comb += end.eq(head + rows)
        passes = self.step & (end >= BUS_ROWS)
        there = (rows == 0) | (valid & ((end <= BUS_ROWS) | after.valid))
        m.d.comb += after.ready.eq(passes | ~valid)
        with m.If(self.step):
            m.d.sync += [head.eq(end), level.eq(level - need)]
            m.d.sync += rows.eq((need + (lanes - 1) - level) >> bits)
        with m.If(after.ready):
            m.d.sync += [valid.eq(after.valid), held.eq(after.payload)]
        with m.If(self.finish):
            m.d.sync += [head.eq(0), level.eq(0), rows.eq(0)]
            with m.If(head != 0):  # the rest of the word is not used
                m.d.sync += valid.eq(0)
        ring = [
            Mux(head > i, after.payload[i], held.word_select(i, lanes)) for i in range(BUS_ROWS)
        ]
        return _Ring(ring, head, rows, there)

    def _slot(self, m: Module, pieces: _Pieces, values: _Ring, residue: _Ring) -> None:
        """Pruned values first, then low bits and residue; or a single value with these."""
        lanes, beat, payload = self.config.lanes, self.beats.payload, self.rows.payload
        take_block, first, both = Signal(), Signal(), Signal()
        low_size = Mux(take_block, self.truncated, 0)
        ready = (~self.more | self.beats.valid) & (~take_block | self.blocks.valid)
        ready &= residue.there & (~both | values.there)
        aborts = ~self.running & ~self.tidy & self.beats.valid & beat.abort
        move = self.rows.valid & self.rows.ready
        final = ~self.more & ~self.follows
        size = pieces.size + Mux(both, self.unit, 0)
        m.d.comb += [
            take_block.eq(self.more & (self.fields < beat.count)),
            both.eq(self.single & (self.truncated + residue.count <= BUS_ROWS - self.unit)),
            first.eq(self.running & (self.left != 0) & ~both),
            pieces.count.eq(low_size + residue.count),
            self.rows.valid.eq(Mux(self.running, Mux(first, values.there, ready), aborts)),
            payload.count.eq(Mux(self.running, Mux(first, values.count, size), 0)),
            payload.end.eq(Mux(self.running, ~first & final, 1)),
            self.move_values.eq(move & self.running & (self.left != 0)),
            self.step.eq(pieces.moves(move & self.running & ~first)),
            self.finish.eq(self.step & final),
            self.beats.ready.eq(Mux(self.running, self.step & self.more, aborts & move)),
            self.blocks.ready.eq(self.step & take_block),
        ]
        turn = Mux(first, values.head, residue.head - low_size - Mux(both, self.unit, 0))[:3]
        rings = [Mux(first, *rows) for rows in zip(values.rows, residue.rows, strict=True)]
        turned = rotate(m, rings, turn, BUS_ROWS, "row")
        own = ~first & ~pieces.second
        for i, (there, low) in enumerate(self._low(low_size, both)):
            m.d.comb += payload.rows[i].eq(Mux(own & there, low, turned[i]))
        units = [Cat(values.rows[i : i + self.unit]) for i in range(0, BUS_ROWS, self.unit)]
        alone = Array(units)[values.head >> self.unit - 1]
        for i in range(self.unit):
            with m.If(both):
                m.d.comb += payload.rows[i].eq(Value.cast(alone).word_select(i, lanes))
        with m.If(self.step & self.more):
            held = Mux(take_block, lanes, 0)
            m.d.sync += self.fields.eq(self.fields + held - beat.count)

    def _low(self, size: Value, behind: Value) -> list[tuple[Value, Value]]:
        """Rows of low bits at each place, and whether they are there; or ``behind`` a value."""
        planes = [*self.blocks.payload, *[Const(0, 1)] * BUS_ROWS][:BUS_ROWS]
        rows = [(size > i, plane) for i, plane in enumerate(planes)]
        later = [(Const(0, 1), Const(0, 1))] * self.unit + rows
        return [
            (Mux(behind, there, here), Mux(behind, moved, plane))
            for (here, plane), (there, moved) in zip(rows, later, strict=False)
        ]

    def _begin(self, m: Module) -> None:
        beat = self.beats.payload
        m.d.comb += self.busy.eq(self.running | self.tidy)
        with m.If(self.step):
            m.d.sync += [
                *(self.follows.eq(self.more), self.more.eq(self.more & ~beat.last)),
                self.stored.eq(Mux(self.more, beat.stored, 0)),
            ]
        with m.If(self.finish):
            m.d.sync += self.running.eq(0)
        with m.If(~self.running & ~self.tidy & self.beats.valid & ~beat.abort):
            m.d.sync += [
                *(self.running.eq(1), self.more.eq(1), self.follows.eq(0)),
                *(self.stored.eq(0), self.fields.eq(0)),
                self.truncated.eq(beat.truncated),
            ]
