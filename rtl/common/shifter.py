"""The dynamic shifter (paper, V.A steps D and E): shared exponent and magnitude to BF16."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class DynamicShifter(wiring.Component):
    """Compute ``value(s, E, A)`` of docs/format.md, section 4.2, without the sign.

    Combinational. ``shared`` must be at least 1; 0 gives an arbitrary result (the speculation path
    rejects it earlier).

    Members
    -------
    shared : In(8)
        E, the exponent of the group.
    own : In(8)
        E, or another exponent to use when bit 7 of the magnitude is set.
    magnitude : In(8)
        A (mx) or the window (exact).
    exponent : Out(8), mantissa : Out(7)
        The BF16 number ``magnitude * 2^(shared - 134)``.
    shift : Out(3)
        Left shift that made the magnitude a significand: its leading zeros, but at most ``shared -
        1``; arbitrary if the magnitude is zero.
    subnormal : Out(1)
        The magnitude is not zero and the number is subnormal.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "shared": In(8),
                "own": In(8),
                "magnitude": In(8),
                "exponent": Out(8),
                "mantissa": Out(7),
                "shift": Out(3),
                "subnormal": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count leading zeros up to a one at bit ``8 - shared``, where numbers become subnormal."""
        m = Module()
        guard = Signal(8)
        for bit in range(8):
            m.d.comb += guard[bit].eq((self.shared == 8 - bit) | self.magnitude[bit])
        for bit in range(8):
            with m.If(guard[bit]):
                m.d.comb += self.shift.eq(7 - bit)
        less = (self.shared[3:] - 1)[:5]  # shared by all lanes of a group
        shifted: Value = self.magnitude
        for level in reversed(range(3)):
            step = Signal(8, name=f"shifted_{level}")
            m.d.comb += step.eq(Mux(self.shift[level], shifted << (1 << level), shifted))
            shifted = step
        normal = shifted[7]
        low = Signal(4)  # the last three bits of the exponent, and a borrow
        m.d.comb += [
            low.eq(self.own[:3] - self.shift),
            self.mantissa.eq(shifted[:7]),
            self.subnormal.eq(~normal & (self.magnitude != 0)),
            self.exponent.eq(Mux(normal, Cat(low[:3], Mux(low[3], less, self.own[3:])), 0)),
        ]
        return m
