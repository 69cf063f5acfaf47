"""Parts that let a device be reset while its buses and streams keep their rules
(docs/hardware/reset.md).

Each bus master has a part that survives a soft reset: its address register, and the count of the
answers that memory owes. :class:`Drain` holds the rest in reset until memory owes nothing.
:class:`PacketOut` and :class:`PacketIn` do the same for the packets of values.
"""

from __future__ import annotations

from amaranth.hdl import Module, ResetSignal, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import Layout
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import ValueBeat

OUTSTANDING_BITS = 32
"""Bits of the register ``outstanding``."""


def master_members() -> dict[str, object]:
    """Return the members by which a bus master is drained.

    hold : In(1)
        No burst begins.
    drain : In(1)
        No burst begins, and the answers that memory owes are discarded. It stays until ``open`` is
        0.
    clear : Out(1)
        Everything behind the master is held in reset.
    open : Out(1)
        A burst waits for its address, its data or its answer.
    owed : Out(32)
        What memory owes, as the register ``outstanding`` counts it; one cycle late.
    stray : Out(1)
        An answer to no open burst came. It is ignored.
    """
    flags = dict.fromkeys(("clear", "open", "stray"), Out(1))
    return {"hold": In(1), "drain": In(1), **flags, "owed": Out(OUTSTANDING_BITS)}


class Drain(wiring.Component):
    """Turn a request for a reset or for quiet into what a bus master understands.

    A reset drains the master. It ends when no burst is open, at the earliest two cycles after the
    request, and not while the request lasts. ``quiesce_request`` holds the master until it falls,
    and nothing is lost.

    Members
    -------
    request : In(1)
        Begin a reset; a pulse or a level.
    quiesce_request : In(1)
    quiet : Out(1)
        No burst is open, and none begins before ``quiesce_request`` falls. It follows with one
        cycle of delay.
    draining : Out(1)
        From the cycle after the request to the end of the reset.
    hold, drain : Out(1), open : In(1)
        As in :func:`master_members`.
    """

    def __init__(self) -> None:
        inputs, outputs = ("request", "quiesce_request", "open"), ("quiet", "draining", "hold")
        super().__init__(
            {
                **dict.fromkeys(inputs, In(1)),
                **dict.fromkeys((*outputs, "drain"), Out(1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.drain.eq(self.draining),
            self.hold.eq(self.quiesce_request | self.draining),
        ]
        m.d.sync += [
            self.draining.eq(self.request | (self.draining & self.open)),
            self.quiet.eq(self.quiesce_request & ~self.open),
        ]
        return m


class PacketOut(wiring.Component):
    """Hold an offered beat, and end a packet cut by a reset.

    A packet whose first beat has come in, but not its last one, ends with a flagged beat without
    values. A beat that is offered stays, whatever happens behind it.

    Latency: one cycle. Throughput: one beat per cycle. Buffering: one beat.

    Members
    -------
    beats : In(stream of ValueBeat), values : Out(stream of ValueBeat)
    cut : In(1)
        What offers the beats is in reset.
    counts : Out(1)
        The beat at the output came in after the last cut.
    """

    def __init__(self, lanes: int) -> None:
        layout = ValueBeat(lanes)
        super().__init__(
            {
                "beats": In(stream.Signature(layout)),
                "values": Out(stream.Signature(layout)),
                "cut": In(1),
                "counts": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beats, values = self.beats, self.values
        inside, closing, free = (Signal(name=name) for name in ("inside", "closing", "free"))
        m.d.comb += [
            free.eq(~values.valid | values.ready),
            beats.ready.eq(free & ~closing & ~self.cut),
        ]
        with m.If(values.ready):
            m.d.sync += values.valid.eq(0)
        with m.If(self.cut):
            m.d.sync += [closing.eq(closing | inside), inside.eq(0), self.counts.eq(0)]
        with m.Elif(free & closing):
            m.d.sync += [
                *(values.valid.eq(1), closing.eq(0), self.counts.eq(0)),
                *(values.payload.last.eq(1), values.payload.error.eq(1)),
                values.payload.present.eq(0),
            ]
        with m.Elif(beats.valid & beats.ready):
            m.d.sync += [
                *(values.valid.eq(1), values.payload.eq(beats.payload)),
                *(inside.eq(~beats.payload.last), self.counts.eq(1)),
            ]
        return m


class PacketIn(wiring.Component):
    """Take the rest of a packet cut by a reset.

    A packet whose first beat was taken when the reset began, but not its last one, is taken to its
    end and discarded. ``fresh`` forgets the packet: its source was reset as well.

    Latency: none. Throughput: one beat per cycle. Buffering: none. No beat is taken in a cycle of
    ``rst``.

    Members
    -------
    values : In(stream), beats : Out(stream)
        With a payload that has ``last``.
    stop : In(1)
        What takes the beats is about to be reset.
    fresh : In(1)
    discards : Out(1)
        A beat that comes now is discarded.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(
            {
                "values": In(stream.Signature(layout)),
                "beats": Out(stream.Signature(layout)),
                **dict.fromkeys(("stop", "fresh"), In(1)),
                "discards": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        values, beats = self.values, self.beats
        inside, passes = Signal(name="inside"), Signal(name="passes")
        m.d.comb += [
            passes.eq(~self.discards & ~self.stop & ~ResetSignal()),
            beats.payload.eq(values.payload),
            beats.valid.eq(values.valid & passes),
            values.ready.eq((beats.ready & passes) | (self.discards & ~ResetSignal())),
        ]
        with m.If(self.fresh):
            m.d.sync += [inside.eq(0), self.discards.eq(0)]
        with m.Else():
            with m.If(values.valid & values.ready):
                m.d.sync += inside.eq(~values.payload.last)
                with m.If(values.payload.last):
                    m.d.sync += self.discards.eq(0)
            with m.If(self.stop & inside & ~self.discards):
                m.d.sync += self.discards.eq(1)
        return m


class Owed(wiring.Component):
    """Count what memory owes to one ID.

    Latency: one cycle. A payment without a debt is ignored.

    Members
    -------
    asks : In(range(most + 1))
        Answers that an address asks for in this cycle.
    pays : In(1)
        An answer comes.
    owed : Out(range(most + 1))
        Answers that are owed, those of this cycle not counted.
    some : Out(1)
        ``owed`` is not 0: an answer in this cycle belongs to an open burst.
    """

    def __init__(self, most: int) -> None:
        shape = Shape.cast(range(most + 1))
        super().__init__({"asks": In(shape), "pays": In(1), "owed": Out(shape), "some": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.some.eq(self.owed != 0)
        m.d.sync += self.owed.eq(self.owed + self.asks - (self.pays & self.some))
        return m


def total(counts: list[Value]) -> Value:
    """Return the sum of some counts."""
    found: Value | int = 0
    for count in counts:
        found = found + count
    return Value.cast(found)
