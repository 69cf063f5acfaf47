"""The speculation path: from the speculation region to the kept fields of each beat."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.common.command import (
    CommandLayout,
    DecoderConfig,
    ErrorLayout,
    SpeculationBeat,
    present_lanes,
)
from cassandra_spec.rtl.common.mantissa import HIGH_PLANES
from cassandra_spec.rtl.common.networks import popcount, shift
from cassandra_spec.rtl.common.superblock_reader import SuperblockReader
from cassandra_spec.rtl.decode.bitmap_expand import BlockBuffer
from cassandra_spec.rtl.decode.codebook import ENTRY, Codebook
from cassandra_spec.rtl.decode.exponent_path import ExponentPath

__all__ = ["SpeculationPath"]


class _Schedule(wiring.Component):
    """The demand schedule of the speculation region (docs/format.md, section 6), slot by slot.

    Takes rows from the reader's head and says what they are. One slot takes one cycle, and one more
    for each window by which the exponents starve. A slot begins when the reader holds as many rows
    as any slot of the segment takes, or all there are. All decisions come from registers.
    """

    def __init__(self, config: DecoderConfig) -> None:
        lanes, window = config.lanes, config.window
        self.config = config
        self.take_max = 1 + max(
            1 + HIGH_PLANES if config.schemes != ("unary",) else 0,
            window + HIGH_PLANES - 1 if config.has("unary") else 0,
        )
        super().__init__(
            {
                "start": In(1),
                "next": In(CommandLayout),  # of the segment that starts
                "command": In(CommandLayout),  # of the segment in hand, from the cycle after
                "rows": In(data.ArrayLayout(lanes, self.take_max)),
                "level": In(8),
                "ended": In(1),  # no more rows will come
                "take": Out(range(self.take_max + 1)),
                "enable": In(1),  # the next stage takes a beat
                "stop": In(1),  # the segment is given up
                "window": Out(window * lanes),
                "window_valid": Out(1),
                "block": Out(data.ArrayLayout(lanes, HIGH_PLANES)),
                "block_valid": Out(1),
                "beat_valid": Out(1),
                "kept": Out(lanes),
                "begins": Out(1),  # a block is taken for the beat
                "shared": Out(8),
                "last": Out(1),
                "running": Out(1),
                "short": Out(1),  # a slot takes rows that are not there
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, window = self.config.lanes, self.config.window
        self.unary = Signal()
        self.inside = Signal()  # the slot has a beat: all but slot -1
        self.count = Signal(range(lanes + 1))  # kept values of the beat
        self.more = Signal()  # there is a beat after this one
        self.final = Signal()  # and it is the last
        self.remaining = Signal(17)
        self.number = Signal(5)  # of the beat, modulo the longest group
        self.ranks = Signal(range(2 * lanes + window * lanes))  # q of the format
        # q is what was left before the latest window, and the codes of each row of that window
        self.ranks_left = Signal(range(2 * lanes + window * lanes))
        self.ranks_new = [Signal(range(lanes + 1), name=f"ranks_{i}") for i in range(window)]
        self.fields = Signal(range(2 * lanes))  # avail of the format
        self.go, self.starve, self.step = Signal(), Signal(), Signal()
        self.take_mask, self.take_window = Signal(), Signal()
        self.take_shared, self.take_block = Signal(), Signal()
        m.d.comb += self.unary.eq(self.config.selects(self.command.scheme, "unary"))
        self._decide(m)
        self._route(m)
        self._ranks(m)
        self._next_beat(m)
        self._shared_exponent(m)
        return m

    def _decide(self, m: Module) -> None:
        """What this cycle takes, and whether the rows for it are there."""
        lanes, window = self.config.lanes, self.config.window
        wanted, most = Signal(range(self.take_max + 1)), Signal(range(self.take_max + 1))
        planes = Signal(4)
        after = self.ranks - self.count
        m.d.comb += [
            self.starve.eq(self.unary & self.inside & (self.ranks < self.count)),
            self.take_mask.eq(self.command.mask & self.more),
            self.take_window.eq(self.unary & self.more & (after < lanes)),
            self.take_block.eq(self.inside & (self.fields < self.count)),
            planes.eq(Mux(self.unary, 8, 9) - self.command.truncated),
            self.go.eq(self.running & ((self.level >= most) | self.ended)),
            self.step.eq(self.go & ~self.starve & (self.enable | ~self.inside)),
            self.short.eq((self.take != 0) & (self.level < wanted)),
        ]
        following = Mux(self.config.selects(self.next.scheme, "unary"), window + 8, 1 + 9)
        with m.If(self.start):
            m.d.sync += most.eq(self.next.mask + following - self.next.truncated)
        with m.If(self.starve):
            m.d.comb += wanted.eq(window)
        with m.Else():
            m.d.comb += wanted.eq(
                self.take_mask
                + Mux(self.take_window, window, self.take_shared)
                + Mux(self.take_block, planes, 0)
            )
        with m.If(self.step | (self.go & self.starve)):
            m.d.comb += self.take.eq(wanted)
        self.planes = planes

    def _route(self, m: Module) -> None:
        """The mask's row comes first, then the window or the shared exponents, then the block."""
        lanes, window = self.config.lanes, self.config.window
        rows: list[Value] = [self.rows[i] for i in range(self.take_max)]
        mask_here = self.take_mask & ~self.starve
        self.first = [Signal(lanes, name=f"first_{i}") for i in range(window)]
        for node, at, after in zip(self.first, rows, rows[1:], strict=False):
            m.d.comb += node.eq(Mux(mask_here, after, at))
        exponents = Mux(self.take_window, window, self.take_shared)
        m.d.comb += [
            self.window.eq(Cat(self.first)),
            self.window_valid.eq(self.go & Mux(self.starve, 1, self.step & self.take_window)),
            self.block_valid.eq(self.step & self.take_block),
            self.begins.eq(self.take_block),
        ]
        block = shift(m, rows, self.take_mask + exponents, HIGH_PLANES, "block")
        for plane, row in enumerate(block):
            m.d.comb += self.block[plane].eq(Mux(self.planes > plane, row, 0))

    def _ranks(self, m: Module) -> None:
        window = self.config.window
        counts = [popcount(self.rows[i]) for i in range(window + 1)]
        counts[0] = Mux(self.take_mask & ~self.starve, counts[window], counts[0])
        held = Mux(self.take_block, self.config.lanes, 0)
        m.d.comb += self.ranks.eq(sum(self.ranks_new, self.ranks_left))
        with m.If(self.unary):
            m.d.sync += self.ranks_left.eq(self.ranks - Mux(self.step, self.count, 0))
        for i, new in enumerate(self.ranks_new):
            m.d.sync += new.eq(Mux(self.window_valid, counts[i], 0))
        with m.If(self.step):
            m.d.sync += self.fields.eq(self.fields + held - self.count)
        with m.If(self.start):
            m.d.sync += [self.ranks_left.eq(0), self.fields.eq(0)]

    def _next_beat(self, m: Module) -> None:
        """Registers of the beat in hand; slot -1 has none."""
        lanes = self.config.lanes
        bits = (lanes - 1).bit_length()
        present = present_lanes(self.command, self.final, lanes)
        kept = Signal(lanes)
        m.d.comb += [
            kept.eq(Mux(self.command.mask, self.rows[0], present) & present),
            self.beat_valid.eq(self.step & self.inside),
            self.last.eq(~self.more),
        ]
        with m.If(self.step):
            m.d.sync += [self.inside.eq(1), self.kept.eq(kept)]
            m.d.sync += self.count.eq(popcount(kept))
            with m.If(self.inside):
                m.d.sync += self.number.eq(self.number + 1)
            with m.If(self.more):
                m.d.sync += [
                    self.remaining.eq(self.remaining - 1),
                    self.final.eq(self.remaining == 2),
                    self.more.eq(~self.final),
                ]
            with m.Else():
                m.d.sync += self.running.eq(0)
        with m.If(self.stop):
            m.d.sync += self.running.eq(0)
        with m.If(self.start):
            m.d.sync += [
                self.running.eq(1),
                self.inside.eq(0),
                self.count.eq(0),
                self.number.eq(0),
                self.remaining.eq((self.next.count >> bits) + 1),
                self.final.eq(self.next.count >> bits == 0),
                self.more.eq(1),
            ]

    def _shared_exponent(self, m: Module) -> None:
        """One row of group exponents serves group / 8 beats, a byte for each group."""
        lanes = self.config.lanes
        bits = (lanes - 1).bit_length()
        groups = lanes // 8
        row, held = Signal(lanes), Signal(lanes, reset_less=True)
        period, place = Signal(5), Signal(5)
        log2_group = self.command.log2_group
        m.d.comb += [
            period.eq((1 << (log2_group - 3)[:3]) - 1),
            place.eq(self.number >> (log2_group - bits)[:3]),
            self.take_shared.eq(~self.unary & self.inside & ((self.number & period) == 0)),
            row.eq(Mux(self.take_shared, self.first[0], held)),
            self.shared.eq(row[:8]),
        ]
        for group in range(1, groups):
            with m.If(place[: (groups - 1).bit_length()] == group):
                m.d.comb += self.shared.eq(row.word_select(group, 8))
        with m.If(self.step & self.take_shared):
            m.d.sync += held.eq(row)


