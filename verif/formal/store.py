"""The encoder's store: AXI writes, queues that do not overflow, legal regions."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Assert, Assume, Cat, Const, Module, Mux, ResetSignal, Signal

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.common.guard import Corrector, check_of
from cassandra_spec.rtl.dma.config import IN_FLIGHT, LENGTH_BITS, BusConfig, DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.dma.peripheral import RegionCheck
from cassandra_spec.rtl.dma.store import CassandraStore, Store
from cassandra_spec.rtl.dma.write_master import BurstFormer, RegionStore, WriteMaster
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.formal.harness import (
    Around,
    Stated,
    Together,
    assert_holds,
    assume_holds,
    level_of,
)
from cassandra_spec.verif.formal.netlist import Netlist, not_reset
from cassandra_spec.verif.formal.prover import Claim
from cassandra_spec.verif.formal.structure import wrong_paths

CONFIG = StoreConfig(
    encoder=EncoderConfig(lanes=8, vector=16, group=8, segment=64),
    bus=32,
    burst=128,
    buffer=256,
    outstanding=2,
    address=32,
)


class Bursts(Around):
    """Bursts of regions at any place and of any length."""

    part: BurstFormer

    def claims(self, m: Module) -> None:
        """Assert that only the end of a region is empty, and that no burst crosses its border."""
        burst, longest = self.part.bursts, self.part.config.longest
        offered = burst.payload
        begin = offered.address & (longest - 1)
        with m.If(~ResetSignal() & burst.valid):
            m.d.comb += [
                Assert(begin + offered.words <= longest),
                Assert((offered.words != 0) | offered.end),
            ]
        self._beats(m)

    def _beats(self, m: Module) -> None:
        """Assert that a burst has as many beats as it announces."""
        part = self.part
        moved = part.beats.valid & part.beats.ready
        count = Signal(range(2 * part.config.longest + 2))
        formed = part.bursts.valid & part.bursts.ready
        m.d.sync += count.eq(Mux(formed, 0, count + moved))
        with m.If(~ResetSignal() & formed):
            m.d.comb += Assert(part.bursts.payload.words == count + moved)


class Writes(Around):
    """Addresses and words of the write master, whatever its bursts are."""

    part: WriteMaster

    def claims(self, m: Module) -> None:
        """Assert that words follow their address, in the announced number, the last one marked."""
        aw, w = self.part.aw, self.part.w
        for name, port in (("aw", aw), ("w", w)):
            assert_holds(m, port.valid, port.ready, port.payload, name)
        waited, left = Signal(), Signal(range(self.part.config.longest + 1))
        begins, moved = aw.valid & ~waited, w.valid & w.ready
        owed = Signal.like(left)
        m.d.sync += [waited.eq(aw.valid & ~aw.ready), left.eq(owed - moved)]
        m.d.comb += owed.eq(Mux(begins, aw.payload.words, left))
        with m.If(~ResetSignal()):
            m.d.comb += [
                Assert(~begins | (left == 0)),
                Assert(~w.valid | (owed != 0)),
                Assert(~w.valid | (w.payload.last == (owed == 1))),
            ]


def _watch_region(m: Module, region: RegionStore) -> None:
    """Assert that a response is taken as soon as it comes, and that a region's queues have room."""
    for name in ("places", "known"):
        port = getattr(region, name)
        with m.If(~ResetSignal()):
            m.d.comb += Assert(~port.valid | port.ready)


def _honest_region(m: Module, region: RegionStore) -> None:
    """Assume that bursts and beats obey the rule, and that each burst has a legal length."""
    for name in ("bursts", "beats"):
        port = getattr(region, name)
        assume_holds(m, port.valid, port.ready, port.payload, name)
    words = region.bursts.payload.words
    m.d.comb += Assume((words != 0) & (words <= region.config.longest))


class Ledger(Around):
    """A store whose segments come in any order that its documentation allows.

    Results come only for segments whose places were given; the number of words is free.
    """

    part: Store

    def claims(self, m: Module) -> None:
        """Assert the rule for entries and writes, and the limit of segments inside."""
        part = self.part
        m.d.comb += Assume(~part.drain)
        given, told = part.places, part.results
        for name, port in (("places", given), ("results", told)):
            assume_holds(m, port.valid, port.ready, port.payload, name)
        taken = part.entries.valid & part.entries.ready
        level_of(
            m,
            "flying",
            room=IN_FLIGHT,
            put=given.valid & given.ready,
            taken=taken,
            clear=Const(0, 1),
        )
        entries = part.entries
        assert_holds(m, entries.valid, entries.ready, entries.payload, "entries")


