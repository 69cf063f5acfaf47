"""Mantissa concatenation (paper, V.A steps 1 and A): high bits, then low bits or fill."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

HIGH_PLANES = 9
"""Maximum number of planes of ``sign_high``: the sign and 8 bits of magnitude."""

LOW_PLANES = 7
"""Maximum number of planes of ``low``."""


class MantissaConcat(wiring.Component):
    """Join the fields of one lane to a sign and an 8-bit magnitude.

    Combinational; every input is legal. Planes have fixed places in the number, so this is an
    AND-OR. The magnitude is the 7-bit mantissa with a one in bit 7 (unary), or the aligned
    significand or window (mx, exact). ``truncated`` is the range of t.

    Members
    -------
    high : In(planes)
        Planes of ``sign_high``; those past the last must be zero.
    low : In(most)
        Planes of ``low``; those from ``truncated`` on are ignored.
    unary, target, midpoint : In(1); truncated : In(3)
    sign : Out(1), magnitude : Out(8)
    """

    def __init__(
        self, *, planes: int = HIGH_PLANES, truncated: tuple[int, int] = (0, LOW_PLANES)
    ) -> None:
        self.least, self.most = truncated
        super().__init__(
            {
                **dict.fromkeys(("unary", "target", "midpoint"), In(1)),
                "truncated": In(3),
                "high": In(planes),
                "low": In(self.most),
                "sign": Out(1),
                "magnitude": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        aligned = Cat(self._plane(8 - bit) for bit in range(8))
        mantissa = Cat(*(self._plane(7 - bit) for bit in range(7)), Const(1, 1))
        fill, here = Signal(self.most), Signal(self.most)
        for bit in range(self.most):
            kept = Const(1, 1) if bit < self.least else self.truncated > bit
            m.d.comb += here[bit].eq(self.target & kept)
            if bit >= self.least - 1:
                chosen = self.truncated == bit + 1
                m.d.comb += fill[bit].eq(~self.target & self.midpoint & chosen)
        high = Mux(self.unary, mantissa, aligned)
        m.d.comb += [
            self.sign.eq(self.high[0]),
            self.magnitude.eq(high | (self.low & here) | fill),
        ]
        return m

    def _plane(self, place: int) -> Value:
        return self.high[place] if place < len(self.high) else Const(0, 1)
