"""Packers: one item is followed from its beat to its place in a unit.

A packer concatenates *items* (values, exponents, rows, bits) into *units* with a fixed number of
places. One arbitrary item of a segment is followed: the number of items before it determines the
unit and the place at which it must leave, and there it must be found. The followed item may also be
a place past the last item, which must hold the fill. Both ends move at any pace, and segments of
any length follow each other.
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
    """An item of a beat: its presence, the number of items before it, and its value."""

    exists: Value
    before: Value
    value: Value


class Followed(Around):
    """A packer between two free ends, and the followed item.

    A unit has ``size`` items, a power of two; a beat has at most ``most``. A complete unit leaves,
    or is offered, within ``latency`` cycles, whatever follows it.
    """

    fill = 0  # value of the places past the last item
    honest = True  # beats stay until they are taken
    latency = 0

    def __init__(self, part: wiring.Component, *, size: int, most: int) -> None:
        super().__init__(part)
        self.size = size
        self.bits = (size - 1).bit_length()
        self.most = most

    # -- properties of a packer --------------------------------------------------------------------

    @abstractmethod
    def _ends(self) -> tuple[stream.Interface, stream.Interface]:
        """Return the streams of beats and of units."""

    @abstractmethod
    def _items(self) -> list[Item]:
        """Return the items of the offered beat that may be followed."""

    @abstractmethod
    def _put(self) -> Value:
        """Return the number of items of that beat."""

    @abstractmethod
    def _places(self) -> Sequence[Value]:
        """Return the places of the offered unit, or of two units in sequence."""

    def _units(self) -> Value:
        """Return the number of units offered together."""
        return Const(1, 1)

    def _payload(self) -> Value:
        """Return the value that must stay until it is taken."""
        return Value.cast(self._ends()[1].payload)

    def _last(self) -> Value:
        """Return 1 if the segment ends with that beat."""
        return Value.cast(self._ends()[0].payload.last)

    def _due(self) -> Value:
        """Return 1 if a unit must be offered soon."""
        return self.inside != 0

    def _arrived(self, m: Module, full: Value, rest: Value, last: Value) -> Value:
        """Return the units complete now: ``full`` full ones, and ``rest`` items in the next."""
        return full + (last & (rest != 0))

    # -- claims --------------------------------------------------------------------------------

    def claims(self, m: Module) -> None:
        """Assert both rules of streams, and the place of the followed item."""
        source, sink = self._ends()
        if self.honest:
            assume_holds(m, source.valid, source.ready, source.payload, "beats")
        assert_holds(m, sink.valid, sink.ready, self._payload(), "units")
        self.come = source.valid & source.ready
        self.left = Mux(sink.valid & sink.ready, self._units(), 0)
        self._count(m)
        self._follow(m)

    def _count(self, m: Module) -> None:
        """Count the items of the unit being filled, and the complete units that have not left."""
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
        """Assert that nothing extra leaves, and that no complete unit waits for later beats."""
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
        behind = self.inside + (at >> self.bits)  # units that leave before the item's own
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
        """Choose an item of this beat, or a fill place: return its destination and its value."""
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