def legal(config: BusConfig) -> Stated:
    """State that :class:`RegionCheck` equals its definition, with a sum of full width.

    The last byte of a region has an address, in whole bus words.
    """

    def state(m: Module, free: Any) -> None:
        m.submodules.check = check = RegionCheck(config)
        low, end = config.word_bits, Signal(65)
        m.d.comb += [
            check.base.eq(free.base),
            check.length.eq(free.length),
            end.eq(free.base + free.length),
            Assert(
                check.legal
                == (
                    (free.base[:low] == 0)
                    & (free.length[:low] == 0)
                    & (free.length < 1 << LENGTH_BITS)
                    & (free.base < 1 << config.address)
                    & (end <= 1 << config.address)
                )
            ),
        ]

    return Stated(state, base=64, length=32)


def corrected(width: int) -> Stated:
    """State that :class:`Corrector` gives a register's value if at most one bit is wrong."""

    def state(m: Module, free: Any) -> None:
        m.submodules.part = part = Corrector(width)
        held = Cat(free.value, ~free.value, check_of(free.value)) ^ free.wrong
        m.d.comb += [
            Assume((free.wrong & (free.wrong - 1)) == 0),
            Cat(part.word, part.inverse, part.check).eq(held),
            Assert(part.value == free.value),
        ]

    return Stated(state, value=width, wrong=2 * width + 1)


_ALLOWED = {
    "m_axi_bready": frozenset({"m_axi_bid"}),
    **{f"s_axil_{name}ready": frozenset({"rst", "core_rst"}) for name in ("aw", "w", "ar")},
    "s_axis_values_tready": frozenset({"rst"}),
}

CLAIMS = (
    Claim(
        name="store.bursts",
        what="No burst crosses a multiple of its longest (so none crosses a page), each has as "
        "many beats as it says, and only the end of a region may have none.",
        design=lambda: Bursts(BurstFormer(CONFIG)),
        fast=True,
    ),
    Claim(
        name="store.writes",
        what="AXI addresses and words stay until they are taken; the words of a burst follow its "
        "address, as many as it says, the last one marked (bursts free).",
        design=lambda: Writes(WriteMaster(CONFIG)),
        free={RegionStore: ("bursts", "beats")},
        watches={RegionStore: _honest_region},
    ),
    Claim(
        name="store.ledger",
        what="At most four segments are inside; places and what is known of regions always find "
        "room; entries stay until they are taken.",
        design=lambda: Ledger(Store(CONFIG)),
        method="bounded",
        depth=10,
        watches={RegionStore: _watch_region},
    ),
    Claim(
        name="store.reset",
        what="One cycle of reset puts every flip-flop of the store into its initial state.",
        design=lambda: CassandraStore(CONFIG),
        method="structural",
        check=lambda text: not_reset(Netlist.of(text)),
    ),
    Claim(
        name="store.registered",
        what="No output of encoder, registers and store depends on an input of the same cycle, but "
        "ready of responses on their ID, and ready of registers and values on resets.",
        design=lambda: CassandraEncoderDma(CONFIG),
        method="structural",
        check=lambda text: wrong_paths(Netlist.of(text), _ALLOWED),
    ),
    Claim(
        name="guard.corrected",
        what="What drives an address channel is right although any one of its bits is wrong.",
        design=lambda: corrected(32),
        method="combinational",
        fast=True,
    ),
    Claim(
        name="dma.regions",
        what="A descriptor is legal only if its regions are whole bus words and end in the address "
        "space (of 32, 40 and 64 bits), and always then.",
        design=lambda: Together(
            {
                "a32": legal(DmaConfig(decoder=DecoderConfig(lanes=8), address=32)),
                "a40": legal(StoreConfig(address=40)),
                "a64": legal(DmaConfig(bus=128)),
            }
        ),
        method="combinational",
        fast=True,
    ),
)
