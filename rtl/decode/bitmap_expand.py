"""Bitmap-based de-sparsification (paper, V.A steps 5 and F): moves stored values to their lanes."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import ChoicesLayout
from cassandra_spec.rtl.common.networks import choices, expand, expand_by, prefix_sums


class BitmapExpand(wiring.Component):
    """Give elements 0, 1, 2, ... to the set lanes of a bitmap, lowest lane first.

    Combinational, no buffering; every input is legal.

    Members
    -------
    elements : In(array of lanes, width), lane_mask : In(lanes)
    lanes_out : Out(array of lanes, width)
        Arbitrary in lanes that are not set.
    """

    def __init__(self, *, lanes: int, width: int) -> None:
        self.lanes = lanes
        super().__init__(
            {
                "elements": In(data.ArrayLayout(width, lanes)),
                "lane_mask": In(lanes),
                "lanes_out": Out(data.ArrayLayout(width, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = (self.lanes - 1).bit_length()
        counts = prefix_sums(m, list(self.lane_mask), width, "lane")
        starts = [Const(0, width), *counts[:-1]]
        elements = [self.elements[i] for i in range(self.lanes)]
        for lane, element in enumerate(expand(m, elements, starts, "element")):
            m.d.comb += self.lanes_out[lane].eq(element)
        return m


class LanePlaces(wiring.Component):
    """Find the elements of a circular store that the lanes of a beat take.

    Element ``n`` of the stream is at place ``n`` modulo ``places``, a power of two and at least as
    many as there are lanes. Combinational, except for the number of the next element. Every input
    is legal.

    Members
    -------
    lane_mask : In(lanes)
        Lanes that take an element, lowest lane first.
    advance : In(1), clear : In(1)
        ``advance``: the elements of ``lane_mask`` are consumed. ``clear``: a new stream begins.
    head : Out(range(places))
        Place of the next element.
    choices : Out(ChoicesLayout)
        Selection bits for :func:`expanded`.
    """

    def __init__(self, *, lanes: int, places: int) -> None:
        self.lanes = lanes
        self.places = places
        super().__init__(
            {
                "lane_mask": In(lanes),
                **dict.fromkeys(("advance", "clear"), In(1)),
                "head": Out(range(places)),
                "choices": Out(ChoicesLayout(lanes, places)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = len(self.head)
        counts = prefix_sums(m, list(self.lane_mask), width, "lane")
        starts: list[Value] = [self.head]
        starts += [(self.head + count)[:width] for count in counts[:-1]]
        levels = choices(self.places, starts)
        m.d.comb += self.choices.eq(Cat(bit for level in levels for bit in level))
        with m.If(self.advance):
            m.d.sync += self.head.eq(self.head + counts[-1])
        with m.If(self.clear):
            m.d.sync += self.head.eq(0)
        return m


def expanded(m: Module, store: Sequence[Value], choices: data.View, name: str) -> list[Value]:
    """Return the element of each lane; arbitrary if the lane takes none.

    ``choices`` may be those of a larger store; then its last levels are used.
    """
    layout = ChoicesLayout(len(choices.by_1), len(store))
    return expand_by(m, store, [list(choices[level]) for level in layout.members], name)


class BlockBuffer(wiring.Component):
    """Buffer of a blocked stream: takes whole blocks, gives each lane its value.

    Latency: a block loaded in cycle c can be used from cycle c + 1; reading is combinational.
    Throughput: one block and one beat per cycle. Buffering: two blocks of ``lanes`` values. There
    is no back-pressure: the driver follows the demand schedule, so it loads only when fewer values
    are left than the next beat needs.

    Members
    -------
    block : In(array of planes, lanes)
        ``block[j]`` is row j: bit k belongs to value k.
    load : In(1), clear : In(1)
        ``load``: a block arrives. ``clear``: a new segment begins.
    wide : In(1)
        If set, the segment has all planes. Otherwise the planes beyond ``narrow`` are not clocked,
        and arbitrary.
    choices : In(ChoicesLayout)
        The values of the segment that the lanes take, from :class:`LanePlaces`.
    fields : Out(array of lanes, planes)
        Bit j of a lane's field comes from plane j; arbitrary in lanes that take no value.
    """

    def __init__(self, *, lanes: int, planes: int, narrow: int | None = None) -> None:
        self.lanes = lanes
        self.planes = planes
        self.narrow = planes if narrow is None else narrow
        super().__init__(
            {
                "block": In(data.ArrayLayout(lanes, planes)),
                **dict.fromkeys(("load", "clear", *["wide"] * (self.narrow < planes)), In(1)),
                "choices": In(ChoicesLayout(lanes, 2 * lanes)),
                "fields": Out(data.ArrayLayout(planes, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = range(2 * self.lanes)
        store = [Signal(self.planes, name=f"value_{i}", reset_less=True) for i in places]
        half = Signal()
        for i, value in enumerate(store):  # stored inverted: smaller multiplexers
            planes = ~Cat(self.block[j][i % self.lanes] for j in range(self.planes))
            here = self.load & (half == i // self.lanes)
            with m.If(here):
                m.d.sync += value[: self.narrow].eq(planes)
            if self.narrow < self.planes:
                with m.If(here & self.wide):
                    m.d.sync += value[self.narrow :].eq(planes[self.narrow :])
        for lane, value in enumerate(
            expanded(m, [~value for value in store], self.choices, "value")
        ):
            m.d.comb += self.fields[lane].eq(value)
        m.d.sync += half.eq(half ^ self.load)
        with m.If(self.clear):
            m.d.sync += half.eq(0)
        return m
