"""A register stage of a stream, right or broken, for tests of the drivers."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

RIGHT, DROPS, CHANGES, WAITS = range(4)


class Stage(wiring.Component):
    """One item of buffering; ``tlast`` repeats the lowest bit. ``fault`` chooses what is wrong."""

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "m_axis_tdata": Out(8),
                "m_axis_tlast": Out(1),
                "m_axis_tvalid": Out(1),
                "m_axis_tready": In(1),
                "fault": In(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        full, age = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~full | (self.m_axis_tvalid & self.m_axis_tready)),
            self.m_axis_tvalid.eq(full),
            self.m_axis_tlast.eq(self.m_axis_tdata[0]),
        ]
        m.d.sync += age.eq(~age)
        with m.If(self.i.ready):
            m.d.sync += [full.eq(self.i.valid), self.m_axis_tdata.eq(self.i.payload)]
        with m.Elif((self.fault == CHANGES) & age):
            m.d.sync += self.m_axis_tdata.eq(~self.m_axis_tdata)
        with m.If((self.fault == DROPS) & age):
            m.d.comb += self.m_axis_tvalid.eq(0)
        with m.If((self.fault == WAITS) & ~self.m_axis_tready):
            m.d.comb += self.m_axis_tvalid.eq(0)
        return m
