"""Bitmap-based de-sparsification (paper, V.A steps 5 and F): stored values to their lanes."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import choices, expand, expand_by, prefix_sums


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


class BlockBuffer(wiring.Component):
    """Buffer of a blocked stream: whole blocks in, the values of a beat out, in their lanes.

    Latency: a block loaded in cycle c can be used from cycle c + 1; reading is combinational.
    Throughput: one block and one beat in each cycle. Buffering: two blocks of ``lanes`` values.
    With ``early`` the places of the values are found a cycle ahead: ``fields`` are those of the
    ``lane_mask`` in the latest cycle with ``find``; no ``advance`` since. With ``ahead`` they are
    found by ``advance``: ``fields`` are those of the ``lane_mask`` that advanced last.
    There is no back-pressure: the driver loads by the demand schedule, only when fewer
    values than the next beat needs are left.

    Members
    -------
    block : In(array of planes, lanes)
        ``block[j]`` is row j: bit k belongs to value k.
    load : In(1)
    lane_mask : In(lanes)
        Lanes that take a value, lowest lane first.
    fields : Out(array of lanes, planes)
        Bit j of a lane's field comes from plane j; arbitrary in lanes that are not set.
    advance : In(1)
        The values of ``lane_mask`` are used up.
    find : In(1)
        Only with ``early``.
    clear : In(1)
        A new segment begins.
    """

    def __init__(
        self, *, lanes: int, planes: int, early: bool = False, ahead: bool = False
    ) -> None:
        self.lanes = lanes
        self.planes = planes
        self.early = early
        self.ahead = ahead
        super().__init__(
            {
                "block": In(data.ArrayLayout(lanes, planes)),
                **dict.fromkeys(("load", "advance", "clear", *["find"] * early), In(1)),
                "lane_mask": In(lanes),
                "fields": Out(data.ArrayLayout(planes, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = (2 * self.lanes - 1).bit_length()
        places = range(2 * self.lanes)
        store = [Signal(self.planes, name=f"value_{i}", reset_less=True) for i in places]
        head, half = Signal(width), Signal()
        for i, value in enumerate(store):
            planes = Cat(self.block[j][i % self.lanes] for j in range(self.planes))
            with m.If(self.load & (half == i // self.lanes)):
                m.d.sync += value.eq(planes)
        counts = prefix_sums(m, [self.lane_mask[i] for i in range(self.lanes)], width, "lane")
        starts = [head] + [(head + count)[:width] for count in counts[:-1]]
        levels = choices(len(store), starts)
        if self.early or self.ahead:
            levels = [self._registered(m, Cat(bits), i) for i, bits in enumerate(levels)]
        for lane, value in enumerate(expand_by(m, store, levels, "value")):
            m.d.comb += self.fields[lane].eq(value)
        m.d.sync += [
            half.eq(half ^ self.load),
            head.eq(Mux(self.advance, head + counts[-1], head)),
        ]
        with m.If(self.clear):
            m.d.sync += [half.eq(0), head.eq(0)]
        return m

    def _registered(self, m: Module, bits: Value, level: int) -> list[Value]:
        register = Signal(len(bits), name=f"choice_{level}", reset_less=True)
        with m.If(self.advance if self.ahead else self.find):
            m.d.sync += register.eq(bits)
        return list(register)
