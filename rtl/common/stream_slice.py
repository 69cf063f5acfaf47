"""A register slice: a stream whose two ends share no combinational path."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.data import Layout
from amaranth.lib.wiring import In, Out


class StreamSlice(wiring.Component):
    """Pass payloads on in order, through registers.

    Latency: one cycle. Throughput: one payload per cycle. Buffering: two payloads. ``ready`` of the
    input and ``valid`` of the output depend on registers only; every input is legal.

    Members
    -------
    before : In(stream of shape), after : Out(stream of shape)
    """

    def __init__(self, shape: Shape | Layout) -> None:
        self.shape = shape
        super().__init__(
            {"before": In(stream.Signature(shape)), "after": Out(stream.Signature(shape))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spare, waiting = Signal(self.shape), Signal()  # payload that came during a stall
        before, after = self.before, self.after
        m.d.comb += before.ready.eq(~waiting)
        with m.If(~after.valid | after.ready):
            m.d.sync += [
                after.payload.eq(Mux(waiting, spare, before.payload)),
                after.valid.eq(waiting | before.valid),
                waiting.eq(0),
            ]
        with m.Elif(before.valid & before.ready):
            m.d.sync += [spare.eq(before.payload), waiting.eq(1)]
        return m
