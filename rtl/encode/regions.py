"""The back end of the encoder: from records to the two regions of each segment.

Units of each stream are packed first (:mod:`cassandra_spec.rtl.encode.packers`) and wait in
memories until the demand schedule comes to them (docs/format.md, section 6), because a unit often
holds bits of later beats than the one that demands it. encoder-microarchitecture.md derives the
depths of the memories and explains why nothing deadlocks.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.common.queues import PairQueue, Queue
from cassandra_spec.rtl.common.wires import drive
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

_SUMMARIES = 8  # segments between their last record and their result


def EncodeResult() -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """The result of a segment: lengths of its regions in superblocks, mask flag, causes, count."""
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
    """Return the outputs of an encoder: two regions and a result per segment, and ``busy``."""
    words = Out(stream.Signature(RegionWord(config.lanes)))
    results = Out(stream.Signature(EncodeResult()))
    return {"speculation": words, "verification": words, "results": results, "busy": Out(1)}


def _beat_layout(config: EncoderConfig) -> data.StructLayout:
    """The counts that are gathered over the pieces of a beat."""
    back = VerificationRecord(config).members
    return data.StructLayout(
        {
            "kept": config.lanes,
            **{name: back[name] for name in ("count", "stored", "need")},
            "begins": 1,
        }
    )


_Takers = list[tuple[Signal, Value]]
"""``valid`` and ``ready`` of each packer that sees the records."""


def _taker(takers: _Takers, name: str, ready: Value) -> Signal:
    """Return ``valid`` for another packer, which takes a record when it is ``ready``."""
    valid = Signal(name=f"{name}_valid")
    takers.append((valid, ready))
    return valid


def _memory(m: Module, name: str, shape: object, depth: int) -> Queue:
    m.submodules[name] = memory = Queue(shape, depth)
    return memory


class EncoderRegions(wiring.Component):
    """Packers, memories, both schedules and both region writers.

    Latency: about six cycles from a record to its rows, if no earlier unit has to wait for later
    records; the rows of a slot leave together, when all of them are present. Throughput: one record
    per cycle, less where a record has more rows than the bus (eight per cycle and region), more
    than two windows of codes, or more than one pruned value beside other rows; a few cycles at the
    end of a segment. Buffering: a segment; see :class:`cassandra_spec.rtl.encode.depths.Depths`.

    Segments may follow each other without a gap. The regions are written independently, but a
    region begins only when the result of the previous segment waits in ``results``.

    Members
    -------
    records : In(stream of RecordBeat)
    speculation, verification, results, busy : Out
        Those of :class:`cassandra_spec.rtl.encoder.Encoder`.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        self.depths = Depths.of(config)
        records = In(stream.Signature(RecordBeat(config)))
        super().__init__({"records": records, **region_ports(config)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        takers: _Takers = []
        exponents = self._exponents(m, takers)
        high, low = self._kept(m, takers)
        stored, pruned = self._stored(m, takers)
        residue, need = self._residue(m, takers)
        front, back = self._beats(m, takers, need)
        summary = self._summary(m, takers)
        self._fork(m, takers)
        one, first_busy = self._speculation(m, front, exponents, high)
        two, second_busy = self._verification(m, back, low, stored, pruned, residue)
        self._results(m, one, two, summary)
        # A segment's summary is valid from its last record until its result is sent.
        m.d.comb += self.busy.eq(
            self.records.valid | ~summary.empty | self.results.valid | first_busy | second_busy
        )
        return m

    # -- from records to memories -----------------------------------------------------------------

    def _fork(self, m: Module, takers: _Takers) -> None:
        """Take a record when each packer has had it; a packer that had it does not see it again."""
        had = Signal(len(takers))
        now = Signal(len(takers))
        for i, (valid, ready) in enumerate(takers):
            m.d.comb += [valid.eq(self.records.valid & ~had[i]), now[i].eq(had[i] | ready)]
        m.d.comb += self.records.ready.eq(now.all())
        with m.If(self.records.valid):
            m.d.sync += had.eq(Mux(now.all(), 0, now))

    def _exponents(self, m: Module, takers: _Takers) -> PairQueue:
        """Pack windows of unary codes, or rows of shared exponents, into one memory."""
        config, record = self.config, self.records.payload
        layout = WindowLayout(config.window * config.lanes)
        m.submodules.exponents = memory = PairQueue(layout, self.depths.exponents)
        unary = config.selects(record.scheme, "unary")
        busy: Value = Const(0, 1)  # with windows of the previous segment
        if config.has("unary"):
            busy = self._codes(m, takers, memory, unary & ~record.abort)
        if config.schemes != ("unary",):
            self._shared(m, takers, memory, ~unary & ~record.abort, busy)
        return memory

    def _codes(self, m: Module, takers: _Takers, memory: PairQueue, enable: Value) -> Value:
        config, record = self.config, self.records.payload
        m.submodules.codes = codes = UnaryPacker(
            lanes=config.lanes, pace=config.pace, window=config.window, limit=config.codebook
        )
        beat = codes.beats.payload
        m.d.comb += [
            codes.beats.valid.eq(_taker(takers, "codes", ~enable | codes.beats.ready) & enable),
            *(beat.ranks.eq(record.rank), beat.kept.eq(record.kept), beat.last.eq(record.last)),
            codes.windows.ready.eq(memory.write.ready),
        ]
        with m.If(codes.windows.valid):
            m.d.comb += [memory.write.valid.eq(1), memory.write.payload.eq(codes.windows.payload)]
        return codes.busy

    def _shared(
        self, m: Module, takers: _Takers, memory: PairQueue, enable: Value, busy: Value
    ) -> None:
        m.submodules.shared = shared = SharedPacker(lanes=self.config.lanes)
        beat, record = shared.beats.payload, self.records.payload
        valid = _taker(takers, "shared", ~enable | (~busy & shared.beats.ready))
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

    def _kept(self, m: Module, takers: _Takers) -> tuple[Queue, Queue]:
        """Pack blocks of kept values: planes from the sign down, and planes from bit 0 up."""
        lanes, pace, record = self.config.lanes, self.config.pace, self.records.payload
        unary = self.config.selects(record.scheme, "unary")
        m.submodules.kept = packer = BlockPacker(lanes=lanes, pace=pace, width=9)
        high = _memory(m, "high", data.ArrayLayout(lanes, 9), self.depths.high)
        low = _memory(m, "low", data.ArrayLayout(lanes, 7), self.depths.low)
        beats, block = packer.beats.payload, packer.blocks.payload
        for lane in range(pace):
            field = Cat(record.field[lane], record.raw[lane][15])
            m.d.comb += beats.fields[lane].eq(field)
        m.d.comb += [
            packer.beats.valid.eq(_taker(takers, "kept", packer.beats.ready)),
            beats.chosen.eq(record.kept),
            beats.last.eq(record.last),
            packer.blocks.ready.eq(high.write.ready & low.write.ready),
            high.write.valid.eq(packer.blocks.valid & low.write.ready),
            low.write.valid.eq(packer.blocks.valid & high.write.ready),
        ]
        coded = self._coded(m, packer, unary)
        for k in range(lanes):
            m.d.comb += high.write.payload[0][k].eq(block[k][8])
            for plane in range(1, 9):
                below = block[k][7 - plane] if plane < 8 else 0
                bit = Mux(coded, below, block[k][8 - plane])
                m.d.comb += high.write.payload[plane][k].eq(bit)
            for plane in range(7):
                m.d.comb += low.write.payload[plane][k].eq(block[k][plane])
        return high, low

    def _coded(self, m: Module, packer: BlockPacker, unary: Value) -> Value:
        """Return 1 if the offered block has mantissas."""
        if isinstance(unary, Const):
            return unary
        before = Signal()
        with m.If(packer.beats.valid & packer.beats.ready):
            m.d.sync += before.eq(unary)
        return Mux(packer.flushing, before, unary)

    def _stored(self, m: Module, takers: _Takers) -> tuple[BlockPacker, Queue]:
        """Pack blocks of whole values: pruned ones and escapes."""
        lanes, record = self.config.lanes, self.records.payload
        m.submodules.stored = packer = BlockPacker(lanes=lanes, pace=self.config.pace, width=16)
        pruned = _memory(m, "pruned", data.ArrayLayout(16, lanes), self.depths.pruned)
        m.d.comb += [
            packer.beats.valid.eq(_taker(takers, "stored", packer.beats.ready)),
            packer.beats.payload.fields.eq(record.raw),
            packer.beats.payload.chosen.eq(record.stored),
            packer.beats.payload.last.eq(record.last),
        ]
        wiring.connect(m, packer.blocks, pruned.write)
        return packer, pruned

    def _residue(self, m: Module, takers: _Takers) -> tuple[Queue | None, Value]:
        """Pack words of residue; also return the residue bits of the current piece."""
        lanes, record = self.config.lanes, self.records.payload
        exact = self.config.selects(record.scheme, "exact")
        if not self.config.has("exact"):
            return None, Const(0, 1)
        m.submodules.residue_packer = packer = ResiduePacker(lanes=lanes, pace=self.config.pace)
        memory = _memory(m, "residue", data.ArrayLayout(lanes, 8), self.depths.residue)
        m.d.comb += [
            packer.beats.valid.eq(_taker(takers, "residue", ~exact | packer.beats.ready) & exact),
            packer.beats.payload.fields.eq(record.residue),
            packer.beats.payload.widths.eq(record.width),
            packer.beats.payload.last.eq(record.last),
            memory.write.valid.eq(packer.words.valid),
            memory.write.payload.eq(packer.words.payload),
            packer.words.ready.eq(memory.write.ready),
        ]
        return memory, Mux(exact, packer.need, 0)

    def _beats(self, m: Module, takers: _Takers, need: Value) -> tuple[Queue, Queue]:
        """Queue the counts of each beat for both schedules."""
        config, record = self.config, self.records.payload
        unary = config.selects(record.scheme, "unary")
        beat, ends = self._gathered(m, need)
        memories = (
            _memory(m, "front", SpeculationRecord(config), self.depths.beats),
            _memory(m, "back", VerificationRecord(config), self.depths.beats),
        )
        front, back = (memory.write.payload for memory in memories)
        for name, memory in zip(("front", "back"), memories, strict=True):
            taken = _taker(takers, name, ~ends | memory.write.ready)
            m.d.comb += memory.write.valid.eq(taken & ends)
        drive(m, front, beat, "kept", "count", "begins")
        drive(m, back, beat, "count", "stored", "need")
        m.d.comb += [
            front.unary.eq(unary),
            front.planes.eq(Mux(unary, 8, 9) - record.truncated),
            front.mask.eq(record.mask),
            back.truncated.eq(record.truncated),
        ]
        for one in (front, back):
            m.d.comb += [one.last.eq(record.last), one.abort.eq(record.abort)]
        return memories

    def _gathered(self, m: Module, need: Value) -> tuple[data.View, Value]:
        """Return the counts of the beat so far, and 1 if the current piece ends it."""
        config, record = self.config, self.records.payload
        layout = _beat_layout(config)
        pieces, beat = config.lanes // config.pace, Signal(layout)
        held = Signal(layout)  # earlier pieces of the beat
        place = Signal(range(max(pieces, 2)))  # number of earlier pieces
        ends = record.last | (place == pieces - 1)
        for i in range(pieces):
            here = held.kept.word_select(i, config.pace) | Mux(place == i, record.kept, 0)
            m.d.comb += beat.kept.word_select(i, config.pace).eq(here)
        m.d.comb += [
            beat.count.eq(held.count + record.count),
            beat.stored.eq(held.stored + popcount(record.stored)),
            beat.need.eq(held.need + need),
            beat.begins.eq(held.begins | record.begins),
        ]
        if pieces > 1:
            with m.If(self.records.valid & self.records.ready):
                m.d.sync += [held.eq(Mux(ends, 0, beat)), place.eq(Mux(ends, 0, place + 1))]
        return beat, ends

    def _summary(self, m: Module, takers: _Takers) -> Queue:
        """Queue the fields of the result that come from a segment's last record."""
        record = self.records.payload
        memory = _memory(m, "summary", _summary_layout(), _SUMMARIES)
        summary = memory.write
        ends = _taker(takers, "summary", ~record.last | summary.ready)
        m.d.comb += [
            summary.valid.eq(ends & record.last),
            summary.payload.mask.eq(record.mask & ~record.abort),
            summary.payload.errors.eq(record.errors),
            summary.payload.saturated.eq(record.saturated),
        ]
        return memory

    # -- from memories to regions -----------------------------------------------------------------

    def _speculation(
        self, m: Module, beats: Queue, exponents: PairQueue, blocks: Queue
    ) -> tuple[RegionWriter, Value]:
        """Build the writer of the speculation region; also return whether its schedule is busy."""
        config = self.config
        writer = RegionWriter(lanes=config.lanes, superblock=config.superblock)
        m.submodules.speculation_schedule = schedule = SpeculationWriter(config)
        m.submodules.speculation_writer = writer
        wiring.connect(m, beats.read, schedule.beats)
        wiring.connect(m, exponents.read, schedule.exponents)
        if config.has("unary"):
            wiring.connect(m, exponents.following, schedule.following)
        wiring.connect(m, blocks.read, schedule.blocks)
        wiring.connect(m, schedule.rows, writer.rows)
        wiring.connect(m, writer.words, wiring.flipped(self.speculation))
        return writer, schedule.busy

    def _verification(
        self,
        m: Module,
        beats: Queue,
        blocks: Queue,
        stored: BlockPacker,
        pruned: Queue,
        residue: Queue | None,
    ) -> tuple[RegionWriter, Value]:
        """Build the writer of the verification region; also return whether its schedule is busy."""
        config = self.config
        writer = RegionWriter(lanes=config.lanes, superblock=config.superblock)
        m.submodules.verification_schedule = schedule = VerificationWriter(config)
        m.submodules.verification_writer = writer
        wiring.connect(m, beats.read, schedule.beats)
        wiring.connect(m, blocks.read, schedule.blocks)
        wiring.connect(m, pruned.read, schedule.pruned)
        m.d.comb += [
            schedule.begun.eq(stored.begun),
            schedule.begun_count.eq(Mux(pruned.empty, stored.level, 0)),
        ]
        if residue is not None:
            wiring.connect(m, residue.read, schedule.residue)
        wiring.connect(m, schedule.rows, writer.rows)
        wiring.connect(m, writer.words, wiring.flipped(self.verification))
        return writer, schedule.busy

    def _results(self, m: Module, one: RegionWriter, two: RegionWriter, summaries: Queue) -> None:
        """Offer the result of a segment when both of its regions have been taken."""
        result, summary = self.results.payload, summaries.read
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
