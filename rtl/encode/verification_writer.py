"""The demand schedule of the verification region (docs/format.md, section 6), on the writing side.

:class:`PrunedRows` and :class:`ResidueRows` show the rows of their streams that may leave now.
:class:`VerificationWriter` combines these and the low bits into slots and sends them.
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.mantissa import LOW_PLANES
from cassandra_spec.rtl.common.networks import rotate
from cassandra_spec.rtl.common.residue import FIELD_MAX
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.encode.region_writer import PieceSender, RowsLayout
from cassandra_spec.rtl.encode.types import EncoderConfig

_VALUE_ROWS = 16  # rows of a block of pruned values: lanes values of 16 bits


def VerificationRecord(config: EncoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """The fields of a beat that the verification region's schedule needs."""
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


def RingLayout(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """Eight rows of a unit: ``count`` of them leave, cyclically from ``head``, once ``present``."""
    return data.StructLayout(
        {
            "rows": data.ArrayLayout(lanes, BUS_ROWS),
            "head": 3,
            "count": range(BUS_ROWS + 1),
            "present": 1,
        }
    )


_State = data.StructLayout({"running": 1, "more": 1, "follows": 1, "truncated": 3})
"""The current segment: valid; beat for low bits; beat for residue; number of planes of ``low``."""


class PrunedRows(wiring.Component):
    """The rows of pruned values that may leave now, from the current half block.

    Invariant: ``left`` rows of the beat are still to go; the next one is row ``head`` of the block
    at the head of ``pruned``, which leaves with its last row or, unused, at the end of a segment.

    Latency: none. Throughput: up to eight rows of a half block per cycle. Buffering: none.

    Members
    -------
    pruned : In(stream of array of lanes, 16), begun : In(array), begun_count : In(range)
        See :class:`VerificationWriter`.
    stored : In(range), load : In(1)
        Values of the next beat, whose rows leave from the next cycle on.
    move : In(1), finish : In(1)
        ``move``: the rows of ``ring`` leave. ``finish``: the segment ends.
    any, single : Out(1)
        ``any``: rows are left. ``single``: they belong to a single value.
    dropping : Out(1)
        The rest of a block waits to be dropped.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        super().__init__(
            {
                "pruned": In(stream.Signature(data.ArrayLayout(16, lanes))),
                "begun": In(data.ArrayLayout(16, lanes)),
                "begun_count": In(range(lanes)),
                "stored": In(range(lanes + 1)),
                **dict.fromkeys(("load", "move", "finish"), In(1)),
                "ring": Out(RingLayout(lanes)),
                **dict.fromkeys(("any", "single", "dropping"), Out(1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, whole = self.config.lanes, self.pruned.valid
        bits = Mux(whole, Value.cast(self.pruned.payload), Value.cast(self.begun))
        begun_rows = (self.begun_count * 16)[(lanes - 1).bit_length() :]  # complete rows
        left, head, half = Signal(range(_VALUE_ROWS + 1)), Signal(range(_VALUE_ROWS)), Signal()
        ring, room, ends = self.ring, Signal(range(BUS_ROWS + 1)), Signal()
        after = (head + ring.count)[:4]
        drop = self.finish & (Mux(self.move, after, head) != 0)
        m.d.comb += [
            ring.rows.eq(Mux(head[3], bits[BUS_ROWS * lanes :], bits[: BUS_ROWS * lanes])),
            ring.head.eq(head[:3]),
            room.eq(BUS_ROWS - head[:3]),
            ring.count.eq(Mux(left < room, left, room)),
            ring.present.eq(whole | (head + ring.count <= begun_rows)),
            ends.eq(head + ring.count == _VALUE_ROWS),
            self.any.eq(left != 0),
            self.single.eq((left != 0) & (left <= self.config.value_rows)),
            self.pruned.ready.eq((self.move & ends) | drop | self.dropping),
        ]
        with m.If(self.move):
            m.d.sync += [head.eq(after), left.eq(left - ring.count)]
        with m.If(self.load):
            rows: Value = self.stored << 1 if lanes == 8 else self.stored
            if lanes == 32:  # a row has two values
                rows = (self.stored + 1 - half)[: len(self.stored)] >> 1
                m.d.sync += half.eq((half + self.stored)[0])
            m.d.sync += left.eq(rows)
        with m.If(self.finish):
            m.d.sync += [head.eq(0), half.eq(0), left.eq(0)]
        m.d.sync += self.dropping.eq((drop | self.dropping) & ~whole)
        return m


class ResidueRows(wiring.Component):
    """The rows of residue that leave with a slot: from the current word, then from the next.

    Invariant: the current word has rows from ``head`` on left; ``level`` bits of the last row taken
    belong to later beats.

    Latency: none. Throughput: the rows of a beat per cycle. Buffering: one word.

    Members
    -------
    residue : In(stream of array of 8, lanes)
    need : In(range)
        Bits of the next beat.
    step : In(1), finish : In(1)
        ``step``: the slot leaves. ``finish``: the segment ends.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        super().__init__(
            {
                "residue": In(stream.Signature(data.ArrayLayout(lanes, BUS_ROWS))),
                "need": In(range(FIELD_MAX * lanes + 1)),
                "step": In(1),
                "finish": In(1),
                "ring": Out(RingLayout(lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, after = self.config.lanes, self.residue
        held, valid = Signal(data.ArrayLayout(lanes, BUS_ROWS), reset_less=True), Signal()
        head, end = Signal(3), Signal(range(2 * BUS_ROWS))
        rows, level = Signal(3), Signal(range(lanes))
        m.d.comb += [
            end.eq(head + rows),
            after.ready.eq((self.step & (end >= BUS_ROWS)) | ~valid),
            self.ring.head.eq(head),
            self.ring.count.eq(rows),
            self.ring.present.eq((rows == 0) | (valid & ((end <= BUS_ROWS) | after.valid))),
        ]
        for i in range(BUS_ROWS):
            m.d.comb += self.ring.rows[i].eq(Mux(head > i, after.payload[i], held[i]))
        with m.If(self.step):
            m.d.sync += [head.eq(end), level.eq(level - self.need)]
            m.d.sync += rows.eq((self.need + (lanes - 1) - level) >> (lanes - 1).bit_length())
        with m.If(after.ready):
            m.d.sync += [valid.eq(after.valid), held.eq(after.payload)]
        with m.If(self.finish):
            m.d.sync += [head.eq(0), level.eq(0), rows.eq(0)]
            with m.If(head != 0):  # the rest of the word is not used
                m.d.sync += valid.eq(0)
        return m


class VerificationWriter(wiring.Component):
    """The schedule of the verification region: takes units from the memories, slot by slot.

    Invariant: in a slot the pruned values of the previous beat come first, eight rows at a time,
    then the low bits of the next beat and the residue of the current one, or a single value
    together with these. ``fields`` is docs/format.md's avail: the values of ``low`` blocks taken
    and not used.

    Latency: none. Throughput: one slot per cycle, plus one cycle for each eight rows (or part of a
    half block) of pruned values, plus one if low bits and residue have more than eight rows. The
    rows of a single pruned value leave with the slot if its eight rows have room. Four cycles pass
    between segments. Buffering: two beats, and a word of residue. A beat with ``abort`` ends the
    region without rows.

    Members
    -------
    blocks : In(stream of array of 7, lanes)
        Planes of ``low``, bit 0 first.
    pruned : In(stream of array of lanes, 16)
    begun : In(array of lanes, 16), begun_count : In(range(lanes))
        The incomplete block that ``pruned`` will show next, and its number of values, while
        ``pruned`` is empty. Without it a value would wait for ``lanes`` others.
    residue : In(stream of array of 8, lanes), if the encoder has scheme exact
    rows : Out(stream of RowsLayout)
        Rows from ``begun`` are withdrawn if their block is completed before they are taken, and
        come again from ``pruned``: the receiver must not rely on an offer to stay.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        lanes = config.lanes
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
        beat, state = self.beats.payload, Signal(_State)
        stored = Signal(range(self.config.lanes + 1))  # pruned values of the residue's beat
        begin, step, finish = Signal(), Signal(), Signal()  # segment begins; slot; last slot
        m.submodules.values = values = PrunedRows(self.config)
        wiring.connect(m, wiring.flipped(self.pruned), values.pruned)
        residue = self._residue(m, Mux(state.more, beat.need, 0), step, finish)
        take_block = self._low_bits(m, begin, state.more, step)
        idle = ~state.running & ~values.dropping
        aborts = idle & self.beats.valid & beat.abort
        drive(m, values, self, "begun", "begun_count")
        m.d.comb += [
            begin.eq(idle & self.beats.valid & ~beat.abort),
            finish.eq(step & ~state.more & ~state.follows),
            values.stored.eq(stored),
            values.load.eq(step),
            values.finish.eq(finish),
            self.busy.eq(~idle),
        ]
        self._slot(m, state, values, residue, take_block, aborts, step)
        with m.If(step):
            m.d.sync += [
                *(state.follows.eq(state.more), state.more.eq(state.more & ~beat.last)),
                stored.eq(Mux(state.more, beat.stored, 0)),
            ]
        with m.If(finish):
            m.d.sync += state.running.eq(0)
        with m.If(begin):
            m.d.sync += [
                *(state.running.eq(1), state.more.eq(1), state.follows.eq(0), stored.eq(0)),
                state.truncated.eq(beat.truncated),
            ]
        return m

    def _residue(self, m: Module, need: Value, step: Signal, finish: Signal) -> data.View:
        """Return the residue rows of this slot; none without scheme exact."""
        if not self.config.has("exact"):
            none = Signal(RingLayout(self.config.lanes))
            m.d.comb += none.present.eq(1)
            return none
        m.submodules.residue = rows = ResidueRows(self.config)
        wiring.connect(m, wiring.flipped(self.residue), rows.residue)
        m.d.comb += [rows.need.eq(need), rows.step.eq(step), rows.finish.eq(finish)]
        return rows.ring

    def _low_bits(self, m: Module, begin: Value, more: Value, step: Value) -> Signal:
        """Return 1 if the slot takes a block of low bits; count the values left of the blocks."""
        lanes, count = self.config.lanes, self.beats.payload.count
        fields, take_block = Signal(range(2 * lanes)), Signal()
        m.d.comb += [
            take_block.eq(more & (fields < count)),
            self.blocks.ready.eq(step & take_block),
        ]
        with m.If(step & more):
            m.d.sync += fields.eq(fields + Mux(take_block, lanes, 0) - count)
        with m.If(begin):
            m.d.sync += fields.eq(0)
        return take_block

    def _slot(
        self,
        m: Module,
        state: data.View,
        values: PrunedRows,
        residue: data.View,
        take_block: Value,
        aborts: Value,
        step: Signal,
    ) -> None:
        """Send pruned values first, then low bits and residue, or a single value with these."""
        unit, payload, pieces = self.config.value_rows, self.rows.payload, PieceSender(m, "slot")
        first, both = Signal(), Signal()  # pruned values leave alone; or with the slot
        low_size = Mux(take_block, state.truncated, 0)
        ready = (
            (~state.more | self.beats.valid)
            & (~take_block | self.blocks.valid)
            & residue.present
            & (~both | values.ring.present)
        )
        move = self.rows.valid & self.rows.ready
        final = ~state.more & ~state.follows
        size = pieces.size + Mux(both, unit, 0)
        m.d.comb += [
            both.eq(values.single & (state.truncated + residue.count <= BUS_ROWS - unit)),
            first.eq(state.running & values.any & ~both),
            pieces.count.eq(low_size + residue.count),
            self.rows.valid.eq(Mux(state.running, Mux(first, values.ring.present, ready), aborts)),
            payload.count.eq(Mux(state.running, Mux(first, values.ring.count, size), 0)),
            payload.end.eq(Mux(state.running, ~first & final, 1)),
            values.move.eq(move & state.running & values.any),
            step.eq(pieces.moves(move & state.running & ~first)),
            self.beats.ready.eq(Mux(state.running, step & state.more, aborts & move)),
        ]
        start = residue.head - low_size - Mux(both, unit, 0)
        rings = [Mux(first, *rows) for rows in zip(values.ring.rows, residue.rows, strict=True)]
        turned = rotate(m, rings, Mux(first, values.ring.head, start)[:3], BUS_ROWS, "row")
        own = ~first & ~pieces.second
        for i, (present, low) in enumerate(self._low(low_size, both)):
            m.d.comb += payload.rows[i].eq(Mux(own & present, low, turned[i]))
        with m.If(both):
            m.d.comb += payload.rows.as_value()[: unit * self.config.lanes].eq(self._single(values))

    def _low(self, size: Value, behind: Value) -> list[tuple[Value, Value]]:
        """Return the rows of low bits at each place with valid bits; or ``behind`` a value."""
        planes = [*self.blocks.payload, *[Const(0, 1)] * BUS_ROWS][:BUS_ROWS]
        rows = [(size > i, plane) for i, plane in enumerate(planes)]
        later = [(Const(0, 1), Const(0, 1))] * self.config.value_rows + rows
        return [
            (Mux(behind, present, here), Mux(behind, moved, plane))
            for (here, plane), (present, moved) in zip(rows, later, strict=False)
        ]

    def _single(self, values: PrunedRows) -> Value:
        """Return the rows of a single value."""
        unit, rows = self.config.value_rows, list(values.ring.rows)
        units = Array(Cat(rows[i : i + unit]) for i in range(0, BUS_ROWS, unit))
        return Value.cast(units[values.ring.head >> unit - 1])
