"""A memory of words with separate ports for writing and reading."""

from __future__ import annotations

from amaranth.hdl import Module, Shape
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class BeatMemory(wiring.Component):
    """A memory with one write port and several read ports; in silicon, a compiled memory.

    A word written in cycle c can be read from cycle c + 1 on. An address given in cycle c with
    ``enable`` set shows its word from cycle c + 1 until the next enabled address. Reading an
    address in the cycle in which it is written is illegal (the word is then arbitrary). There is no
    reset: a word that was never written reads as zero in simulation and is arbitrary in silicon.

    Members
    -------
    write_address, write_data, write_enable : In
    read_address, read_enable : In(one per port), read_data : Out(one per port)
    """

    def __init__(self, *, width: int, depth: int, ports: int = 1) -> None:
        self.width = width
        self.depth = depth
        self.ports = ports
        place = Shape.cast(range(depth))
        super().__init__(
            {
                "write_address": In(place),
                "write_data": In(width),
                "write_enable": In(1),
                "read_address": In(data.ArrayLayout(place, ports)),
                "read_enable": In(ports),
                "read_data": Out(data.ArrayLayout(width, ports)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = Memory(shape=self.width, depth=self.depth, init=[])
        write = store.write_port()
        m.d.comb += [
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            write.en.eq(self.write_enable),
        ]
        for port in range(self.ports):
            read = store.read_port()
            m.d.comb += [
                read.addr.eq(self.read_address[port]),
                read.en.eq(self.read_enable[port]),
                self.read_data[port].eq(read.data),
            ]
        return m
