"""The dynamic shifter (paper, V.A steps D and E): shared exponent and magnitude to BF16."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["DynamicShifter"]


class DynamicShifter(wiring.Component):
    """``value(s, E, A)`` of docs/format.md, section 4.2, without the sign.

    Combinational. ``shared`` must be at least 1; 0 gives an arbitrary result (the speculation
    path rejects it before).

    Members
    -------
    shared : In(8)
        E, the exponent of the group.
    magnitude : In(8)
        A (mx) or the window (exact).
    exponent : Out(8), mantissa : Out(7)
        The BF16 number ``magnitude * 2^(shared - 134)``.
    zeros : Out(4)
        Leading zeros of the magnitude, 8 if it is zero.
    subnormal : Out(1)
        The magnitude is not zero and the number is subnormal.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "shared": In(8),
                "magnitude": In(8),
                "exponent": Out(8),
                "mantissa": Out(7),
                "zeros": Out(4),
                "subnormal": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.zeros.eq(8)
        for bit in range(8):
            with m.If(self.magnitude[bit]):
                m.d.comb += self.zeros.eq(7 - bit)
        normal = Signal()
        shift = Signal(3)
        m.d.comb += [
            normal.eq(self.shared > self.zeros),
            self.subnormal.eq(~normal & (self.magnitude != 0)),
            shift.eq(Mux(normal, self.zeros[:3], (self.shared - 1)[:3])),
            self.mantissa.eq((self.magnitude << shift)[:7]),
        ]
        with m.If(normal & (self.magnitude != 0)):
            m.d.comb += self.exponent.eq(self.shared - self.zeros)
        return m
