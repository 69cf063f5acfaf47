"""From rows to the words of a region: eight rows each, completed to whole superblocks."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.packers import BUS_ROWS

__all__ = ["LENGTH_WIDTH", "RegionWord", "RegionWriter", "RowsLayout"]

LENGTH_WIDTH = 16
"""Bits of the length of a region, in superblocks."""


def RegionWord(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """A word of a region on the bus; ``last`` ends the region."""
    return data.StructLayout({"data": BUS_ROWS * lanes, "last": 1})


def RowsLayout(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """Up to eight rows of a region; ``end`` says that no more come."""
    return data.StructLayout(
        {
            "rows": data.ArrayLayout(lanes, BUS_ROWS),  # arbitrary from ``count`` on
            "count": range(BUS_ROWS + 1),
            "end": 1,
        }
    )


class RegionWriter(wiring.Component):
    """Collect rows into words, and complete the region with zeros to whole superblocks.

    Latency: two cycles, and a word waits until it is known whether more rows follow. Throughput:
    eight rows in each cycle. Buffering: two words. Every input is legal.

    Members
    -------
    rows : In(stream of RowsLayout)
    words : Out(stream of RegionWord)
        A region without rows has no word.
    ended : Out(1), length : Out(16)
        The region is complete, all of its words are taken, and it has so many superblocks. Stays
        so, and no row is taken, until ``next``.
    next : In(1)
        Begin another region; only while ``ended``.
    """

    def __init__(self, *, lanes: int, superblock: int) -> None:
        self.lanes = lanes
        self.words_per_superblock = superblock // lanes
        super().__init__(
            {
                "rows": In(stream.Signature(RowsLayout(lanes))),
                "words": Out(stream.Signature(RegionWord(lanes))),
                "ended": Out(1),
                "length": Out(LENGTH_WIDTH),
                "next": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.level = Signal(range(BUS_ROWS + 1))  # rows that are held: none, or 1 to 8
        self.held = Signal(BUS_ROWS * self.lanes)  # zero behind them
        self.flushing, self.done = Signal(), Signal()
        place = Signal(range(self.words_per_superblock))
        final = place == self.words_per_superblock - 1
        free, send = Signal(), Signal()
        low, high, total = self._shift(m)
        move = self.rows.valid & self.rows.ready
        over = total > BUS_ROWS
        m.d.comb += [
            free.eq(~self.words.valid | self.words.ready),
            self.rows.ready.eq(~self.flushing & ~self.done & (~over | free)),
            send.eq(free & (self.flushing | (move & over))),
            self.ended.eq(self.done & ~self.words.valid),
        ]
        with m.If(move):
            m.d.sync += [
                self.held.eq(Mux(over, high, low)),
                self.level.eq(Mux(over, total - BUS_ROWS, total)),
            ]
            with m.If(self.rows.payload.end):
                m.d.sync += [self.flushing.eq(total != 0), self.done.eq(total == 0)]
        with m.If(self.words.ready):
            m.d.sync += self.words.valid.eq(0)
        with m.If(send):
            word = Mux(self.flushing, self.held, low)
            m.d.sync += [
                self.words.valid.eq(1),
                self.words.payload.data.eq(word),
                self.words.payload.last.eq(self.flushing & final),
                place.eq(Mux(final, 0, place + 1)),
                self.length.eq(self.length + final),
            ]
            with m.If(self.flushing):
                m.d.sync += self.held.eq(0)
                m.d.sync += [self.flushing.eq(~final), self.done.eq(final)]
        with m.If(self.next):
            m.d.sync += [self.done.eq(0), self.length.eq(0), self.level.eq(0)]
        return m

    def _shift(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """The rows behind those that are held: the first eight, the rest, and how many."""
        lanes, rows = self.lanes, self.rows.payload
        size = BUS_ROWS * lanes
        clean = [Mux(rows.count > i, rows.rows[i], 0) for i in range(BUS_ROWS)]
        new, span = Signal(size), Signal(2 * size)
        low, high = Signal(size), Signal(size)
        total = Signal(range(2 * BUS_ROWS + 1))
        shifted = Array((new << (i * lanes))[: 2 * size] for i in range(BUS_ROWS + 1))
        m.d.comb += [
            new.eq(Cat(clean)),
            span.eq(shifted[self.level]),
            low.eq(self.held | span[:size]),
            high.eq(span[size:]),
            total.eq(self.level + rows.count),
        ]
        return low, high, total
