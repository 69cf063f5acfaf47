"""The demand schedule of the speculation region, and its counters."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import (
    NARROW,
    CommandLayout,
    DecoderConfig,
    present_lanes,
)
from cassandra_spec.rtl.common.mantissa import HIGH_PLANES
from cassandra_spec.rtl.common.networks import popcount, shift
from cassandra_spec.rtl.common.wires import drive


class BeatCounter(wiring.Component):
    """Count the beats of a segment that are still to come.

    Invariant: ``more`` tells whether a beat follows the current one, ``final`` whether that beat is
    the last; ``remaining`` beats follow it. Latency: none. Every input is legal.

    Members
    -------
    start : In(1), behind : In(bits)
        A segment begins; ``behind`` beats follow its first.
    step : In(1), inside : In(1)
        ``step``: the slot leaves. ``inside``: it has a beat.
    more, final : Out(1), number : Out(5)
        ``number`` is the current beat's, modulo the longest group.
    """

    def __init__(self, bits: int) -> None:
        flags = ("start", "step", "inside")
        outputs = {"more": Out(1), "final": Out(1), "number": Out(5)}
        super().__init__({"behind": In(bits), **dict.fromkeys(flags, In(1)), **outputs})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        remaining = Signal.like(self.behind, reset_less=True)  # beats after the next one
        with m.If(self.step & self.inside):
            m.d.sync += self.number.eq(self.number + 1)
        with m.If(self.step & self.more):
            m.d.sync += [
                remaining.eq(remaining - 1),
                self.final.eq(remaining == 1),
                self.more.eq(~self.final),
            ]
        with m.If(self.start):
            m.d.sync += [
                self.number.eq(0),
                remaining.eq(self.behind),
                self.final.eq(self.behind == 0),
                self.more.eq(1),
            ]
        return m


class RankCounter(wiring.Component):
    """Count the ranks that were taken and not used yet: ``q`` of docs/format.md.

    Invariant: q (``total``) is the number ``left`` before the latest window plus the codes of each
    row of that window (``new``), which are added a cycle after it was taken. Every input is legal.

    Members
    -------
    clear : In(1), enable : In(1)
        ``clear``: a segment begins. ``enable``: it has codes.
    rows : In(array of window, lanes), take : In(1)
        The window; ``take``: it is taken.
    count : In(range(lanes + 1)), step : In(1)
        Ranks that the current beat uses; ``step``: it leaves.
    starved : Out(1), spare : Out(range)
        ``starved``: the beat needs more ranks. Otherwise ``spare`` ranks are left.
    total, left : Out(range), new : Out(array of window)
    """

    def __init__(self, config: DecoderConfig) -> None:
        lanes, window = config.lanes, config.window
        ranks = range(2 * lanes + window * lanes)
        super().__init__(
            {
                **dict.fromkeys(("clear", "enable", "take", "step"), In(1)),
                "rows": In(data.ArrayLayout(lanes, window)),
                "count": In(range(lanes + 1)),
                "starved": Out(1),
                "spare": Out(ranks),
                "total": Out(ranks),
                "left": Out(ranks),
                "new": Out(data.ArrayLayout(range(lanes + 1), window)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.total.eq(sum(self.new, self.left)),
            Cat(self.spare, self.starved).eq(self.total - self.count),
        ]
        with m.If(self.enable):
            m.d.sync += self.left.eq(Mux(self.step, self.spare, self.total))
        for new, row in zip(self.new, self.rows, strict=True):
            m.d.sync += new.eq(Mux(self.take, popcount(row), 0))
        with m.If(self.clear):
            m.d.sync += self.left.eq(0)
        return m


class SharedExponent(wiring.Component):
    """Group exponents: one row serves group / 8 beats, one byte per group.

    Combinational, except for the row in use. Invariant: a row is taken exactly for the first of
    these beats. Every input is legal.

    Members
    -------
    enable : In(1), log2_group : In(range), number : In(5)
        ``enable``: the segment has groups and the slot a beat. Then its group size and the beat's
        number.
    row : In(lanes), step : In(1)
        ``row``: the row that would be taken. ``step``: the slot leaves.
    take : Out(1), shared : Out(8)
        ``take``: the beat takes a row. ``shared``: its exponent.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.lanes = config.lanes
        super().__init__(
            {
                "enable": In(1),
                "log2_group": In(CommandLayout["log2_group"].shape),
                "number": In(5),
                "row": In(config.lanes),
                "step": In(1),
                "take": Out(1),
                "shared": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits, groups = (self.lanes - 1).bit_length(), self.lanes // 8
        held = Signal(self.lanes, reset_less=True)
        period, place = Signal(5), Signal(5)
        m.d.comb += [
            period.eq((1 << (self.log2_group - 3)[:3]) - 1),
            place.eq(self.number >> (self.log2_group - bits)[:3]),
            self.take.eq(self.enable & ((self.number & period) == 0)),
            self.shared.eq(held[:8]),
        ]
        for group in range(1, groups):
            with m.If(place[: (groups - 1).bit_length()] == group):
                m.d.comb += self.shared.eq(held.word_select(group, 8))
        with m.If(self.take):  # for the first group of the row
            m.d.comb += self.shared.eq(self.row[:8])
        with m.If(self.step & self.take):
            m.d.sync += held.eq(self.row)
        return m


class SpeculationSchedule(wiring.Component):
    """The demand schedule of the speculation region (docs/format.md, section 6), slot by slot.

    Takes rows from the reader's head and sorts them: the mask first, then a window or shared
    exponents, then a block of ``sign_high``. Slot -1 has no current beat.

    Invariants: a slot begins when the reader holds as many rows as any slot of the segment takes,
    or all that will come; all decisions come from registers. ``fields`` is the format's ``avail``:
    values of blocks taken and not used, less than ``lanes`` between slots. A window for which the
    exponents starve comes first, without the rest of the slot.

    Latency: none. Throughput: one slot per cycle, plus one cycle for each window by which the
    exponents starve. A slot that takes more rows than exist raises ``short``.

    Members
    -------
    start : In(1), next : In(CommandLayout), command : In(CommandLayout)
        A segment starts; ``next`` is its command, ``command`` the current one, from the following
        cycle on.
    rows : In(array of take_max, lanes), level : In(8), ended : In(1), take : Out(range)
        Ports of the reader.
    enable : In(1), stop : In(1)
        ``enable``: the next stage takes a beat. ``stop``: the segment is given up.
    beat_valid, begins, last : Out(1), kept : Out(lanes), shared : Out(8)
        The current beat: it leaves, it takes a block, it is the last; its kept lanes and exponent.
    running : Out(1), short : Out(1)
    unary, inside : Out(1), count, fields : Out(range)
        The scheme of the segment; whether there is a current beat, and its kept values.
    """

    def __init__(self, config: DecoderConfig) -> None:
        lanes, window = config.lanes, config.window
        self.config = config
        self.ranks = RankCounter(config)
        aligned = HIGH_PLANES - config.truncated[0]
        self.take_max = 1 + max(
            1 + aligned if config.schemes != ("unary",) else 0,
            window + aligned - 1 if config.has("unary") else 0,
        )
        self.take_narrow = self.take_max - max(NARROW - config.truncated[0], 0)
        super().__init__(
            {
                **dict.fromkeys(("start", "ended", "enable", "stop"), In(1)),
                "next": In(CommandLayout),
                "command": In(CommandLayout),
                "rows": In(data.ArrayLayout(lanes, self.take_max)),
                "level": In(8),
                "take": Out(range(self.take_max + 1)),
                "window": Out(window * lanes),
                **dict.fromkeys(("window_valid", "block_valid", "beat_valid", "begins"), Out(1)),
                **dict.fromkeys(("last", "running", "short", "unary", "inside"), Out(1)),
                "block": Out(data.ArrayLayout(lanes, config.high_planes)),
                "kept": Out(lanes),
                "shared": Out(8),
                "count": Out(range(lanes + 1)),
                "fields": Out(range(lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, window = self.config.lanes, self.config.window
        behind = self.next.count[(lanes - 1).bit_length() :]
        m.submodules.beats = beats = BeatCounter(len(behind))
        m.submodules.ranks = ranks = self.ranks
        m.submodules.shared = shared = SharedExponent(self.config)
        go, starve, step = Signal(), Signal(), Signal()
        fields, fields_short = Signal.like(self.fields), Signal()  # after the current beat
        take_mask, take_window, take_block = Signal(), Signal(), Signal()
        drive(m, beats, self, "start", "inside")
        m.d.comb += [
            self.unary.eq(self.config.selects(self.command.scheme, "unary")),
            starve.eq(self.unary & self.inside & ranks.starved),
            take_mask.eq(self.command.mask & beats.more),
            take_window.eq(self.unary & beats.more & (ranks.spare < lanes)),
            take_block.eq(self.inside & fields_short),
            Cat(fields, fields_short).eq(self.fields - self.count),
            step.eq(go & ~starve & (self.enable | ~self.inside)),
            self.window_valid.eq(go & Mux(starve, 1, step & take_window)),
            self.block_valid.eq(step & take_block),
            self.begins.eq(take_block),
            self.beat_valid.eq(step & self.inside),
            self.last.eq(~beats.more),
            self.shared.eq(shared.shared),
            beats.behind.eq(behind),
            beats.step.eq(step),
            ranks.clear.eq(self.start),
            ranks.enable.eq(self.unary),
            ranks.rows.eq(self.window),
            ranks.take.eq(self.window_valid),
            ranks.count.eq(self.count),
            ranks.step.eq(step),
            shared.enable.eq(~self.unary & self.inside),
            shared.log2_group.eq(self.command.log2_group),
            shared.number.eq(beats.number),
            shared.step.eq(step),
        ]
        exponents = Mux(take_window, window, shared.take)
        planes = Signal(4)
        m.d.comb += planes.eq(Mux(self.unary, 8, 9) - self.config.truncated_of(self.command))
        slot = take_mask + exponents + Mux(take_block, planes, 0)
        self._demand(m, go, Mux(starve, window, slot), step | (go & starve))
        first = self._route(m, take_mask & ~starve, take_mask + exponents, planes)
        m.d.comb += shared.row.eq(first)
        with m.If(step):
            m.d.sync += self.fields.eq(fields)
        self._next_beat(m, step, beats)
        return m

    def _demand(self, m: Module, go: Signal, rows: Value, takes: Value) -> None:
        """Decide whether the reader holds enough rows for any slot, and what this cycle takes."""
        wanted = Signal(range(self.take_max + 1))
        most = Signal(range(self.take_max + 1), reset_less=True)
        longest = Mux(self.config.selects(self.next.scheme, "unary"), self.config.window + 8, 1 + 9)
        m.d.comb += [
            go.eq(self.running & ((self.level >= most) | self.ended)),
            wanted.eq(rows),
            self.short.eq((self.take != 0) & (self.level < wanted)),
        ]
        with m.If(takes):
            m.d.comb += self.take.eq(wanted)
        truncated = self.config.truncated_of(self.next)
        with m.If(self.start):
            m.d.sync += most.eq(self.next.mask + longest - truncated)

    def _route(self, m: Module, behind: Value, amount: Value, planes: Value) -> Signal:
        """Route the rows of the window (or shared exponents; return the first) and the block."""
        rows: list[Value] = [self.rows[i] for i in range(self.take_max)]
        names = [f"first_{i}" for i in range(self.config.window)]
        first = [Signal(self.config.lanes, name=name) for name in names]
        for node, at, after in zip(first, rows, rows[1:], strict=False):
            m.d.comb += node.eq(Mux(behind, after, at))
        m.d.comb += self.window.eq(Cat(first))
        always = HIGH_PLANES - 1 - self.config.truncated[1]
        for plane, row in enumerate(shift(m, rows, amount, self.config.high_planes, "block")):
            there = Const(1) if plane < always else planes > plane
            m.d.comb += self.block[plane].eq(Mux(there, row, 0))
        return first[0]

    def _next_beat(self, m: Module, step: Value, beats: BeatCounter) -> None:
        """Update the current beat, and detect the end of the segment."""
        lanes, kept = self.config.lanes, Signal(self.config.lanes)
        held = Signal(lanes, reset_less=True)
        present = present_lanes(self.command, beats.final, lanes)
        m.d.comb += [
            kept.eq(Mux(self.command.mask, self.rows[0], present) & present),
            self.kept.eq(held),
        ]
        with m.If(step):
            m.d.sync += [self.inside.eq(1), held.eq(kept), self.count.eq(popcount(kept))]
        with m.If(self.stop | (step & ~beats.more)):
            m.d.sync += self.running.eq(0)
        with m.If(self.start):
            m.d.sync += [self.running.eq(1), self.inside.eq(0), self.count.eq(0), self.fields.eq(0)]
