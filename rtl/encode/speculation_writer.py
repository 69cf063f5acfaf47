"""The demand schedule of the speculation region (docs/format.md, section 6), on the writing side.

Three parts: :class:`WindowPair` shows the next two windows of codes. :class:`SpeculationDemand`
counts the rest of the units taken and decides what a slot takes. :class:`SpeculationWriter`
collects the units and sends their rows.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.mantissa import HIGH_PLANES
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.encode.packers import WindowLayout
from cassandra_spec.rtl.encode.region_writer import PieceSender, RowsLayout, append_rows
from cassandra_spec.rtl.encode.types import EncoderConfig


def SpeculationRecord(config: EncoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """The fields of a beat that the speculation region's schedule needs."""
    return data.StructLayout(
        {
            "kept": config.lanes,
            "count": Shape.cast(range(config.lanes + 1)),
            "begins": 1,
            "last": 1,
            "abort": 1,
            "unary": 1,
            "mask": 1,
            "planes": range(HIGH_PLANES + 1),  # planes of a block
        }
    )


def _windows(config: EncoderConfig) -> wiring.Member:
    """Return an input stream of windows."""
    return In(stream.Signature(WindowLayout(config.window * config.lanes)))


class WindowPair(wiring.Component):
    """The next two windows of codes of a segment; after the last one, windows of ones.

    Invariant: a window is taken from ``following`` only together with the previous one, and nothing
    of the next segment before ``begin``. Combinational except for one flag; every input is legal.

    Members
    -------
    exponents, following : In(streams of WindowLayout)
        See :class:`SpeculationWriter`.
    begin : In(1)
        A segment begins.
    take, take_both : In(1)
        The first window leaves, or both.
    take_row, drop : In(1)
        The head of ``exponents`` leaves: as a row of shared exponents, or as an unused window.
    present : Out(2), ends : Out(2)
        ``present``: the window exists. ``ends``: it, or an earlier one, is the last.
    exhausted : Out(1)
        The last window has been taken.
    ones, next_ones : Out(range)
        Ones of each window.
    rows : Out(array of 2 * window, lanes)
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        lanes, window = config.lanes, config.window
        super().__init__(
            {
                "exponents": _windows(config),
                **({"following": _windows(config)} if config.has("unary") else {}),
                **dict.fromkeys(("begin", "take", "take_both", "take_row", "drop"), In(1)),
                "present": Out(2),
                "ends": Out(2),
                "exhausted": Out(1),
                "ones": Out(range(window * lanes + 1)),
                "next_ones": Out(range(window * lanes + 1)),
                "rows": Out(data.ArrayLayout(lanes, 2 * window)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size = self.config.window * self.config.lanes
        first, past = self.exponents, Signal()
        taken, second = self.take | self.take_both, Const(0, size)
        m.d.comb += past.eq(self.exhausted | first.payload.last)
        if self.config.has("unary"):
            second = self.following.payload.bits
            m.d.comb += [
                self.present[1].eq(self.present[0] & (past | self.following.valid)),
                self.next_ones.eq(Mux(past, size, self.following.payload.ones)),
                self.ends[1].eq(past | self.following.payload.last),
                self.following.ready.eq(self.take_both & ~self.ends[0]),
            ]
        m.d.comb += [
            self.present[0].eq(self.exhausted | first.valid),
            self.ones.eq(Mux(self.exhausted, size, first.payload.ones)),
            self.ends[0].eq(past),
            self.rows.eq(
                Cat(
                    first.payload.bits | self.exhausted.replicate(size),
                    second | past.replicate(size),
                )
            ),
            first.ready.eq((taken & ~self.exhausted) | self.take_row | self.drop),
        ]
        with m.If(self.begin):
            m.d.sync += self.exhausted.eq(0)
        with m.If(taken & Mux(self.take_both, self.ends[1], self.ends[0])):
            m.d.sync += self.exhausted.eq(1)
        return m


class SpeculationDemand(wiring.Component):
    """Decide what a slot of the speculation region takes, from the rest of earlier units.

    Invariants, with ``q`` and ``avail`` of docs/format.md: ``missing`` is the number of values of
    the current beat minus q, the ranks of windows taken and not used (so it is positive exactly
    while the exponents starve). ``fields`` is avail: the values of ``sign_high`` blocks taken and
    not used, less than ``lanes`` between slots. ``shared`` is the number of exponents left in the
    latest row.

    Latency: none. Throughput: one slot per cycle. Every input is legal.

    Members
    -------
    beat : In(SpeculationRecord)
        The next beat.
    begin : In(1), done : In(1), step : In(1)
        ``begin``: a segment begins with the beat. ``done``: the units shown have left. ``step``:
        they were a slot.
    ones, next_ones : In(range)
        Ranks of the next two windows.
    unary : Out(1), planes : Out(range), more : Out(1)
        Scheme and planes of the segment; ``more``: a beat follows the current one.
    starve, alone : Out(1)
        ``starve``: a window by which the exponents starve leaves before the slot. ``alone``: it
        leaves in a cycle of its own.
    take_mask, take_window, take_shared, take_block : Out(1)
        What the slot takes.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        # True if two windows, the mask and all planes are at most two pieces.
        self.pairs = 2 * config.window + HIGH_PLANES <= 2 * BUS_ROWS
        ones = In(range(config.window * config.lanes + 1))
        flags = ("unary", "more", "starve", "alone")
        takes = ("take_mask", "take_window", "take_shared", "take_block")
        super().__init__(
            {
                "beat": In(SpeculationRecord(config)),
                **dict.fromkeys(("begin", "done", "step"), In(1)),
                "ones": ones,
                "next_ones": ones,
                "planes": Out(range(HIGH_PLANES + 1)),
                **dict.fromkeys((*flags, *takes), Out(1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, window, beat = self.config.lanes, self.config.window, self.beat
        inside, begins, last = Signal(), Signal(), Signal()  # the current beat; its flags
        count = Signal(range(lanes + 1))  # its kept values
        mask = Signal()  # the segment has a mask
        missing = Signal(range(-(2 + window) * lanes, lanes + 1))
        fields, shared = Signal(range(2 * lanes)), Signal(range(max(lanes // 8, 2)))
        ends = Signal()  # the window of the slot is due
        starve = self.starve
        m.d.comb += [
            self.more.eq(~(inside & last)),
            starve.eq(self.unary & inside & (missing > 0)),
            self.alone.eq(starve & (missing > self.ones if self.pairs else 1)),
            ends.eq(Mux(starve, missing + lanes > self.ones, missing + lanes > 0)),
            self.take_mask.eq(mask & self.more & ~self.alone),
            self.take_window.eq(self.unary & self.more & ends & ~self.alone),
            self.take_shared.eq(~self.unary & inside & begins & (shared == 0)),
            self.take_block.eq(inside & (fields < count) & ~self.alone),
        ]
        got = Mux(starve, self.ones, 0) + Mux(
            self.take_window, Mux(starve, self.next_ones, self.ones), 0
        )
        with m.If(self.begin):
            m.d.sync += [
                *(inside.eq(0), count.eq(0), missing.eq(0), fields.eq(0), shared.eq(0)),
                *(self.unary.eq(beat.unary), mask.eq(beat.mask), self.planes.eq(beat.planes)),
            ]
        with m.If(self.done):
            next_count = Mux(self.alone | ~self.more, 0, beat.count)
            m.d.sync += missing.eq(missing + next_count - got)
        with m.If(self.step):
            m.d.sync += [
                *(inside.eq(1), count.eq(beat.count), begins.eq(beat.begins), last.eq(beat.last)),
                fields.eq(fields + Mux(self.take_block, lanes, 0) - count),
            ]
            with m.If(inside & begins):
                m.d.sync += shared.eq(Mux(shared == 0, lanes // 8, shared) - 1)
        return m


class SpeculationWriter(wiring.Component):
    """The schedule of the speculation region: takes units from the memories, slot by slot.

    Latency: none. Throughput: one slot per cycle, or in two cycles if it has more than eight rows.
    A window by which the exponents starve leaves with its slot, but in a cycle of its own if
    another one must follow (or always, where a window has more than three rows). Two cycles pass
    between segments. Buffering: one beat. A beat with ``abort`` ends the region without rows.

    Members
    -------
    exponents : In(stream of WindowLayout)
        Windows of a unary segment, including its last; rows of shared exponents for other schemes.
    following : In(stream of WindowLayout), if the encoder has scheme unary
        The window after it, if present; taken only together with it.
    blocks : In(stream of array of 9, lanes)
        Planes of ``sign_high``, the sign first.
    rows : Out(stream of RowsLayout)
    busy : Out(1)
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        lanes, windows = config.lanes, _windows(config)
        super().__init__(
            {
                "beats": In(stream.Signature(SpeculationRecord(config))),
                "exponents": windows,
                "blocks": In(stream.Signature(data.ArrayLayout(lanes, HIGH_PLANES))),
                "rows": Out(stream.Signature(RowsLayout(lanes))),
                "busy": Out(1),
                **({"following": windows} if config.has("unary") else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.windows = windows = WindowPair(self.config)
        m.submodules.demand = demand = SpeculationDemand(self.config)
        wiring.connect(m, wiring.flipped(self.exponents), windows.exponents)
        if self.config.has("unary"):
            wiring.connect(m, wiring.flipped(self.following), windows.following)
        running = Signal()
        dropping = Signal()  # the segment's last window was not used
        both = demand.starve & demand.take_window
        drive(m, demand, windows, "ones", "next_ones")
        m.d.comb += [
            demand.beat.eq(self.beats.payload),
            windows.begin.eq(demand.begin),
            windows.take.eq(demand.done & (demand.starve | demand.take_window)),
            windows.take_both.eq(demand.done & both),
            windows.take_row.eq(demand.step & demand.take_shared),
            windows.drop.eq(dropping),
            self.busy.eq(running | dropping),
        ]
        self._send(m, windows, demand, both, running, dropping)
        with m.If(dropping):
            m.d.sync += dropping.eq(~self.exponents.valid)
        with m.Elif(~running & self.beats.valid & ~self.beats.payload.abort):
            m.d.comb += demand.begin.eq(1)
            m.d.sync += running.eq(1)
        with m.If(demand.step & ~demand.more):
            ended = windows.exhausted | (demand.starve & windows.ends[0])
            m.d.sync += [running.eq(0), dropping.eq(demand.unary & ~ended)]
        return m

    def _send(
        self,
        m: Module,
        windows: WindowPair,
        demand: SpeculationDemand,
        both: Value,
        running: Signal,
        dropping: Signal,
    ) -> None:
        """Send the rows of a slot when all its units are present: codes, then the block."""
        window, payload, more = self.config.window, self.rows.payload, demand.more & ~demand.alone
        starve, take_window, take_shared = demand.starve, demand.take_window, demand.take_shared
        codes = Mux(both, 2 * window, Mux(starve | take_window, window, take_shared))
        head = self._head(windows, demand)
        size = Signal(range(len(head) + 1))
        planes = [self.blocks.payload[i] for i in range(HIGH_PLANES)]
        pieces = PieceSender(m, "slot")
        slot = pieces.rows(append_rows(m, head, size, planes, "slot"))
        ready = (
            (~more | self.beats.valid)
            & (~(starve | take_window) | windows.present[0])
            & (~both | windows.present[1])
            & (~take_shared | self.exponents.valid)
            & (~demand.take_block | self.blocks.valid)
        )
        aborts = ~running & ~dropping & self.beats.valid & self.beats.payload.abort
        move = self.rows.valid & self.rows.ready
        m.d.comb += [
            size.eq(demand.take_mask + codes),
            pieces.count.eq(size + Mux(demand.take_block, demand.planes, 0)),
            *(row.eq(new) for row, new in zip(payload.rows, slot, strict=True)),
            self.rows.valid.eq(Mux(running, ready, aborts)),
            payload.count.eq(Mux(running, pieces.size, 0)),
            payload.end.eq(Mux(running, ~demand.more & ~demand.alone & pieces.final, 1)),
            demand.done.eq(pieces.moves(move & running)),
            demand.step.eq(demand.done & ~demand.alone),
            self.beats.ready.eq(Mux(running, demand.step & demand.more, aborts & move)),
            self.blocks.ready.eq(demand.step & demand.take_block),
        ]

    def _head(self, windows: WindowPair, demand: SpeculationDemand) -> list[Value]:
        """Return the rows of codes; the mask follows the windows by which the slot starves."""
        window, mask = self.config.window, self.beats.payload.kept
        codes = list(windows.rows)
        first = [mask, *codes]  # order of a slot that does not starve
        between = [*codes[:window], mask, *codes[window:]]
        masked = [Mux(demand.starve, *rows) for rows in zip(between, first, strict=True)]
        plain = [*codes, Const(0, 1)]
        return [Mux(demand.take_mask, *rows) for rows in zip(masked, plain, strict=True)]
