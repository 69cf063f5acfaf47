"""The verification path: low bits, residues and pruned values join the fields of each beat."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import (
    CommandLayout,
    DecoderConfig,
    ErrorLayout,
    SpeculationBeat,
    present_lanes,
)
from cassandra_spec.rtl.common.mantissa import LOW_PLANES, MantissaConcat
from cassandra_spec.rtl.common.networks import popcount, shift
from cassandra_spec.rtl.common.residue import (
    FIELD_MAX,
    HALVES,
    ResidueDemand,
    ResidueUnpack,
    halves,
    total,
)
from cassandra_spec.rtl.common.shifter import DynamicShifter
from cassandra_spec.rtl.common.superblock_reader import WORDS, SuperblockReader
from cassandra_spec.rtl.decode.bitmap_expand import BitmapExpand, BlockBuffer
from cassandra_spec.rtl.decode.codebook import POSSIBLY_EMPTY
from cassandra_spec.rtl.decode.pruned_exponents import PrunedBytes, PrunedExponents

__all__ = [
    "Align",
    "AlignedBeat",
    "JoinedBeat",
    "Pruned",
    "Residue",
    "ValueBeat",
    "VerificationPath",
]

VALUE = 16
"""Bits of a BF16 value."""


def ValueBeat(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """One beat of decoded values.

    ``present`` marks the lanes that have a value, contiguous from lane 0. ``last`` ends the
    segment; ``error`` says that it broke the format (then no lane is present).
    """
    return data.StructLayout(
        {
            "values": data.ArrayLayout(VALUE, lanes),
            "present": lanes,
            "last": 1,
            "error": 1,
        }
    )


def AlignedBeat(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """A beat after concatenation and shift; ``raw`` lanes take their value from ``pruned``."""
    return data.StructLayout(
        {
            "values": data.ArrayLayout(VALUE, lanes),
            "widths": data.ArrayLayout(3, lanes),  # residue bits of the lane
            "flagged": lanes,  # the residue bit is a zero flag
            "raw": lanes,
            "needs": halves(lanes),  # residue bits of each half of the lanes
            "most": range(VALUE + 1),  # rows of ``pruned``, if every flagged lane escapes
            "last": 1,
        }
    )


def JoinedBeat(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """A beat with its residue; ``raw`` lanes take their value from ``pruned``."""
    return data.StructLayout(
        {
            "values": data.ArrayLayout(VALUE, lanes),
            "raw": lanes,
            "last": 1,
        }
    )


def _out_layout(lanes: int) -> data.StructLayout:
    return data.StructLayout({"values": data.ArrayLayout(VALUE, lanes), "last": 1, "error": 1})


class Align(wiring.Component):
    """Concatenate and shift every lane of a beat. Combinational."""

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        super().__init__(
            {
                "command": In(CommandLayout),
                "beat": In(SpeculationBeat(config.lanes)),
                "low": In(data.ArrayLayout(LOW_PLANES, config.lanes)),
                "aligned": Out(AlignedBeat(config.lanes)),
                "bad_window": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self.config.lanes
        self.present, bad = Signal(lanes), Signal(lanes)
        for lane in range(lanes):
            self._lane(m, lane, bad)
        m.d.comb += [
            self.bad_window.eq(bad.any()),
            self.present.eq(present_lanes(self.command, self.beat.last, lanes)),
            self.aligned.last.eq(self.beat.last),
            self.aligned.most.eq(
                _rows_of(popcount(self.aligned.raw | self.aligned.flagged), lanes)
            ),
        ]
        size = lanes // HALVES
        for part in range(HALVES):
            widths = [self.aligned.widths[part * size + lane] for lane in range(size)]
            m.d.comb += self.aligned.needs[part].eq(total(widths))
        return m

    def _lane(self, m: Module, lane: int, bad: Signal) -> None:
        m.submodules[f"concat_{lane}"] = concat = MantissaConcat()
        command, beat = self.command, self.beat
        unary = self.config.selects(command.scheme, "unary")
        kept = beat.kept[lane]
        m.d.comb += [
            concat.high.eq(beat.high[lane]),
            concat.low.eq(self.low[lane]),
            concat.unary.eq(unary),
            concat.target.eq(command.target),
            concat.midpoint.eq(command.midpoint),
            concat.truncated.eq(command.truncated),
        ]
        exponent, mantissa = Signal(8, name=f"e_{lane}"), Signal(7, name=f"m_{lane}")
        m.d.comb += [exponent.eq(beat.exponent[lane]), mantissa.eq(concat.magnitude[:7])]
        escape = Signal(name=f"escape_{lane}")
        if self.config.has("mx") or self.config.has("exact"):
            self._shift(m, lane, concat, ~unary, exponent, mantissa, escape, bad)
        value = Mux(kept, Cat(mantissa, exponent, concat.sign), 0)
        missing = self.present[lane] & ~kept
        m.d.comb += [
            self.aligned.values[lane].eq(value),
            self.aligned.raw[lane].eq(command.target & (missing | escape)),
        ]

    def _shift(
        self,
        m: Module,
        lane: int,
        concat: MantissaConcat,
        enable: Value,
        exponent: Signal,
        mantissa: Signal,
        escape: Signal,
        bad: Signal,
    ) -> None:
        """Shared exponents: normalise; in exact targets read the residue's width off the window."""
        m.submodules[f"shifter_{lane}"] = shifter = DynamicShifter()
        m.d.comb += [
            shifter.shared.eq(self.beat.shared),
            shifter.magnitude.eq(concat.magnitude),
        ]
        with m.If(enable):
            m.d.comb += [exponent.eq(shifter.exponent), mantissa.eq(shifter.mantissa)]
        if not self.config.has("exact"):
            return
        exact = self.config.selects(self.command.scheme, "exact")
        windowed = Signal(name=f"windowed_{lane}")
        zero, full = Signal(name=f"zero_{lane}"), Signal(name=f"full_{lane}")
        m.d.comb += [
            windowed.eq(exact & self.command.target & self.beat.kept[lane]),
            zero.eq(concat.magnitude == 0),
            full.eq(concat.magnitude == 255),
            self.aligned.flagged[lane].eq(windowed & zero),
            escape.eq(windowed & full),
            bad[lane].eq(windowed & ~full & shifter.subnormal),
        ]
        with m.If(windowed):
            m.d.comb += self.aligned.widths[lane].eq(Mux(zero, 1, Mux(full, 0, shifter.shift)))


