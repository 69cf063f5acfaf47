"""Residue unpacking: cuts a beat's rows into one field of 0 to 7 bits per lane."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import prefix_sums, prefix_sums_from, shift

FIELD_MAX = 7
"""Maximum width of a residue field: the shift of a nonzero window of 8 bits."""

_SHIFTED = 4
"""Lanes whose fields are cut by one shift; more lanes cost gates, fewer lanes cost delay."""


def total(terms: Sequence[ValueLike]) -> Value:
    """Sum ``2^k`` terms with a balanced tree."""
    left = [Value.cast(term) for term in terms]
    while len(left) > 1:
        left = [a + b for a, b in zip(left[::2], left[1::2], strict=True)]
    return left[0]


def sums_layout(lanes: int) -> data.ArrayLayout:
    """Sums of widths: for each eight lanes, the sum of the first four and the sum of all."""
    size, most = min(_SHIFTED, lanes), min(2 * _SHIFTED, lanes)
    return data.ArrayLayout(range(FIELD_MAX * most + 1), lanes // size)


def sums_of(widths: Sequence[Value]) -> list[Value]:
    """Compute the sums of :func:`sums_layout` from widths in lane order."""
    size = min(_SHIFTED, len(widths))
    parts = [total(widths[lane : lane + size]) for lane in range(0, len(widths), size)]
    return [parts[i - 1] + part if i % 2 else part for i, part in enumerate(parts)]


def need_of(sums: Sequence[Value]) -> Value:
    """Return the sum of all widths."""
    return total(sums[1::2] or sums)


class ResidueDemand(wiring.Component):
    """Count the residue rows that a beat takes; the format's rule ``packed``.

    Combinational, except for the number of bits left by earlier beats. Every input is legal.

    Members
    -------
    needs : In(sums_layout(lanes))
        Sums of the widths of the beat.
    enable : In(1)
        The beat takes its rows.
    clear : In(1)
    level : Out(range(lanes)), wanted : Out(range(8))
        Bits left over, and rows taken.
    need : Out(range(7 * lanes + 1)), rest : Out(range(8 * lanes))
        Bits that the beat needs in total, and bits that it leaves.
    """

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(
            {
                "needs": In(sums_layout(lanes)),
                "enable": In(1),
                "clear": In(1),
                "level": Out(range(lanes)),
                "wanted": Out(range(FIELD_MAX + 1)),
                "need": Out(range(FIELD_MAX * lanes + 1)),
                "rest": Out(range(lanes * (FIELD_MAX + 1))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = len(self.level)
        m.d.comb += [
            self.need.eq(need_of(list(self.needs))),
            self.wanted.eq((self.need + ~self.level) >> bits),
            self.rest.eq((self.wanted << bits) + self.level - self.need),
        ]
        with m.If(self.enable):
            m.d.sync += self.level.eq(self.rest)
        with m.If(self.clear):
            m.d.sync += self.level.eq(0)
        return m


class ResidueUnpack(wiring.Component):
    """Cut a run of bits into one field per lane.

    Combinational; every input is legal. Each group of four lanes has its own shift, by the total
    width before it. Inside a group, a binary tree splits: the left half takes the first bits, the
    right half the rest after a shift by the left half's total.

    Members
    -------
    bits : In(8 * lanes - 1), skip : In(range(lanes))
        ``skip`` unused bits, then the fields, lane 0 first.
    widths : In(array of lanes, 3)
    needs : In(sums_layout(lanes))
        Sums of the widths, known a cycle earlier.
    fields : Out(array of lanes, 7)
        Zero-extended.
    """

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(
            {
                "bits": In((FIELD_MAX + 1) * lanes - 1),
                "skip": In(range(lanes)),
                "widths": In(data.ArrayLayout(3, lanes)),
                "needs": In(sums_layout(lanes)),
                "fields": Out(data.ArrayLayout(FIELD_MAX, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size = min(_SHIFTED, self.lanes)
        for first, start in zip(range(0, self.lanes, size), self._starts(m), strict=True):
            most = FIELD_MAX * first + self.lanes - 1
            run = shift(m, list(self.bits), start, FIELD_MAX * size, f"run_{first}", most)
            self._split(m, Cat(run), range(first, first + size))
        return m

    def _starts(self, m: Module) -> list[Value]:
        """Return where the fields of each group of four lanes begin."""
        width = ((FIELD_MAX + 1) * self.lanes - 1).bit_length()
        eights, fours = list(self.needs)[1::2], list(self.needs)[::2]
        before = [Const(0, 1), *prefix_sums(m, eights, width, "before")]
        starts: list[Value] = []
        for i, four in enumerate(fours):
            ends = prefix_sums_from(m, self.skip, [before[i], four], width, f"start_{8 * i}")
            starts += ends[: len(self.needs) - 2 * i]
        return starts

    def _split(self, m: Module, bits: Value, lanes: range) -> None:
        if len(lanes) == 1:
            self._cut(m, bits, lanes[0])
            return
        middle = lanes[len(lanes) // 2]
        left, right = range(lanes[0], middle), range(middle, lanes[-1] + 1)
        rest = Signal(FIELD_MAX * len(right), name=f"bits_{right[0]}_{len(right)}")
        amount = total([self.widths[lane] for lane in left])
        most = FIELD_MAX * len(left)
        m.d.comb += rest.eq(Cat(shift(m, list(bits), amount, len(rest), rest.name, most)))
        self._split(m, bits[: FIELD_MAX * len(left)], left)
        self._split(m, rest, right)

    def _cut(self, m: Module, bits: Value, lane: int) -> None:
        for bit in range(FIELD_MAX):
            m.d.comb += self.fields[lane][bit].eq(bits[bit] & (self.widths[lane] > bit))
