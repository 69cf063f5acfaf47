"""The verification pipeline at half rate: a target beat in two cycles, a draft beat in one."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import VALUE, CommandLayout, DecoderConfig
from cassandra_spec.rtl.common.mantissa import LOW_PLANES
from cassandra_spec.rtl.common.networks import one_of, shift
from cassandra_spec.rtl.common.residue import FIELD_MAX, need_of
from cassandra_spec.rtl.common.superblock_reader import WORDS
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decode.align import Align, AlignedBeat
from cassandra_spec.rtl.decode.bitmap_expand import BlockBuffer
from cassandra_spec.rtl.decode.joins import Pruned, Residue
from cassandra_spec.rtl.decode.pruned_exponents import PrunedBytes, PrunedExponents
from cassandra_spec.rtl.decode.segment import SegmentState, pipeline_ports

TAKE_MAX = max(VALUE, LOW_PLANES + FIELD_MAX)
"""Maximum number of rows taken in a cycle."""


CodesState = data.StructLayout(
    {"coded": 1, "counting": 1, "starved": 1, "prefetch": 1, "bad_code": 1, "bad_rank": 1}
)
"""Coded exponents of pruned values: whether the segment has them, and the outputs of
:class:`PrunedExponents` for the waiting beat. All zero if they are not built in.
"""


class HalfRateSchedule(wiring.Component):
    """The demand schedule of the verification region, in two alternating phases (targets).

    Phase Q takes the low bits of the *offered* beat and the residue of the *waiting* one; with
    coded pruned exponents also a window, before the low bits. Phase P takes the pruned values of
    the waiting beat, which leaves, and the offered beat becomes the waiting one. Windows by which
    the waiting beat starves take cycles of their own before phase Q.

    Invariant: rows leave the reader in the order of docs/format.md, section 6. A phase begins when
    the reader holds as many rows as the phase takes at most, or all that will come, so no phase
    depends on a count that is summed in the same cycle. Phase P also waits until the output
    register is empty, which happens in time if values are taken in phase Q; so no row depends on
    ``values.ready``.

    Latency: none. Throughput: one phase per cycle. A phase that takes more rows than exist raises
    ``short``.

    Members
    -------
    offered, begins, last : In(1)
        Flags of the offered beat: it exists, it begins a block of low bits, it is the last.
    waiting : In(1), need : In(range), most : In(range)
        The waiting beat: whether it exists, its bits of residue, and its maximum number of rows of
        pruned values.
    residue_rows, pruned_rows : In(range)
        Rows that the waiting beat needs.
    level : In(range), ended : In(1), empty : In(1)
        Outputs of the reader and the output register.
    in_q, in_p, starves : Out(1)
        The step of this cycle: phase Q, phase P, or a window for the waiting beat.
    take_low : Out(1), low_done : Out(1)
        ``take_low``: the offered beat takes a block of low bits. ``low_done``: the last beat has
        passed phase Q.
    take, sure : Out(range), short : Out(1)
        Rows taken, and a lower bound that is known early.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        rows = range(TAKE_MAX + 1)
        super().__init__(
            {
                "active": In(CommandLayout),
                "state": In(SegmentState),
                **dict.fromkeys(("begin", "ended", "empty"), In(1)),
                **dict.fromkeys(("offered", "begins", "last", "waiting"), In(1)),
                "need": In(range(FIELD_MAX * config.lanes + 1)),
                "most": In(range(VALUE + 1)),
                "residue_rows": In(range(FIELD_MAX + 1)),
                "pruned_rows": In(range(VALUE + 1)),
                "codes": In(CodesState),
                "level": In(range(WORDS * config.verification_rows + 1)),
                **dict.fromkeys(("in_q", "in_p", "starves", "take_low", "low_done"), Out(1)),
                "take": Out(rows),
                "sure": Out(rows),
                "short": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        active, state, codes = self.active, self.state, self.codes
        window, truncated = self.config.window, self.config.truncated_of(active)
        in_q = Signal(init=1)  # next phase: Q, else P
        joined = Signal()  # the waiting beat exists and has its residue
        go, fire = Signal(), Signal()
        wanted, most = Signal(range(TAKE_MAX + 1)), Signal(range(TAKE_MAX + 1))  # most in phase Q
        enough = Signal()  # enough rows for phase Q
        low_rows = Mux(self.take_low & ~codes.starved, truncated, 0)
        window_rows = Mux(codes.starved | codes.prefetch, window, 0)
        residue_rows = Mux(self.waiting, self.residue_rows, 0)
        pruned_rows = Mux(joined, self.pruned_rows, 0)
        ready = ~codes.counting & ~codes.starved
        m.d.comb += [
            most.eq(self._most_in_q()),
            go.eq(state.running & ~state.giving_up & active.target),
            enough.eq((self.level >= most) | self.ended),
            self.take_low.eq(~self.low_done & truncated.any() & self.begins),
            self.in_q.eq(go & in_q & enough & (self.low_done | self.offered) & ready),
            self.starves.eq(go & in_q & enough & codes.starved & ~codes.counting),
            self.in_p.eq(
                go & ~in_q & (~joined | (self.empty & ((self.level >= self.most) | self.ended)))
            ),
            wanted.eq(Mux(in_q, window_rows + low_rows + residue_rows, pruned_rows)),
            fire.eq(self.in_q | self.in_p | self.starves),
            self.short.eq(fire & (wanted > Mux(state.region, self.level, 0))),
        ]
        with m.If(fire & state.region):
            m.d.comb += [self.take.eq(wanted), self.sure.eq(Mux(in_q, low_rows, pruned_rows))]
        with m.If(self.in_q):
            m.d.sync += [in_q.eq(0), joined.eq(self.waiting)]
            with m.If(self.offered):
                m.d.sync += self.low_done.eq(self.last)
        with m.If(self.in_p):
            m.d.sync += [in_q.eq(1), joined.eq(0)]
        with m.If(self.begin):
            m.d.sync += [in_q.eq(1), joined.eq(0), self.low_done.eq(0)]
        return m

    def _most_in_q(self) -> Value:
        """Return the maximum number of rows of phase Q, whatever is left of a residue row.

        The residue counts as two rows, or as all of its rows.
        """
        few = self.need < 2 * self.config.lanes
        residue = Mux(self.waiting, Mux(few, 2, FIELD_MAX), 0)
        windows = Mux(self.codes.coded, self.config.window, 0)
        exact = self.config.selects(self.active.scheme, "exact")
        low = Mux(self.take_low, self.config.truncated_of(self.active), 0)
        return low + Mux(exact, residue, windows)


class HalfRatePipeline(wiring.Component):
    """Pass a target beat through phases Q and P of a schedule, a draft beat in one cycle.

    Beats in flight: the offered one, still on ``beats``, and, for a target, the waiting one.
    Invariant: in target mode both move in phase P only, so whether a beat is taken never depends on
    a count of rows. In draft mode no beat waits, and no register of the waiting beat is clocked.

    Latency: none for a draft, two cycles for a target. Throughput: one beat per cycle in draft
    mode, one in two cycles in target mode, while the bus keeps up. Buffering: two blocks of low
    bits and a beat; three words of the region in the reader. Illegal input raises a bit of
    ``faults``.

    Members: :func:`~cassandra_spec.rtl.decode.segment.pipeline_ports`, and ``sure``, a lower bound
    of the rows taken, for an eager reader.
    """

    take_max = TAKE_MAX
    depth = WORDS  # words of the region in the reader
    eager = True  # a word may come in the cycle in which the one in its place leaves

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        ports = pipeline_ports(config, take_max=self.take_max, words=self.depth)
        self.low = BlockBuffer(lanes=config.lanes, planes=config.low_planes)
        super().__init__({**ports, "sure": Out(range(self.take_max + 1))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, state = self.config, self.state
        m.submodules.schedule = schedule = HalfRateSchedule(config)
        m.submodules.low = low = self.low
        m.submodules.align = align = Align(config)
        m.submodules.residue = residue = Residue(config)
        offered, offers = self.beats.payload, Signal()
        waits = Signal()
        waiting = Signal(AlignedBeat(config.lanes), name="waiting_beat", reset_less=True)
        pruned = PrunedBytes(config) if config.coded else Pruned(config)
        m.submodules.pruned = pruned
        target, moves_on = self.active.target, Signal()
        enters, join, leaves = Signal(), Signal(), Signal()  # events of the waiting beat
        joined = residue.joined.values.as_value()
        codes = Signal(CodesState)
        ranks: Value = Const(0, 1)
        if config.coded:
            ranks = self._codes(m, codes, pruned, schedule, waiting, waits, residue.joined.raw)
        self._drive(m, schedule, waiting)
        self._route(m, schedule, low, residue, codes.prefetch)
        room = Mux(target, schedule.in_p, self.room)
        open_ = state.running & ~state.beats_done
        m.d.comb += [
            offers.eq(self.beats.valid & open_ & ~state.giving_up),
            schedule.offered.eq(offers),
            schedule.waiting.eq(waits),
            schedule.codes.eq(codes),
            schedule.residue_rows.eq(residue.wanted),
            schedule.pruned_rows.eq(pruned.wanted),
            moves_on.eq(offers & room),
            enters.eq(moves_on & target),
            leaves.eq(waits & schedule.in_p),
            self.beats.ready.eq(open_ & (state.giving_up | room)),
            self.taken.eq(self.beats.valid & self.beats.ready),
            self.taken_last.eq(offered.last),
            join.eq(schedule.in_q & waits),
            self.move.eq(Mux(target, leaves, moves_on & ~offered.abort)),
            self.beat.last.eq(Mux(target, waiting.last, offered.last)),
            self.faults.short.eq(schedule.short),
            self.faults.window.eq(moves_on & align.bad_window & ~offered.abort),
            self.faults.code.eq(codes.bad_code),
            self.faults.rank.eq(codes.bad_rank),
            self.faults.abort.eq(offers & offered.abort),
            align.command.eq(self.active),
            align.beat.eq(offered),
            align.low.eq(low.fields),
            residue.beat.eq(waiting),
            residue.enable.eq(join),
            residue.clear.eq(self.begin),
            pruned.raw.eq(waiting.raw),
            pruned.rows.eq(self.rows.as_value()[: VALUE * config.lanes]),
            pruned.enable.eq(leaves),
            pruned.clear.eq(self.begin),
            low.choices.eq(offered.choices),
            low.clear.eq(self.begin),
        ]
        self._leave(m, waiting, pruned.values, align.aligned.values)
        with m.If(enters):
            m.d.sync += [waits.eq(1), waiting.eq(align.aligned)]
        with m.Elif(leaves):
            m.d.sync += waits.eq(0)
        with m.Elif(join):
            m.d.sync += [
                waiting.values.eq(joined | ranks),
                waiting.raw.eq(residue.joined.raw),
            ]
        with m.If(self.begin | state.giving_up):
            m.d.sync += waits.eq(0)
        return m

    def _leave(self, m: Module, waiting: data.View, pruned: data.View, offered: data.View) -> None:
        """Select the values that leave: offered ones in a draft, else waiting or pruned ones."""
        target = self.active.target
        for lane in range(self.config.lanes):
            raw = waiting.raw[lane]
            ways = [
                (target & raw, pruned[lane]),
                (target & ~raw, waiting.values[lane]),
                (~target, offered[lane]),
            ]
            m.d.comb += self.beat.values[lane].eq(one_of(ways))

    def _drive(self, m: Module, schedule: HalfRateSchedule, waiting: data.View) -> None:
        """Connect the schedule to the segment, the beats in flight and the reader."""
        drive(m, schedule, self, "active", "state", "begin", "level", "ended", "empty")
        drive(m, schedule, self.beats.payload, "begins", "last")
        drive(m, schedule, waiting, "most")
        m.d.comb += schedule.need.eq(need_of(list(waiting.needs)))
        drive(m, self, schedule, "take", "sure")

    def _route(
        self,
        m: Module,
        schedule: HalfRateSchedule,
        low: BlockBuffer,
        residue: Residue,
        prefetch: Value,
    ) -> None:
        """Route the rows of phase Q: a window, if there is one, low bits, residue.

        A segment has coded exponents or residues, never both, so the residue's rows begin right
        after the low bits.
        """
        rows: list[Value] = [self.rows[i] for i in range(self.take_max)]
        window, planes, take_low = self.config.window, self.config.low_planes, schedule.take_low
        low_rows = [Mux(prefetch, rows[i + window], rows[i]) for i in range(planes)]
        amount = Mux(take_low, self.config.truncated_of(self.active), 0)
        rest = shift(m, rows[: planes + FIELD_MAX], amount, FIELD_MAX, "residue")
        m.d.comb += [
            low.load.eq(schedule.in_q & take_low),
            low.block.eq(Cat(low_rows)),
            *(residue.rows[i].eq(row) for i, row in enumerate(rest)),
        ]

    def _codes(
        self,
        m: Module,
        state: data.View,
        pruned: PrunedBytes,
        schedule: HalfRateSchedule,
        waiting: data.View,
        waits: Signal,
        escapes: Value,
    ) -> Value:
        """Build the coded exponents of pruned values: set their state, return the ranks."""
        m.submodules.codes = codes = PrunedExponents(self.config)
        wiring.connect(m, wiring.flipped(self.codebook), pruned.load)
        join = schedule.in_q & waits
        long = Signal(self.config.lanes, reset_less=True)  # waiting lanes that take two bytes
        drive(m, state, codes, "starved", "prefetch")
        m.d.comb += [
            state.coded.eq(self.active.coded & self.active.target),
            state.counting.eq(codes.waiting),
            state.bad_code.eq(self.state.running & codes.bad_code),
            state.bad_rank.eq(join & codes.bad_rank & ~codes.bad_code),
            codes.entries.eq(pruned.entries),
            codes.lane_mask.eq(Mux(state.coded & waits, waiting.raw, 0)),
            codes.more.eq(state.coded & ~schedule.low_done),
            codes.window.eq(self.rows.as_value()[: self.config.window * self.config.lanes]),
            codes.take.eq(schedule.starves | (schedule.in_q & codes.prefetch)),
            codes.advance.eq(join),
            codes.clear.eq(self.begin),
            pruned.coded.eq(state.coded),
            pruned.beat_values.eq(waiting.values),
            pruned.long.eq(long),
            pruned.load_enable.eq(~self.state.running),
            self.codebook_idle.eq(pruned.idle),
        ]
        with m.If(join):
            m.d.sync += long.eq(Mux(state.coded, codes.escapes, escapes))
        return codes.ranks.as_value()