class SpeculationPath(wiring.Component):
    """Everything that a draft reads, up to fields in their lanes (paper, Figure 8, decoder).

    Latency: three cycles from the rows of a beat to the beat. Throughput: one beat in each cycle
    while rows are there and no window is starved for; four cycles between segments. Buffering:
    three words of the region, a window, the rank queue, two blocks of fields and two beats. A
    command is taken when the segment before it is done.

    Illegal input ends the segment with a beat that has ``abort`` and ``last`` set, pulses a bit of
    ``errors``, and drains the region. ``last`` beats wait until the region is drained. Without
    unary there is no codebook, and words of one are taken at any time and ignored.
    """

    causes = ("short", "long", "code", "rank", "group", "command")

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.schedule = _Schedule(config)
        self.reader = SuperblockReader(
            lanes=config.lanes, take_max=self.schedule.take_max, superblock=config.superblock
        )
        super().__init__(
            {
                "command": In(stream.Signature(CommandLayout)),
                "codebook": In(stream.Signature(ENTRY)),
                "words": In(stream.Signature(self.reader.word_layout)),
                "beats": Out(stream.Signature(SpeculationBeat(config.lanes))),
                "errors": Out(ErrorLayout(*self.causes)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.schedule = self.schedule
        m.submodules.reader = reader = self.reader
        wiring.connect(m, wiring.flipped(self.words), reader.words)
        self.active = Signal(CommandLayout)
        self.kill = Signal()  # the segment is given up from the pipeline
        self.spoilt = Signal()  # the region in hand was too long
        self.drained = Signal()  # the region of the latest segment is done with
        self.empty = Signal()  # no beat is in the pipeline
        self.book_idle = Signal()  # no codebook is being loaded or waiting
        self._control(m)
        beat = self._fields(m)
        self._lookup(m, beat)
        return m

    def _bad_command(self, command: data.View) -> Value:
        """What is not built in, and what the format does not allow."""
        config = self.config
        scheme_ok = command.scheme.matches(*(SCHEMES.index(name) for name in config.schemes))
        low = (config.lanes - 1).bit_length()
        group_ok = (command.log2_group >= low) & (command.log2_group <= 8)
        unary = config.selects(command.scheme, "unary")
        coded_ok = unary if config.coded else Const(0, 1)
        return ~scheme_ok | (~unary & ~group_ok) | (command.coded & ~coded_ok)

    def _control(self, m: Module) -> None:
        """Start on a command; when the schedule is through or given up, drain the region."""
        schedule, reader = self.schedule, self.reader
        bad, short, finishing, drain = Signal(), Signal(), Signal(), Signal()
        idle = Signal(init=1)
        self.abort_now = Signal()
        m.d.comb += [
            bad.eq(self._bad_command(self.command.payload)),
            self.command.ready.eq(idle & self.empty & self.book_idle),
            short.eq(schedule.short & ~self.kill),
            schedule.next.eq(self.command.payload),
            schedule.command.eq(self.active),
            schedule.rows.eq(reader.rows),
            schedule.level.eq(reader.level),
            schedule.ended.eq(reader.ended),
            schedule.stop.eq(short | self.kill),
            reader.take.eq(schedule.take),
            reader.finish.eq(finishing),
            self.errors.short.eq(short),
            self.errors.long.eq(reader.drained & reader.overlong & ~self.spoilt),
            self.busy.eq(~idle | ~self.empty),
        ]
        with m.If(self.command.valid & self.command.ready):
            m.d.comb += [
                schedule.start.eq(~bad),
                self.abort_now.eq(bad),
                self.errors.command.eq(bad),
            ]
            m.d.sync += [
                self.active.eq(self.command.payload),
                idle.eq(0),
                self.spoilt.eq(bad),
                self.drained.eq(0),
            ]
        with m.If(short):
            m.d.comb += self.abort_now.eq(1)
        with m.If(short | self.kill):
            m.d.sync += self.spoilt.eq(1)
        m.d.comb += finishing.eq(~idle & ~schedule.running & ~drain)
        with m.If(finishing):
            m.d.sync += drain.eq(1)
        with m.If(reader.drained):
            m.d.sync += [
                drain.eq(0),
                idle.eq(1),
                self.drained.eq(1),
                self.spoilt.eq(self.spoilt | reader.overlong),
            ]

    def _fields(self, m: Module) -> Signal:
        """Stages 1 and 2: fields and ranks go to their lanes. Returns the stage-2 beat."""
        config, schedule = self.config, self.schedule
        lanes = config.lanes
        m.submodules.sign_high = high = BlockBuffer(lanes=lanes, planes=HIGH_PLANES)
        stage1 = Signal(_stage_layout(lanes), reset_less=True)
        stage2 = Signal(_beat_layout(lanes, config.codebook), reset_less=True)
        valid1, self.valid2, self.free2 = Signal(), Signal(), Signal()
        free1, move = Signal(), Signal()
        m.d.comb += [
            move.eq(valid1 & self.free2),
            free1.eq(~valid1 | self.free2),
            schedule.enable.eq(free1),
            high.block.eq(schedule.block),
            high.load.eq(schedule.block_valid),
            high.lane_mask.eq(stage1.kept),
            high.advance.eq(move),
            high.clear.eq(schedule.start),
        ]
        ranks, overflow = self._ranks(m, stage1.kept, move)
        m.d.comb += self.errors.code.eq(move & overflow & ~stage1.abort)
        abort_held = Signal()
        with m.If(free1):
            m.d.sync += valid1.eq(schedule.beat_valid | self.abort_now | abort_held)
            m.d.sync += abort_held.eq(0)
            m.d.sync += [
                stage1.kept.eq(schedule.kept),
                stage1.begins.eq(schedule.begins),
                stage1.shared.eq(schedule.shared),
                stage1.last.eq(schedule.last | self.abort_now | abort_held),
                stage1.abort.eq(self.abort_now | abort_held),
            ]
        with m.Elif(self.abort_now):
            m.d.sync += abort_held.eq(1)
        with m.If(self.free2):
            m.d.sync += self.valid2.eq(valid1)
            m.d.sync += [stage2[name].eq(stage1[name]) for name in _CARRIED]
            m.d.sync += [
                stage2.high.eq(high.fields),
                stage2.ranks.eq(ranks),
                stage2.last.eq(stage1.last),
                stage2.abort.eq(stage1.abort | overflow),
            ]
        with m.If(self.kill):
            m.d.sync += [valid1.eq(0), self.valid2.eq(~self.free2), abort_held.eq(0)]
        self.pipeline_busy = valid1 | self.valid2 | abort_held
        return stage2

    def _ranks(self, m: Module, kept: Value, move: Value) -> tuple[Value, Value]:
        """Ranks of the stage-1 beat, and whether its stream had an illegal code (unary)."""
        config, schedule = self.config, self.schedule
        if not config.has("unary"):
            return Const(0), Const(0, 1)
        m.submodules.exponents = path = ExponentPath(
            lanes=config.lanes, window=config.window, limit=config.codebook
        )
        m.d.comb += [
            path.window.eq(schedule.window),
            path.window_valid.eq(schedule.window_valid),
            path.lane_mask.eq(kept),
            path.advance.eq(move),
            path.clear.eq(schedule.start),
        ]
        return Value.cast(path.ranks), path.overflow & config.selects(self.active.scheme, "unary")

    def _lookup(self, m: Module, beat: data.View) -> None:
        """The beat that is handed on: ranks to exponents, and errors of the beat."""
        unary = self.config.selects(self.active.scheme, "unary")
        exponents, missing = self._codebook(m, beat.ranks)
        bad_rank, bad_group, failed, last = Signal(), Signal(), Signal(), Signal()
        fresh = self.valid2 & ~beat.abort
        m.d.comb += [
            bad_rank.eq(unary & (missing & beat.kept).any()),
            bad_group.eq(~unary & self._bad_shared(beat.shared)),
            self.errors.rank.eq(fresh & bad_rank),
            self.errors.group.eq(fresh & bad_group),
            failed.eq(beat.abort | bad_rank | bad_group),
            last.eq(beat.last | failed),
            self.kill.eq((fresh & failed) | (self.valid2 & beat.abort & ~beat.last)),
            self.beats.valid.eq(self.valid2 & (~last | self.drained)),
            self.free2.eq(~self.valid2 | (self.beats.valid & self.beats.ready)),
            self.empty.eq(~self.pipeline_busy),
        ]
        m.d.comb += [self.beats.payload[name].eq(beat[name]) for name in _CARRIED]
        m.d.comb += [
            self.beats.payload.high.eq(beat.high),
            self.beats.payload.exponent.eq(exponents),
            self.beats.payload.last.eq(last),
            self.beats.payload.abort.eq(failed | (last & self.spoilt)),
        ]
        with m.If(self.kill):
            m.d.sync += [beat.last.eq(1), beat.abort.eq(1)]

    def _codebook(self, m: Module, ranks: Value) -> tuple[Value, Value]:
        """Exponents of some ranks, and which have none. Without unary, codebooks are ignored."""
        if not self.config.has("unary"):
            m.d.comb += [self.codebook.ready.eq(1), self.book_idle.eq(1)]
            return Const(0), Const(0)
        m.submodules.codebook = book = Codebook(lanes=self.config.lanes, size=self.config.codebook)
        wiring.connect(m, wiring.flipped(self.codebook), book.load)
        m.d.comb += [
            book.enable.eq(~self.busy),
            book.ranks.eq(ranks),
            self.book_idle.eq(book.idle),
        ]
        return Value.cast(book.exponents), book.missing

    def _bad_shared(self, shared: Value) -> Value:
        return (shared == 0) | ((shared == 255) & self.config.selects(self.active.scheme, "mx"))


_CARRIED = ("kept", "begins", "shared")


def _stage_layout(lanes: int) -> data.StructLayout:
    beat = SpeculationBeat(lanes)
    return data.StructLayout({name: beat[name].shape for name in (*_CARRIED, "last", "abort")})


def _beat_layout(lanes: int, limit: int) -> data.StructLayout:
    fields = {name: field.shape for name, field in _stage_layout(lanes)}
    ranks = data.ArrayLayout(range(limit), lanes)
    return data.StructLayout(
        {**fields, "high": data.ArrayLayout(HIGH_PLANES, lanes), "ranks": ranks}
    )
