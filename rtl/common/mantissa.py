"""Mantissa concatenation (paper, V.A steps 1 and A): high bits, and low bits or fill."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

HIGH_PLANES = 9
"""Most planes of ``sign_high``: the sign and 8 bits of magnitude."""

LOW_PLANES = 7
"""Most planes of ``low``."""


class MantissaConcat(wiring.Component):
    """Join the fields of one lane to a sign and an 8-bit magnitude.

    Combinational; every input is legal. Because planes have fixed places in the number, this is
    an AND-OR. The magnitude is the 7-bit mantissa and, in bit 7, a one (unary), or the aligned
    significand or window (mx, exact).

    Members
    -------
    high : In(9)
        Planes of ``sign_high``; those past the last must be zero.
    low : In(7)
        Planes of ``low``; those from ``truncated`` on may be anything.
    unary, target, midpoint : In(1); truncated : In(3)
    sign : Out(1), magnitude : Out(8)
    """

    def __init__(self) -> None:
        super().__init__(
            {
                **dict.fromkeys(("unary", "target", "midpoint"), In(1)),
                "truncated": In(3),
                "high": In(HIGH_PLANES),
                "low": In(LOW_PLANES),
                "sign": Out(1),
                "magnitude": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        aligned = Cat(self.high[8 - bit] for bit in range(8))
        mantissa = Cat(*(self.high[7 - bit] for bit in range(7)), Const(1, 1))
        fill, here = Signal(LOW_PLANES), Signal(LOW_PLANES)
        for bit in range(LOW_PLANES):
            m.d.comb += [
                fill[bit].eq(~self.target & self.midpoint & (self.truncated == bit + 1)),
                here[bit].eq(self.target & (self.truncated > bit)),
            ]
        high = Mux(self.unary, mantissa, aligned)
        m.d.comb += [
            self.sign.eq(self.high[0]),
            self.magnitude.eq(high | (self.low & here) | fill),
        ]
        return m
