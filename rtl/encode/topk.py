"""Exact selection of the k largest values of a vector, digit by digit (radix select).

The k-th largest magnitude is found from its most significant digit on. For each digit, a pass over
the vector counts how many of the values that agree with the digits found so far have at least each
digit value. The largest digit that still leaves k values is the next digit of the threshold. The
larger values have been counted, and their number is subtracted from k. After the last digit the
threshold T is known, and k is the number of values equal to T that are kept: the first ones.
"""

from __future__ import annotations

import dataclasses

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import popcount, prefix_sums

MAGNITUDE = 15
"""Bits of a magnitude: exponent and mantissa."""

NARROW = (3,) * 5
"""Digit widths that need half the counters of the default, and one more pass."""

_CONTEXTS = 2  # vectors that are searched alternately
_TURN = 4  # minimum cycles of a pass: two turns outlast a count and a decision


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectShape:
    """Sizes of a selection, and the layouts that follow from them."""

    lanes: int
    beats: int  # maximum beats of a vector
    slots: int = 4  # vectors in the memory
    digits: tuple[int, ...] = (3, 4, 4, 4)  # widths, most significant first

    @property
    def magnitude(self) -> int:
        """Bits of a magnitude."""
        return sum(self.digits)

    @property
    def counter(self) -> Shape:
        """Shape of a number of values of a vector."""
        return Shape.cast(range(self.lanes * self.beats + 1))

    @property
    def kept(self) -> Shape:
        """Shape of a number of values that is less than the whole vector."""
        return Shape.cast(range(self.lanes * self.beats))

    @property
    def beat(self) -> Shape:
        """Shape of a beat's number in its vector."""
        return Shape.cast(range(self.beats))

    @property
    def vector(self) -> data.StructLayout:
        """A vector to search: its place, its last beat, and the number of values to keep."""
        return self._layout(keep=self.kept)  # from 1 to one less than the values

    @property
    def threshold(self) -> data.StructLayout:
        """A result: keep the values above ``value``, and the first ``ties`` equal to it."""
        return self._layout(value=self.magnitude, ties=self.kept)

    def _layout(self, **fields: Shape | int) -> data.StructLayout:
        """Layout of a slot, a final beat, ``fields``, and the flags ``all`` and ``none``."""
        slot = Shape.cast(range(self.slots))
        return data.StructLayout({"slot": slot, "final": self.beat, **fields, "all": 1, "none": 1})

    @property
    def read(self) -> data.StructLayout:
        """A beat as the memory gives it; lanes that are not present do not count."""
        return data.StructLayout(
            {"magnitudes": data.ArrayLayout(self.magnitude, self.lanes), "present": self.lanes}
        )


