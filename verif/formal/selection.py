"""The encoder's selection: exactly k values are kept, none smaller than one left out.

Search and selection are proved on small vectors with free values: the search for a threshold over
any number of vectors, at any pace, and the selection by a threshold. The sizes are parameters of
the blocks. The loader is proved never to overwrite a slot in use.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Assert, Assume, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.encode.topk import RadixSelect, SelectShape, ThresholdChoice
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encode.vector_buffer import VectorLoader
from cassandra_spec.verif.formal.harness import Around, assert_holds, bits_set, level_of
from cassandra_spec.verif.formal.prover import Claim

_SMALL = SelectShape(lanes=2, beats=2, slots=2, digits=(1, 1))
_DIGITS = SelectShape(lanes=2, beats=1, slots=2, digits=(1, 2))


class _Vectors:
    """Vectors of free values that never change: one in each slot."""

    def __init__(self, m: Module, shape: SelectShape, values: data.View, keep: data.View) -> None:
        word = values.shape().elem_shape
        self.values = [Signal(word, name=f"values_{slot}") for slot in range(shape.slots)]
        self.keep = [Signal(shape.counter, name=f"keep_{slot}") for slot in range(shape.slots)]
        self.begun = Signal()
        m.d.sync += self.begun.eq(1)
        for slot in range(shape.slots):
            m.d.comb += Assume((keep[slot] > 0) & (keep[slot] < shape.lanes * shape.beats))
            with m.If(~self.begun):
                m.d.sync += [self.values[slot].eq(values[slot]), self.keep[slot].eq(keep[slot])]

    def all_of(self, shape: SelectShape, slot: int) -> list[Value]:
        """Return the values of a vector, in order."""
        word = self.values[slot]
        return [word[b][lane] for b in range(shape.beats) for lane in range(shape.lanes)]


class Search(wiring.Component):
    """Vectors are searched repeatedly, at any pace; every threshold is correct."""

    def __init__(self, shape: SelectShape) -> None:
        self.shape = shape
        layout = data.ArrayLayout(data.ArrayLayout(shape.magnitude, shape.lanes), shape.beats)
        super().__init__(
            {
                "offer": In(1),
                "take": In(1),
                "values": In(data.ArrayLayout(layout, shape.slots)),
                "keep": In(data.ArrayLayout(shape.counter, shape.slots)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = self.shape
        m.submodules.select = select = RadixSelect(shape)
        vectors = _Vectors(m, shape, self.values, self.keep)
        self._drive(m, select, vectors)
        found = select.thresholds
        m.d.comb += found.ready.eq(self.take)
        for slot in range(shape.slots):
            with m.If(found.valid & (found.payload.slot == slot)):
                self._check(m, vectors, slot, found.payload)
        assert_holds(m, found.valid, found.ready, found.payload, "thresholds")
        return m

    def _drive(self, m: Module, select: RadixSelect, vectors: _Vectors) -> None:
        slot, waiting = Signal(range(self.shape.slots)), Signal()
        given = select.vectors
        m.d.comb += [
            given.valid.eq(vectors.begun & (self.offer | waiting)),
            given.payload.slot.eq(slot),
            given.payload.final.eq(self.shape.beats - 1),
        ]
        m.d.sync += waiting.eq(given.valid & ~given.ready)
        with m.If(given.valid & given.ready):
            m.d.sync += slot.eq(slot + 1)
        late_slot, late_beat = Signal.like(select.slot), Signal.like(select.beat)
        m.d.sync += [late_slot.eq(select.slot), late_beat.eq(select.beat)]
        m.d.comb += select.read.present.eq((1 << self.shape.lanes) - 1)
        for place, (values, keep) in enumerate(zip(vectors.values, vectors.keep, strict=True)):
            with m.If(slot == place):
                m.d.comb += given.payload.keep.eq(keep)
            for beat in range(self.shape.beats):
                with m.If((late_slot == place) & (late_beat == beat)):
                    m.d.comb += select.read.magnitudes.eq(values[beat])

    def _check(self, m: Module, vectors: _Vectors, slot: int, found: data.View) -> None:
        values = vectors.all_of(self.shape, slot)
        above = bits_set(Cat(value > found.value for value in values))
        equal = bits_set(Cat(value == found.value for value in values))
        m.d.comb += [
            Assert(above + found.ties == vectors.keep[slot]),
            Assert(found.ties <= equal),
            Assert(found.ties > 0),
        ]


class Choice(wiring.Component):
    """A vector and its threshold: the selection keeps the right lanes, beat after beat."""

    def __init__(self, shape: SelectShape) -> None:
        self.shape = shape
        super().__init__(
            {
                "values": In(data.ArrayLayout(shape.magnitude, shape.lanes * shape.beats)),
                "threshold": In(shape.magnitude),
                "ties": In(shape.kept),
                "every": In(1),
                "nothing": In(1),
                "kept": Out(shape.lanes * shape.beats),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = self.shape
        m.submodules.choice = choice = ThresholdChoice(shape)
        values = Signal(self.values.shape())
        threshold, ties = Signal.like(self.threshold), Signal.like(self.ties)
        every, nothing = Signal(), Signal()
        cycle = Signal(range(shape.beats + 4))
        last = shape.beats + 3  # all lanes have been selected
        m.d.sync += cycle.eq(Mux(cycle == last, 0, cycle + 1))
        with m.If(cycle == 0):
            m.d.sync += [
                values.eq(self.values),
                threshold.eq(self.threshold),
                ties.eq(self.ties),
                every.eq(self.every),
                nothing.eq(self.nothing & ~self.every),
            ]
        m.d.comb += [
            choice.threshold.all.eq(every),
            choice.threshold.none.eq(nothing),
            choice.threshold.value.eq(threshold),
            choice.threshold.ties.eq(ties),
            choice.beat.present.eq((1 << shape.lanes) - 1),
            choice.first.eq(cycle == 1),
            choice.valid.eq((cycle >= 1) & (cycle <= shape.beats)),
        ]
        for beat in range(shape.beats):
            part = slice(beat * shape.lanes, (beat + 1) * shape.lanes)
            with m.If(cycle == beat + 1):
                for lane, place in enumerate(range(part.start, part.stop)):
                    m.d.comb += choice.beat.magnitudes[lane].eq(values[place])
            with m.If(cycle == beat + 3):
                m.d.sync += self.kept[part].eq(choice.chosen)
        with m.If(cycle == last):
            with m.If(every | nothing):
                m.d.comb += Assert(self.kept == every.replicate(len(self.kept)))
            with m.Else():
                self._check(m, [values[i] for i in range(len(self.kept))], threshold, ties)
        return m

    def _check(self, m: Module, values: Sequence[Value], threshold: Value, ties: Value) -> None:
        """Assert that exactly k values are kept, in the right order, for a correct threshold."""
        above = bits_set(Cat(value > threshold for value in values))
        equal = bits_set(Cat(value == threshold for value in values))
        with m.If(ties <= equal):
            m.d.comb += Assert(bits_set(self.kept) == above + ties)
            for i, one in enumerate(values):
                for j, other in enumerate(values):
                    ahead = (one > other) | ((one == other) & (i < j))
                    m.d.comb += Assert(~(ahead & self.kept[j]) | self.kept[i])


class Slots(Around):
    """Words and commands of any kind; slots are freed after their vectors have been taken."""

    part: VectorLoader

    def claims(self, m: Module) -> None:
        loader, vectors = self.part, self.part.vectors
        taken = vectors.valid & vectors.ready
        outside = Signal(4)  # vectors taken and not yet freed
        m.d.sync += outside.eq(outside + taken - loader.free)
        m.d.comb += Assume(~loader.free | (outside != 0))
        opened = loader.write & (loader.place == 0)
        level_of(m, "slots", room=4, put=opened, taken=loader.free, clear=Const(0, 1))
        assert_holds(m, vectors.valid, vectors.ready, vectors.payload, "vectors")
        order = Signal(2)
        m.d.sync += order.eq(order + taken)
        with m.If(vectors.valid):
            m.d.comb += Assert(vectors.payload.slot == order)


CLAIMS = (
    Claim(
        name="selection.slots",
        what="The encoder's loader never writes into a slot that is in use, announces vectors in "
        "order, and keeps what it offers, whatever commands and packets come.",
        design=lambda: Slots(VectorLoader(EncoderConfig(lanes=8, vector=16, group=8, segment=64))),
    ),
    Claim(
        name="selection.threshold",
        what="Values above the threshold and the ties that are kept are k, for every vector of a "
        "run; thresholds stay until they are taken (4 values of 2 bits in 2 beats).",
        design=lambda: Search(_SMALL),
        seconds=600,
    ),
    Claim(
        name="selection.digits",
        what="The same with digits of 1 and 2 bits (2 values of 3 bits).",
        design=lambda: Search(_DIGITS),
        seconds=600,
    ),
    Claim(
        name="selection.choice",
        what="Exactly k are kept, none smaller than one left out, the first among equals; or all, "
        "or nothing, if asked for (4 values of 2 bits in 2 beats, any threshold that leaves k).",
        design=lambda: Choice(SelectShape(lanes=2, beats=2, digits=(1, 1))),
        seconds=600,
        fast=True,
    ),
)
