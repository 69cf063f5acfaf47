"""From the lanes of a beat to units of a stream: blocks, windows, rows and words, in stream order.

What the decoder takes apart (docs/format.md, section 3), these put together. A unit leaves when it
is complete; what is left at the end of a segment is completed with zeros, or ones in a unary code.
None of them drops or repeats a bit whatever the other end of its output does.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.networks import compact, prefix_sums
from rtl.residue import FIELD_MAX

__all__ = [
    "BUS_ROWS",
    "BlockPacker",
    "ResiduePacker",
    "SharedPacker",
    "UnaryPacker",
    "WindowLayout",
]

BUS_ROWS = 8
"""Rows in a word of the bus."""


def WindowLayout(bits: int) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """A window of a unary code; ``last`` is the one that ends its segment."""
    return data.StructLayout({"bits": bits, "last": 1})


class BlockPacker(wiring.Component):
    """Put the chosen values of each beat behind each other and cut them into blocks of ``lanes``.

    Latency: none; a block leaves in the cycle of the beat that completes it. Throughput: a beat in
    each cycle, and one more cycle at the end of a segment whose last block is not full. Buffering:
    ``lanes - 1`` values. Every input is legal.

    Members
    -------
    beats : In(stream of {fields: array of lanes of ``width`` bits, chosen: lanes, last: 1})
        Fields of lanes that are not chosen are arbitrary; ``last`` ends a segment.
    blocks : Out(stream of array of lanes, width)
        Zero past the last value of a segment. A segment without a chosen value has no block.
    begun : Out(array of lanes, width), level : Out(range(lanes))
        The block that is not complete, and how many values it has; arbitrary past these.
    """

    def __init__(self, *, lanes: int, width: int) -> None:
        self.lanes = lanes
        self.width = width
        beat = {"fields": data.ArrayLayout(width, lanes), "chosen": lanes, "last": 1}
        super().__init__(
            {
                "beats": In(stream.Signature(data.StructLayout(beat))),
                "blocks": Out(stream.Signature(data.ArrayLayout(width, lanes))),
                "begun": Out(data.ArrayLayout(width, lanes)),
                "level": Out(range(lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, beat = self.lanes, self.beats.payload
        bits = (lanes - 1).bit_length()
        held = [self.begun[i] for i in range(lanes)]
        level, flushing = self.level, Signal()
        terms = [beat.chosen[i] & ~flushing for i in range(lanes)]
        counts = prefix_sums(m, terms, bits + 1, "lane")
        starts = [level] + [(level + count)[:bits] for count in counts[:-1]]
        placed = compact(m, [beat.fields[i] for i in range(lanes)], starts, "field")
        end = Signal(bits + 1)  # of the values in hand, and with it whether a block is full
        full, move = end[bits], Signal()
        m.d.comb += end.eq(level + counts[-1])
        for i in range(lanes):
            new = Mux(end > i, placed[i], 0)
            block = Signal(self.width, name=f"block_{i}")
            m.d.comb += [
                block.eq(Mux(level > i, held[i], new)),
                self.blocks.payload[i].eq(block),
            ]
            with m.If(move):
                m.d.sync += held[i].eq(Mux(full, placed[i], block))
        m.d.comb += [
            self.blocks.valid.eq(flushing | (self.beats.valid & full)),
            self.beats.ready.eq(~flushing & (~full | self.blocks.ready)),
            move.eq(self.beats.valid & self.beats.ready),
        ]
        with m.If(move):
            m.d.sync += [level.eq(end), flushing.eq(beat.last & (end[:bits] != 0))]
        with m.If(flushing & self.blocks.ready):
            m.d.sync += [level.eq(0), flushing.eq(0)]
        return m


class ResiduePacker(wiring.Component):
    """Put fields of 0 to 7 bits behind each other and cut them into words of eight rows.

    Latency: two cycles from the beat that completes a word. Throughput: a beat in each cycle, and
    one more cycle at the end of a segment whose last word is not full. Buffering: a beat and less
    than a word.

    A field must be zero from its width on; then every input is legal.

    Members
    -------
    beats : In(stream of {fields: array of lanes, 7; widths: array of lanes, 3; last: 1})
    need : Out(range(7 * lanes + 1))
        Bits of the beat that ``beats`` shows; combinational.
    words : Out(stream of 8 * lanes)
        Zero past the last field of a segment. A segment without a bit has no word.
    """

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        self.most = FIELD_MAX * lanes
        beat = {
            "fields": data.ArrayLayout(FIELD_MAX, lanes),
            "widths": data.ArrayLayout(3, lanes),
            "last": 1,
        }
        super().__init__(
            {
                "beats": In(stream.Signature(data.StructLayout(beat))),
                "need": Out(range(self.most + 1)),
                "words": Out(stream.Signature(BUS_ROWS * lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.beats.payload
        run, need = self._join(m, range(self.lanes))
        bits, count = Signal(self.most), Signal(range(self.most + 1))
        last, valid, ready = Signal(), Signal(), Signal()
        m.d.comb += [self.need.eq(need), self.beats.ready.eq(~valid | ready)]
        with m.If(self.beats.ready):
            m.d.sync += valid.eq(self.beats.valid)
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += [bits.eq(run), count.eq(need), last.eq(beat.last)]
        self._cut(m, bits, count, last, valid, ready)
        return m

    def _join(self, m: Module, lanes: Sequence[int]) -> tuple[Value, Value]:
        """The fields of some lanes as one run of bits, and its length: a binary tree."""
        beat = self.beats.payload
        if len(lanes) == 1:
            return Value.cast(beat.fields[lanes[0]]), Value.cast(beat.widths[lanes[0]])
        middle = len(lanes) // 2
        low, low_width = self._join(m, lanes[:middle])
        high, high_width = self._join(m, lanes[middle:])
        name = f"{lanes[0]}_{len(lanes)}"
        run = Signal(FIELD_MAX * len(lanes), name=f"run_{name}")
        width = Signal(range(FIELD_MAX * len(lanes) + 1), name=f"width_{name}")
        m.d.comb += [run.eq(low | (high << low_width)), width.eq(low_width + high_width)]
        return run, width

    def _cut(
        self, m: Module, bits: Signal, count: Signal, last: Signal, valid: Signal, ready: Signal
    ) -> None:
        size = BUS_ROWS * self.lanes
        place = (size - 1).bit_length()
        held, level, flushing = Signal(size), Signal(place), Signal()
        run, end = Signal(size + self.most), Signal(place + 1)
        full = end[place]
        m.d.comb += [
            run.eq(held | Mux(flushing, 0, bits << level)),
            end.eq(level + count),
            self.words.payload.eq(run),
            self.words.valid.eq(flushing | (valid & full)),
            ready.eq(~flushing & (~full | self.words.ready)),
        ]
        with m.If(valid & ready):
            m.d.sync += [
                held.eq(Mux(full, run >> size, run)),
                level.eq(end),
                flushing.eq(last & (end[:place] != 0)),
            ]
        with m.If(flushing & self.words.ready):
            m.d.sync += [held.eq(0), level.eq(0), flushing.eq(0)]


class UnaryPacker(wiring.Component):
    """Code the ranks of the kept lanes in unary and cut the code into windows.

    Latency: one cycle from the beat that completes a window. Throughput: a beat in each cycle, or
    a window in each cycle if a beat completes more than one, and one more cycle at the end of a
    segment. Buffering: a beat and less than a window. Every input is legal.

    Members
    -------
    beats : In(stream of {ranks: array of lanes; kept: lanes; last: 1})
    windows : Out(stream of {bits: window * lanes, last: 1})
        The last one of each segment is completed with ones, and is nothing but ones where the
        codes end with the window before it.
    """

    def __init__(self, *, lanes: int, window: int, limit: int) -> None:
        self.lanes = lanes
        self.window_bits = window * lanes
        self.limit = limit
        beat = {"ranks": data.ArrayLayout(range(limit), lanes), "kept": lanes, "last": 1}
        super().__init__(
            {
                "beats": In(stream.Signature(data.StructLayout(beat))),
                "windows": Out(stream.Signature(WindowLayout(self.window_bits))),
                "busy": Out(1),  # a beat is in hand, or the end of a segment
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, size, beat = self.lanes, self.window_bits, self.beats.payload
        reach = Shape.cast(range(lanes * self.limit + size + 1)).width
        terms = [Mux(beat.kept[i], beat.ranks[i] + 1, 0) for i in range(lanes)]
        ends = prefix_sums(m, terms, reach, "end")
        places = [Signal(reach, name=f"place_{i}") for i in range(lanes)]  # behind each one
        waiting, total = Signal(lanes), Signal(reach)  # lanes whose one is not written yet
        last, valid, ready = Signal(), Signal(), Signal()
        again = Signal()  # the beat goes on in the next window
        held, level, flushing = Signal(size), Signal(range(size)), Signal()
        m.d.comb += [self.beats.ready.eq(~valid | ready), self.busy.eq(valid | flushing)]
        with m.If(self.beats.ready):
            m.d.sync += valid.eq(self.beats.valid)
        for i in range(lanes):
            with m.If(self.beats.valid & self.beats.ready):
                m.d.sync += places[i].eq(ends[i])
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += [waiting.eq(beat.kept), total.eq(ends[-1]), last.eq(beat.last)]
        span, end = Signal(2 * size), Signal(reach)
        written = self._write(m, places, waiting, level, span)
        full = end >= size
        m.d.comb += [
            end.eq(total + level),
            again.eq(end >= 2 * size),
            ready.eq(~flushing & (~full | self.windows.ready) & ~again),
            self.windows.valid.eq(flushing | (valid & full)),
            self.windows.payload.last.eq(flushing),
            self.windows.payload.bits.eq(held | Mux(flushing, self._ones(level), span)),
        ]
        step = valid & ~flushing & (~full | self.windows.ready)
        with m.If(step):
            m.d.sync += held.eq(Mux(full, span >> size, held | span))
            with m.If(~again):
                m.d.sync += [level.eq(Mux(full, end - size, end)), flushing.eq(last)]
            with m.Else():
                self._go_on(m, places, waiting, written, total, level)
        with m.If(flushing & self.windows.ready):
            m.d.sync += [held.eq(0), level.eq(0), flushing.eq(0)]
        return m

    def _write(
        self,
        m: Module,
        places: Sequence[Signal],
        waiting: Signal,
        level: Signal,
        span: Signal,
    ) -> Signal:
        """The ones that lie in this window and the next; which lanes they are of."""
        size = self.window_bits
        bits: list[list[Value]] = [[] for _ in range(2 * size)]
        written = Signal(self.lanes)
        for i, place in enumerate(places):
            at = Signal(len(place) + 1, name=f"at_{i}")
            line = Signal(2 * size, name=f"line_{i}")
            m.d.comb += [
                at.eq(place + level - 1),
                written[i].eq(waiting[i] & (at < 2 * size)),
                line.eq(written[i] << at[: (2 * size - 1).bit_length()]),
            ]
            for j in range(2 * size):
                bits[j].append(line[j])
        m.d.comb += span.eq(Cat(Cat(column).any() for column in bits))
        return written

    def _go_on(
        self,
        m: Module,
        places: Sequence[Signal],
        waiting: Signal,
        written: Signal,
        total: Signal,
        level: Signal,
    ) -> None:
        """A window has gone and the beat has more than the next: places count from there."""
        shift = self.window_bits - level
        m.d.sync += [level.eq(0), waiting.eq(waiting & ~written), total.eq(total - shift)]
        for place in places:
            m.d.sync += place.eq(place - shift)

    def _ones(self, level: Signal) -> Value:
        return Cat(level <= i for i in range(self.window_bits))


class SharedPacker(wiring.Component):
    """Put the exponents of groups behind each other, ``lanes / 8`` in a row.

    Latency: none. Throughput: a beat in each cycle. Buffering: less than a row. Every input is
    legal.

    Members
    -------
    beats : In(stream of {shared: 8, begins: 1, last: 1})
        ``begins`` says that the beat is the first of a group, whose exponent is ``shared``.
    rows : Out(stream of lanes bits)
        The last row of a segment is completed with zeros.
    """

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        beat = data.StructLayout({"shared": 8, "begins": 1, "last": 1})
        super().__init__(
            {"beats": In(stream.Signature(beat)), "rows": Out(stream.Signature(lanes))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, places = self.beats.payload, self.lanes // 8
        held, level = Signal(self.lanes), Signal(range(places + 1))
        row, end, leaves = Signal(self.lanes), Signal(range(places + 1)), Signal()
        shared = Mux(beat.begins, beat.shared, Const(0, 8))
        m.d.comb += [
            row.eq(held | (shared << (level << 3))),
            end.eq(level + beat.begins),
            leaves.eq((end == places) | (beat.last & (end != 0))),
            self.rows.payload.eq(row),
            self.rows.valid.eq(self.beats.valid & leaves),
            self.beats.ready.eq(~leaves | self.rows.ready),
        ]
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += [held.eq(Mux(leaves, 0, row)), level.eq(Mux(leaves, 0, end))]
        return m
