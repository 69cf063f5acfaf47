"""Concatenation and shift: turns the fields and low bits of a beat into values."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import (
    VALUE,
    CommandLayout,
    DecoderConfig,
    SpeculationBeat,
    present_lanes,
)
from cassandra_spec.rtl.common.mantissa import MantissaConcat
from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.common.residue import sums_layout, sums_of
from cassandra_spec.rtl.common.shifter import DynamicShifter
from cassandra_spec.rtl.common.wires import drive


def AlignedBeat(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout)
    """A beat after concatenation and shift; ``raw`` lanes take their value from ``pruned``."""
    return data.StructLayout(
        {
            "values": data.ArrayLayout(VALUE, lanes),
            "widths": data.ArrayLayout(3, lanes),  # residue bits of each lane
            "raw": lanes,  # if the lane has a residue bit: raw unless that bit, a zero flag, is set
            "needs": sums_layout(lanes),  # of the widths
            "most": range(VALUE + 1),  # rows of ``pruned`` if no zero flag is set
            "last": 1,
        }
    )


class Align(wiring.Component):
    """Concatenate and shift every lane of a beat. Combinational."""

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        super().__init__(
            {
                "command": In(CommandLayout),
                "beat": In(SpeculationBeat(config)),
                "low": In(data.ArrayLayout(config.low_planes, config.lanes)),
                "aligned": Out(AlignedBeat(config.lanes)),
                "bad_window": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self.config.lanes
        present, bad = Signal(lanes), Signal(lanes)
        for lane in range(lanes):
            self._lane(m, lane, present[lane], bad)
        m.d.comb += [
            self.bad_window.eq(bad.any()),
            present.eq(present_lanes(self.command, self.beat.last, lanes)),
            self.aligned.last.eq(self.beat.last),
            self.aligned.most.eq(_rows_of(popcount(self.aligned.raw), lanes)),
        ]
        sums = sums_of([self.aligned.widths[lane] for lane in range(lanes)])
        m.d.comb += [need.eq(one) for need, one in zip(self.aligned.needs, sums, strict=True)]
        return m

    def _lane(self, m: Module, lane: int, present: Value, bad: Signal) -> None:
        concat = MantissaConcat(planes=self.config.high_planes, truncated=self.config.truncated)
        m.submodules[f"concat_{lane}"] = concat
        command, beat = self.command, self.beat
        unary = self.config.selects(command.scheme, "unary")
        kept = beat.kept[lane]
        drive(m, concat, command, "target", "midpoint")
        m.d.comb += [
            concat.high.eq(beat.high[lane]),
            concat.low.eq(self.low[lane]),
            concat.unary.eq(unary),
            concat.truncated.eq(self.config.truncated_of(command)),
        ]
        escape = Signal(name=f"escape_{lane}")
        number = Cat(concat.magnitude[:7], beat.exponent[lane])
        if self.config.has("mx") or self.config.has("exact"):
            number = self._shift(m, lane, concat, unary, escape, bad)
        value = Mux(kept, Cat(number, concat.sign), 0)
        missing = present & ~kept
        m.d.comb += [
            self.aligned.values[lane].eq(value),
            self.aligned.raw[lane].eq(command.target & (missing | escape)),
        ]

    def _shift(
        self,
        m: Module,
        lane: int,
        concat: MantissaConcat,
        unary: Value,
        escape: Signal,
        bad: Signal,
    ) -> Value:
        """Normalise; in exact targets, derive the residue's width from the window.

        A unary magnitude has its implicit one and stays as it is. So does a full window, which has
        no residue.
        """
        m.submodules[f"shifter_{lane}"] = shifter = DynamicShifter()
        m.d.comb += [
            shifter.shared.eq(self.beat.shared),
            shifter.own.eq(Mux(unary, self.beat.exponent[lane], self.beat.shared)),
            shifter.magnitude.eq(concat.magnitude),
        ]
        number = Cat(shifter.mantissa, shifter.exponent)
        if not self.config.has("exact"):
            return number
        exact = self.config.selects(self.command.scheme, "exact")
        windowed = Signal(name=f"windowed_{lane}")
        zero, full = Signal(name=f"zero_{lane}"), Signal(name=f"full_{lane}")
        m.d.comb += [
            windowed.eq(exact & self.command.target & self.beat.kept[lane]),
            zero.eq(concat.magnitude == 0),
            full.eq(concat.magnitude == 255),
            escape.eq(windowed & (zero | full)),
            bad[lane].eq(windowed & shifter.subnormal),
        ]
        with m.If(windowed):
            m.d.comb += self.aligned.widths[lane].eq(Mux(zero, 1, shifter.shift))
        return number


def _rows_of(count: Value, lanes: int) -> Value:
    """Return the number of rows that hold ``count`` pruned values, rounded up."""
    return (count + 1) >> 1 if lanes > VALUE else count * (VALUE // lanes)
