"""The queue of descriptors, and how they reach decoders in turn."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.dma.books import order_layout
from cassandra_spec.rtl.dma.config import IN_FLIGHT, DmaConfig
from cassandra_spec.rtl.dma.fetch import region_layout

__all__ = ["Dispatcher", "descriptor_layout"]


def descriptor_layout(config: DmaConfig) -> data.StructLayout:
    """A segment: its order, and its regions in bus words; ``second``: both regions are read."""
    return data.StructLayout(
        {
            "order": order_layout(config.books),
            "addresses": data.ArrayLayout(config.address - config.word_bits, 2),
            "words": data.ArrayLayout(config.count_bits, 2),
            "second": 1,
        }
    )


class Dispatcher(wiring.Component):
    """Segment k goes to decoder k modulo ``config.decoders``, its regions to the read master.

    Latency: one cycle. Throughput: a descriptor in each cycle. Buffering: ``config.queue``
    descriptors. Order and regions leave in the same cycle, when all are ready.

    Members
    -------
    descriptors : In(stream of descriptor_layout)
    enable : In(1), drop : In(1)
        Descriptors leave the queue; what is in it is dropped (not while enabled).
    orders : Out(stream of order_layout), tags : In(range(IN_FLIGHT)) for each decoder
    regions : Out(stream of region_layout) for each region
    waiting : Out(7)
        Descriptors in the queue.
    """

    def __init__(self, config: DmaConfig) -> None:
        self.config = config
        count = config.decoders
        super().__init__(
            {
                "descriptors": In(stream.Signature(descriptor_layout(config))),
                "enable": In(1),
                "drop": In(1),
                "orders": Out(stream.Signature(order_layout(config.books))).array(count),
                "tags": In(range(IN_FLIGHT)).array(count),
                "regions": Out(stream.Signature(region_layout(config))).array(2 * count),
                "waiting": Out(7),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout, count = descriptor_layout(self.config), self.config.decoders
        m.submodules.queue = queue = fifo.SyncFIFO(width=layout.size, depth=self.config.queue)
        head = data.View(layout, queue.r_data)
        turn = Signal(range(max(count, 2)))
        doomed = Signal(7)  # descriptors at the head that are dropped
        ready = Cat(self._ready(head, place) & (turn == place) for place in range(count))
        go = Signal()
        m.d.comb += [
            queue.w_data.eq(self.descriptors.payload),
            queue.w_en.eq(self.descriptors.valid & queue.w_rdy),
            self.descriptors.ready.eq(queue.w_rdy),
            self.waiting.eq(queue.level),
            go.eq(queue.r_rdy & self.enable & (doomed == 0) & ready.any()),
            queue.r_en.eq(go | (queue.r_rdy & (doomed != 0))),
        ]
        with m.If(go):
            m.d.sync += turn.eq(Mux(turn == count - 1, 0, turn + 1))
        with m.If(self.drop & ~self.enable):
            m.d.sync += doomed.eq(queue.level - (doomed != 0))  # one of them leaves now
        with m.Elif(doomed != 0):
            m.d.sync += doomed.eq(doomed - 1)
        for place in range(count):
            self._hand_out(m, head, place, go & (turn == place))
        return m

    def _ready(self, head: data.View, place: int) -> object:
        first, second = self.regions[2 * place], self.regions[2 * place + 1]
        return self.orders[place].ready & first.ready & (second.ready | ~head.second)

    def _hand_out(self, m: Module, head: data.View, place: int, go: object) -> None:
        order = self.orders[place]
        m.d.comb += [order.payload.eq(head.order), order.valid.eq(go)]
        for which in range(2):
            region = self.regions[2 * place + which]
            m.d.comb += [
                region.payload.address.eq(head.addresses[which]),
                region.payload.words.eq(head.words[which]),
                region.payload.tag.eq(self.tags[place]),
                region.valid.eq(go & head.second if which else go),
            ]