def _rows_of(count: Value, lanes: int) -> Value:
    """Rows that hold so many pruned values, a begun one among them."""
    return (count + 1) >> 1 if lanes > VALUE else count * (VALUE // lanes)


class Residue(wiring.Component):
    """Join the residue to a beat. Combinational, but for what is left of a row.

    Rows come from the reader; the last one is kept while bits of it are left for the next beat.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        super().__init__(
            {
                "rows": In(data.ArrayLayout(lanes, FIELD_MAX)),
                "beat": In(AlignedBeat(lanes)),
                "enable": In(1),  # the beat moves on
                "clear": In(1),
                "wanted": Out(range(FIELD_MAX + 1)),  # rows that the beat needs
                "joined": Out(JoinedBeat(lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, beat = self.config.lanes, self.beat
        held = Signal(lanes, reset_less=True)  # the latest row
        rows: list[Value] = [held, *(self.rows[i] for i in range(FIELD_MAX))]
        run = Signal(lanes * (FIELD_MAX + 1))
        m.submodules.demand = demand = ResidueDemand(lanes=lanes)
        m.submodules.unpack = unpack = ResidueUnpack(lanes=lanes)
        m.d.comb += [
            demand.needs.eq(beat.needs),
            demand.enable.eq(self.enable),
            demand.clear.eq(self.clear),
            self.wanted.eq(demand.wanted),
            run.eq(Cat(*rows)[1:] >> ~demand.level),
            unpack.bits.eq(run),
            unpack.widths.eq(beat.widths),
            unpack.needs.eq(beat.needs),
            self.joined.last.eq(beat.last),
        ]
        with m.If(self.enable):
            (latest,) = shift(m, rows, self.wanted, 1, "latest")
            m.d.sync += held.eq(latest)
        for lane in range(lanes):
            field = Mux(beat.flagged[lane], 0, unpack.fields[lane])
            escape = beat.flagged[lane] & ~unpack.fields[lane][0]
            m.d.comb += [
                self.joined.values[lane].eq(beat.values[lane] | field),
                self.joined.raw[lane].eq(beat.raw[lane] | escape),
            ]
        return m


class Pruned(wiring.Component):
    """Put pruned values and escapes into their lanes. Combinational, but for half a row.

    With 32 lanes a row holds two values, and one may be left for the next beat.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.rows_max = VALUE  # lanes values of 16 bits, in rows of lanes bits
        super().__init__(
            {
                "rows": In(data.ArrayLayout(config.lanes, self.rows_max)),
                "beat": In(JoinedBeat(config.lanes)),
                "enable": In(1),  # the beat moves on
                "clear": In(1),
                "wanted": Out(range(self.rows_max + 1)),
                "values": Out(data.ArrayLayout(VALUE, config.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, beat = self.config.lanes, self.beat
        m.submodules.expand = net = BitmapExpand(lanes=lanes, width=VALUE)
        count = Signal(range(lanes + 1))
        rows = Signal(lanes * VALUE)
        m.d.comb += [count.eq(popcount(beat.raw)), rows.eq(self.rows), net.lane_mask.eq(beat.raw)]
        if lanes > VALUE:
            self._halves(m, net, rows, count)
        else:
            m.d.comb += [net.elements.eq(rows), self.wanted.eq(count * (VALUE // lanes))]
        for lane in range(lanes):
            chosen = Mux(beat.raw[lane], net.lanes_out[lane], beat.values[lane])
            m.d.comb += self.values[lane].eq(chosen)
        return m

    def _halves(self, m: Module, net: BitmapExpand, rows: Signal, count: Signal) -> None:
        held, full = Signal(VALUE, reset_less=True), Signal()
        run = Signal(len(rows) + VALUE)
        odd = Signal()
        last = self.config.lanes  # the run has one value more than there are lanes
        elements = Array(run.word_select(min(i, last), VALUE) for i in range(2 * last))
        m.d.comb += [
            run.eq(Mux(full, Cat(held, rows), rows)),
            net.elements.eq(run),
            self.wanted.eq((count + 1 - full) >> 1),
            odd.eq(full ^ count[0]),
        ]
        with m.If(self.enable):
            m.d.sync += [full.eq(odd), held.eq(elements[count])]
        with m.If(self.clear):
            m.d.sync += full.eq(0)


def _book_ports() -> dict[str, object]:
    """How the codebook of pruned values is loaded; taken while no segment is in hand."""
    return {"codebook": In(stream.Signature(POSSIBLY_EMPTY)), "book_idle": Out(1)}


class VerificationPath(wiring.Component):
    """Target values from the fields of a beat and the verification region; drafts pass through.

    Latency: two cycles. Throughput: one beat in each cycle in draft mode; in target mode one in
    two (phase P takes rows of ``pruned``, phase Q those of ``low`` and ``residue``), if the bus
    keeps up. Buffering: three words of the region, two blocks of low bits, two beats. A beat is
    taken when its low bits are there.

    Illegal input ends the segment with a beat that has ``error`` and ``last`` set, pulses a bit of
    ``errors`` and drains the region and the beats that are still to come. The last beat waits
    until the region is drained, so a good last beat means a good segment.
    """

    causes = ("short", "long", "window", "code", "rank")
    take_max = max(VALUE, LOW_PLANES + FIELD_MAX)
    depth = WORDS  # words of the region that are held
    eager = True  # a word may come in the cycle in which the one in its place leaves

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.reader = SuperblockReader(
            lanes=config.lanes,
            take_max=self.take_max,
            superblock=config.superblock,
            word_rows=config.verification_rows,
            depth=self.depth,
            eager=self.eager,
        )
        super().__init__(
            {
                "command": In(stream.Signature(CommandLayout)),
                "beats": In(stream.Signature(SpeculationBeat(config.lanes))),
                "words": In(stream.Signature(self.reader.word_layout)),
                "values": Out(stream.Signature(ValueBeat(config.lanes))),
                "errors": Out(ErrorLayout(*self.causes)),
                "busy": Out(1),
                **(_book_ports() if config.coded else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader = self.reader
        m.submodules.align = self.align = Align(self.config)
        m.submodules.residue = self.residue = Residue(self.config)
        self.pruned = PrunedBytes(self.config) if self.config.coded else Pruned(self.config)
        m.submodules.pruned = self.pruned
        wiring.connect(m, wiring.flipped(self.words), self.reader.words)
        self.active = Signal(CommandLayout)
        self.running, self.giving_up, self.clear = Signal(), Signal(), Signal()
        self.region = Signal()  # the segment has a region that must be drained
        self.ended = Signal()  # no more rows will come
        self.beats_done = Signal()  # the segment's last beat has been taken
        self.bad_window, self.short = Signal(), Signal()  # in this cycle
        self.aborted = Signal()  # the next beat says that the segment is given up
        # The beat that waits for its pruned values, and the beat that leaves.
        self.beat_2 = Signal(JoinedBeat(self.config.lanes))
        self.out = Signal(_out_layout(self.config.lanes), reset_less=True)
        self.move_2 = Signal()
        self.full_out, self.free_out = Signal(), Signal()
        # Coded exponents of pruned values; all zero if they are not built in.
        self.coded, self.starved, self.prefetch = Signal(), Signal(), Signal()
        self.counting, self.bad_code, self.bad_rank = Signal(), Signal(), Signal()
        in_flight = self._pipeline(m)
        self._output(m)
        self._control(m)
        self._give_up(m, in_flight)
        return m

    def _pipeline(self, m: Module) -> list[Signal]:
        """Everything up to ``beat_2``, at this path's rate; returns what marks beats in flight."""
        lanes = self.config.lanes
        m.submodules.low = self.low = BlockBuffer(lanes=lanes, planes=LOW_PLANES, early=True)
        # Beats in flight: still offered; waiting for residue, then for pruned values.
        self.beat_a = self.beats.payload
        self.beat_1 = Signal(AlignedBeat(lanes), reset_less=True)
        self.full_a, self.full_1, self.move_a = Signal(), Signal(), Signal()
        self._phases(m)
        self._moves(m)
        self._stages(m)
        m.d.comb += [
            self.bad_window.eq(self.move_a & self.align.bad_window & ~self.beat_a.abort),
            self.aborted.eq(self.full_a & self.beat_a.abort),
        ]
        return [self.full_1]

    def _phases(self, m: Module) -> None:
        """The demand schedule of the verification region, of targets.

        Phase Q takes the low bits of the beat that is offered and the residue of ``beat_1``; phase
        P the pruned values of ``beat_1``, which leaves, and the beat that is offered comes after
        it. Coded exponents of pruned values come in phase Q, before the low bits; windows by which
        ``beat_1`` starves in cycles of their own. A phase begins when the reader holds as many
        rows as it may take, or all there are. P also waits until the output register is empty,
        which it is in time if values are taken in phase Q; so no row depends on ``values.ready``.
        """
        active, reader, window = self.active, self.reader, self.config.window
        self.phase_q = Signal(init=1)
        self.low_done = Signal()  # those of the last beat have been taken
        self.joined = Signal()  # beat_1 has its residue
        self.p_fire, self.q_fire, self.w_fire = Signal(), Signal(), Signal()
        self.take_low = Signal()
        there, go, fire = Signal(), Signal(), Signal()
        wanted, most = Signal(range(self.take_max + 1)), Signal(range(self.take_max + 1))
        exact = self.config.selects(active.scheme, "exact")
        low_rows = Mux(self.take_low & ~self.starved, active.truncated, 0)
        window_rows = Mux(self.starved | self.prefetch, window, 0)
        residue_rows = Mux(self.full_1, self.residue.wanted, 0)
        ranks_ready = ~self.counting & ~self.starved
        pruned_rows = Mux(self.joined, self.pruned.wanted, 0)
        m.d.comb += [
            most.eq(Mux(self.joined, self.beat_1.most, 0)),
            there.eq((reader.level >= most) | self.ended),
            go.eq(self.running & ~self.giving_up & active.target & there),
            self.take_low.eq(~self.low_done & (active.truncated != 0) & self.beat_a.begins),
            self.q_fire.eq(go & self.phase_q & (self.low_done | self.full_a) & ranks_ready),
            self.w_fire.eq(go & self.phase_q & self.starved & ~self.counting),
            self.p_fire.eq(go & ~self.phase_q & (~self.joined | ~self.full_out)),
            wanted.eq(Mux(self.phase_q, window_rows + low_rows + residue_rows, pruned_rows)),
            fire.eq(self.q_fire | self.p_fire | self.w_fire),
            self.short.eq(fire & (wanted > Mux(self.region, reader.level, 0))),
        ]
        with m.If(self.phase_q):
            m.d.comb += most.eq(self._most_in_q(exact))
        with m.If(fire & self.region):
            m.d.comb += reader.take.eq(wanted)
            m.d.comb += reader.sure.eq(Mux(self.phase_q, low_rows, pruned_rows))
        with m.If(self.q_fire):
            m.d.sync += [self.phase_q.eq(0), self.joined.eq(self.full_1)]
            with m.If(self.full_a):
                m.d.sync += self.low_done.eq(self.beat_a.last)
        with m.If(self.p_fire):
            m.d.sync += [self.phase_q.eq(1), self.joined.eq(0)]
        with m.If(self.clear):
            m.d.sync += [self.phase_q.eq(1), self.joined.eq(0), self.low_done.eq(0)]

    def _most_in_q(self, exact: Value) -> Value:
        """What phase Q takes at most, without a sum of residues: of them two rows, or all."""
        bits = (self.config.lanes - 1).bit_length()
        many = Cat(half[bits:] for half in self.beat_1.needs).any()  # else one row for each half
        residue = Mux(self.full_1, Mux(many, FIELD_MAX, HALVES), 0)
        windows = Mux(self.coded, self.config.window, 0)
        return Mux(self.take_low, self.active.truncated, 0) + Mux(exact, residue, windows)

    def _moves(self, m: Module) -> None:
        """When each stage hands its beat on. Whether a beat is taken never depends on a count."""
        target = self.active.target
        room = Signal()
        m.d.comb += [
            self.full_a.eq(self.beats.valid & self.running & ~self.beats_done & ~self.giving_up),
            room.eq(Mux(target, self.p_fire, ~self.full_1 | self.free_out)),
            self.move_a.eq(self.full_a & room),
            self.move_2.eq(self.full_1 & Mux(target, self.p_fire, self.free_out)),
            self.beats.ready.eq(self.running & ~self.beats_done & (self.giving_up | room)),
        ]
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += self.beats_done.eq(self.beats.payload.last)
        with m.If(self.clear):
            m.d.sync += self.beats_done.eq(0)

    def _stages(self, m: Module) -> None:
        """The beats in flight and the buffers of their streams."""
        reader, low, join = self.reader, self.low, self.q_fire & self.full_1
        rows, window = [reader.rows[i] for i in range(self.take_max)], self.config.window
        amount = Mux(self.take_low, self.active.truncated, 0)
        low_rows = [Mux(self.prefetch, rows[i + window], rows[i]) for i in range(LOW_PLANES)]
        after_low = shift(m, rows[: LOW_PLANES + FIELD_MAX], amount, FIELD_MAX, "residue")
        m.d.comb += [self.residue.rows[i].eq(row) for i, row in enumerate(after_low)]
        m.d.comb += [
            low.load.eq(self.q_fire & self.take_low),
            low.block.eq(Cat(low_rows)),
            low.lane_mask.eq(self.beat_a.kept),
            low.advance.eq(self.move_a),
            low.clear.eq(self.clear),
            self.align.command.eq(self.active),
            self.align.beat.eq(self.beat_a),
            self.align.low.eq(low.fields),
            self.residue.beat.eq(self.beat_1),
            self.residue.enable.eq(join),
            self.residue.clear.eq(self.clear),
            self.pruned.rows.eq(Cat(rows[:VALUE])),
            self.beat_2.values.eq(self.beat_1.values),
            self.beat_2.raw.eq(self.beat_1.raw),
            self.beat_2.last.eq(self.beat_1.last),
            self.pruned.enable.eq(self.move_2),
            self.pruned.clear.eq(self.clear),
        ]
        joined = self.residue.joined.values
        if self.config.coded:
            joined = Value.cast(joined) | self._coded(m, Cat(rows[:window]), join)
        else:
            m.d.comb += self.pruned.beat.eq(self.beat_2)
        with m.If(self.move_a):
            m.d.sync += [self.beat_1.eq(self.align.aligned), self.full_1.eq(1)]
        with m.Elif(self.move_2):
            m.d.sync += self.full_1.eq(0)
        with m.Elif(join):
            m.d.sync += [
                self.beat_1.values.eq(joined),
                self.beat_1.raw.eq(self.residue.joined.raw),
            ]
        with m.If(self.clear):
            m.d.sync += self.full_1.eq(0)

    def _coded(self, m: Module, window: Value, join: Value) -> Value:
        """Coded exponents of pruned values; their ranks, in the places of the exponents."""
        codes, pruned = PrunedExponents(self.config), self.pruned
        m.submodules.codes = codes
        wiring.connect(m, wiring.flipped(self.codebook), pruned.load)
        long = Signal(self.config.lanes, reset_less=True)  # lanes of beat_1 that take two bytes
        m.d.comb += [
            self.coded.eq(self.active.coded & self.active.target),
            codes.entries.eq(pruned.entries),
            codes.lane_mask.eq(Mux(self.coded & self.full_1, self.beat_1.raw, 0)),
            codes.more.eq(self.coded & ~self.low_done),
            codes.window.eq(window),
            codes.take.eq(self.w_fire | (self.q_fire & self.prefetch)),
            codes.advance.eq(join),
            codes.clear.eq(self.clear),
            self.starved.eq(codes.starved),
            self.prefetch.eq(codes.prefetch),
            self.counting.eq(codes.waiting),
            self.bad_code.eq(self.running & codes.bad_code),
            self.bad_rank.eq(join & codes.bad_rank & ~codes.bad_code),
            pruned.coded.eq(self.coded),
            pruned.beat_values.eq(self.beat_2.values),
            pruned.raw.eq(self.beat_2.raw),
            pruned.long.eq(long),
            pruned.load_enable.eq(~self.running),
            self.book_idle.eq(pruned.idle),
        ]
        with m.If(join):
            m.d.sync += long.eq(Mux(self.coded, codes.escapes, self.residue.joined.raw))
        return Value.cast(codes.ranks)

    def _output(self, m: Module) -> None:
        """The output register; the last beat waits until the region is drained."""
        self.drained, self.spoilt = Signal(), Signal()
        self.error_beat = Signal()  # the register takes the beat that ends a bad segment
        bad = self.out.last & (self.out.error | self.spoilt)
        m.d.comb += [
            self.values.valid.eq(self.full_out & (~self.out.last | self.drained)),
            self.values.payload.values.eq(self.out.values),
            self.values.payload.last.eq(self.out.last),
            self.values.payload.error.eq(bad),
            self.values.payload.present.eq(
                present_lanes(self.active, self.out.last, self.config.lanes)
            ),
            self.free_out.eq(~self.full_out | (self.values.valid & self.values.ready)),
        ]
        with m.If(bad):
            m.d.comb += self.values.payload.present.eq(0)
        with m.If(self.error_beat):
            m.d.sync += [
                self.full_out.eq(1),
                self.out.last.eq(1),
                self.out.error.eq(1),
            ]
        with m.Elif(self.move_2):
            m.d.sync += [
                self.full_out.eq(~self.short),
                self.out.values.eq(self.pruned.values),
                self.out.last.eq(self.beat_2.last),
                self.out.error.eq(0),
            ]
        with m.Elif(self.free_out):
            m.d.sync += self.full_out.eq(0)

    def _control(self, m: Module) -> None:
        """Segments begin with a command and end with a last beat that has left."""
        reader = self.reader
        abort = Signal()
        finish, drain = Signal(), Signal()
        self.over = Signal()  # the last beat is in the output register
        gone = self.values.valid & self.values.ready & self.out.last
        region = self.command.payload.target & self.command.payload.verification
        m.d.comb += [
            self.busy.eq(self.running),
            self.command.ready.eq(~self.running),
            self.clear.eq(self.command.valid & self.command.ready),
            self.ended.eq(reader.ended | ~self.region),
            self.errors.short.eq(self.short),
            self.errors.window.eq(self.bad_window & ~self.giving_up),
            self.errors.long.eq(reader.drained & reader.overlong & ~self.giving_up),
            self.errors.code.eq(self.bad_code & ~self.giving_up),
            self.errors.rank.eq(self.bad_rank & ~self.giving_up),
            abort.eq(self.short | self.bad_window | self.bad_code | self.bad_rank | self.aborted),
            reader.finish.eq(finish),
        ]
        with m.If(self.clear):
            m.d.sync += [
                self.active.eq(self.command.payload),
                self.running.eq(1),
                self.giving_up.eq(0),
                self.region.eq(region),
                self.drained.eq(~region),
                self.spoilt.eq(0),
                drain.eq(0),
                self.over.eq(0),
            ]
        with m.If(self.running & abort & ~self.giving_up):
            m.d.sync += self.giving_up.eq(1)
        with m.If(self.move_2 & self.beat_2.last):
            m.d.sync += self.over.eq(1)
        with m.If(self.running & self.over & ~drain):
            m.d.comb += finish.eq(self.region)
            m.d.sync += drain.eq(1)
        with m.If(reader.drained):
            m.d.sync += [self.drained.eq(1), self.spoilt.eq(reader.overlong)]
        with m.If(self.running & gone):
            m.d.sync += self.running.eq(0)

    def _give_up(self, m: Module, in_flight: list[Signal]) -> None:
        """Drop the beats in flight, swallow those to come, and send the beat that says so."""
        sent = Signal()
        m.d.comb += self.error_beat.eq(self.giving_up & ~sent & self.free_out & self.beats_done)
        with m.If(self.giving_up):
            m.d.sync += [full.eq(0) for full in in_flight]
        with m.If(self.error_beat):
            m.d.sync += [sent.eq(1), self.over.eq(1)]
        with m.If(self.clear):
            m.d.sync += sent.eq(0)
