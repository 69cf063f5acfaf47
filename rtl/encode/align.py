"""Alignment: values to significands, windows and residues (docs/format.md, sections 4.2, 4.3)."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

OUT = 9
"""The distance from which on nothing of a significand is left, even after rounding."""

_ESCAPE = 255


class Distance(wiring.Component):
    """Compute how far a value's exponent is below its group's, at most ``OUT``.

    Combinational. ``shared`` must be at least the effective exponent; otherwise the result is
    arbitrary.

    Members
    -------
    shared, exponent : In(8)
    distance : Out(4)
    """

    def __init__(self) -> None:
        super().__init__({"shared": In(8), "exponent": In(8), "distance": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        effective, difference = Signal(8), Signal(8)
        m.d.comb += [
            effective.eq(Cat(self.exponent[0] | (self.exponent == 0), self.exponent[1:])),
            difference.eq(self.shared - effective),
            self.distance.eq(Mux(difference >= OUT, OUT, difference[:4])),
        ]
        return m


class Aligner(wiring.Component):
    """Compute the magnitude of a lane and its residue from the distance.

    Combinational. The distance is from 0 to ``OUT``; others give an arbitrary result.

    Members
    -------
    magnitude : In(15)
        Exponent and mantissa of the value.
    distance : In(4), saturated : In(1)
        ``saturated`` (exact): the window is 255.
    round : In(1)
        Round to nearest, ties to even (mx); otherwise truncate.
    field : Out(8)
        The aligned significand, or the window.
    escape : Out(1)
        exact: the value is stored whole.
    residue : Out(7), width : Out(3)
        exact: the bits shifted out, zero from bit ``width`` on; or a zero flag.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "magnitude": In(15),
                "distance": In(4),
                "saturated": In(1),
                "round": In(1),
                "field": Out(8),
                "escape": Out(1),
                "residue": Out(7),
                "width": Out(3),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        significand, shifted = Signal(8), Signal(9)  # the lowest bit of ``shifted`` is half a unit
        window = Signal(8)
        below = Signal(7)  # bits below the unit
        m.d.comb += [
            significand.eq(Cat(self.magnitude[:7], self.magnitude[7:] != 0)),
            shifted.eq(Cat(0, significand) >> self.distance),
            below.eq(Cat(self.distance > bit for bit in range(7))),
            window.eq(shifted[1:] | self.saturated.replicate(8)),
        ]
        self._round(m, significand, shifted, window)
        self._residue(m, window, below)
        return m

    def _round(self, m: Module, significand: Value, shifted: Value, window: Value) -> None:
        sticky = Signal()  # any bit below half a unit
        m.d.comb += sticky.eq(
            (significand & Cat(self.distance > bit + 1 for bit in range(8))).any()
        )
        up = self.round & shifted[0] & (sticky | shifted[1])
        m.d.comb += self.field.eq(window + up)

    def _residue(self, m: Module, window: Value, below: Value) -> None:
        empty, whole, zero = Signal(), Signal(), Signal()
        m.d.comb += [
            empty.eq(window == 0),
            whole.eq(window == _ESCAPE),
            zero.eq(self.magnitude == 0),
            self.escape.eq(whole | (empty & ~zero)),
            self.residue.eq(Mux(empty, zero, self.magnitude[:7] & below & (~whole).replicate(7))),
            self.width.eq(Mux(empty, 1, Mux(whole, 0, self.distance[:3]))),
        ]
