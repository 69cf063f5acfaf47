"""The packers of the encoder: no bit is lost, none comes twice, none moves.

One value of a segment is marked, wherever it is and whatever it is. Counting what comes before it
says where it must leave; there it must be found. Both ends move at any pace, and segments of any
length follow each other.
"""

from __future__ import annotations

from amaranth.hdl import Assert, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from rtl.packers import BlockPacker
from verif.formal.harness import assert_holds, assume_holds, bits_set
from verif.formal.prover import Claim

__all__ = ["CLAIMS", "Blocks"]


class _Marked:
    """Units that are to leave before the one of the marked value, and its place in that unit."""

    def __init__(self, m: Module, size: int, put: Value, last: Value, left: Value) -> None:
        self.active = Signal()  # the marked value is inside
        self.place = Signal(range(size))
        self.ahead = Signal(3)  # units before its own
        self.inside = Signal(3)  # units that are complete and did not leave
        level, end, come = Signal(range(size)), Signal(range(2 * size)), Signal(2)
        self.level = level  # values in the unit that is filled
        m.d.comb += [
            end.eq(level + put),
            come.eq((end >= size) + (last & (end != 0) & (end != size))),
        ]
        with m.If(~ResetSignal()):
            m.d.comb += Assert(~left | (self.inside + come > 0))
        m.d.sync += [
            level.eq(Mux(last, 0, Mux(end >= size, end - size, end))),
            self.inside.eq(self.inside + come - left),
            self.ahead.eq(self.ahead - left),
        ]


class Blocks(wiring.Component):
    """A block packer between two ends that are free."""

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        self.packer = BlockPacker(lanes=lanes, width=2)
        beat = self.packer.beats.payload.shape()
        super().__init__(
            {
                "valid": In(1),
                "ready": In(1),
                "beat": In(beat),
                "mark": In(1),
                "lane": In(range(lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The packer, and the value that is followed."""
        m = Module()
        m.submodules.packer = packer = self.packer
        beats, blocks, lanes = packer.beats, packer.blocks, self.lanes
        m.d.comb += [
            beats.valid.eq(self.valid),
            beats.payload.eq(self.beat),
            blocks.ready.eq(self.ready),
        ]
        assume_holds(m, beats.valid, beats.ready, beats.payload, "beats")
        assert_holds(m, blocks.valid, blocks.ready, blocks.payload, "blocks")
        come = beats.valid & beats.ready
        left = blocks.valid & blocks.ready
        chosen = self.beat.chosen
        put = Mux(come, bits_set(chosen), 0)
        marked = _Marked(m, lanes, put, come & self.beat.last, left)
        at, value = Signal(range(2 * lanes)), Signal(2)
        fits, now, held = Signal(), Signal(), Signal(2)
        for lane in range(lanes):
            with m.If(self.lane == lane):
                before = bits_set(chosen[:lane]) if lane else 0
                m.d.comb += [
                    at.eq(marked.level + before),
                    value.eq(self.beat.fields[lane]),
                    fits.eq(come & self.mark & ~marked.active & chosen[lane]),
                ]
        m.d.comb += now.eq(fits & left & (marked.inside == 0) & (at < lanes))  # leaves at once
        leaves = marked.active & left & (marked.ahead == 0)
        with m.If(fits & ~now):
            m.d.sync += [marked.active.eq(1), held.eq(value), marked.place.eq(at)]
            m.d.sync += marked.ahead.eq(marked.inside + (at >= lanes) - left)
        with m.If(leaves):
            m.d.sync += marked.active.eq(0)
        for place in range(lanes):
            found = blocks.payload[place]
            with m.If(~ResetSignal() & leaves & (marked.place == place)):
                m.d.comb += Assert(found == held)
            with m.If(~ResetSignal() & now & (at == place)):
                m.d.comb += Assert(found == value)
        return m


CLAIMS = (
    Claim(
        name="packers.blocks",
        what="Every chosen value leaves once, in its place of its block, and blocks stay until "
        "they are taken, whatever both ends do (2 lanes).",
        design=lambda: Blocks(lanes=2),
        method="reachable",
        seconds=300,
        fast=True,
    ),
    Claim(
        name="packers.blocks_4",
        what="The same with 4 lanes.",
        design=lambda: Blocks(lanes=4),
        method="reachable",
        seconds=300,
    ),
)
