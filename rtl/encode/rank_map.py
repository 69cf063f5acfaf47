"""The rank map: a codebook searched for exponents, which gives their ranks."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

AT_ONCE = 8
"""Entries of a part, which are compared with the lanes in one cycle."""

MORE = 4
"""Entries behind the first part that are compared in every cycle. Longer codes are rare."""


class RankMap(wiring.Component):
    """Find the rank of each lane's exponent in a codebook that is loaded at run time.

    Lookup is combinational: the entries of one part of the codebook, and ``MORE`` behind the first
    part, are compared with every lane. A load takes one cycle per entry and never stalls while
    ``enable`` is set. Illegal input: for an exponent that the codebook has twice, the ranks are
    ORed; entries past the ``size``-th of a packet are taken and ignored.

    Members
    -------
    load : In(stream of {exponent: 8, last: 1})
        Exponents in rank order; the first of a packet empties the codebook.
    enable : In(1)
        Loading is allowed. Once a packet has begun, keep this set until ``idle``.
    idle : Out(1)
        No packet is being loaded or waiting.
    part : In(range(parts)), at least one bit
        The part to search: entries from ``AT_ONCE * part`` on.
    exponents : In(array of lanes, 8)
    ranks : Out(array of lanes, range(size)), found : Out(lanes)
        ``ranks`` is arbitrary in lanes whose exponent is not found.
    """

    def __init__(self, *, lanes: int, size: int) -> None:
        self.lanes = lanes
        self.size = size
        self.parts = -(-size // AT_ONCE)
        self.load_layout = data.StructLayout({"exponent": 8, "last": 1})
        super().__init__(
            {
                "load": In(stream.Signature(self.load_layout)),
                "enable": In(1),
                "idle": Out(1),
                "part": In(range(max(self.parts, 2))),
                "exponents": In(data.ArrayLayout(8, lanes)),
                "ranks": Out(data.ArrayLayout(range(size), lanes)),
                "found": Out(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries = [Signal(8, name=f"entry_{i}", reset_less=True) for i in range(self.size)]
        used = Signal(self.size)
        self._load(m, entries, used)
        self._look_up(m, entries, used)
        return m

    def _look_up(self, m: Module, entries: list[Signal], used: Signal) -> None:
        count = min(self.size, AT_ONCE)
        whole = [Cat(entry, use) for entry, use in zip(entries, used, strict=True)]
        whole += [Const(0, 9)] * (self.parts * count - self.size)
        shown = [Signal(9, name=f"shown_{i}") for i in range(count)]
        for i, entry in enumerate(shown):
            m.d.comb += entry.eq(Array(whole[i::count])[self.part])
        shown += [Cat(whole[i]) for i in range(AT_ONCE, min(self.size, AT_ONCE + MORE))]
        for lane in range(self.lanes):
            exponent = self.exponents[lane]
            hits = Signal(len(shown), name=f"hits_{lane}")
            m.d.comb += [
                hits.eq(Cat(entry[8] & (entry[:8] == exponent) for entry in shown)),
                self.found[lane].eq(hits.any()),
                self.ranks[lane].eq(_rank(hits, self.part)),
            ]

    def _load(self, m: Module, entries: list[Signal], used: Signal) -> None:
        inside = Signal()
        place = Signal(self.size)  # one-hot; zero past the last entry
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


def _rank(hits: Signal, part: Value) -> Value:
    """Return the rank of the entry that matches, from the given part or those behind the first."""
    low = [Cat(hit for i, hit in enumerate(hits) if i >> bit & 1).any() for bit in range(3)]
    high = Mux(hits[AT_ONCE:].any(), 1, part)
    return Cat(*low, high)
