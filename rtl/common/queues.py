"""Queues in memory with stream ports, for one item or two items at a time."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out


def PairLayout(item: data.Layout) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """One or two items: with ``two`` set both count, else the second is arbitrary."""
    return data.StructLayout({"items": data.ArrayLayout(item, 2), "two": 1})


class Queue(wiring.Component):
    """A queue in a memory, with two streams as ports.

    Latency: two cycles. Throughput: one item per cycle, each way. Buffering: ``depth`` items.
    """

    def __init__(self, shape: data.Layout, depth: int) -> None:
        self.depth = depth
        signature = stream.Signature(shape)
        super().__init__({"write": In(signature), "read": Out(signature), "empty": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = len(Value.cast(self.write.payload))
        m.submodules.queue = queue = SyncFIFOBuffered(width=width, depth=self.depth)
        m.d.comb += [
            queue.w_data.eq(self.write.payload),
            queue.w_en.eq(self.write.valid),
            self.write.ready.eq(queue.w_rdy),
            Value.cast(self.read.payload).eq(queue.r_data),
            self.read.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.read.ready),
            self.empty.eq(queue.level == 0),
        ]
        return m


class PairQueue(wiring.Component):
    """A queue in two alternating memories: up to two items per cycle, each way.

    Latency: two cycles. Buffering: ``depth`` items. Two items that come together wait until each
    memory has room for one.

    Members
    -------
    write : In(stream of PairLayout(shape))
    read, following : Out(stream of shape)
        The next item, and the one after it. ``following`` may be taken only together with ``read``.
    """

    def __init__(self, shape: data.Layout, depth: int) -> None:
        self.shape = shape
        self.depth = depth
        signature = stream.Signature(shape)
        super().__init__(
            {
                "write": In(stream.Signature(PairLayout(shape))),
                "read": Out(signature),
                "following": Out(signature),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = [Queue(self.shape, -(-self.depth // 2)) for _ in range(2)]
        m.submodules.even, m.submodules.odd = banks
        self._write(m, banks)
        self._read(m, banks)
        return m

    def _write(self, m: Module, banks: list[Queue]) -> None:
        """Write the first item to the memory whose turn it is, the second to the other memory."""
        turn, pair = Signal(), self.write.payload
        rooms = [bank.write.ready for bank in banks]
        m.d.comb += self.write.ready.eq(Mux(pair.two, rooms[0] & rooms[1], Mux(turn, *rooms[::-1])))
        for number, bank in enumerate(banks):
            second = turn != number
            m.d.comb += [
                bank.write.valid.eq(self.write.valid & self.write.ready & (pair.two | ~second)),
                bank.write.payload.eq(Mux(second, pair.items[1], pair.items[0])),
            ]
        with m.If(self.write.valid & self.write.ready & ~pair.two):
            m.d.sync += turn.eq(~turn)

    def _read(self, m: Module, banks: list[Queue]) -> None:
        turn = Signal()
        for port, second in ((self.read, 0), (self.following, 1)):
            offers = [banks[number ^ second].read for number in (0, 1)]
            m.d.comb += [
                port.valid.eq(Mux(turn, offers[1].valid, offers[0].valid)),
                port.payload.eq(Mux(turn, offers[1].payload, offers[0].payload)),
            ]
        for number, bank in enumerate(banks):
            m.d.comb += bank.read.ready.eq(
                Mux(turn == number, self.read.ready, self.following.ready)
            )
        with m.If(
            self.read.valid & self.read.ready & ~(self.following.valid & self.following.ready)
        ):
            m.d.sync += turn.eq(~turn)
