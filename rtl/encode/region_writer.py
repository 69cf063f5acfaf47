"""The region writer: rows to words of eight rows, completed to whole superblocks."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import rotate, shift
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS

LENGTH_WIDTH = 16
"""Bits of the length of a region, in superblocks."""


def RegionWord(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """A bus word of a region; ``last`` ends the region."""
    return data.StructLayout({"data": BUS_ROWS * lanes, "last": 1})


def RowsLayout(lanes: int) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """Up to eight rows of a region; ``end`` marks the end of the region."""
    return data.StructLayout(
        {
            "rows": data.ArrayLayout(lanes, BUS_ROWS),  # arbitrary from ``count`` on
            "count": range(BUS_ROWS + 1),
            "end": 1,
        }
    )


def append_rows(
    m: Module, first: Sequence[Value], count: Value, then: Sequence[Value], name: str
) -> list[Value]:
    """Concatenate ``count`` rows of ``first`` with the rows of ``then``; zero past the last."""
    size = len(first) + len(then)
    bits = len(first).bit_length()
    gap = [*[Const(0, len(then[0]))] * ((1 << bits) - 1), *then]
    moved = shift(m, gap, ~count[:bits], size, name)
    own = [Mux(count > i, row, 0) for i, row in enumerate(first)]
    return [row | new for row, new in zip(own, moved, strict=False)] + list(moved[len(own) :])


class PieceSender:
    """Sends the rows of a slot eight at a time, in one cycle or two.

    ``rows`` and ``count`` must hold until the slot is done. A slot without rows takes a cycle, too.
    """

    def __init__(self, m: Module, name: str) -> None:
        self.second = Signal(name=f"{name}_second")
        self.count = Signal(range(3 * BUS_ROWS), name=f"{name}_count")
        self.final = self.second | (self.count <= BUS_ROWS)
        self._m = m

    def rows(self, rows: Sequence[Value]) -> list[Value]:
        """Return the eight rows to send now."""
        rest = [*rows[BUS_ROWS:], *[Const(0)] * BUS_ROWS][:BUS_ROWS]
        return [Mux(self.second, rest[i], rows[i]) for i in range(BUS_ROWS)]

    @property
    def size(self) -> Value:
        """Return how many of them count."""
        return Mux(self.second, self.count - BUS_ROWS, Mux(self.final, self.count, BUS_ROWS))[:4]

    def moves(self, move: Value) -> Value:
        """Advance when ``move`` is set (the eight rows are taken); return 1 if the slot is done."""
        with self._m.If(move):
            self._m.d.sync += self.second.eq(~self.final)
        return move & self.final


class RegionWriter(wiring.Component):
    """Collect rows into words, and complete the region with zeros to whole superblocks.

    Latency: two cycles, and a word waits until it is known whether more rows follow. Throughput:
    eight rows per cycle while no word is stalled. Buffering: two words. Every input is legal.

    Members
    -------
    words : Out(stream of RegionWord)
        A region without rows has no word.
    ended : Out(1), length : Out(16)
        The region is complete and all its words are taken; ``length`` is its number of superblocks.
        Both hold, and no row is taken, until ``next``.
    next : In(1)
        Begin another region; legal only while ``ended``.
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
        level = Signal(range(BUS_ROWS + 1))  # rows held: none, or 1 to 8
        flushing, done = Signal(), Signal()
        place = Signal(range(self.words_per_superblock))
        final = place == self.words_per_superblock - 1
        free, send, total = Signal(), Signal(), Signal(range(2 * BUS_ROWS + 1))
        move = self.rows.valid & self.rows.ready
        over = total > BUS_ROWS
        m.d.comb += [
            total.eq(level + self.rows.payload.count),
            free.eq(~self.words.valid | self.words.ready),
            # Not even if they fit beside a word that waits: ready would come as late as the rows.
            self.rows.ready.eq(~flushing & ~done & free),
            send.eq((free & flushing) | (move & over)),
            self.ended.eq(done & ~self.words.valid),
        ]
        self._words(m, level, flushing, move, over, send)
        with m.If(move):
            m.d.sync += level.eq(Mux(over, total - BUS_ROWS, total))
            with m.If(self.rows.payload.end):
                m.d.sync += [flushing.eq(total != 0), done.eq(total == 0)]
        with m.If(self.words.ready):
            m.d.sync += self.words.valid.eq(0)
        with m.If(send):
            m.d.sync += [
                self.words.valid.eq(1),
                self.words.payload.last.eq(flushing & final),
                place.eq(Mux(final, 0, place + 1)),
                self.length.eq(self.length + final),
            ]
            with m.If(flushing):  # only zeros follow
                m.d.sync += [level.eq(0), flushing.eq(~final), done.eq(final)]
        with m.If(self.next):
            m.d.sync += [done.eq(0), self.length.eq(0), level.eq(0)]
        return m

    def _words(
        self, m: Module, level: Signal, flushing: Signal, move: Value, over: Value, send: Value
    ) -> None:
        """Rotate the rows to their places behind the held ones."""
        lanes, rows = self.lanes, self.rows.payload.rows
        word = Signal(BUS_ROWS * lanes, reset_less=True)
        turned = rotate(m, [rows[i] for i in range(BUS_ROWS)], (-level)[:3], BUS_ROWS, "row")
        for i, row in enumerate(turned):
            held = Signal(lanes, name=f"held_{i}", reset_less=True)
            new = Mux(flushing, 0, row)
            with m.If(send):
                m.d.sync += word.word_select(i, lanes).eq(Mux(level > i, held, new))
            with m.If(move & (over | (level <= i))):
                m.d.sync += held.eq(row)
        m.d.comb += self.words.payload.data.eq(word)
