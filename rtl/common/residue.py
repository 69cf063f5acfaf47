"""Unpacking of the residue: fields of 0 to 7 bits each, value by value, a beat at a time."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import prefix_sums, prefix_sums_from, shift

FIELD_MAX = 7
"""Most bits of a residue field: the shift of a window of 8 bits that is not zero."""

_SHIFTED = 4
"""Lanes whose fields are cut from the rows at once; more cost gates, fewer are late."""


def total(terms: Sequence[ValueLike]) -> Value:
    """Sum of ``2^k`` terms as a balanced tree."""
    left = [Value.cast(term) for term in terms]
    while len(left) > 1:
        left = [a + b for a, b in zip(left[::2], left[1::2], strict=True)]
    return left[0]


def sums_layout(lanes: int) -> data.ArrayLayout:
    """Sums of the widths of the first four of each eight lanes, and of all eight, in turn."""
    size, most = min(_SHIFTED, lanes), min(2 * _SHIFTED, lanes)
    return data.ArrayLayout(range(FIELD_MAX * most + 1), lanes // size)


def sums_of(widths: Sequence[Value]) -> list[Value]:
    """These sums, of widths in the order of lanes."""
    size = min(_SHIFTED, len(widths))
    parts = [total(widths[lane : lane + size]) for lane in range(0, len(widths), size)]
    return [parts[i - 1] + part if i % 2 else part for i, part in enumerate(parts)]


def need_of(sums: Sequence[Value]) -> Value:
    """Sum of all widths."""
    return total(sums[1::2] or sums)


class ResidueDemand(wiring.Component):
    """How many rows of the residue a beat takes; the rule ``packed`` of the format.

    Combinational, but for the number of bits that beats before it have left. Every input is legal.

    Members
    -------
    needs : In(sums_layout(lanes))
        Sums of the widths of the beat.
    enable : In(1)
        The beat takes its rows.
    clear : In(1)
    level : Out(range(lanes)), wanted : Out(range(8))
        Bits that are left, and rows that are taken.
    need : Out(range(7 * lanes + 1)), rest : Out(range(8 * lanes))
        Bits that the beat needs in all, and bits that it leaves.
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
    """Cut a run of bits into one field for each lane.

    Combinational. Each four lanes have a shift of their own, by what is before them. In these, a
    binary tree: the left half of the lanes takes the first bits, the right half what is left after
    a shift by the left half's total. Every input is legal.

    Members
    -------
    bits : In(8 * lanes - 1), skip : In(range(lanes))
        The fields, lane 0 in the least significant bits, behind some bits to skip.
    widths : In(array of lanes, 3)
    needs : In(sums_layout(lanes))
        Sums of the widths, which are known a cycle earlier.
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
        """Where the fields of each four lanes begin."""
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
