"""The superblock reader: receives a region as a burst and hands it out in rows."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import rotate

BUS_ROWS = 8
"""Rows in a bus word."""

WORDS = 3
"""Default number of words that a reader holds."""


class SuperblockReader(wiring.Component):
    """Hand out the rows of a region, as many per cycle as the demand schedule takes.

    Latency: a word accepted in cycle c can be taken from cycle c + 1. Throughput: one word
    (``word_rows`` rows, a power of two) in and up to ``take_max`` rows out per cycle; ``take_max``
    is at most the rows of all words but one, minus one. Buffering: ``depth`` words. ``words.ready``
    depends on registers only. In an ``eager`` reader it also depends on ``sure``: a word is
    accepted in the cycle in which the last row of the word in its place is taken.

    A packet on ``words`` is a region. When the schedule is complete, ``finish`` makes the reader
    discard the rest of the packet. ``drained`` pulses when that is done, together with ``finish``
    if nothing is left, and the next packet is taken from the following cycle. Illegal input: a
    packet that ends early shows as ``ended`` with too few rows; a packet that is a superblock or
    more too long raises ``overlong`` with ``drained``.

    Members
    -------
    words : In(stream of {data: word_rows * lanes, last: 1})
    rows : Out(array of take_max, lanes)
        The next rows; only the first ``level`` are valid.
    level : Out(range(depth * word_rows + 1))
        Number of rows present.
    ended : Out(1)
        The last word of the packet has arrived: no more rows will come.
    take : In(range(take_max + 1))
        Rows consumed in this cycle, at most ``level``.
    sure : In(range(take_max + 1))
        Eager readers only: a lower bound of ``take`` that is known early.
    wide : In(1)
        Readers with ``rests`` only: if set, more than one word of rows may be taken; otherwise the
        rows beyond are zero.
    finish : In(1)
        Pulse: the schedule has all its rows. ``take`` must be zero.
    drained, overlong : Out(1)
    """

    def __init__(
        self,
        *,
        lanes: int,
        take_max: int,
        superblock: int,
        word_rows: int = BUS_ROWS,
        depth: int = WORDS,
        eager: bool = False,
        rests: bool = False,
    ) -> None:
        self.lanes = lanes
        self.take_max = take_max
        self.word_rows = word_rows
        self.depth = depth
        self.eager = eager
        self.rests = rests
        self.superblock_rows = 8 * superblock // lanes
        self.word_layout = data.StructLayout({"data": word_rows * lanes, "last": 1})
        super().__init__(
            {
                "words": In(stream.Signature(self.word_layout)),
                "rows": Out(data.ArrayLayout(lanes, take_max)),
                "level": Out(range(depth * word_rows + 1)),
                **dict.fromkeys(("ended", "drained", "overlong"), Out(1)),
                "take": In(range(take_max + 1)),
                **({"sure": In(range(take_max + 1))} if eager else {}),
                **({"wide": In(1)} if rests else {}),
                "finish": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        draining, accept = Signal(), Signal()
        discard = draining | self.finish
        room = self.level <= (self.depth - 1) * self.word_rows
        leaves = Signal()  # the last row of a word is certainly taken
        m.d.comb += [
            self.words.ready.eq(~self.ended & (discard | room | leaves)),
            accept.eq(self.words.valid & self.words.ready),
        ]
        with m.If(accept & self.words.payload.last):
            m.d.sync += self.ended.eq(1)
        row = self._store(m, accept & ~discard)
        if self.eager:
            m.d.comb += leaves.eq((row + self.sure)[len(row) :].any())
        self._drain(m, accept, draining)
        return m

    def _store(self, m: Module, accept: Value) -> Value:
        """Build the ring of words; return the place of the next row in its word."""
        size = self.word_rows * self.lanes
        stored = [Signal(size, name=f"word_{i}", reset_less=True) for i in range(self.depth)]
        words = [self._phase(word) for word in stored]
        first, fill = Signal(self.depth, init=1), Signal(self.depth, init=1)  # one bit per word
        row = Signal(range(self.word_rows))
        end = Signal(range(self.word_rows + self.take_max))
        m.d.comb += end.eq(row + self.take)
        m.d.sync += [
            row.eq(end),
            self.level.eq(self.level - self.take + Mux(accept, self.word_rows, 0)),
        ]
        self._turn(m, first, end[len(row) :])
        for word, here in zip(stored, fill, strict=True):
            with m.If(accept & here):
                m.d.sync += word.eq(self._phase(self.words.payload.data))
        with m.If(accept):
            m.d.sync += fill.eq(fill.rotate_left(1))
        with m.If(self.drained):
            m.d.sync += [first.eq(1), fill.eq(1), row.eq(0), self.level.eq(0)]
        for i, node in enumerate(self._next_rows(m, words, first, row)):
            m.d.comb += self.rows[i].eq(node)
        return row

    def _phase(self, word: Value) -> Value:
        """Convert between a word and its stored form: inverted, if its rows pass two multiplexers.

        Inverting multiplexers are smaller: one inverter per bit of the bus then replaces one behind
        each register.
        """
        return ~word if self.take_max > self.word_rows else word

    def _next_rows(
        self, m: Module, words: Sequence[Value], first: Value, row: Value
    ) -> list[Value]:
        """Return the rows from ``row`` of the word ``first`` on.

        Each place of a word takes its row from that word, or from the next word if ``row`` is past
        it. A rotation by ``row`` then puts them in order. Later rows come from later words.
        """
        rows: list[Value] = []
        for later in range(-(-self.take_max // self.word_rows)):
            places: list[Value] = []
            for place in range(self.word_rows):
                chosen = Signal(self.depth, name=f"chosen_{later}_{place}")
                past = first.rotate_left(later + 1)
                word = Mux(row > place, past, first.rotate_left(later))
                m.d.comb += chosen.eq(Mux(self.wide, word, 0) if self.rests and later else word)
                places.append(self._row_of(words, chosen, place))
            outputs = min(self.word_rows, self.take_max - later * self.word_rows)
            rows += rotate(m, places, row, outputs, f"next_{later}")
        return rows

    def _row_of(self, words: Sequence[Value], chosen: Value, place: int) -> Value:
        """Return the row at a place of the word that the one-hot ``chosen`` selects."""
        terms = [
            word.word_select(place, self.lanes) & bit.replicate(self.lanes)
            for word, bit in zip(words, chosen, strict=True)
        ]
        return functools.reduce(operator.or_, terms)

    def _turn(self, m: Module, first: Signal, words: Value) -> None:
        """Advance to the word of the next row after ``words`` words have been consumed."""
        for count in range(1, (self.word_rows - 1 + self.take_max) // self.word_rows + 1):
            with m.If(words == count):
                m.d.sync += first.eq(first.rotate_left(count % self.depth))

    def _drain(self, m: Module, accept: Signal, draining: Signal) -> None:
        most = self.superblock_rows + (self.depth + 1) * self.word_rows
        spare = Signal(range(most), reset_less=True)
        left = Mux(draining, spare, self.level)
        m.d.comb += [
            self.drained.eq((draining | self.finish) & self.ended),
            self.overlong.eq(left >= self.superblock_rows),
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
