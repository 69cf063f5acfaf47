"""The zero counter equals a count bit by bit, at every width up to 32."""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Assert, Assume, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from cassandra_spec.rtl.zero_counter import ParallelZeroCounter
from cassandra_spec.verif.formal.harness import Together
from cassandra_spec.verif.formal.prover import Claim

__all__ = ["CLAIMS"]


class CountsEqual(wiring.Component):
    """``ParallelZeroCounter`` beside a counter that looks at one bit after the other."""

    def __init__(self, width: int, limit: int) -> None:
        self.width = width
        self.limit = limit
        super().__init__({"bits": In(width), "carry": In(range(limit + 1))})

    def elaborate(self, platform: object) -> Module:
        """Every assertion compares an output."""
        m = Module()
        m.submodules.counter = counter = ParallelZeroCounter(self.width, limit=self.limit)
        m.d.comb += [counter.bits.eq(self.bits), counter.carry_in.eq(self.carry)]
        m.d.comb += Assume(self.carry <= self.limit)
        run: Value = self.carry
        ones: Value = Const(0, 1)
        overflow: Value = Const(0, 1)
        for place in range(self.width):
            m.d.comb += Assert((counter.runs[place] == run) | ~self.bits[place])
            # A run that has reached the limit before this bit, or reaches it here, is illegal.
            bit = self.bits[place]
            overflow = overflow | (run >= self.limit)
            ones = self._node(m, ones + bit, f"ones_{place}")
            more = Mux(run >= self.limit, self.limit, run + 1)
            run = self._node(m, Mux(bit, 0, more), f"run_{place}")
        overflow = overflow | (run >= self.limit)
        m.d.comb += [
            Assert(counter.ones == ones),
            Assert(counter.carry_out == run),
            Assert(counter.overflow == overflow),
        ]
        return m

    @staticmethod
    def _node(m: Module, value: Value, name: str) -> Signal:
        node = Signal(value.shape(), name=name)
        m.d.comb += node.eq(value)
        return node


def _counters(widths: Iterable[int], limit: int) -> Together:
    return Together({f"w{width}": CountsEqual(width, limit) for width in widths})


_WHAT = "Runs, ones, carry and overflow equal a count bit by bit; {}."

CLAIMS = (
    Claim(
        name="zero_counter.every_width",
        what=_WHAT.format("windows of 1 to 32 bits, codes of up to 16 bits"),
        design=lambda: _counters(range(1, 33), 16),
        method="combinational",
    ),
    Claim(
        name="zero_counter.long_codes",
        what=_WHAT.format("windows of 8, 16, 24, 32 and 64 bits, codes of up to 32 bits"),
        design=lambda: _counters((8, 16, 24, 32, 64), 32),
        method="combinational",
    ),
    Claim(
        name="zero_counter.chunk",
        what=_WHAT.format("chunks of 1 to 8 bits, codes of up to 16 bits"),
        design=lambda: _counters(range(1, 9), 16),
        method="combinational",
        fast=True,
    ),
    Claim(
        name="zero_counter.chunks",
        what=_WHAT.format("windows of 9, 12, 16 and 20 bits, codes of up to 16 bits"),
        design=lambda: _counters((9, 12, 16, 20), 16),
        method="combinational",
        fast=True,
    ),
)
