"""The codebook: a table from ranks to exponents, loaded at run time."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import choose

ENTRY = data.StructLayout({"exponent": 8, "last": 1})
"""A word that loads a codebook entry."""

POSSIBLY_EMPTY = data.StructLayout({"exponent": 8, "last": 1, "empty": 1})
"""A word that loads an entry of a codebook that may be empty: ``empty`` words load none."""


class Codebook(wiring.Component):
    """A table of exponents with one read port per lane (paper, V.A step 4).

    Reads are combinational. A load takes one cycle per entry and never stalls while ``enable`` is
    set. Entries are stored inverted, because inverting multiplexers are smaller. Illegal input: a
    rank without an entry raises ``missing`` for its lane; entries past the ``size``-th of a packet
    are taken and ignored.

    Members
    -------
    load : In(stream of {exponent: 8, last: 1}, with ``may_be_empty`` also {empty: 1})
        Exponents in rank order; the first of a packet empties the codebook. An ``empty`` word has
        no exponent.
    enable : In(1)
        Loading is allowed. Once a packet has begun, keep this set until ``idle``.
    idle : Out(1)
        No packet is being loaded or waiting.
    ranks : In(array of lanes, range(size)), exponents : Out(array of lanes, 8)
    missing : Out(lanes)
        The lane's rank has no entry.
    count : Out(range(size + 1))
        Number of entries.
    """

    def __init__(self, *, lanes: int, size: int, may_be_empty: bool = False) -> None:
        self.lanes = lanes
        self.size = size
        self._may_be_empty = may_be_empty
        self.load_layout = POSSIBLY_EMPTY if may_be_empty else ENTRY
        super().__init__(
            {
                "load": In(stream.Signature(self.load_layout)),
                "enable": In(1),
                "idle": Out(1),
                "ranks": In(data.ArrayLayout(range(size), lanes)),
                "exponents": Out(data.ArrayLayout(8, lanes)),
                "missing": Out(lanes),
                "count": Out(range(size + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries = [Signal(8, name=f"entry_{i}", reset_less=True) for i in range(self.size)]
        self._load(m, entries)
        exponents = [~entry for entry in entries]
        for lane in range(self.lanes):
            rank = self.ranks[lane]
            m.d.comb += [
                self.exponents[lane].eq(choose(m, exponents, rank, f"lane_{lane}")),
                self.missing[lane].eq(rank >= self.count),
            ]
        return m

    def _load(self, m: Module, entries: list[Signal]) -> None:
        inside = Signal()
        place = Signal(range(self.size + 1))
        m.d.comb += [
            self.load.ready.eq(self.enable),
            self.idle.eq(~inside & ~self.load.valid),
        ]
        with m.If(inside):
            m.d.comb += place.eq(self.count)
        with m.If(self.load.valid & self.load.ready):
            m.d.sync += inside.eq(~self.load.payload.last)
            with m.If(place < self.size):
                empty = self.load.payload.empty if self._may_be_empty else 0
                m.d.sync += self.count.eq(Mux(empty, place, place + 1))
            for i, entry in enumerate(entries):
                with m.If(place == i):
                    m.d.sync += entry.eq(~self.load.payload.exponent)
