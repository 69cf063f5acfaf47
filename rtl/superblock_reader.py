"""The superblock reader: a region as a sequential burst, handed out in rows."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.networks import rotate

__all__ = ["BUS_ROWS", "SuperblockReader"]

BUS_ROWS = 8
"""Rows in a word of the bus."""

_WORDS = 4


class SuperblockReader(wiring.Component):
    """Rows of one region, as many as the demand schedule asks for in a cycle.

    Latency: a word accepted in cycle c can be taken from cycle c + 1. Throughput: one word
    (``word_rows`` rows, a power of two) in and up to ``take_max`` rows out in each cycle, at most
    three words less one row. Buffering: four words.
    ``words.ready`` depends on registers alone.

    A packet on ``words`` is a region. When the schedule is complete, ``finish`` makes the reader
    discard what is left of the packet; ``drained`` pulses when that is done, and the next packet is
    taken from then on. Illegal input: a packet that ends early shows as ``ended`` with too few
    rows; one that is a superblock or more too long raises ``overlong`` with ``drained``.

    Members
    -------
    words : In(stream of {data: word_rows * lanes, last: 1})
    rows : Out(array of take_max, lanes)
        The next rows; only the first ``level`` are meaningful.
    level : Out(range(4 * word_rows + 1))
        Rows that are present.
    ended : Out(1)
        The last word of the packet is inside: no more rows will come.
    take : In(range(take_max + 1))
        Rows used up in this cycle, at most ``level``.
    finish : In(1)
        One cycle: the schedule has all its rows. ``take`` must be zero.
    drained, overlong : Out(1)
    """

    def __init__(
        self, *, lanes: int, take_max: int, superblock: int, word_rows: int = BUS_ROWS
    ) -> None:
        self.lanes = lanes
        self.take_max = take_max
        self.word_rows = word_rows
        self.superblock_rows = 8 * superblock // lanes
        self.word_layout = data.StructLayout({"data": word_rows * lanes, "last": 1})
        super().__init__(
            {
                "words": In(stream.Signature(self.word_layout)),
                "rows": Out(data.ArrayLayout(lanes, take_max)),
                "level": Out(range(_WORDS * word_rows + 1)),
                "ended": Out(1),
                "take": In(range(take_max + 1)),
                "finish": In(1),
                "drained": Out(1),
                "overlong": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        draining, accept = Signal(), Signal()
        room = self.level <= (_WORDS - 1) * self.word_rows
        m.d.comb += [
            self.words.ready.eq(~self.ended & (draining | room)),
            accept.eq(self.words.valid & self.words.ready),
        ]
        with m.If(accept & self.words.payload.last):
            m.d.sync += self.ended.eq(1)
        self._store(m, accept & ~draining)
        self._drain(m, accept, draining)
        return m

    def _store(self, m: Module, accept: Signal) -> None:
        count = _WORDS * self.word_rows
        rows = [Signal(self.lanes, name=f"row_{i}") for i in range(count)]
        head, word = Signal(range(count)), Signal(range(_WORDS))
        for i in range(_WORDS):
            with m.If(accept & (word == i)):
                place = slice(i * self.word_rows, (i + 1) * self.word_rows)
                m.d.sync += Cat(rows[place]).eq(self.words.payload.data)
        for i, row in enumerate(rotate(m, rows, head, self.take_max, "next")):
            m.d.comb += self.rows[i].eq(row)
        m.d.sync += [
            head.eq(head + self.take),
            self.level.eq(self.level - self.take + Mux(accept, self.word_rows, 0)),
        ]
        with m.If(accept):
            m.d.sync += word.eq(word + 1)
        with m.If(self.drained):
            m.d.sync += [head.eq(0), word.eq(0), self.level.eq(0)]

    def _drain(self, m: Module, accept: Signal, draining: Signal) -> None:
        spare = Signal(range(self.superblock_rows + (_WORDS + 1) * self.word_rows))
        m.d.comb += [
            self.drained.eq(draining & self.ended),
            self.overlong.eq(spare >= self.superblock_rows),
        ]
        with m.If(self.finish):
            m.d.sync += [
                draining.eq(1),
                spare.eq(self.level + Mux(accept, self.word_rows, 0)),
            ]
        with m.Elif(draining & accept & ~self.overlong):
            m.d.sync += spare.eq(spare + self.word_rows)
        with m.If(self.drained):
            m.d.sync += [draining.eq(0), self.ended.eq(0)]
