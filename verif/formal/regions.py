"""Descriptors: what a region must be like to be read or written."""

from __future__ import annotations

from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import LENGTH_BITS, BusConfig, DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.peripheral import RegionCheck
from cassandra_spec.verif.formal.harness import Together
from cassandra_spec.verif.formal.prover import Claim

__all__ = ["CLAIMS"]


class Legal(wiring.Component):
    """:class:`RegionCheck` beside its definition, with a sum as wide as it takes."""

    def __init__(self, config: BusConfig) -> None:
        self.config = config
        super().__init__({"base": In(64), "length": In(32)})

    def elaborate(self, platform: object) -> Module:
        """The last byte of a region has an address, in whole bus words."""
        m = Module()
        m.submodules.check = check = RegionCheck(self.config)
        low, end = self.config.word_bits, Signal(65)
        m.d.comb += [
            check.base.eq(self.base),
            check.length.eq(self.length),
            end.eq(self.base + self.length),
            Assert(
                check.legal
                == (
                    (self.base[:low] == 0)
                    & (self.length[:low] == 0)
                    & (self.length < 1 << LENGTH_BITS)
                    & (self.base < 1 << self.config.address)
                    & (end <= 1 << self.config.address)
                )
            ),
        ]
        return m


CLAIMS = (
    Claim(
        name="dma.regions",
        what="A descriptor is legal only if its regions are whole bus words and end in the address "
        "space (of 32, 40 and 64 bits), and always then.",
        design=lambda: Together(
            {
                "a32": Legal(DmaConfig(decoder=DecoderConfig(lanes=8), address=32)),
                "a40": Legal(StoreConfig(address=40)),
                "a64": Legal(DmaConfig(bus=128)),
            }
        ),
        method="combinational",
        fast=True,
    ),
)
