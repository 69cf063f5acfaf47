"""Exponents to ranks: the codebook, read backwards."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RankMap"]


class RankMap(wiring.Component):
    """The rank of each lane's exponent in a codebook that is loaded at run time.

    Looking up is combinational: every entry is compared with every lane. A load takes one cycle
    for each entry and never stalls while ``enable`` is set. Illegal input: of an exponent that the
    packet has twice the ranks are ORed; entries past the ``size``-th of a packet are taken and
    ignored.

    Members
    -------
    load : In(stream of {exponent: 8, last: 1})
        Exponents in the order of rank; the first of a packet empties the book.
    enable : In(1)
        Loading is allowed. A packet that has begun must be finished before ``idle``.
    idle : Out(1)
        No packet is being loaded or waiting.
    exponents : In(array of lanes, 8)
    ranks : Out(array of lanes, range(size)), found : Out(lanes)
        ``ranks`` is 0 in lanes whose exponent is not in the book.
    """

    def __init__(self, *, lanes: int, size: int) -> None:
        self.lanes = lanes
        self.size = size
        self.load_layout = data.StructLayout({"exponent": 8, "last": 1})
        super().__init__(
            {
                "load": In(stream.Signature(self.load_layout)),
                "enable": In(1),
                "idle": Out(1),
                "exponents": In(data.ArrayLayout(8, lanes)),
                "ranks": Out(data.ArrayLayout(range(size), lanes)),
                "found": Out(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries = [Signal(8, name=f"entry_{i}") for i in range(self.size)]
        used = Signal(self.size)
        self._load(m, entries, used)
        width = Shape.cast(range(self.size)).width
        for lane in range(self.lanes):
            exponent = self.exponents[lane]
            hits = Signal(self.size, name=f"hits_{lane}")
            m.d.comb += hits.eq(
                Cat(used[i] & (entry == exponent) for i, entry in enumerate(entries))
            )
            m.d.comb += self.found[lane].eq(hits.any())
            for bit in range(width):
                chosen = Cat(hits[i] for i in range(self.size) if i >> bit & 1)
                m.d.comb += Cat(self.ranks[lane])[bit].eq(chosen.any())
        return m

    def _load(self, m: Module, entries: list[Signal], used: Signal) -> None:
        inside = Signal()
        place = Signal(self.size)  # one-hot; nothing past the last entry
        m.d.comb += [
            self.load.ready.eq(self.enable),
            self.idle.eq(~inside & ~self.load.valid),
        ]
        here = Signal(self.size)
        with m.If(inside):
            m.d.comb += here.eq(place)
        with m.Else():
            m.d.comb += here.eq(Const(1, self.size))
        with m.If(self.load.valid & self.load.ready):
            m.d.sync += [inside.eq(~self.load.payload.last), place.eq(here << 1)]
            with m.If(inside):
                m.d.sync += used.eq(used | here)
            with m.Else():
                m.d.sync += used.eq(here)
            for i, entry in enumerate(entries):
                with m.If(here[i]):
                    m.d.sync += entry.eq(self.load.payload.exponent)
