"""The queue of descriptors, and its dispatch to decoders or to the encoder."""

from __future__ import annotations

import abc

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.guard import GuardedQueue
from cassandra_spec.rtl.dma.codebooks import order_layout
from cassandra_spec.rtl.dma.config import IN_FLIGHT, REGIONS, DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.read_master import region_layout
from cassandra_spec.rtl.dma.write_master import place_layout
from cassandra_spec.rtl.encode.types import EncodeCommandLayout


def descriptor_layout(config: DmaConfig) -> data.StructLayout:
    """A segment: its order, and its regions in bus words; ``second``: both regions are read.

    The check of a region covers its address and words; that of the second region also covers
    ``second``.
    """
    return data.StructLayout(
        {
            "order": order_layout(config.books, coded=config.decoder.coded),
            "addresses": data.ArrayLayout(config.address - config.word_bits, len(REGIONS)),
            "words": data.ArrayLayout(config.count_bits, len(REGIONS)),
            "checks": data.ArrayLayout(1, len(REGIONS)),
            "second": 1,
        }
    )


def encode_descriptor_layout(config: StoreConfig) -> data.StructLayout:
    """A segment: its order, and the places of its regions."""
    return data.StructLayout(
        {
            "order": order_layout(config.books, EncodeCommandLayout),
            "places": data.ArrayLayout(place_layout(config), len(REGIONS)),
        }
    )


class _Queue(wiring.Component):
    """A queue that hands a descriptor out in one cycle, when all its receivers are ready.

    Latency: one cycle. Throughput: one descriptor per cycle. Buffering: ``depth`` descriptors.
    ``drop`` has no effect while ``enable`` is set.
    """

    def __init__(self, layout: data.StructLayout, depth: int, members: dict[str, object]) -> None:
        self._layout, self._depth = layout, depth
        super().__init__(
            {
                "descriptors": In(stream.Signature(layout)),
                "enable": In(1),
                "drop": In(1),
                "waiting": Out(7),
                "wrong": Out(1),
                **members,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = self._layout
        m.submodules.queue = queue = GuardedQueue(width=layout.size, depth=self._depth)
        head = data.View(layout, queue.r_data)
        doomed = Signal(7)  # descriptors at the head to drop
        go = Signal()
        ready = self._hand_out(m, head, go)
        m.d.comb += [
            queue.w_data.eq(self.descriptors.payload),
            queue.w_en.eq(self.descriptors.valid & queue.w_rdy),
            self.descriptors.ready.eq(queue.w_rdy),
            self.waiting.eq(queue.level),
            self.wrong.eq(queue.wrong),
            go.eq(queue.r_rdy & self.enable & (doomed == 0) & ready),
            queue.r_en.eq(go | (queue.r_rdy & (doomed != 0))),
        ]
        with m.If(self.drop & ~self.enable):
            m.d.sync += doomed.eq(queue.level - (doomed != 0))  # one of them leaves now
        with m.Elif(doomed != 0):
            m.d.sync += doomed.eq(doomed - 1)
        return m

    @abc.abstractmethod
    def _hand_out(self, m: Module, head: data.View, go: Signal) -> Value:
        """Hand the head out when ``go`` is set; return 1 if all receivers are ready."""


class Dispatcher(_Queue):
    """Send segment k to decoder k modulo ``config.decoders``, its regions to the read master.

    Latency: one cycle. Throughput: one descriptor per cycle. Buffering: ``config.queue``
    descriptors. Order and regions leave in the same cycle, when all receivers are ready.

    Members
    -------
    descriptors : In(stream of descriptor_layout)
    enable : In(1), drop : In(1)
        ``enable``: descriptors leave the queue. ``drop``: its content is dropped (not while
        enabled).
    orders : Out(stream of order_layout), tags : In(range(IN_FLIGHT)) for each decoder
    regions : Out(stream of region_layout) for each region
    waiting : Out(7)
        Descriptors in the queue.
    wrong : Out(1)
        The queue is closed: see :class:`GuardedQueue`.
    """

    def __init__(self, config: DmaConfig) -> None:
        count, layout = config.decoders, descriptor_layout(config)
        super().__init__(
            layout,
            config.queue,
            {
                "orders": Out(stream.Signature(layout.members["order"])).array(count),
                "tags": In(range(IN_FLIGHT)).array(count),
                "regions": Out(stream.Signature(region_layout(config))).array(config.regions),
            },
        )
        self.config = config

    def _hand_out(self, m: Module, head: data.View, go: Signal) -> Value:
        count = self.config.decoders
        turn = Signal(range(max(count, 2)))
        with m.If(go):
            m.d.sync += turn.eq(Mux(turn == count - 1, 0, turn + 1))
        for place in range(count):
            self._to_decoder(m, head, place, go & (turn == place))
        return Cat(self._ready(head, place) & (turn == place) for place in range(count)).any()

    def _ready(self, head: data.View, place: int) -> Value:
        first, second = self.regions[2 * place], self.regions[2 * place + 1]
        return self.orders[place].ready & first.ready & (second.ready | ~head.second)

    def _to_decoder(self, m: Module, head: data.View, place: int, go: Value) -> None:
        order = self.orders[place]
        m.d.comb += [order.payload.eq(head.order), order.valid.eq(go)]
        for which in range(2):
            region = self.regions[2 * place + which]
            m.d.comb += [
                region.payload.address.eq(head.addresses[which]),
                region.payload.words.eq(head.words[which]),
                region.payload.check.eq(head.checks[which] ^ (head.second if which else 0)),
                region.payload.tag.eq(self.tags[place]),
                region.valid.eq(go & head.second if which else go),
            ]


class EncoderDispatcher(_Queue):
    """Send the orders of segments to the encoder, their places to the store.

    Latency: one cycle. Throughput: one descriptor per cycle. Buffering: ``config.queue``
    descriptors. Order and places leave in the same cycle, when both receivers are ready.

    Members
    -------
    descriptors : In(stream of encode_descriptor_layout)
    enable, drop, waiting, wrong
        As in :class:`Dispatcher`.
    orders : Out(stream of order_layout)
    places : Out(stream of {place_layout for each region})
    """

    def __init__(self, config: StoreConfig) -> None:
        layout = encode_descriptor_layout(config)
        ports = {"orders": layout.members["order"], "places": layout.members["places"]}
        members: dict[str, object] = {
            name: Out(stream.Signature(part)) for name, part in ports.items()
        }
        super().__init__(layout, config.queue, members)
        self.config = config

    def _hand_out(self, m: Module, head: data.View, go: Signal) -> Value:
        m.d.comb += [
            self.orders.payload.eq(head.order),
            self.orders.valid.eq(go),
            self.places.payload.eq(head.places),
            self.places.valid.eq(go),
        ]
        return self.orders.ready & self.places.ready
