"""Items that a packer puts behind each other: one is followed from where it comes to its place.

What a packer puts behind each other are *items* (values, exponents, rows, bits); a *unit* that
leaves has a fixed number of places. One item of a segment is followed, wherever it is and whatever
it is: counting what comes before it says in which unit and at which place it must leave, and there
it must be found. What is followed may also be a place past the last item, which must be filled.
Both ends move at any pace, and segments of any length follow each other.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence

from amaranth.asserts import AnySeq
from amaranth.hdl import Array, Assert, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import stream, wiring

from cassandra_spec.verif.formal.harness import Around, assert_holds, assume_holds


@dataclasses.dataclass(frozen=True)
class Item:
    """An item of a beat: whether it is there, how many are before it, and what it is."""

    exists: Value
    before: Value
    value: Value


class Followed(Around):
    """A packer between two ends that are free, and the item that is followed.

    ``size`` items, a power of two, make a unit; a beat has at most ``most``. What is complete
    leaves, or is offered, within ``latency`` cycles, whatever comes behind it.
    """

    fill = 0  # what is in the places past the last item
    honest = True  # beats stay until they are taken
    latency = 0

    def __init__(self, part: wiring.Component, *, size: int, most: int) -> None:
        super().__init__(part)
        self.size = size
        self.bits = (size - 1).bit_length()
        self.most = most

    # -- what a packer is like --------------------------------------------------------------------

    @abstractmethod
    def _ends(self) -> tuple[stream.Interface, stream.Interface]:
        """The streams of beats and of units."""

    @abstractmethod
    def _items(self) -> list[Item]:
        """What may be followed of the beat that is offered."""

    @abstractmethod
    def _put(self) -> Value:
        """How many items that beat has."""

    @abstractmethod
    def _places(self) -> Sequence[Value]:
        """The places of what is offered: of a unit, or of one behind the other."""

    def _units(self) -> Value:
        """How many units are offered together."""
        return Const(1, 1)

    def _payload(self) -> Value:
        """What must stay until it is taken."""
        return Value.cast(self._ends()[1].payload)

    def _last(self) -> Value:
        """The segment ends with that beat."""
        return Value.cast(self._ends()[0].payload.last)

    def _due(self) -> Value:
        """Something must be offered soon."""
        return self.inside != 0

    def _arrived(self, m: Module, full: Value, rest: Value, last: Value) -> Value:
        """Units that are complete now: ``full`` are full, ``rest`` items are in the next."""
        return full + (last & (rest != 0))

    # -- what holds of it -------------------------------------------------------------------------

    def claims(self, m: Module) -> None:
        """Both rules of streams, and where the followed item is found."""
        source, sink = self._ends()
        if self.honest:
            assume_holds(m, source.valid, source.ready, source.payload, "beats")
        assert_holds(m, sink.valid, sink.ready, self._payload(), "units")
        self.come = source.valid & source.ready
        self.left = Mux(sink.valid & sink.ready, self._units(), 0)
        self._count(m)
        self._follow(m)

    def _count(self, m: Module) -> None:
        """Items in the unit that is filled, units that are complete and did not leave."""
        bits = self.bits
        level = Signal(range(self.size), name="level")
        self.level, self.end = level, Signal(range(self.size + self.most), name="end")
        self.arrive = Signal(range(2 * self.most // self.size + 8), name="arrive")
        self.inside = Signal(range(2 * self.most // self.size + 12), name="inside")
        ends = self.come & self._last()
        m.d.comb += [
            self.end.eq(level + Mux(self.come, self._put(), 0)),
            self.arrive.eq(self._arrived(m, self.end >> bits, self.end[:bits], ends)),
        ]
        m.d.sync += [
            level.eq(Mux(ends, 0, self.end[:bits])),
            self.inside.eq(self.inside + self.arrive - self.left),
        ]
        self._moves(m)

    def _moves(self, m: Module) -> None:
        """Nothing leaves that did not come, and nothing that is complete waits for what comes."""
        sink = self._ends()[1]
        still = Signal(range(self.latency + 2), name="still")
        m.d.sync += still.eq(Mux(self._due() & ~sink.valid, still + 1, 0))
        with m.If(~ResetSignal()):
            m.d.comb += [
                Assert(self.left <= self.inside + self.arrive),
                Assert(still <= self.latency),
            ]

    def _follow(self, m: Module) -> None:
        at, value, fits = self._choose(m)
        active, held = Signal(name="active"), Signal(len(value), name="held")
        place, ahead = Signal(range(self.size), name="place"), Signal.like(self.inside)
        now, leaves = Signal(name="now"), Signal(name="leaves")
        behind = self.inside + (at >> self.bits)  # units that leave before its own
        m.d.comb += [
            now.eq(fits & (behind < self.left)),
            leaves.eq(active & (ahead < self.left)),
        ]
        m.d.sync += ahead.eq(ahead - self.left)
        with m.If(fits & ~now):
            m.d.sync += [
                active.eq(1),
                held.eq(value),
                place.eq(at[: self.bits]),
                ahead.eq(behind - self.left),
            ]
        with m.If(leaves):
            m.d.sync += active.eq(0)
        found = Array(self._places())
        with m.If(~ResetSignal() & leaves):
            m.d.comb += Assert(found[(ahead << self.bits) + place] == held)
        with m.If(~ResetSignal() & now):
            m.d.comb += Assert(found[(behind << self.bits) + at[: self.bits]] == value)

    def _choose(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """Some item of this beat, or a place that is filled: where it belongs, and what it is."""
        items, idle = self._items(), Signal(init=1, name="idle")
        at = Signal(len(self.arrive) + self.bits, name="at")
        value, fits = Signal(max(len(i.value) for i in items), name="value"), Signal(name="fits")
        choice, past, some = AnySeq(range(len(items) + 1)), AnySeq(len(at)), AnySeq(1)
        for number, item in enumerate(items):
            with m.If(choice == number):
                m.d.comb += [
                    at.eq(self.level + item.before),
                    value.eq(item.value),
                    fits.eq(self.come & some & idle & item.exists),
                ]
        with m.If(choice == len(items)):
            filled = (past >= self.end) & ((past >> self.bits) < self.arrive)
            m.d.comb += [
                at.eq(past),
                value.eq(self.fill),
                fits.eq(self.come & self._last() & some & idle & filled),
            ]
        with m.If(fits):
            m.d.sync += idle.eq(0)
        return at, value, fits
