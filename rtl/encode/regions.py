"""The back end of the encoder: from beat records to the two regions of each segment.

Units of each stream are packed first (:mod:`cassandra_spec.rtl.encode.packers`) and wait in
memories until the demand schedule comes to them (docs/format.md, section 6), because a unit often
holds bits of later beats than the one that demands it. docs/encoder.md says how much can wait, and
why nothing deadlocks.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.common.queues import PairQueue, Queue
from cassandra_spec.rtl.encode.depths import Depths
from cassandra_spec.rtl.encode.packers import (
    BlockPacker,
    ResiduePacker,
    SharedPacker,
    UnaryPacker,
    WindowLayout,
)
from cassandra_spec.rtl.encode.region_writer import LENGTH_WIDTH, RegionWord, RegionWriter
from cassandra_spec.rtl.encode.speculation_writer import SpeculationRecord, SpeculationWriter
from cassandra_spec.rtl.encode.types import (
    COUNT_WIDTH,
    EncodeErrorLayout,
    EncoderConfig,
    RecordBeat,
)
from cassandra_spec.rtl.encode.verification_writer import VerificationRecord, VerificationWriter

__all__ = ["EncodeResult", "EncoderRegions", "region_ports"]

_SUMMARIES = 8  # segments that may be between their last record and their result


def EncodeResult() -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """What became of a segment: lengths of its regions in superblocks, and what it met."""
    return data.StructLayout(
        {
            "speculation": LENGTH_WIDTH,
            "verification": LENGTH_WIDTH,
            "mask": 1,  # the segment has a mask stream
            "errors": EncodeErrorLayout,
            "saturated": COUNT_WIDTH,
        }
    )


def _summary_layout() -> data.StructLayout:
    return data.StructLayout({"mask": 1, "errors": EncodeErrorLayout, "saturated": COUNT_WIDTH})


def region_ports(config: EncoderConfig) -> dict[str, wiring.Member]:
    """What leaves an encoder: two regions and a result for each segment; and whether it is busy."""
    words = Out(stream.Signature(RegionWord(config.lanes)))
    results = Out(stream.Signature(EncodeResult()))
    return {"speculation": words, "verification": words, "results": results, "busy": Out(1)}


class EncoderRegions(wiring.Component):
    """Packers, memories, both schedules and both region writers.

    Latency: about six cycles from a record to its rows, when nothing that comes before them has to
    wait for later records; rows of a slot leave together, when all of them are there. Throughput: a
    record in each cycle, less where a record has more rows than the bus (eight in each cycle and
    region), more than two windows of codes, or more than one pruned value beside other rows; a few
    cycles at the end of a segment. Buffering: a segment; see
    :class:`cassandra_spec.rtl.encode.depths.Depths`.

    Segments may follow each other without a gap. The regions are written independently, but a
    region begins only when the result of the segment before it waits in ``results``.

    Members
    -------
    records : In(stream of RecordBeat)
    speculation, verification : Out(stream of RegionWord)
        A packet for each region; none for a region without rows.
    results : Out(stream of EncodeResult)
        One for each segment, in order, when both regions have been taken.
    busy : Out(1)
        A segment is in flight.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        self.depths = Depths.of(config)
        records = In(stream.Signature(RecordBeat(config)))
        super().__init__({"records": records, **region_ports(config)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.takers: list[tuple[Signal, Value]] = []
        self._exponents(m)
        self._kept(m)
        self._stored(m)
        need = self._residue(m)
        self._beats(m, need)
        self._summary(m)
        self._fork(m)
        self._regions(m)
        return m

    # -- from records to memories -----------------------------------------------------------------

    def _fork(self, m: Module) -> None:
        """A record is gone when each packer has had it; those that had it do not see it again."""
        had = Signal(len(self.takers))
        now = Signal(len(self.takers))
        for i, (valid, ready) in enumerate(self.takers):
            m.d.comb += [valid.eq(self.records.valid & ~had[i]), now[i].eq(had[i] | ready)]
        m.d.comb += self.records.ready.eq(now.all())
        with m.If(self.records.valid):
            m.d.sync += had.eq(Mux(now.all(), 0, now))

    def _taker(self, name: str, ready: Value) -> Signal:
        valid = Signal(name=f"{name}_valid")
        self.takers.append((valid, ready))
        return valid

    def _memory(self, m: Module, name: str, shape: object, depth: int) -> Queue:
        memory = Queue(shape, depth)
        m.submodules[name] = memory
        return memory

    def _exponents(self, m: Module) -> None:
        """Windows of unary codes, or rows of shared exponents, which share a memory."""
        config, record = self.config, self.records.payload
        layout = WindowLayout(config.window * config.lanes)
        m.submodules.exponents = memory = PairQueue(layout, self.depths.exponents)
        self.exponents = memory
        unary = config.selects(record.scheme, "unary")
        busy: Value = Const(0, 1)  # with windows of the segment before
        if config.has("unary"):
            busy = self._codes(m, memory, unary & ~record.abort)
        if config.schemes != ("unary",):
            self._shared(m, memory, ~unary & ~record.abort, busy)

    def _codes(self, m: Module, memory: PairQueue, enable: Value) -> Value:
        config, record = self.config, self.records.payload
        m.submodules.codes = codes = UnaryPacker(
            lanes=config.lanes, window=config.window, limit=config.codebook
        )
        beat = codes.beats.payload
        m.d.comb += [
            codes.beats.valid.eq(self._taker("codes", ~enable | codes.beats.ready) & enable),
            *(beat.ranks.eq(record.rank), beat.kept.eq(record.kept), beat.last.eq(record.last)),
            codes.windows.ready.eq(memory.write.ready),
        ]
        with m.If(codes.windows.valid):
            m.d.comb += [memory.write.valid.eq(1), memory.write.payload.eq(codes.windows.payload)]
        return codes.busy

    def _shared(self, m: Module, memory: PairQueue, enable: Value, busy: Value) -> None:
        m.submodules.shared = shared = SharedPacker(lanes=self.config.lanes)
        beat, record = shared.beats.payload, self.records.payload
        valid = self._taker("shared", ~enable | (~busy & shared.beats.ready))
        m.d.comb += [
            shared.beats.valid.eq(valid & enable & ~busy),
            *(beat.shared.eq(record.shared), beat.begins.eq(record.begins)),
            beat.last.eq(record.last),
            shared.rows.ready.eq(memory.write.ready),
        ]
        with m.If(shared.rows.valid):
            m.d.comb += [
                memory.write.valid.eq(1),
                memory.write.payload.items[0].bits.eq(shared.rows.payload),
            ]

    def _kept(self, m: Module) -> None:
        """Blocks of kept values: the planes from the sign down, and the planes from bit 0 up."""
        lanes, record = self.config.lanes, self.records.payload
        unary = self.config.selects(record.scheme, "unary")
        m.submodules.kept = packer = BlockPacker(lanes=lanes, width=9)
        self.high = self._memory(m, "high", data.ArrayLayout(lanes, 9), self.depths.high)
        self.low = self._memory(m, "low", data.ArrayLayout(lanes, 7), self.depths.low)
        beats, block = packer.beats.payload, packer.blocks.payload
        for lane in range(lanes):
            field = Cat(record.field[lane], record.raw[lane][15])
            m.d.comb += beats.fields[lane].eq(field)
        m.d.comb += [
            packer.beats.valid.eq(self._taker("kept", packer.beats.ready)),
            beats.chosen.eq(record.kept),
            beats.last.eq(record.last),
            packer.blocks.ready.eq(self.high.write.ready & self.low.write.ready),
            self.high.write.valid.eq(packer.blocks.valid & self.low.write.ready),
            self.low.write.valid.eq(packer.blocks.valid & self.high.write.ready),
        ]
        coded = self._coded(m, packer, unary)
        for k in range(lanes):
            m.d.comb += self.high.write.payload[0][k].eq(block[k][8])
            for plane in range(1, 9):
                below = block[k][7 - plane] if plane < 8 else 0
                bit = Mux(coded, below, block[k][8 - plane])
                m.d.comb += self.high.write.payload[plane][k].eq(bit)
            for plane in range(7):
                m.d.comb += self.low.write.payload[plane][k].eq(block[k][plane])

    def _coded(self, m: Module, packer: BlockPacker, unary: Value) -> Value:
        """Whether the block that is offered has mantissas."""
        if isinstance(unary, Const):
            return unary
        before = Signal()
        with m.If(packer.beats.valid & packer.beats.ready):
            m.d.sync += before.eq(unary)
        return Mux(packer.flushing, before, unary)

    def _stored(self, m: Module) -> None:
        """Blocks of whole values: those that are pruned, and escapes."""
        lanes, record = self.config.lanes, self.records.payload
        m.submodules.stored = packer = BlockPacker(lanes=lanes, width=16)
        self.pruned = self._memory(m, "pruned", data.ArrayLayout(16, lanes), self.depths.pruned)
        m.d.comb += [
            packer.beats.valid.eq(self._taker("stored", packer.beats.ready)),
            packer.beats.payload.fields.eq(record.raw),
            packer.beats.payload.chosen.eq(record.stored),
            packer.beats.payload.last.eq(record.last),
        ]
        wiring.connect(m, packer.blocks, self.pruned.write)
        self.stored = packer

    def _residue(self, m: Module) -> Value:
        """Words of residue; gives the number of bits of the record at hand."""
        lanes, record = self.config.lanes, self.records.payload
        exact = self.config.selects(record.scheme, "exact")
        if not self.config.has("exact"):
            self.residue = None
            return Const(0, 1)
        m.submodules.residue_packer = packer = ResiduePacker(lanes=lanes)
        self.residue = self._memory(m, "residue", data.ArrayLayout(lanes, 8), self.depths.residue)
        m.d.comb += [
            packer.beats.valid.eq(self._taker("residue", ~exact | packer.beats.ready) & exact),
            packer.beats.payload.fields.eq(record.residue),
            packer.beats.payload.widths.eq(record.width),
            packer.beats.payload.last.eq(record.last),
            self.residue.write.valid.eq(packer.words.valid),
            self.residue.write.payload.eq(packer.words.payload),
            packer.words.ready.eq(self.residue.write.ready),
        ]
        return Mux(exact, packer.need, 0)

    def _beats(self, m: Module, need: Value) -> None:
        """What the schedules need to know of each beat."""
        config, record = self.config, self.records.payload
        unary = config.selects(record.scheme, "unary")
        self.front = self._memory(m, "front", SpeculationRecord(config), self.depths.beats)
        self.back = self._memory(m, "back", VerificationRecord(config), self.depths.beats)
        front, back = self.front.write.payload, self.back.write.payload
        m.d.comb += [
            self.front.write.valid.eq(self._taker("front", self.front.write.ready)),
            self.back.write.valid.eq(self._taker("back", self.back.write.ready)),
            front.kept.eq(record.kept),
            front.count.eq(record.count),
            front.begins.eq(record.begins),
            front.unary.eq(unary),
            front.mask.eq(record.mask),
            front.planes.eq(Mux(unary, 8, 9) - record.truncated),
            back.count.eq(record.count),
            back.stored.eq(popcount(record.stored)),
            back.need.eq(need),
            back.truncated.eq(record.truncated),
        ]
        for beat in (front, back):
            m.d.comb += [beat.last.eq(record.last), beat.abort.eq(record.abort)]

    def _summary(self, m: Module) -> None:
        """What the result says of a segment, from its last record."""
        record = self.records.payload
        self.summary = self._memory(m, "summary", _summary_layout(), _SUMMARIES)
        summary = self.summary.write
        ends = self._taker("summary", ~record.last | summary.ready)
        m.d.comb += [
            summary.valid.eq(ends & record.last),
            summary.payload.mask.eq(record.mask & ~record.abort),
            summary.payload.errors.eq(record.errors),
            summary.payload.saturated.eq(record.saturated),
        ]

    # -- from memories to regions -----------------------------------------------------------------

    def _regions(self, m: Module) -> None:
        lanes, superblock = self.config.lanes, self.config.superblock
        m.submodules.speculation_schedule = first = SpeculationWriter(self.config)
        m.submodules.verification_schedule = second = VerificationWriter(self.config)
        m.submodules.speculation_writer = one = RegionWriter(lanes=lanes, superblock=superblock)
        m.submodules.verification_writer = two = RegionWriter(lanes=lanes, superblock=superblock)
        wiring.connect(m, self.front.read, first.beats)
        wiring.connect(m, self.exponents.read, first.exponents)
        if self.config.has("unary"):
            wiring.connect(m, self.exponents.following, first.following)
        wiring.connect(m, self.high.read, first.blocks)
        wiring.connect(m, first.rows, one.rows)
        wiring.connect(m, self.back.read, second.beats)
        wiring.connect(m, self.low.read, second.blocks)
        wiring.connect(m, self.pruned.read, second.pruned)
        m.d.comb += [
            second.begun.eq(self.stored.begun),
            second.begun_count.eq(Mux(self.pruned.empty, self.stored.level, 0)),
        ]
        if self.residue is not None:
            wiring.connect(m, self.residue.read, second.residue)
        wiring.connect(m, second.rows, two.rows)
        wiring.connect(m, one.words, wiring.flipped(self.speculation))
        wiring.connect(m, two.words, wiring.flipped(self.verification))
        self._results(m, one, two)
        m.d.comb += self.busy.eq(
            self.records.valid
            | self.front.read.valid
            | self.back.read.valid
            | self.summary.read.valid
            | first.busy
            | second.busy
            | one.ended
            | two.ended
            | self.results.valid
        )

    def _results(self, m: Module, one: RegionWriter, two: RegionWriter) -> None:
        result, summary = self.results.payload, self.summary.read
        take = Signal()
        m.d.comb += [
            take.eq(
                one.ended & two.ended & summary.valid & (~self.results.valid | self.results.ready)
            ),
            one.next.eq(take),
            two.next.eq(take),
            summary.ready.eq(take),
        ]
        with m.If(self.results.ready):
            m.d.sync += self.results.valid.eq(0)
        with m.If(take):
            m.d.sync += [
                self.results.valid.eq(1),
                result.speculation.eq(one.length),
                result.verification.eq(two.length),
                result.mask.eq(summary.payload.mask),
                result.errors.eq(summary.payload.errors),
                result.saturated.eq(summary.payload.saturated),
            ]
