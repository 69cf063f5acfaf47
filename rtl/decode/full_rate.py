"""The verification pipeline at full rate: one beat per cycle, targets and drafts."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import VALUE, DecoderConfig, SpeculationBeat
from cassandra_spec.rtl.common.networks import shift
from cassandra_spec.rtl.common.residue import FIELD_MAX, ResidueDemand
from cassandra_spec.rtl.common.stream_slice import StreamSlice
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decode.align import Align, AlignedBeat
from cassandra_spec.rtl.decode.bitmap_expand import BlockBuffer
from cassandra_spec.rtl.decode.joins import JoinedBeat, Pruned, Residue
from cassandra_spec.rtl.decode.segment import pipeline_ports


def take_max(config: DecoderConfig) -> int:
    """Return the maximum number of rows taken in a cycle."""
    return VALUE + config.low_planes + FIELD_MAX


class FullRateSchedule(wiring.Component):
    """The demand schedule of the verification region for ``lead`` 2: a whole slot per cycle.

    A slot takes low bits for one beat, residues for the beat two before it, and pruned values for
    the beat two before that. In the reader the pruned values come first, then low bits and residue.

    Invariant: all beats in flight move together (``step``), when the beat, all rows of the slot and
    room for the leaving beat are present. Every count of rows comes from registers.

    Latency: none. Throughput: one slot per cycle. A slot whose rows will never come raises
    ``short``.

    Members
    -------
    low_rows, residue_rows, pruned_rows : In(range)
        Number of rows that the slot takes, by stream.
    ready : In(1)
        The beat and the room for it are present.
    region, ended : In(1), level : In(range)
        ``region``: the segment has a region. ``ended``: no more rows will come. ``level``: rows in
        the reader.
    low, residue, pruned : Out(array of lanes)
        The rows of each stream.
    """

    def __init__(self, config: DecoderConfig, *, words: int) -> None:
        self.config = config
        lanes, planes, most = config.lanes, config.low_planes, take_max(config)
        super().__init__(
            {
                "low_rows": In(range(planes + 1)),
                "residue_rows": In(range(FIELD_MAX + 1)),
                "pruned_rows": In(range(VALUE + 1)),
                **dict.fromkeys(("ready", "region", "ended"), In(1)),
                "level": In(range(words * config.verification_rows + 1)),
                "rows": In(data.ArrayLayout(lanes, most)),
                "step": Out(1),
                "short": Out(1),
                "take": Out(range(most + 1)),
                "low": Out(data.ArrayLayout(lanes, planes)),
                "residue": Out(data.ArrayLayout(lanes, FIELD_MAX)),
                "pruned": Out(data.ArrayLayout(lanes, VALUE)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        planes, rows = self.config.low_planes, list(self.rows)
        wanted, enough = Signal(range(len(rows) + 1)), Signal()
        level = Mux(self.region, self.level, 0)  # otherwise the rows are the next segment's
        rest = shift(m, rows, self.pruned_rows, planes + FIELD_MAX, "rest")
        m.d.comb += [
            wanted.eq(self.pruned_rows + (self.low_rows + self.residue_rows)),
            enough.eq(level >= wanted),
            self.step.eq(self.ready & enough),
            self.short.eq(self.ready & ~enough & self.ended),
            self.take.eq(Mux(self.step, wanted, 0)),
            self.pruned.eq(Cat(rows[:VALUE])),
            self.low.eq(Cat(rest[:planes])),
            self.residue.eq(Cat(shift(m, rest, self.low_rows, FIELD_MAX, "residue"))),
        ]
        return m


class FullRatePipeline(wiring.Component):
    """Five beats in flight that move together, one slot of the schedule at a time.

    A beat moves from the queue's head (its low bits are taken) over ``placed`` (low bits are in
    their lanes), ``aligned`` (residue is taken) and ``joining`` (residue joins) to ``leaving``
    (pruned values join).

    Latency: five cycles. Throughput: one beat per cycle in both modes, while the bus brings the
    rows; a word has twice as many as at half rate. Buffering: two blocks of low bits and six beats;
    four words of the region in the reader. Illegal input raises a bit of ``faults``.

    Members: :func:`~cassandra_spec.rtl.decode.segment.pipeline_ports`.
    """

    depth = 4  # words of the region in the reader
    eager = False

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.take_max = take_max(config)
        super().__init__(pipeline_ports(config, take_max=self.take_max, words=self.depth))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, state = self.config.lanes, self.state
        m.submodules.schedule = schedule = FullRateSchedule(self.config, words=self.depth)
        m.submodules.queue = queue = StreamSlice(SpeculationBeat(self.config))
        m.submodules.low = low = BlockBuffer(lanes=lanes, planes=self.config.low_planes)
        m.submodules.align = align = Align(self.config)
        m.submodules.residue = residue = Residue(self.config)
        m.submodules.pruned = pruned = Pruned(self.config)
        wiring.connect(m, wiring.flipped(self.beats), queue.before)
        step, head, offers = schedule.step, queue.after.payload, Signal()
        placed, full_placed = Signal(SpeculationBeat(self.config)), Signal()
        aligned, full_aligned = Signal(AlignedBeat(lanes)), Signal()
        joining, full_joining = Signal(AlignedBeat(lanes)), Signal()
        leaving, full_leaving = Signal(JoinedBeat(lanes)), Signal()
        taken = Signal(data.ArrayLayout(lanes, FIELD_MAX))  # residue rows of ``joining``
        truncated = self.config.truncated_of(self.active)
        begins = offers & self.active.target & head.begins & truncated.any()
        residue_rows = self._residue_rows(m, aligned, step & full_aligned)
        drive(m, schedule, self, "ended", "level", "rows")
        m.d.comb += [
            offers.eq(queue.after.valid & ~state.beats_done),
            queue.after.ready.eq(state.running & ~state.beats_done & (state.giving_up | step)),
            self.taken.eq(queue.after.valid & queue.after.ready),
            self.taken_last.eq(head.last),
            schedule.low_rows.eq(Mux(begins, truncated, 0)),
            schedule.residue_rows.eq(Mux(full_aligned, residue_rows, 0)),
            schedule.pruned_rows.eq(Mux(full_leaving, pruned.wanted, 0)),
            schedule.ready.eq(
                (state.running & ~state.giving_up & ~self.faults.abort)
                & (offers | state.beats_done)
                & (~full_leaving | self.room)
            ),
            schedule.region.eq(state.region),
            self.take.eq(schedule.take),
            self.move.eq(step & full_leaving),
            self.beat.last.eq(leaving.last),
            self.faults.short.eq(schedule.short),
            self.faults.window.eq(step & full_placed & align.bad_window),
            self.faults.abort.eq(offers & head.abort),
            low.block.eq(schedule.low),
            low.load.eq(step & begins),
            low.choices.eq(placed.choices),
            low.clear.eq(self.begin),
            align.command.eq(self.active),
            align.beat.eq(placed),
            align.low.eq(low.fields),
            residue.rows.eq(taken),
            residue.beat.eq(joining),
            residue.enable.eq(step & full_joining),
            residue.clear.eq(self.begin),
            pruned.rows.eq(schedule.pruned),
            pruned.raw.eq(leaving.raw),
            pruned.enable.eq(self.move),
            pruned.clear.eq(self.begin),
        ]
        for lane in range(lanes):
            value = Mux(leaving.raw[lane], pruned.values[lane], leaving.values[lane])
            m.d.comb += self.beat.values[lane].eq(value)
        full = Cat(full_placed, full_aligned, full_joining, full_leaving)
        with m.If(step):
            m.d.sync += [
                full.eq(Cat(offers, full)),
                placed.eq(head),
                aligned.eq(align.aligned),
                joining.eq(aligned),
                taken.eq(schedule.residue),
                leaving.eq(residue.joined),
            ]
        with m.If(state.giving_up):
            m.d.sync += full.eq(0)
        return m

    def _residue_rows(self, m: Module, aligned: data.View, moves: Value) -> Value:
        """Return the number of residue rows that the aligned beat takes."""
        m.submodules.demand = demand = ResidueDemand(lanes=self.config.lanes)
        m.d.comb += [
            demand.needs.eq(aligned.needs),
            demand.enable.eq(moves),
            demand.clear.eq(self.begin),
        ]
        return demand.wanted
