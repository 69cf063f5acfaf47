"""Bitmap-based de-sparsification (paper, V.A steps 5 and F): stored values to their lanes."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import ChoicesLayout
from cassandra_spec.rtl.common.networks import choices, expand, expand_by, prefix_sums
from cassandra_spec.rtl.common.wires import drive


class BitmapExpand(wiring.Component):
    """Hand element 0, 1, 2, ... to the set lanes of a bitmap, lowest lane first.

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
        counts = prefix_sums(m, [self.lane_mask[i] for i in range(self.lanes)], width, "lane")
        starts = [Const(0, width), *counts[:-1]]
        elements = [self.elements[i] for i in range(self.lanes)]
        for lane, element in enumerate(expand(m, elements, starts, "element")):
            m.d.comb += self.lanes_out[lane].eq(element)
        return m


class BlockStore(wiring.Component):
    """Two blocks of a blocked stream, and the values of a beat in their lanes.

    Latency: a block loaded in cycle c can be used from cycle c + 1; reading is combinational.
    Throughput: one block and one beat in each cycle. Buffering: two blocks of ``lanes`` values.
    There is no back-pressure: the driver loads by the demand schedule, only when fewer
    values than the next beat needs are left.

    Members
    -------
    block : In(array of planes, lanes)
        ``block[j]`` is row j: bit k belongs to value k.
    load : In(1), clear : In(1)
        A block comes; a new segment begins.
    choices : In(ChoicesLayout)
        Those of a :class:`BlockBuffer` that has had as many blocks and beats of the segment.
    fields : Out(array of lanes, planes)
        Bit j of a lane's field comes from plane j; arbitrary in lanes that take no value.
    """

    def __init__(self, *, lanes: int, planes: int) -> None:
        self.lanes = lanes
        self.planes = planes
        super().__init__(
            {
                "block": In(data.ArrayLayout(lanes, planes)),
                "load": In(1),
                "clear": In(1),
                "choices": In(ChoicesLayout(lanes)),
                "fields": Out(data.ArrayLayout(planes, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = range(2 * self.lanes)
        store = [Signal(self.planes, name=f"value_{i}", reset_less=True) for i in places]
        half = Signal()
        for i, value in enumerate(store):
            planes = Cat(self.block[j][i % self.lanes] for j in range(self.planes))
            with m.If(self.load & (half == i // self.lanes)):
                m.d.sync += value.eq(planes)
        levels = [list(bits) for bits in self.choices]
        for lane, value in enumerate(expand_by(m, store, levels, "value")):
            m.d.comb += self.fields[lane].eq(value)
        m.d.sync += half.eq(half ^ self.load)
        with m.If(self.clear):
            m.d.sync += half.eq(0)
        return m


class BlockBuffer(wiring.Component):
    """Buffer of a blocked stream: whole blocks in, the values of a beat out, in their lanes.

    A :class:`BlockStore`, and which of its places the lanes of a beat take. Latency, throughput
    and buffering are those of the store.

    Members
    -------
    block, load, clear, fields
        Of the store.
    lane_mask : In(lanes)
        Lanes that take a value, lowest lane first.
    advance : In(1)
        The values of ``lane_mask`` are used up.
    choices : Out(ChoicesLayout)
        For stores whose streams have a block and a value wherever this one has.
    """

    def __init__(self, *, lanes: int, planes: int) -> None:
        self.lanes = lanes
        self.planes = planes
        super().__init__(
            {
                "block": In(data.ArrayLayout(lanes, planes)),
                **dict.fromkeys(("load", "advance", "clear"), In(1)),
                "lane_mask": In(lanes),
                "fields": Out(data.ArrayLayout(planes, lanes)),
                "choices": Out(ChoicesLayout(lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = BlockStore(lanes=self.lanes, planes=self.planes)
        drive(m, store, self, "block", "load", "clear")
        width = (2 * self.lanes - 1).bit_length()
        head = Signal(width)
        counts = prefix_sums(m, [self.lane_mask[i] for i in range(self.lanes)], width, "lane")
        starts = [head] + [(head + count)[:width] for count in counts[:-1]]
        for level, bits in zip(self.choices, choices(2 * self.lanes, starts), strict=True):
            m.d.comb += level.eq(Cat(bits))
        m.d.comb += store.choices.eq(self.choices)
        drive(m, self, store, "fields")
        with m.If(self.advance):
            m.d.sync += head.eq(head + counts[-1])
        with m.If(self.clear):
            m.d.sync += head.eq(0)
        return m