class RadixSelect(wiring.Component):
    """Find the threshold of the k largest values of each vector, vectors in order.

    Two vectors are searched alternately, a pass of one, a pass of the other, so that the decision
    of a pass is made while the other vector is read. The beats of a vector must be in the memory
    when the search is requested, and stay until its threshold is taken.

    Latency: two turns per digit (a turn is as many cycles as the vector has beats, at least four)
    and a few cycles. Throughput: a vector in as many turns as there are digits, 16 cycles for 64
    values in 16 lanes; vectors that are kept or pruned whole take one cycle each. Buffering: two
    vectors' states and two thresholds; no data. Illegal input (``keep`` of 0, or more than the
    values) gives an arbitrary threshold and no hang.

    Members
    -------
    slot, beat : Out
        Address of a read; ``read`` shows it in the next cycle.
    """

    def __init__(self, shape: SelectShape) -> None:
        self.shape = shape
        self._contexts = [_Context(shape, i) for i in range(_CONTEXTS)]
        super().__init__(
            {
                "vectors": In(stream.Signature(shape.vector)),
                "slot": Out(range(shape.slots)),
                "beat": Out(shape.beat),
                "read": In(shape.read),
                "thresholds": Out(stream.Signature(shape.threshold)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tag = self._issue(m)
        digits, active, tag = self._match(m, tag)
        totals, tag = self._count(m, digits, active, tag)
        self._decide(m, totals, tag)
        self._take(m)
        self._give(m)
        return m

    def _take(self, m: Module) -> None:
        """Assign a vector to the context whose turn it is, as soon as that is free."""
        turn = Signal()
        payload = self.vectors.payload
        shared = ("slot", "final", "all", "none")  # fields that a vector and its threshold share
        trivial = payload.all | payload.none
        taken = self.vectors.valid & self.vectors.ready
        for i, context in enumerate(self._contexts):
            free = Mux(trivial, ~context.busy & ~context.found, ~context.busy | context.ending)
            with m.If(turn == i):
                m.d.comb += self.vectors.ready.eq(free)
            with m.If(taken & (turn == i)):
                m.d.sync += [
                    context.busy.eq(~trivial),
                    context.slot.eq(payload.slot),
                    context.final.eq(payload.final),
                    context.wanted.eq(payload.keep),
                    context.number.eq(0),
                ]
                with m.If(trivial):
                    m.d.sync += [
                        context.found.eq(1),
                        *(context.result[name].eq(payload[name]) for name in shared),
                    ]
        m.d.sync += turn.eq(turn ^ taken)

    def _give(self, m: Module) -> None:
        """Offer the thresholds in the order of their vectors."""
        turn = Signal()
        given = self.thresholds.valid & self.thresholds.ready
        for i, context in enumerate(self._contexts):
            with m.If(turn == i):
                m.d.comb += [
                    self.thresholds.valid.eq(context.found),
                    self.thresholds.payload.eq(context.result),
                ]
                with m.If(given):
                    m.d.sync += context.found.eq(0)
        m.d.sync += turn.eq(turn ^ given)

    def _issue(self, m: Module) -> _Tag:
        """Time the turns and read the beats of a pass; return the tag of the beat read now.

        The last pass of a vector waits until there is room for its threshold.
        """
        turn, place = Signal(), Signal(range(max(self.shape.beats, _TURN)))
        started, running, last = Signal(), Signal(), Signal()
        final = Signal(self.shape.beat)
        tag = _Tag("read")
        for i, context in enumerate(self._contexts):
            with m.If(turn == i):
                m.d.comb += [
                    running.eq(Mux(place == 0, context.busy & ~context.blocked, started)),
                    final.eq(context.final),
                    self.slot.eq(context.slot),
                ]
        m.d.comb += [
            self.beat.eq(place),
            last.eq(Mux(running & (final >= _TURN), place == final, place == _TURN - 1)),
        ]
        m.d.sync += [started.eq(running), place.eq(place + 1)]
        with m.If(last):
            m.d.sync += [place.eq(0), turn.eq(~turn)]
        m.d.sync += [
            tag.valid.eq(running & (place <= final)),
            tag.context.eq(turn),
            tag.first.eq(place == 0),
            tag.last.eq(running & (place == final)),
        ]
        return tag

    def _match(self, m: Module, tag: _Tag) -> tuple[list[Signal], Signal, _Tag]:
        """Return the digit of each value, and whether it agrees with the digits found so far."""
        shape = self.shape
        prefix, number = Signal(shape.magnitude), Signal(range(len(shape.digits)))
        m.d.comb += [
            prefix.eq(Array(context.prefix for context in self._contexts)[tag.context]),
            number.eq(Array(context.number for context in self._contexts)[tag.context]),
        ]
        digits = [
            Signal(max(shape.digits), name=f"digit_{lane}", reset_less=True)
            for lane in range(shape.lanes)
        ]
        active = Signal(shape.lanes, reset_less=True)
        for lane, digit in enumerate(digits):
            parts = _parts(shape, self.read.magnitudes[lane])
            agrees = [
                (part == known) | (number <= i)
                for i, (part, known) in enumerate(zip(parts, _parts(shape, prefix), strict=True))
            ]
            m.d.sync += [
                digit.eq(Array(parts)[number]),
                active[lane].eq(tag.valid & self.read.present[lane] & Cat(agrees[:-1]).all()),
            ]
        return digits, active, tag.later(m, "match")

    def _count(
        self, m: Module, digits: list[Signal], active: Signal, tag: _Tag
    ) -> tuple[list[Signal], _Tag]:
        """Count, for each digit except 0, the vector's active values with at least that digit."""
        bounds = range(1, 1 << max(self.shape.digits))
        count = Shape.cast(range(self.shape.lanes + 1))
        in_beat = [Signal(count, name=f"in_beat_{i}", reset_less=True) for i in bounds]
        totals = [Signal(self.shape.counter, name=f"total_{i}", reset_less=True) for i in bounds]
        added = tag.later(m, "added")
        for bound, one, total in zip(bounds, in_beat, totals, strict=True):
            reach = Cat(active[lane] & (digit >= bound) for lane, digit in enumerate(digits))
            m.d.sync += [one.eq(popcount(reach)), total.eq(Mux(added.first, 0, total) + one)]
        return totals, added.later(m, "counted")

    def _decide(self, m: Module, totals: list[Signal], tag: _Tag) -> None:
        """Decide the next digit of the threshold, and how many values are still needed below it."""
        shape = self.shape
        wanted, left = Signal(shape.kept), Signal(shape.kept)
        m.d.comb += wanted.eq(Array(context.wanted for context in self._contexts)[tag.context])
        reached = Signal(len(totals))  # thermometer code
        m.d.comb += reached.eq(Cat(total >= wanted for total in totals))
        steps = [~reached[0], *(reached[i] & ~reached[i + 1] for i in range(len(totals) - 1))]
        above = _any([Mux(step, total, 0) for step, total in zip(steps, totals, strict=True)])
        numbered = enumerate([*steps, reached[-1]])
        digit = _any([Mux(step, Const(value), 0) for value, step in numbered])
        m.d.comb += left.eq(wanted - above)
        for i, context in enumerate(self._contexts):
            ended = tag.valid & tag.last & (tag.context == i)
            m.d.comb += context.ending.eq(ended & context.final_pass)
            with m.If(ended):
                m.d.sync += [context.wanted.eq(left), context.number.eq(context.number + 1)]
                for number, part in enumerate(_parts(shape, context.prefix)):
                    with m.If(context.number == number):
                        m.d.sync += part.eq(digit)
            with m.If(context.ending):
                m.d.sync += [
                    context.busy.eq(0),
                    context.found.eq(1),
                    context.result.slot.eq(context.slot),
                    context.result.final.eq(context.final),
                    context.result.all.eq(0),
                    context.result.none.eq(0),
                    context.result.ties.eq(left),
                    context.result.value.eq(
                        Cat(digit[: shape.digits[-1]], context.prefix[shape.digits[-1] :])
                    ),
                ]


class _Context:
    """A vector being searched, and the threshold of the one before it."""

    def __init__(self, shape: SelectShape, index: int) -> None:
        final = len(shape.digits) - 1
        self.busy = Signal(name=f"busy_{index}")
        self.slot = Signal(range(shape.slots), name=f"slot_{index}", reset_less=True)
        self.final = Signal(shape.beat, name=f"final_{index}", reset_less=True)
        # Digits found so far.
        self.prefix = Signal(shape.magnitude, name=f"prefix_{index}", reset_less=True)
        self.wanted = Signal(shape.kept, name=f"wanted_{index}", reset_less=True)
        self.number = Signal(range(len(shape.digits)), name=f"pass_{index}")
        self.ending = Signal(name=f"ending_{index}")  # the last decision is made now
        self.found = Signal(name=f"found_{index}")  # ``result`` holds a threshold
        self.result = Signal(shape.threshold, name=f"result_{index}", reset_less=True)
        self.final_pass = self.number == final
        self.blocked = self.final_pass & self.found


def _parts(shape: SelectShape, magnitude: Value) -> list[Value]:
    """Return the digits of a magnitude, most significant first."""
    parts, end = [], shape.magnitude
    for width in shape.digits:
        parts.append(magnitude[end - width : end])
        end -= width
    return parts


def _any(terms: list[Value]) -> Value:
    """OR all terms with a balanced tree."""
    while len(terms) > 1:
        paired = [a | b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = paired + ([terms[-1]] if len(terms) % 2 else [])
    return terms[0]


class _Tag:
    """The flags that accompany a beat from stage to stage."""

    def __init__(self, name: str) -> None:
        self.valid = Signal(name=f"{name}_valid")
        self.context = Signal(name=f"{name}_context")
        self.first = Signal(name=f"{name}_first")
        self.last = Signal(name=f"{name}_last")

    def later(self, m: Module, name: str) -> _Tag:
        """Return the tag one cycle later."""
        tag = _Tag(name)
        m.d.sync += [
            tag.valid.eq(self.valid),
            tag.context.eq(self.context),
            tag.first.eq(self.first),
            tag.last.eq(self.last),
        ]
        return tag


class ThresholdChoice(wiring.Component):
    """Select the lanes that a threshold keeps, beat by beat.

    Latency: two cycles. Throughput: one beat per cycle. Buffering: two stages, no back-pressure.
    Every input is legal; a beat that is not valid changes nothing.

    Members
    -------
    valid, first : In(1)
        ``valid``: a beat is present. ``first``: it is the first of its vector.
    chosen : Out(lanes)
        Selected lanes of the beat two cycles ago.
    """

    def __init__(self, shape: SelectShape) -> None:
        self.shape = shape
        self.left = Signal(shape.kept, reset_less=True)  # ties that may still be kept
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "beat": In(shape.read),
                "threshold": In(shape.threshold),
                "chosen": Out(shape.lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self.shape.lanes
        valid, first = Signal(), Signal()
        above, equal = Signal(lanes, reset_less=True), Signal(lanes, reset_less=True)
        ties = Signal(self.shape.kept, reset_less=True)
        m.d.sync += [
            valid.eq(self.valid),
            first.eq(self.first),
            ties.eq(self.threshold.ties),
        ]
        for lane in range(lanes):
            magnitude, present = self.beat.magnitudes[lane], self.beat.present[lane]
            larger = (magnitude > self.threshold.value) | self.threshold.all
            m.d.sync += [
                above[lane].eq(present & larger & ~self.threshold.none),
                equal[lane].eq(
                    present & (magnitude == self.threshold.value) & ~self.threshold.none
                ),
            ]
        self._ties(m, valid, above, equal, Mux(first, ties, self.left))
        return m

    def _ties(self, m: Module, valid: Signal, above: Signal, equal: Signal, before: Value) -> None:
        """Select the first lanes equal to the threshold, as many as are still to be kept."""
        lanes = self.shape.lanes
        left = Signal(self.shape.kept)
        m.d.comb += left.eq(before)
        width = lanes.bit_length()
        counts = prefix_sums(m, [equal[i] for i in range(lanes)], width, "equal")
        for lane in range(lanes):
            m.d.sync += self.chosen[lane].eq(above[lane] | (equal[lane] & (counts[lane] <= left)))
        with m.If(valid):
            m.d.sync += self.left.eq(Mux(counts[-1] >= left, 0, left - counts[-1]))
