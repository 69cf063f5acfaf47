"""The packers of the encoder: no bit is lost, duplicated or moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.queues import PairLayout, PairQueue
from cassandra_spec.rtl.common.residue import FIELD_MAX
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.encode.packers import (
    BlockPacker,
    ResiduePacker,
    SharedPacker,
    UnaryPacker,
)
from cassandra_spec.rtl.encode.region_writer import RegionWriter
from cassandra_spec.verif.formal.followed import Followed, Item
from cassandra_spec.verif.formal.harness import bits_set, level_of
from cassandra_spec.verif.formal.prover import Claim


class Blocks(Followed):
    """Selected values to blocks."""

    part: BlockPacker

    def __init__(self, *, lanes: int, pace: int, width: int = 1) -> None:
        super().__init__(BlockPacker(lanes=lanes, pace=pace, width=width), size=lanes, most=pace)

    def _ends(self) -> tuple[stream.Interface, stream.Interface]:
        return self.part.beats, self.part.blocks

    def _items(self) -> list[Item]:
        beat = self.part.beats.payload
        chosen = [beat.chosen[lane] for lane in range(self.part.pace)]
        return [
            Item(one, bits_set(Cat(chosen[:lane])), beat.fields[lane])
            for lane, one in enumerate(chosen)
        ]

    def _put(self) -> Value:
        return bits_set(self.part.beats.payload.chosen)

    def _places(self) -> Sequence[Value]:
        return [self.part.blocks.payload[lane] for lane in range(self.part.lanes)]


class Residues(Followed):
    """Fields of 0 to 7 bits to words of bits."""

    part: ResiduePacker
    latency = 1

    def __init__(self, *, lanes: int, pace: int) -> None:
        packer = ResiduePacker(lanes=lanes, pace=pace)
        super().__init__(packer, size=BUS_ROWS * lanes, most=FIELD_MAX * pace)

    def _ends(self) -> tuple[stream.Interface, stream.Interface]:
        return self.part.beats, self.part.words

    def claims(self, m: Module) -> None:
        """Add the packer claims, for fields that are zero from their width on."""
        super().claims(m)
        beat = self.part.beats.payload
        for lane in range(self.part.pace):
            m.d.comb += Assume((beat.fields[lane] >> beat.widths[lane]) == 0)

    def _items(self) -> list[Item]:
        beat = self.part.beats.payload
        return [
            Item(beat.widths[lane] > bit, self._before(lane) + bit, beat.fields[lane][bit])
            for lane in range(self.part.pace)
            for bit in range(FIELD_MAX)
        ]

    def _before(self, lane: int) -> Value:
        widths = self.part.beats.payload.widths
        return Value.cast(sum((Value.cast(widths[i]) for i in range(lane)), start=Const(0, 1)))

    def _put(self) -> Value:
        return self._before(self.part.pace)

    def _places(self) -> Sequence[Value]:
        return list(self.part.words.payload)


class Unary(Followed):
    """Ranks to windows of a unary code. The last window of a segment always has a free place."""

    part: UnaryPacker
    fill = 1
    latency = 1

    def __init__(self, *, lanes: int, pace: int, window: int, limit: int) -> None:
        packer = UnaryPacker(lanes=lanes, pace=pace, window=window, limit=limit)
        super().__init__(packer, size=window * lanes, most=pace * limit)

    def _ends(self) -> tuple[stream.Interface, stream.Interface]:
        return self.part.beats, self.part.windows

    def claims(self, m: Module) -> None:
        """Add the packer claims, and one last window per ended segment.

        The last window's ones are counted, and it comes alone.
        """
        super().claims(m)
        one, two = self.part.windows.payload.items
        level_of(
            m,
            "segments",
            room=3,
            put=self.come & self._last(),
            taken=(self.left != 0) & one.last,
            clear=Const(0, 1),
        )
        with m.If(~ResetSignal() & (self.left != 0)):
            m.d.comb += Assert(one.ones == bits_set(one.bits))
        with m.If(~ResetSignal() & (self.left == 2)):
            m.d.comb += Assert((two.ones == bits_set(two.bits)) & ~one.last & ~two.last)

    def _units(self) -> Value:
        return 1 + self.part.windows.payload.two

    def _payload(self) -> Value:
        pair = self.part.windows.payload
        return Cat(pair.two, pair.items[0], Mux(pair.two, Value.cast(pair.items[1]), 0))

    def _arrived(self, m: Module, full: Value, rest: Value, last: Value) -> Value:
        return full + last

    def _items(self) -> list[Item]:
        beat, limit = self.part.beats.payload, self.part.limit
        return [
            Item(
                beat.kept[lane] & (beat.ranks[lane] >= bit),
                self._before(lane) + bit,
                beat.ranks[lane] == bit,
            )
            for lane in range(self.part.pace)
            for bit in range(limit)
        ]

    def _before(self, lane: int) -> Value:
        beat = self.part.beats.payload
        codes = [Mux(beat.kept[i], beat.ranks[i] + 1, 0) for i in range(lane)]
        return Value.cast(sum(codes, start=Const(0, 1)))

    def _put(self) -> Value:
        return self._before(self.part.pace)

    def _places(self) -> Sequence[Value]:
        return list(Cat(window.bits for window in self.part.windows.payload.items))


class Shared(Followed):
    """Exponents of groups to rows."""

    part: SharedPacker

    def __init__(self, *, lanes: int) -> None:
        super().__init__(SharedPacker(lanes=lanes), size=lanes // 8, most=1)

    def _ends(self) -> tuple[stream.Interface, stream.Interface]:
        return self.part.beats, self.part.rows

    def _items(self) -> list[Item]:
        beat = self.part.beats.payload
        return [Item(beat.begins, Const(0, 1), beat.shared)]

    def _put(self) -> Value:
        return Value.cast(self.part.beats.payload.begins)

    def _places(self) -> Sequence[Value]:
        return [self.part.rows.payload.word_select(i, 8) for i in range(self.size)]


class Drained(wiring.Component):
    """A queue of pairs with one stream of reads, of one item or of two."""

    def __init__(self, depth: int) -> None:
        self.queue = PairQueue(data.StructLayout({"bit": 1}), depth)
        pairs = stream.Signature(PairLayout(self.queue.shape))
        super().__init__({"write": In(pairs), "read": Out(pairs)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = self.queue
        both, taken = self.read.payload.two, self.read.ready
        wiring.connect(m, wiring.flipped(self.write), queue.write)
        m.d.comb += [
            both.eq(queue.following.valid & AnySeq(1)),
            self.read.valid.eq(queue.read.valid),
            *(queue.read.ready.eq(taken), queue.following.ready.eq(taken & both)),
            self.read.payload.items[0].eq(queue.read.payload),
            self.read.payload.items[1].eq(queue.following.payload),
        ]
        return m


class Pairs(Followed):
    """Up to two items in, up to two out."""

    part: Drained
    latency = 2

    def __init__(self, *, depth: int) -> None:
        super().__init__(Drained(depth), size=1, most=2)

    def _ends(self) -> tuple[stream.Interface, stream.Interface]:
        return self.part.write, self.part.read

    def _last(self) -> Value:
        return Const(0, 1)

    def _items(self) -> list[Item]:
        pair = self.part.write.payload
        return [
            Item(here, Const(number, 1), pair.items[number].bit)
            for number, here in enumerate((Const(1, 1), pair.two))
        ]

    def _put(self) -> Value:
        return 1 + self.part.write.payload.two

    def _units(self) -> Value:
        return 1 + self.part.read.payload.two

    def _payload(self) -> Value:
        return Value.cast(self.part.read.payload.items[0])

    def _places(self) -> Sequence[Value]:
        return [item.bit for item in self.part.read.payload.items]


class Regions(Followed):
    """Rows to words, and words to whole superblocks; regions end, and others begin.

    Offered rows may be withdrawn before they are taken.
    """

    part: RegionWriter
    honest = False
    latency = 1

    def __init__(self, *, words: int) -> None:
        # rows of one bit, superblocks of ``words`` words
        super().__init__(RegionWriter(lanes=1, superblock=words), size=BUS_ROWS, most=BUS_ROWS)
        self.words = words
        self.closed = Signal()  # the region has no more rows

    def _ends(self) -> tuple[stream.Interface, stream.Interface]:
        return self.part.rows, self.part.words

    def _last(self) -> Value:
        return Value.cast(self.part.rows.payload.end)

    def _due(self) -> Value:
        """Return 1 if a word is due; it waits until it is known whether rows follow."""
        return self.closed & (self.inside != 0)

    def _arrived(self, m: Module, full: Value, rest: Value, last: Value) -> Value:
        """Count the words that complete a region to superblocks."""
        before, after = Signal(range(self.words), name="before"), Signal(4, name="after")
        m.d.comb += after.eq(before + full + (rest != 0))
        m.d.sync += before.eq(Mux(last, 0, before + full))
        whole = (after + self.words - 1) & ~(self.words - 1)
        return Mux(last, (whole - before)[:4], full)

    def claims(self, m: Module) -> None:
        """Add the packer claims; the region's last word is marked, and the region ends after it."""
        super().claims(m)
        part, closed = self.part, self.closed
        m.d.sync += closed.eq((closed | (self.come & self._last())) & ~part.next)
        m.d.comb += [Assume(~part.next | part.ended), Assume(part.rows.payload.count <= BUS_ROWS)]
        with m.If(~ResetSignal()):
            m.d.comb += [
                Assert(~part.ended | (closed & (self.inside == 0))),
                Assert(~closed | ~self.come),
                Assert(~self.left | (part.words.payload.last == (closed & (self.inside == 1)))),
            ]

    def _items(self) -> list[Item]:
        rows = self.part.rows.payload
        return [Item(rows.count > i, Const(i, 4), rows.rows[i]) for i in range(BUS_ROWS)]

    def _put(self) -> Value:
        return Value.cast(self.part.rows.payload.count)

    def _places(self) -> Sequence[Value]:
        return list(Value.cast(self.part.words.payload.data))


