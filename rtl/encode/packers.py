"""Packers: turn the lanes of pieces into units of a stream, in stream order.

Units are blocks, windows, rows and words; the decoder takes them apart again (docs/format.md,
section 3). A unit leaves when it is complete. At the end of a segment, the last unit is completed
with zeros, or with ones in a unary code. No packer drops or repeats a bit, whatever the ready
pattern of its output.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import (
    compact,
    popcount,
    prefix_sums,
    prefix_sums_from,
    rotate,
)
from cassandra_spec.rtl.common.queues import PairLayout
from cassandra_spec.rtl.common.residue import FIELD_MAX
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS


def _of_bits(starts: Sequence[Value]) -> list[Value]:
    return [start for start in starts for _ in range(BUS_ROWS)]


def WindowLayout(bits: int) -> data.StructLayout:  # noqa: N802 (a layout, like the others)
    """A window of a unary code and its number of ones; ``last`` ends its segment."""
    return data.StructLayout({"bits": bits, "ones": range(bits + 1), "last": 1})


class BlockPacker(wiring.Component):
    """Concatenate the selected values of all pieces and cut them into blocks of ``lanes``.

    A piece has ``pace`` values: a beat, or part of one. Latency: none; a block leaves in the cycle
    of the piece that completes it. Throughput: one piece per cycle, plus one cycle at the end of a
    segment whose last block is not full. Buffering: ``lanes - 1`` values. Every input is legal.

    Members
    -------
    beats : In(stream of {fields: array of pace, width; chosen: pace; last: 1})
        Fields of lanes that are not selected are arbitrary; ``last`` ends a segment.
    blocks : Out(stream of array of lanes, width)
        Zero past the last value of a segment. A segment without a selected value has no block.
    begun : Out(array of lanes, width), level : Out(range(lanes))
        The incomplete block and its number of values; arbitrary past these.
    flushing : Out(1)
        The offered block ends a segment whose last piece has already been taken.
    """

    def __init__(self, *, lanes: int, pace: int, width: int) -> None:
        self.lanes = lanes
        self.pace = pace
        self.width = width
        beat = {"fields": data.ArrayLayout(width, pace), "chosen": pace, "last": 1}
        super().__init__(
            {
                "beats": In(stream.Signature(data.StructLayout(beat))),
                "blocks": Out(stream.Signature(data.ArrayLayout(width, lanes))),
                "begun": Out(data.ArrayLayout(width, lanes)),
                "level": Out(range(lanes)),
                "flushing": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, pace, beat = self.lanes, self.pace, self.beats.payload
        bits = (lanes - 1).bit_length()
        level, flushing = self.level, self.flushing
        counts = prefix_sums(m, [beat.chosen[i] for i in range(pace)], bits + 1, "lane")
        starts = [level] + [(level + count)[:bits] for count in counts[:-1]]
        placed = compact(m, [beat.fields[i] for i in range(pace)], starts, "field")
        end = Signal(bits + 1)  # end of the held values; the top bit: a block is full
        full, move = end[bits], Signal()
        m.d.comb += [
            end.eq(level + counts[-1]),
            self.blocks.valid.eq(flushing | (self.beats.valid & full)),
            self.beats.ready.eq(~flushing & (~full | self.blocks.ready)),
            move.eq(self.beats.valid & self.beats.ready),
        ]
        for i in range(lanes):
            held = Signal(self.width, name=f"held_{i}", reset_less=True)
            here = placed[i % pace]
            new = Mux(flushing, 0, here)  # a block that leaves with its piece is full
            m.d.comb += [
                self.begun[i].eq(held),
                self.blocks.payload[i].eq(Mux(level > i, held, new)),
            ]
            with m.If(move & (full | (level <= i))):
                m.d.sync += held.eq(here)
        with m.If(move):
            m.d.sync += [level.eq(end), flushing.eq(beat.last & (end[:bits] != 0))]
        with m.If(flushing & self.blocks.ready):
            m.d.sync += [level.eq(0), flushing.eq(0)]
        return m


class ResiduePacker(wiring.Component):
    """Concatenate fields of 0 to 7 bits and cut them into words of eight rows.

    Latency: two cycles from the piece (``pace`` values) that completes a word. Throughput: one
    piece per cycle, plus one cycle at the end of a segment whose last word is not full. Buffering:
    a piece and less than a word.

    A field must be zero from its width on; then every input is legal.

    Members
    -------
    beats : In(stream of {fields: array of pace, 7; widths: array of pace, 3; last: 1})
    need : Out(range(7 * pace + 1))
        Residue bits of the offered piece; combinational.
    words : Out(stream of 8 * lanes)
        Zero past the last field of a segment. A segment without a bit has no word.
    """

    def __init__(self, *, lanes: int, pace: int) -> None:
        self.lanes = lanes
        self.pace = pace
        self.most = FIELD_MAX * pace
        self.size = BUS_ROWS * lanes  # bits of a word
        self.place = (self.size - 1).bit_length()
        beat = {
            "fields": data.ArrayLayout(FIELD_MAX, pace),
            "widths": data.ArrayLayout(3, pace),
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
        starts, need = self._starts(m)
        stage = self._stage(m, starts, need)
        turned = self._turned(m, stage)
        self._cut(m, stage, Cat(compact(m, turned, _of_bits(stage.begins), "placed", BUS_ROWS)))
        return m

    def _starts(self, m: Module) -> tuple[list[Signal], Value]:
        """Return where each lane's field begins in its word, and the piece's number of bits."""
        beat, level = self.beats.payload, Signal(self.place)
        widths = [beat.widths[lane] for lane in range(self.pace)]
        ends = prefix_sums(m, widths, Shape.cast(range(self.most + 1)).width, "end")
        starts = [Signal(self.place, name=f"start_{lane}") for lane in range(self.pace)]
        m.d.comb += [start.eq(level + end) for start, end in zip(starts, [0, *ends], strict=False)]
        m.d.comb += self.need.eq(ends[-1])
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += level.eq(Mux(beat.last, 0, level + ends[-1]))
        return starts, ends[-1]

    def _stage(self, m: Module, starts: Sequence[Value], need: Value) -> _PlacedFields:
        """Register the placed fields, halfway."""
        beat, stage = self.beats.payload, _PlacedFields(self.pace, self.place)
        m.d.comb += self.beats.ready.eq(~stage.valid | stage.ready)
        with m.If(self.beats.ready):
            m.d.sync += stage.valid.eq(self.beats.valid)
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += [
                *(stage.fields.eq(beat.fields), stage.last.eq(beat.last)),
                *(stage.begins.eq(Cat(starts)), stage.end.eq(starts[0] + need)),
            ]
        return stage

    def _turned(self, m: Module, stage: _PlacedFields) -> list[Value]:
        """Put each field into eight places and rotate it to its start; the others are zero."""
        turned: list[Value] = []
        for lane, begin in enumerate(stage.begins):
            places = list(Cat(stage.fields[lane], 0))
            turned += rotate(m, places, (-begin)[:3], BUS_ROWS, f"turned_{lane}")
        return turned

    def _cut(self, m: Module, stage: _PlacedFields, placed: Value) -> None:
        """Keep complete chunks of ``pace`` bits (rows, for whole beats) in the word.

        The next piece completes a piece's last chunk. A piece has less than eight chunks: those of
        ``placed`` wrap around. Behind the end of the piece they are zero or, from the ninth on,
        unused.
        """
        pace, chunks = self.pace, self.size // self.pace
        flushing, row = Signal(), Signal(range(chunks))  # end of the held bits
        full = stage.end[self.place]
        move = stage.valid & stage.ready
        m.d.comb += [
            self.words.valid.eq(flushing | (stage.valid & full)),
            stage.ready.eq(~flushing & (~full | self.words.ready)),
        ]
        for i in range(chunks):
            held = Signal(pace, name=f"held_{i}", reset_less=i > 0)
            new = placed.word_select(i % BUS_ROWS, pace)
            old = Mux(row >= i, held, 0) if i else held
            m.d.comb += self.words.payload.word_select(i, pace).eq(
                old | Mux((row <= i) & ~flushing, new, 0)
            )
            with m.If(move & (full | (row <= i))):
                m.d.sync += held.eq(new | Mux((row == i) & ~full, held, 0))
            if i == 0:  # start of the next segment
                with m.If(flushing & self.words.ready):
                    m.d.sync += held.eq(0)
        with m.If(move):
            m.d.sync += [
                flushing.eq(stage.last & (stage.end[: self.place] != 0)),
                row.eq(stage.end[self.place - len(row) : self.place]),
            ]
        with m.If(flushing & self.words.ready):
            m.d.sync += [flushing.eq(0), row.eq(0)]


class _PlacedFields:
    """The fields of a piece, and where each begins in its word."""

    def __init__(self, pace: int, place: int) -> None:
        self.fields = Signal(data.ArrayLayout(FIELD_MAX, pace), reset_less=True)
        self.begins = Signal(data.ArrayLayout(place, pace), reset_less=True)
        self.end = Signal(place + 1, reset_less=True)  # end of the last field
        self.valid, self.ready, self.last = Signal(), Signal(), Signal(reset_less=True)


class UnaryPacker(wiring.Component):
    """Code the ranks of the kept lanes in unary and cut the code into windows.

    Latency: one cycle from the piece (``pace`` values) that completes a window. Throughput: one
    piece and two windows per cycle, so a piece with more than two windows of code stays longer; one
    more cycle at the end of a segment. Buffering: a piece and less than a window. Every input is
    legal.

    Members
    -------
    beats : In(stream of {ranks: array of pace; kept: pace; last: 1})
    windows : Out(stream of PairLayout(WindowLayout))
        The next window, or with ``two`` the next two. The last window of a segment comes alone and
        is completed with ones; it is all ones where the codes end with the previous window.
    busy : Out(1)
        A piece is being cut, or a segment ended.
    """

    def __init__(self, *, lanes: int, pace: int, window: int, limit: int) -> None:
        self.pace = pace
        self.window_bits = window * lanes
        self.limit = limit
        beat = {"ranks": data.ArrayLayout(range(limit), pace), "kept": pace, "last": 1}
        super().__init__(
            {
                "beats": In(stream.Signature(data.StructLayout(beat))),
                "windows": Out(stream.Signature(PairLayout(WindowLayout(self.window_bits)))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        hand, flushing = self._place(m), Signal()
        m.d.comb += [
            self.beats.ready.eq(~hand.valid | hand.ready),
            self.busy.eq(hand.valid | flushing),
        ]
        self._cut(m, hand, flushing)
        return m

    def _place(self, m: Module) -> _PlacedRanks:
        """Find the place before each lane's one, counted from the window being filled."""
        pace, beat, size = self.pace, self.beats.payload, self.window_bits
        most = pace * self.limit
        # Codes already written are at zero or below: modulo ``2^reach`` that is behind all windows.
        reach = Shape.cast(range(most + 4 * size)).width
        terms = [Mux(beat.kept[i], beat.ranks[i] + 1, 0) for i in range(pace)]
        total = prefix_sums(m, terms, reach, "sum")[-1]
        hand, begin = _PlacedRanks(pace, reach, size), Signal(range(size))
        over = Mux(hand.end >= size, size, 0)
        m.d.comb += [
            hand.level.eq(hand.end - Mux(hand.end >= 2 * size, 2 * size, over)),
            begin.eq(Mux(hand.last, 0, hand.level)),
        ]
        sums = prefix_sums_from(m, begin, terms, reach, "behind")
        with m.If(self.beats.ready):
            m.d.sync += hand.valid.eq(self.beats.valid)
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += [
                *(hand.kept.eq(beat.kept), hand.last.eq(beat.last)),
                *(place.eq(behind) for place, behind in zip(hand.places, sums, strict=True)),
                hand.long.eq(total > 2 * size),
            ]
        return hand

    def _cut(self, m: Module, hand: _PlacedRanks, flushing: Signal) -> None:
        """Send up to two windows at once; keep a beat as long as it has more than two."""
        size, (one, two) = self.window_bits, self.windows.payload.items
        full = hand.end >= size
        held = Signal(size - 1)  # of a window that is not full
        again = hand.end >= 2 * size
        this, following, third = self._ones(m, hand, flushing)
        free = self.windows.ready
        moves = hand.valid & ~flushing & (~full | free)
        m.d.comb += [
            hand.ready.eq(~flushing & (~full | free) & ~hand.long),
            self.windows.valid.eq(flushing | (hand.valid & full)),
            self.windows.payload.two.eq(~flushing & again),
            *(one.bits.eq(held | this), one.last.eq(flushing)),
            *(two.bits.eq(following), two.last.eq(0)),
            *(window.ones.eq(popcount(window.bits)) for window in (one, two)),
        ]
        with m.If(moves):
            m.d.sync += held.eq(Mux(again, third, Mux(full, following, held | this)))
        with m.If(moves & hand.long):
            m.d.sync += [place.eq(place - 2 * size) for place in hand.places]
            m.d.sync += [hand.origin.eq(0), hand.long.eq(hand.end > 4 * size)]
        with m.If(hand.valid & hand.ready):
            m.d.sync += [hand.origin.eq(hand.level), flushing.eq(hand.last)]
        with m.If(flushing & free):
            m.d.sync += [held.eq(0), flushing.eq(0), hand.origin.eq(0)]

    def _ones(self, m: Module, hand: _PlacedRanks, flushing: Signal) -> tuple[Value, Signal, Value]:
        """Return the ones in the window being filled and in the two after it.

        A beat with at most two windows of code has no ones a pair of windows apart. So the ones of
        the third window appear in the first one, before the place where the beat begins. At the end
        of a segment, the bits behind its codes are filled with ones.
        """
        size = self.window_bits
        fine = 2 if size % 2 == 0 else 0  # low bits, decoded apart from the rest
        places = (2 * size) >> fine
        lines: list[list[Value]] = [[] for _ in range(2 * size)]
        for kept, place in zip(hand.kept, hand.places, strict=True):
            low, high = Const(1) << place[:fine], kept << place[fine:]
            for j, line in enumerate(lines, 1):
                part = high[j >> fine]
                if j <= size:
                    part |= high[(j >> fine) + places] & ~hand.long
                line.append(part & low[j % (1 << fine)])
        this, following, behind = Signal(size), Signal(size), Signal(size)
        m.d.comb += [
            Cat(this, following).eq(Cat(Cat(line).any() for line in lines)),
            behind.eq(Cat(*(hand.origin <= i for i in range(size - 1)), 1)),
        ]
        return (this | flushing.replicate(size)) & behind, following, this & ~behind


class _PlacedRanks:
    """The current piece: its kept lanes, and where their codes end."""

    def __init__(self, pace: int, reach: int, size: int) -> None:
        self.valid, self.ready = Signal(), Signal()
        self.places = [
            Signal(reach, name=f"place_{i}", reset_less=i < pace - 1) for i in range(pace)
        ]
        self.kept, self.last = Signal(pace, reset_less=True), Signal()
        self.end = self.places[-1]  # the last sum counts all lanes
        self.level = Signal(range(size))  # bits of the window that its last code begins
        self.origin = Signal(range(size))  # start of the beat, or end of the codes
        self.long = Signal()  # spans more than two windows


class SharedPacker(wiring.Component):
    """Concatenate the exponents of groups, ``lanes / 8`` in a row.

    Latency: none. Throughput: one beat per cycle. Buffering: less than a row. Every input is legal.

    Members
    -------
    beats : In(stream of {shared: 8, begins: 1, last: 1})
        ``begins`` marks the first beat of a group with the exponent ``shared``.
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
