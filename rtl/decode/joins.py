"""Joining of residues and pruned values with the values of a beat."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import VALUE, DecoderConfig
from cassandra_spec.rtl.common.networks import choose, popcount
from cassandra_spec.rtl.common.residue import FIELD_MAX, ResidueDemand, ResidueUnpack
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decode.align import AlignedBeat
from cassandra_spec.rtl.decode.bitmap_expand import BitmapExpand


def JoinedBeat(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """A beat with its residue; ``raw`` lanes take their value from ``pruned``."""
    return data.StructLayout(
        {
            "values": data.ArrayLayout(VALUE, lanes),
            "raw": lanes,
            "last": 1,
        }
    )


class Residue(wiring.Component):
    """Join the residue to a beat. Combinational, except for the rest of a row.

    Rows come from the reader; the last one is kept while the next beat needs its remaining bits.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        super().__init__(
            {
                "rows": In(data.ArrayLayout(lanes, FIELD_MAX)),
                "beat": In(AlignedBeat(lanes)),
                "enable": In(1),  # the beat moves on
                "clear": In(1),
                "wanted": Out(range(FIELD_MAX + 1)),  # rows that the beat needs
                "joined": Out(JoinedBeat(lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, beat = self.config.lanes, self.beat
        held = Signal(lanes, reset_less=True)  # the latest row
        rows: list[Value] = [held, *(self.rows[i] for i in range(FIELD_MAX))]
        m.submodules.demand = demand = ResidueDemand(lanes=lanes)
        m.submodules.unpack = unpack = ResidueUnpack(lanes=lanes)
        drive(m, demand, self, "enable", "clear")
        drive(m, unpack, beat, "widths", "needs")
        m.d.comb += [
            demand.needs.eq(beat.needs),
            self.wanted.eq(demand.wanted),
            unpack.bits.eq(Cat(*rows)[1:]),  # of the held row, only the latest bits remain
            unpack.skip.eq(~demand.level),
            self.joined.last.eq(beat.last),
        ]
        with m.If(self.enable):
            m.d.sync += held.eq(choose(m, rows, self.wanted, "latest"))
        for lane in range(lanes):
            field = Mux(beat.raw[lane], 0, unpack.fields[lane])
            m.d.comb += [
                self.joined.values[lane].eq(beat.values[lane] | field),
                self.joined.raw[lane].eq(beat.raw[lane] & ~unpack.fields[lane][0]),
            ]
        return m


class Pruned(wiring.Component):
    """Bring pruned values and escapes to their lanes. Combinational, except for half a row.

    With 32 lanes a row holds two values, and one may be left for the next beat. ``values`` are
    arbitrary in lanes that are not ``raw``.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.rows_max = VALUE  # lanes values of 16 bits, in rows of lanes bits
        super().__init__(
            {
                "rows": In(data.ArrayLayout(config.lanes, self.rows_max)),
                "raw": In(config.lanes),
                "enable": In(1),  # the beat moves on
                "clear": In(1),
                "wanted": Out(range(self.rows_max + 1)),
                "values": Out(data.ArrayLayout(VALUE, config.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self.config.lanes
        m.submodules.expand = net = BitmapExpand(lanes=lanes, width=VALUE)
        count = Signal(range(lanes + 1))
        rows = Signal(lanes * VALUE)
        m.d.comb += [
            count.eq(popcount(self.raw)),
            rows.eq(self.rows),
            net.lane_mask.eq(self.raw),
            self.values.eq(net.lanes_out),
        ]
        if lanes > VALUE:
            self._halves(m, net, rows, count)
        else:
            m.d.comb += [net.elements.eq(rows), self.wanted.eq(count * (VALUE // lanes))]
        return m

    def _halves(self, m: Module, net: BitmapExpand, rows: Signal, count: Signal) -> None:
        held, full = Signal(VALUE, reset_less=True), Signal()
        run = Signal(len(rows) + VALUE)
        odd = Signal()
        elements = [run.word_select(i, VALUE) for i in range(self.config.lanes + 1)]
        m.d.comb += [
            run.eq(Mux(full, Cat(held, rows), rows)),
            net.elements.eq(run),
            self.wanted.eq((count + 1 - full) >> 1),
            odd.eq(full ^ count[0]),
        ]
        with m.If(self.enable):
            m.d.sync += [full.eq(odd), held.eq(choose(m, elements, count, "kept"))]
        with m.If(self.clear):
            m.d.sync += full.eq(0)