def _claim(name: str, what: str, design: Callable[[], Followed], *, fast: bool = False) -> Claim:
    rule = "leaves once, at its place; what is past the last is filled; what leaves stays until "
    rule += "it is taken, and waits for nothing that comes later"
    name = f"packers.{name}"
    return Claim(name=name, what=f"{what} {rule}.", design=design, seconds=300, fast=fast)


CLAIMS = (
    _claim("blocks", "Every chosen value (2 lanes)", lambda: Blocks(lanes=2, pace=2), fast=True),
    _claim("blocks_4", "Every chosen value (4 lanes)", lambda: Blocks(lanes=4, pace=4)),
    _claim(
        "blocks_4_by_2",
        "Every chosen value (4 lanes, 2 values in a piece)",
        lambda: Blocks(lanes=4, pace=2),
    ),
    _claim("residue", "Every bit of a residue (1 lane)", lambda: Residues(lanes=1, pace=1)),
    _claim("residue_2", "Every bit of a residue (2 lanes)", lambda: Residues(lanes=2, pace=2)),
    _claim(
        "residue_2_by_1",
        "Every bit of a residue (2 lanes, 1 value in a piece)",
        lambda: Residues(lanes=2, pace=1),
    ),
    _claim(
        "unary",
        "Every bit of a unary code (2 lanes, windows of 2 bits, codes of 4)",
        lambda: Unary(lanes=2, pace=2, window=1, limit=4),
    ),
    _claim(
        "unary_4",
        "Every bit of a unary code (2 lanes, windows of 4 bits, codes of 4)",
        lambda: Unary(lanes=2, pace=2, window=2, limit=4),
    ),
    _claim(
        "unary_4_by_1",
        "Every bit of a unary code (2 lanes, 1 value in a piece, windows of 4 bits, codes of 4)",
        lambda: Unary(lanes=2, pace=1, window=2, limit=4),
    ),
    _claim("shared", "Every exponent of a group (16 lanes)", lambda: Shared(lanes=16), fast=True),
    _claim("shared_32", "Every exponent of a group (32 lanes)", lambda: Shared(lanes=32)),
    _claim("pairs", "Every item of a queue of pairs (4 items)", lambda: Pairs(depth=4)),
    _claim("regions", "Every row (superblocks of 2 words)", lambda: Regions(words=2)),
)
