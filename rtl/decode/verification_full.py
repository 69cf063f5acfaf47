"""The verification path at full rate: a target beat in each cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from cassandra_spec.rtl.common.command import DecoderConfig, SpeculationBeat
from cassandra_spec.rtl.common.mantissa import LOW_PLANES
from cassandra_spec.rtl.common.networks import shift
from cassandra_spec.rtl.common.residue import FIELD_MAX, ResidueDemand
from cassandra_spec.rtl.common.stream_slice import StreamSlice
from cassandra_spec.rtl.decode.bitmap_expand import BlockBuffer
from cassandra_spec.rtl.decode.verification import VALUE, AlignedBeat, VerificationPath

__all__ = ["FullRatePath", "verification_path"]


def verification_path(config: DecoderConfig) -> VerificationPath:
    """The verification path of a configuration, at its rate."""
    return (FullRatePath if config.target_rate == "full" else VerificationPath)(config)


class FullRatePath(VerificationPath):
    """A :class:`VerificationPath` that takes the rows of a whole slot in one cycle.

    It reads formats of ``lead`` 2: a slot has low bits for one beat, residues for the beat two
    before it and pruned values for the beat two before that. All beats in flight move at once.

    Latency: six cycles. Throughput: one beat in each cycle in both modes, as long as the bus
    brings the rows; twice as many in a word as at half rate. Buffering: four words of the region,
    two blocks of low bits, seven beats. Illegal input: as at half rate.
    """

    take_max = VALUE + LOW_PLANES + FIELD_MAX
    depth = 4
    eager = False

    def _pipeline(self, m: Module) -> list[Signal]:
        lanes = self.config.lanes
        m.submodules.low = self.low = BlockBuffer(lanes=lanes, planes=LOW_PLANES, ahead=True)
        m.submodules.demand = self.demand = ResidueDemand(lanes=lanes)
        m.submodules.queue = queue = StreamSlice(SpeculationBeat(lanes))
        # Beats in flight: the queue's, whose low bits are taken; that whose low bits are aligned;
        # that whose residue is taken; that whose residue joins; and beat_2.
        self.head, self.head_valid = queue.after.payload, Signal()
        self.beat_low = Signal(SpeculationBeat(lanes))
        self.beat_residue, self.beat_join = Signal(AlignedBeat(lanes)), Signal(AlignedBeat(lanes))
        self.full_low, self.full_residue, self.full_join = (Signal() for _ in range(3))
        self.full_2 = Signal()
        self.step = Signal()
        self.low_rows = Signal(range(LOW_PLANES + 1))  # that the slot takes, by stream
        self.residue_rows = Signal(range(FIELD_MAX + 1))
        self.pruned_rows = Signal(range(VALUE + 1))
        m.d.comb += [
            queue.before.payload.eq(self.beats.payload),
            queue.before.valid.eq(self.beats.valid),
            self.beats.ready.eq(queue.before.ready),
            self.head_valid.eq(queue.after.valid & ~self.beats_done),
            self.aborted.eq(self.head_valid & self.head.abort),
            queue.after.ready.eq(self.running & ~self.beats_done & (self.giving_up | self.step)),
        ]
        with m.If(queue.after.valid & queue.after.ready):
            m.d.sync += self.beats_done.eq(self.head.last)
        with m.If(self.clear):
            m.d.sync += self.beats_done.eq(0)
        self._demands(m)
        self._slot(m)
        self._route(m)
        self._stages(m)
        return [self.full_low, self.full_residue, self.full_join, self.full_2]

    def _demands(self, m: Module) -> None:
        """The rows of each stream that this slot takes; all of it comes from registers."""
        truncated = self.active.truncated
        begins = Signal()
        m.d.comb += [
            begins.eq(self.head_valid & self.active.target & self.head.begins & (truncated != 0)),
            self.low_rows.eq(Mux(begins, truncated, 0)),
            self.demand.needs.eq(self.beat_residue.needs),
            self.demand.enable.eq(self.step & self.full_residue),
            self.demand.clear.eq(self.clear),
            self.residue_rows.eq(Mux(self.full_residue, self.demand.wanted, 0)),
            self.pruned_rows.eq(Mux(self.full_2, self.pruned.wanted, 0)),
            self.low.load.eq(self.step & begins),
        ]

    def _slot(self, m: Module) -> None:
        """A slot passes when its beat, its rows and room for a value beat are there."""
        wanted, ready, enough = Signal(range(self.take_max + 1)), Signal(), Signal()
        level = Mux(self.region, self.reader.level, 0)  # else the rows are the next segment's
        m.d.comb += [
            wanted.eq(self.pruned_rows + (self.low_rows + self.residue_rows)),
            enough.eq(level >= wanted),
            ready.eq(
                self.running
                & ~self.giving_up
                & ~self.aborted
                & (self.head_valid | self.beats_done)
                & (~self.full_2 | self.free_out)
            ),
            self.step.eq(ready & enough),
            self.short.eq(ready & ~enough & self.ended),
            self.reader.take.eq(Mux(self.step, wanted, 0)),
            self.move_2.eq(self.step & self.full_2),
            self.bad_window.eq(self.step & self.full_low & self.align.bad_window),
        ]

    def _route(self, m: Module) -> None:
        """Rows of ``pruned`` come first in a slot, then those of ``low``, then the residue's."""
        lanes = self.config.lanes
        rows: list[Value] = [self.reader.rows[i] for i in range(self.take_max)]
        rest = shift(m, rows, self.pruned_rows, LOW_PLANES + FIELD_MAX, "rest")
        m.d.comb += self.low.block.eq(Cat(rest[:LOW_PLANES]))
        taken = Signal(data.ArrayLayout(lanes, FIELD_MAX))  # rows of beat_join's residue
        with m.If(self.step):
            m.d.sync += taken.eq(Cat(shift(m, rest, self.low_rows, FIELD_MAX, "residue")))
        m.d.comb += [self.residue.rows.eq(taken), self.pruned.rows.eq(Cat(rows[:VALUE]))]

    def _stages(self, m: Module) -> None:
        """The beats in flight and the buffers of their streams."""
        m.d.comb += [
            self.low.lane_mask.eq(self.head.kept),
            self.low.advance.eq(self.step),
            self.low.clear.eq(self.clear),
            self.align.command.eq(self.active),
            self.align.beat.eq(self.beat_low),
            self.align.low.eq(self.low.fields),
            self.residue.beat.eq(self.beat_join),
            self.residue.enable.eq(self.step & self.full_join),
            self.residue.clear.eq(self.clear),
            self.pruned.beat.eq(self.beat_2),
            self.pruned.enable.eq(self.move_2),
            self.pruned.clear.eq(self.clear),
        ]
        with m.If(self.step):
            m.d.sync += [
                self.full_low.eq(self.head_valid),
                self.full_residue.eq(self.full_low),
                self.full_join.eq(self.full_residue),
                self.full_2.eq(self.full_join),
                self.beat_low.eq(self.head),
                self.beat_residue.eq(self.align.aligned),
                self.beat_join.eq(self.beat_residue),
                self.beat_2.eq(self.residue.joined),
            ]
