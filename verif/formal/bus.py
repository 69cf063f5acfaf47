"""AXI ports keep the rules of :mod:`cassandra_spec.verif.library.axi` if the other side does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amaranth.hdl import Assert, Assume, Module
from amaranth.lib import wiring

from cassandra_spec.rtl.dma.axi import (
    connect_lite,
    connect_reads,
    connect_writes,
    lite_ports,
    read_ports,
    write_ports,
)
from cassandra_spec.rtl.dma.read_master import ReadMaster
from cassandra_spec.rtl.dma.register_file import RegisterFile
from cassandra_spec.rtl.dma.write_master import WriteMaster
from cassandra_spec.verif.formal.drain import READS, Drained
from cassandra_spec.verif.formal.harness import Around, pass_on
from cassandra_spec.verif.formal.prover import Claim
from cassandra_spec.verif.formal.store import CONFIG
from cassandra_spec.verif.library.axi import LiteRules, ReadRules, Rules, WriteRules


class Flat(wiring.Component):
    """A block with flat AXI ports in place of some of its members."""

    def __init__(
        self,
        block: wiring.Component,
        ports: Mapping[str, Any],
        connect: Callable[[Module, Any, Any], None],
        inside: tuple[str, ...],
    ) -> None:
        self.block, self.config = block, getattr(block, "config", None)
        self._connect = connect
        others = {n: member for n, member in block.signature.members.items() if n not in inside}
        super().__init__({**ports, **others})

    def elaborate(self, platform: object) -> Module:
        """Build the block and its wires."""
        m = Module()
        m.submodules.block = self.block
        self._connect(m, self, self.block)
        pass_on(m, self, self.block)
        return m


class Obeys(Around):
    """A design beside the rules of its port: some of its own are asserted, all others assumed."""

    def __init__(self, part: wiring.Component, rules: Rules, asserted: Sequence[str] = ()) -> None:
        super().__init__(part)
        self.rules, self.asserted = rules, asserted or rules.DESIGN

    def claims(self, m: Module) -> None:
        """Assert that the design breaks no rule."""
        m.submodules.rules = rules = self.rules
        wires = [name for name in rules.signature.members if name != "broken"]
        m.d.comb += [getattr(rules, name).eq(getattr(self.part, name)) for name in wires]
        for place, name in enumerate(rules.DESIGN + rules.OTHERS):
            if name in self.asserted:
                m.d.comb += Assert(~rules.broken[place])
            elif name in rules.OTHERS:
                m.d.comb += Assume(~rules.broken[place])


def _reads(*, lasting: bool) -> Obeys:
    """Return the read claims that an induction over a few cycles shows, or the others."""
    master = Drained(ReadMaster(READS))
    port = Flat(master, read_ports(READS), connect_reads, ("ar", "r", "r_valid"))
    asserted = [rule for rule in ReadRules.DESIGN if (rule != "m_axi_ar_open") == lasting]
    return Obeys(port, ReadRules(READS), asserted)


def _writes(*, lasting: bool) -> Obeys:
    """Return the same claims for the write port."""
    master = Drained(WriteMaster(CONFIG))
    port = Flat(master, write_ports(CONFIG), connect_writes, ("aw", "w", "b"))
    deep = ("m_axi_aw_page", "m_axi_aw_open", "m_axi_w_asked", "m_axi_w_last")
    asserted = [rule for rule in WriteRules.DESIGN if (rule not in deep) == lasting]
    return Obeys(port, WriteRules(CONFIG), asserted)


def _registers() -> Obeys:
    names = ("aw", "w", "b", "ar", "r")
    return Obeys(Flat(RegisterFile(), lite_ports(), connect_lite, names), LiteRules())


CLAIMS = (
    Claim(
        name="bus.reads",
        what="Read addresses keep every rule of AXI4 but the next, across soft resets in any "
        "cycle: they stay until they are taken, and ask for incrementing bursts of whole, "
        "aligned words inside a page.",
        design=functools.partial(_reads, lasting=True),
        method="inductive",
        depth=4,
        fast=True,
    ),
    Claim(
        name="bus.reads_open",
        what="No more bursts are open than the buffer has words, across soft resets in any cycle, "
        "if the memory keeps AXI's rules.",
        design=functools.partial(_reads, lasting=False),
        method="bounded",
        depth=20,
    ),
    Claim(
        name="bus.writes",
        what="Write addresses and words stay until they are taken, across soft resets in any "
        "cycle; bursts are incrementing, of whole, aligned words.",
        design=functools.partial(_writes, lasting=True),
        method="inductive",
        depth=4,
        fast=True,
    ),
    Claim(
        name="bus.writes_words",
        what="Bursts end inside their page and have the words that they say, the last one marked; "
        "no more than the queues hold are open, across soft resets in any cycle (responses keep "
        "AXI's rules).",
        design=functools.partial(_writes, lasting=False),
        method="bounded",
        depth=20,
    ),
    Claim(
        name="bus.registers",
        what="The register port keeps every rule of AXI4-Lite, a response for each access among "
        "them, if the host keeps its own.",
        design=_registers,
        fast=True,
    ),
)
