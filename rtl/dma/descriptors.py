"""The queue of an encoder's descriptors."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.dma.books import order_layout
from cassandra_spec.rtl.dma.store import place_layout
from cassandra_spec.rtl.dma.store_config import REGIONS, StoreConfig
from cassandra_spec.rtl.encode.types import EncodeCommandLayout

__all__ = ["DescriptorQueue", "encode_descriptor_layout"]


def encode_descriptor_layout(config: StoreConfig) -> data.StructLayout:
    """A segment: its order, and where its regions go."""
    return data.StructLayout(
        {
            "order": order_layout(config.books, EncodeCommandLayout),
            "places": data.ArrayLayout(place_layout(config), len(REGIONS)),
        }
    )


class DescriptorQueue(wiring.Component):
    """Descriptors wait here until encoder and store have room for a segment.

    Latency: one cycle. Throughput: a descriptor in each cycle. Buffering: ``config.queue``
    descriptors. Order and places leave in the same cycle, when both are ready. ``drop`` while
    ``enable`` is set does nothing.

    Members
    -------
    descriptors : In(stream of encode_descriptor_layout)
    enable : In(1), drop : In(1)
        Descriptors leave the queue; what is in it is dropped.
    orders : Out(stream of order_layout)
    places : Out(stream of {place_layout for each region})
    waiting : Out(7)
        Descriptors in the queue.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self._layout = layout = encode_descriptor_layout(config)
        super().__init__(
            {
                "descriptors": In(stream.Signature(layout)),
                "enable": In(1),
                "drop": In(1),
                "orders": Out(stream.Signature(layout.members["order"])),
                "places": Out(stream.Signature(layout.members["places"])),
                "waiting": Out(7),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = self._layout
        m.submodules.queue = queue = fifo.SyncFIFO(width=layout.size, depth=self.config.queue)
        head = data.View(layout, queue.r_data)
        doomed = Signal(7)  # descriptors at the head that are dropped
        go = Signal()
        m.d.comb += [
            queue.w_data.eq(self.descriptors.payload),
            queue.w_en.eq(self.descriptors.valid & queue.w_rdy),
            self.descriptors.ready.eq(queue.w_rdy),
            self.waiting.eq(queue.level),
            go.eq(
                queue.r_rdy & self.enable & (doomed == 0) & self.orders.ready & self.places.ready
            ),
            queue.r_en.eq(go | (queue.r_rdy & (doomed != 0))),
            self.orders.payload.eq(head.order),
            self.orders.valid.eq(go),
            self.places.payload.eq(head.places),
            self.places.valid.eq(go),
        ]
        with m.If(self.drop & ~self.enable):
            m.d.sync += doomed.eq(queue.level - (doomed != 0))  # one of them leaves now
        with m.Elif(doomed != 0):
            m.d.sync += doomed.eq(doomed - 1)
        return m
