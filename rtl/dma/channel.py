"""A decoder with its loader, its regions and the error flags of its segments."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import ErrorLayout, ValueBeat
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decoder import Decoder
from cassandra_spec.rtl.dma.codebooks import CodebookLoader
from cassandra_spec.rtl.dma.config import IN_FLIGHT, REGIONS, DmaConfig


class Channel(wiring.Component):
    """A decoder that flags a segment if one of its reads failed.

    A segment has a tag, counted modulo ``IN_FLIGHT`` in the order of the commands. At most
    ``IN_FLIGHT`` segments are inside, from their order to the last beat of their values. When that
    beat is offered, the regions of the segment are complete (or cut short by an error), so a fault
    always arrives before it.

    Latency and throughput: those of the decoder. Buffering: ``IN_FLIGHT`` orders.

    Members
    -------
    orders : In(stream of order_layout)
        Ready while fewer than ``IN_FLIGHT`` segments are inside.
    tag : Out
        The tag of the next order.
    speculation, verification : In(stream)
        As of the decoder.
    values : Out(stream of ValueBeat)
    fault : In(range(IN_FLIGHT)), fault_valid : In(1) for the two regions
        A read of the segment with this tag failed.
    errors : Out(ErrorLayout())
        Pulses of the error causes.
    flying : Out(range(IN_FLIGHT + 1))
        Number of segments inside.
    """

    def __init__(self, config: DmaConfig) -> None:
        self.config = config
        self.decoder = Decoder(config.decoder)
        unary, coded = config.decoder.has("unary"), config.decoder.coded
        self.loader = CodebookLoader(books=config.books, unary=unary, coded=coded)
        decoder = self.decoder.signature.members
        loader = self.loader.signature.members
        books = ("written", "slot", "ends", "read_slot", "read_entry", "exponent")
        super().__init__(
            {
                "orders": In(stream.Signature(self.loader.orders.payload.shape())),
                "tag": Out(range(IN_FLIGHT)),
                **{name: decoder[name] for name in REGIONS},
                "values": Out(stream.Signature(ValueBeat(config.decoder.lanes))),
                "fault": In(range(IN_FLIGHT)).array(2),
                "fault_valid": In(1).array(2),
                "errors": Out(ErrorLayout()),
                "flying": Out(range(IN_FLIGHT + 1)),
                **{name: loader[name] for name in books},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.decoder, m.submodules.loader = decoder, loader = self.decoder, self.loader
        wiring.connect(m, loader.command, decoder.command)
        wiring.connect(m, loader.codebook, decoder.codebook)
        for name in REGIONS:
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(decoder, name))
        drive(m, loader, self, "written", "slot", "ends", "exponent")
        drive(m, self, loader, "read_slot", "read_entry")
        m.d.comb += [
            decoder.clear_error.eq(1),  # makes causes pulses
            self.errors.eq(decoder.error),
        ]
        self._flag(m, self._count(m))
        return m

    def _count(self, m: Module) -> Signal:
        """Count the segments inside; return 1 when one has left."""
        orders, loader = self.orders, self.loader.orders
        begun = orders.valid & orders.ready
        gone = Signal()
        m.d.comb += [
            orders.ready.eq(self.flying != IN_FLIGHT),
            loader.payload.eq(orders.payload),
            loader.valid.eq(begun),
            gone.eq(self.values.valid & self.values.ready & self.values.payload.last),
        ]
        m.d.sync += [
            self.flying.eq(self.flying + begun - gone),
            self.tag.eq(self.tag + begun),
        ]
        return gone

    def _flag(self, m: Module, gone: Signal) -> None:
        flags = Signal(IN_FLIGHT)
        leaving = Signal(range(IN_FLIGHT))  # tag of the segment whose values leave
        beat, failed = self.decoder.values.payload, Signal()
        with m.If(gone):
            m.d.sync += leaving.eq(leaving + 1)
        mine = Cat(leaving == tag for tag in range(IN_FLIGHT))
        for tag in range(IN_FLIGHT):
            hits = [self.fault_valid[place] & (self.fault[place] == tag) for place in range(2)]
            with m.If(Cat(hits).any()):
                m.d.sync += flags[tag].eq(1)
            with m.Elif(gone & mine[tag]):
                m.d.sync += flags[tag].eq(0)
        m.d.comb += [
            failed.eq(beat.last & (flags & mine).any()),
            self.values.valid.eq(self.decoder.values.valid),
            self.decoder.values.ready.eq(self.values.ready),
            self.values.payload.eq(beat),
            self.values.payload.error.eq(beat.error | failed),
        ]
        with m.If(failed):
            m.d.comb += self.values.payload.present.eq(0)
