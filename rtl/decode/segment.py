"""Segments of the verification path: their control, the output register, and shared ports."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Member, Out

from cassandra_spec.rtl.common.command import (
    NARROW,
    VALUE,
    CommandLayout,
    DecoderConfig,
    ErrorLayout,
    SpeculationBeat,
    ValueBeat,
    present_lanes,
)
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decode.codebook import POSSIBLY_EMPTY

_RESTING = NARROW - 1
"""Low bits below a midpoint, which are zero in drafts with t of at least :data:`NARROW`."""

CAUSES = ("short", "long", "window", "code", "rank")
"""Error causes that the verification path finds."""

Faults = data.StructLayout({"short": 1, "window": 1, "code": 1, "rank": 1, "abort": 1})
"""Faults that a pipeline finds in a cycle; ``abort``: the speculation path gave the segment up."""

SegmentState = data.StructLayout({"running": 1, "giving_up": 1, "region": 1, "beats_done": 1})
"""The current segment. ``giving_up``: it is illegal, and its beats are dropped. ``region``: it has
a region, which must be drained. ``beats_done``: its last beat has been taken.
"""


def LeavingBeat(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """A beat as it leaves a pipeline."""
    return data.StructLayout({"values": data.ArrayLayout(VALUE, lanes), "last": 1})


def codebook_ports(config: DecoderConfig) -> dict[str, Member]:
    """Return the ports of the pruned codebook, if coded exponents are built in."""
    if not config.coded:
        return {}
    return {"codebook": In(stream.Signature(POSSIBLY_EMPTY)), "codebook_idle": Out(1)}


def pipeline_ports(config: DecoderConfig, *, take_max: int, words: int) -> dict[str, Member]:
    """Return the members of a pipeline, for a reader of ``words`` words.

    Members
    -------
    active : In(CommandLayout), state : In(SegmentState), begin : In(1)
        The current segment; ``begin`` comes in the cycle before its first.
    beats : In(stream of SpeculationBeat)
    taken, taken_last : Out(1)
        A beat is taken; it is the last of its segment.
    rows : In(array of take_max, lanes), level : In(range), ended : In(1), take : Out(range)
        The reader's rows, their number, the end of the region, and the number taken.
    beat : Out(LeavingBeat), move : Out(1)
        A beat moves to the output register.
    room, empty : In(1)
        The output register can take a beat; it is empty.
    faults : Out(Faults)
        Faults of this cycle. With ``short``, the beat that moves has no values.
    """
    lanes = config.lanes
    return {
        "active": In(CommandLayout),
        "state": In(SegmentState),
        **dict.fromkeys(("begin", "ended", "room", "empty"), In(1)),
        "beats": In(stream.Signature(SpeculationBeat(config))),
        **dict.fromkeys(("taken", "taken_last", "move"), Out(1)),
        "rows": In(data.ArrayLayout(lanes, take_max)),
        "level": In(range(words * config.verification_rows + 1)),
        "take": Out(range(take_max + 1)),
        "beat": Out(LeavingBeat(lanes)),
        "faults": Out(Faults),
        **codebook_ports(config),
    }


class SegmentControl(wiring.Component):
    """The state machine of a segment, from its command to the last beat that leaves.

    ========= ===================================================================================
    state     what happens; what ends it
    ========= ===================================================================================
    idle      A command is taken (``begin``).
    decoding  The pipeline works; its last beat moves to the output register, or a fault comes.
    giving up The pipeline is emptied and beats up to the last are dropped; then ``error_beat``
              puts a last beat with an error into the output register.
    finishing One cycle: ``finish`` tells the reader that no more rows are taken.
    draining  The reader discards the rest of the region; the last beat may leave when that is
              ``drained``, from the first cycle if there is no region. Then idle.
    ========= ===================================================================================

    Invariant: a last beat leaves exactly once for each command, after the region is drained; so a
    last beat without an error means a good segment. Latency: a fault shows in ``errors`` in the
    cycle in which it is found, in ``state`` one later. Throughput: one cycle between segments.

    Members
    -------
    command : In(stream of CommandLayout), active : Out(CommandLayout)
        The next segment, and the one in hand.
    state : Out(SegmentState), begin : Out(1)
        ``begin`` is set in the cycle in which a command is taken: buffers are cleared.
    taken, taken_last : In(1)
        The pipeline takes a beat, and whether it is the last of the segment.
    finish : Out(1), drained, overlong : In(1)
        Ports of the superblock reader.
    last_moves, last_leaves, room : In(1)
        The last beat enters the output register, and leaves it; the register has room.
    error_beat : Out(1)
        The output register takes the beat that ends an illegal segment.
    closed : Out(1), too_long : Out(1)
        The region is drained; it was too long.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "command": In(stream.Signature(CommandLayout)),
                "active": Out(CommandLayout),
                "state": Out(SegmentState),
                **dict.fromkeys(("begin", "finish", "error_beat", "closed", "too_long"), Out(1)),
                **dict.fromkeys(("taken", "taken_last", "drained", "overlong"), In(1)),
                **dict.fromkeys(("last_moves", "last_leaves", "room"), In(1)),
                "faults": In(Faults),
                "errors": Out(ErrorLayout(*CAUSES)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state, faults = self.state, self.faults
        over = Signal()  # the last beat has reached the output register
        finished, sent = Signal(), Signal()  # ``finish`` and ``error_beat`` were given
        command = self.command.payload
        held = Signal(CommandLayout, reset_less=True)
        m.d.comb += [
            self.active.eq(held),
            self.command.ready.eq(~state.running),
            self.begin.eq(self.command.valid & self.command.ready),
            self.error_beat.eq(state.giving_up & ~sent & self.room & state.beats_done),
        ]
        self._report(m)
        with m.If(self.taken):
            m.d.sync += state.beats_done.eq(self.taken_last)
        with m.If(state.running & faults.as_value().any()):
            m.d.sync += state.giving_up.eq(1)
        with m.If(self.error_beat):
            m.d.sync += [sent.eq(1), over.eq(1)]
        with m.If(self.last_moves):
            m.d.sync += over.eq(1)
        with m.If(state.running & over & ~finished):
            m.d.comb += self.finish.eq(state.region)
            m.d.sync += finished.eq(1)
        with m.If(self.drained):
            m.d.sync += [self.closed.eq(1), self.too_long.eq(self.overlong)]
        with m.If(state.running & self.last_leaves):
            m.d.sync += state.running.eq(0)
        with m.If(self.begin):
            region = command.target & command.verification
            m.d.sync += [
                held.eq(command),
                *(state.running.eq(1), state.region.eq(region)),
                *(state.giving_up.eq(0), state.beats_done.eq(0)),
                *(over.eq(0), finished.eq(0), sent.eq(0)),
                *(self.closed.eq(~region), self.too_long.eq(0)),
            ]
        return m

    def _report(self, m: Module) -> None:
        """Report each cause of the first fault, and a region that is too long."""
        found, first = self.faults, ~self.state.giving_up
        m.d.comb += [
            self.errors.short.eq(found.short),
            self.errors.window.eq(found.window & first),
            self.errors.code.eq(found.code & first),
            self.errors.rank.eq(found.rank & first),
            self.errors.long.eq(self.drained & self.overlong & first),
        ]


class OutputRegister(wiring.Component):
    """The output register. It holds a segment's last beat until the region is drained.

    Latency: one cycle. Throughput: one beat per cycle. Buffering: one beat. Invariant: a pipeline
    moves a beat only if there is ``room``; an error beat comes only when no beat moves.

    Members
    -------
    beat : In(LeavingBeat), move : In(1), void : In(1)
        A beat moves in; a ``void`` beat lacks rows and is dropped.
    begin : In(1)
        A segment begins. In drafts with t of at least :data:`NARROW`, the last bits of values are
        zero and clocked for the first beat only.
    error_beat : In(1)
        A last beat with an error moves in instead.
    room, full : Out(1)
        ``room``: a beat may move in. ``full``: the register holds one.
    active : In(CommandLayout), closed : In(1), too_long : In(1)
        The segment; its region is drained; its region was too long.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        super().__init__(
            {
                "beat": In(LeavingBeat(config.lanes)),
                **dict.fromkeys(("begin", "move", "void", "error_beat", "closed"), In(1)),
                "too_long": In(1),
                "room": Out(1),
                "full": Out(1),
                "active": In(CommandLayout),
                "values": Out(stream.Signature(ValueBeat(config.lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(LeavingBeat(self.config.lanes), reset_less=True)
        error = Signal()
        first = Signal()  # no beat of the segment has moved in yet
        lower = first | self.active.target | self.config.wide(self.active)
        offered = self.values.payload
        present = present_lanes(self.active, held.last, self.config.lanes)
        bad = held.last & (error | self.too_long)
        drive(m, offered, held, "values", "last")
        m.d.comb += [
            self.values.valid.eq(self.full & (~held.last | self.closed)),
            offered.error.eq(bad),
            offered.present.eq(present),
            self.room.eq(~self.full | (self.values.valid & self.values.ready)),
        ]
        with m.If(bad):
            m.d.comb += offered.present.eq(0)
        with m.If(self.error_beat):
            m.d.sync += [self.full.eq(1), held.last.eq(1), error.eq(1)]
        with m.Elif(self.move):
            m.d.sync += [self.full.eq(~self.void), held.last.eq(self.beat.last), error.eq(0)]
            m.d.sync += first.eq(0)
            for now, then in zip(held.values, self.beat.values, strict=True):
                m.d.sync += now[_RESTING:].eq(then[_RESTING:])
                with m.If(lower):
                    m.d.sync += now[:_RESTING].eq(then[:_RESTING])
        with m.Elif(self.room):
            m.d.sync += self.full.eq(0)
        with m.If(self.begin):
            m.d.sync += first.eq(1)
        return m
