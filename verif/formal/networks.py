"""The networks equal their naive expansions: every lane looks its element up by number.

The zero counter equals a count bit by bit, at every width up to 32. Elements of networks are single
bits here, because a network moves every bit of an element in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from amaranth.hdl import Assert, Assume, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from cassandra_spec.rtl.common.networks import (
    choose,
    compact,
    expand,
    popcount,
    prefix_sums,
    prefix_sums_from,
    rotate,
    shift,
)
from cassandra_spec.rtl.common.residue import FIELD_MAX, ResidueUnpack, sums_of
from cassandra_spec.rtl.common.shifter import DynamicShifter
from cassandra_spec.rtl.decode.bitmap_expand import BitmapExpand
from cassandra_spec.rtl.zero_counter import ParallelZeroCounter, ZeroCounter
from cassandra_spec.verif.formal.harness import Together, bits_set
from cassandra_spec.verif.formal.prover import Claim


def _node(m: Module, value: Value, name: str, width: int | None = None) -> Signal:
    node = Signal(value.shape() if width is None else Shape(width), name=name)
    m.d.comb += node.eq(value)
    return node


def _numbers(m: Module, head: Value, mask: Value, width: int) -> list[Value]:
    """Return the number of each lane's element, counted lane by lane from ``head``."""
    numbers = [_node(m, head, "number_0", width)]
    for lane in range(len(mask) - 1):
        numbers.append(_node(m, numbers[-1] + mask[lane], f"number_{lane + 1}", width))
    return [*numbers]


class CountsEqual(wiring.Component):
    """A counter equals a model that looks at one bit after the other."""

    def __init__(self, counter: ParallelZeroCounter | ZeroCounter) -> None:
        self.counter = counter
        self.width = counter.width
        self.limit = counter.limit
        super().__init__({"bits": In(self.width), "carry": In(range(self.limit + 1))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.counter = counter = self.counter
        m.d.comb += [counter.bits.eq(self.bits), counter.carry_in.eq(self.carry)]
        m.d.comb += Assume(self.carry <= self.limit)
        run: Value = self.carry
        ones: Value = Const(0, 1)
        overflow: Value = Const(0, 1)
        for place in range(self.width):
            m.d.comb += Assert((counter.runs[place] == run) | ~self.bits[place])
            # A run that reached the limit before this bit, or reaches it here, is illegal.
            bit = self.bits[place]
            overflow = overflow | (run >= self.limit)
            ones = _node(m, ones + bit, f"ones_{place}")
            more = Mux(run >= self.limit, self.limit, run + 1)
            run = _node(m, Mux(bit, 0, more), f"run_{place}")
        overflow = overflow | (run >= self.limit)
        m.d.comb += [
            Assert(counter.ones == ones),
            Assert(counter.carry_out == run),
            Assert(counter.overflow == overflow),
        ]
        return m


class Expands(wiring.Component):
    """A lane of the mask gets the element of its number, modulo the size of the store."""

    def __init__(self, lanes: int, places: int) -> None:
        self.bits = (places - 1).bit_length()
        super().__init__({"store": In(places), "mask": In(lanes), "head": In(self.bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers = _numbers(m, self.head, self.mask, self.bits)
        lanes = expand(m, [*self.store], numbers, "lane")
        for lane, number in enumerate(numbers):
            with m.If(self.mask[lane]):
                m.d.comb += Assert(lanes[lane] == self.store.bit_select(number, 1))
        return m


class Compacts(wiring.Component):
    """An element of the mask goes to the place of its number, modulo the size of the store."""

    def __init__(self, places: int) -> None:
        self.bits = (places - 1).bit_length()
        super().__init__({"items": In(places), "mask": In(places), "head": In(self.bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers = _numbers(m, self.head, self.mask, self.bits)
        places = Cat(compact(m, [*self.items], numbers, "place"))
        for item, number in enumerate(numbers):
            with m.If(self.mask[item]):
                m.d.comb += Assert(places.bit_select(number, 1) == self.items[item])
        return m


class Bitmaps(wiring.Component):
    """Elements 0, 1, 2, ... go to the set lanes, lowest lane first."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__({"items": In(lanes), "mask": In(lanes)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.net = net = BitmapExpand(lanes=self.lanes, width=1)
        m.d.comb += [net.elements.eq(self.items), net.lane_mask.eq(self.mask)]
        for lane in range(self.lanes):
            item = self.items.bit_select(bits_set(self.mask[:lane]) if lane else 0, 1)
            with m.If(self.mask[lane]):
                m.d.comb += Assert(net.lanes_out[lane] == item)
        return m


class Moves(wiring.Component):
    """Item ``i`` of a rotation or a shift is the one that stood ``amount`` later."""

    def __init__(self, network: Callable[..., Sequence[Value]], items: int, outputs: int) -> None:
        self.network = network
        self.outputs = outputs
        super().__init__({"items": In(items), "amount": In((items - 1).bit_length())})

    def elaborate(self, platform: object) -> Module:
        """Add one assertion per output; a shift brings in zeros, a rotation wraps around."""
        m = Module()
        moved = self.network(m, [*self.items], self.amount, self.outputs, "moved")
        again = Cat(self.items, self.items) if self.network is rotate else self.items
        for place, bit in enumerate(moved):
            m.d.comb += Assert(bit == (again >> (self.amount + place))[0])
        return m


class Chooses(wiring.Component):
    """``choose`` returns the item of an index, and zero past the last item."""

    def __init__(self, items: int) -> None:
        self.count = items
        super().__init__({"items": In(3 * items), "index": In(range(items))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        items = [self.items.word_select(i, 3) for i in range(self.count)]
        chosen = choose(m, items, self.index, "item")
        m.d.comb += Assert(chosen == self.items >> 3 * self.index & 0b111)
        return m


class Counts(wiring.Component):
    """Prefix sums and the count of ones equal sums from one bit to the next."""

    def __init__(self, lanes: int) -> None:
        super().__init__({"mask": In(lanes)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = len(self.mask).bit_length()
        for place, total in enumerate(prefix_sums(m, [*self.mask], width, "sum")):
            m.d.comb += Assert(total == bits_set(self.mask[: place + 1]))
        m.d.comb += Assert(popcount(self.mask) == bits_set(self.mask))
        return m


class Based(wiring.Component):
    """Prefix sums from a base equal the base plus sums from one bit to the next."""

    def __init__(self, lanes: int) -> None:
        super().__init__({"mask": In(lanes), "base": In(3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = len(self.mask).bit_length() + 1
        based = prefix_sums_from(m, self.base, [*self.mask], width, "sum")
        for place, total in enumerate(based):
            m.d.comb += Assert(total == (self.base + bits_set(self.mask[: place + 1]))[:width])
        return m


class Unpacks(wiring.Component):
    """The field of a lane begins where the previous lane's ends, the first after a gap."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        run, skip = (FIELD_MAX + 1) * lanes - 1, range(lanes)
        super().__init__({"run": In(run), "skip": In(skip), "widths": In(3 * lanes)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unpack = unpack = ResidueUnpack(lanes=self.lanes)
        m.d.comb += [
            unpack.bits.eq(self.run),
            unpack.skip.eq(self.skip),
            unpack.widths.eq(self.widths),
        ]
        widths = [self.widths.word_select(lane, 3) for lane in range(self.lanes)]
        m.d.comb += [to.eq(one) for to, one in zip(unpack.needs, sums_of(widths), strict=True)]
        rest: Value = _node(m, self.run >> self.skip, "rest", FIELD_MAX * self.lanes)
        for lane in range(self.lanes):
            width = self.widths.word_select(lane, 3)
            ones = Cat(width > bit for bit in range(FIELD_MAX))
            m.d.comb += Assert(unpack.fields[lane] == rest & ones)
            rest = _node(m, (rest >> width), f"rest_{lane}", FIELD_MAX * self.lanes)
        return m


class Shifts(wiring.Component):
    """``DynamicShifter`` returns the number ``magnitude * 2^(shared - 134)`` in normal form."""

    def __init__(self) -> None:
        super().__init__({"shared": In(8), "own": In(8), "magnitude": In(8)})

    def elaborate(self, platform: object) -> Module:
        """Shift by one place at a time until it is normal, as long as the exponent lasts."""
        m = Module()
        m.submodules.shifter = shifter = DynamicShifter()
        m.d.comb += [
            shifter.shared.eq(self.shared),
            shifter.own.eq(self.own),
            shifter.magnitude.eq(self.magnitude),
        ]
        exponent: Value = self.shared
        number: Value = self.magnitude
        for step in range(7):
            room = ~number[7] & (exponent > 1)
            exponent = _node(m, exponent - room, f"exponent_{step}", 8)
            number = _node(m, number << room, f"number_{step}", 8)
        with m.If(self.magnitude[7]):
            m.d.comb += Assert(
                Cat(shifter.mantissa, shifter.exponent) == Cat(self.magnitude[:7], self.own)
            )
        with m.Else():
            m.d.comb += Assume(self.own == self.shared)
        with m.If((self.shared != 0) & (self.magnitude != 0)):
            m.d.comb += [
                Assert(shifter.mantissa == number[:7]),
                Assert(shifter.shift == self.shared - exponent),
                Assert(shifter.subnormal == ~number[7]),
                Assert(self.magnitude[7] | (shifter.exponent == number[7].replicate(8) & exponent)),
            ]
        with m.If((self.shared != 0) & (self.magnitude == 0)):
            m.d.comb += Assert((shifter.exponent == 0) & (shifter.mantissa == 0))
            m.d.comb += Assert(~shifter.subnormal)
        return m


_Counter = type[ParallelZeroCounter] | type[ZeroCounter]


def _counters(widths: Iterable[int], limit: int, kind: _Counter = ParallelZeroCounter) -> Together:
    return Together({f"w{width}": CountsEqual(kind(width, limit=limit)) for width in widths})


_WHAT = "Runs, ones, carry and overflow equal a count bit by bit; {}."


def _claim(name: str, what: str, parts: Callable[[], dict[str, wiring.Component]]) -> Claim:
    return Claim(
        name=f"networks.{name}",
        what=what,
        design=lambda: Together(parts()),
        method="rewriting" if name.startswith("residue") else "combinational",
        fast=name.endswith("8") or name in ("shifter", "choose", "counts", "rotate", "shift"),
    )


_MOVES = (
    ("rotate", rotate, ((16, 12), (32, 12), (32, 16))),
    ("shift", shift, ((8, 7), (14, 7), (16, 16), (23, 16))),
)

CLAIMS = (
    Claim(
        name="zero_counter.every_width",
        what=_WHAT.format("windows of 1 to 32 bits, codes of up to 16 bits"),
        design=lambda: _counters(range(1, 33), 16),
        method="combinational",
    ),
    Claim(
        name="zero_counter.long_codes",
        what=_WHAT.format("windows of 8, 16, 24, 32 and 64 bits, codes of up to 32 bits"),
        design=lambda: _counters((8, 16, 24, 32, 64), 32),
        method="combinational",
    ),
    Claim(
        name="zero_counter.chunk",
        what=_WHAT.format("chunks of 1 to 8 bits, codes of up to 16 bits"),
        design=lambda: _counters(range(1, 9), 16, ZeroCounter),
        method="combinational",
        fast=True,
    ),
    Claim(
        name="zero_counter.chunks",
        what=_WHAT.format("windows of 9, 12, 16 and 20 bits, codes of up to 16 bits"),
        design=lambda: _counters((9, 12, 16, 20), 16),
        method="combinational",
        fast=True,
    ),
    *(
        _claim(
            f"expand.l{lanes}",
            f"Each of {lanes} lanes gets its element from stores of {lanes} to {4 * lanes}.",
            lambda lanes=lanes: {  # type: ignore[misc]
                f"of_{n}": Expands(lanes, n) for n in (lanes, 2 * lanes, 4 * lanes)
            },
        )
        for lanes in (8, 16)
    ),
    *(
        _claim(
            f"compact.{places}",
            f"Each of {places} elements that counts goes to the place of its number.",
            lambda places=places: {"of": Compacts(places)},  # type: ignore[misc]
        )
        for places in (8, 16, 32)
    ),
    _claim(
        "bitmap_expand",
        "Stored values go to the set lanes of bitmaps of 8, 16 and 32 lanes.",
        lambda: {f"l{lanes}": Bitmaps(lanes) for lanes in (8, 16, 32)},
    ),
    *(
        _claim(
            name,
            "Every output is the item that stood the amount later: "
            + ", ".join(f"{n} of {of}" for of, n in sizes)
            + ".",
            lambda net=net, sizes=sizes: {  # type: ignore[misc]
                f"n{of}_{n}": Moves(net, of, n) for of, n in sizes
            },
        )
        for name, net, sizes in _MOVES
    ),
    _claim(
        "choose",
        "The item of an index, of 1 to 33 items; zero past the last.",
        lambda: {f"n{items}": Chooses(items) for items in range(1, 34)},
    ),
    _claim(
        "counts",
        "Prefix sums and counts of 5, 8, 11, 16 and 32 bits equal sums from bit to bit.",
        lambda: {f"l{lanes}": Counts(lanes) for lanes in (5, 8, 11, 16, 32)},
    ),
    _claim(
        "based",
        "Prefix sums of 1, 2, 5 and 8 bits from a base equal it and sums from bit to bit.",
        lambda: {f"l{lanes}": Based(lanes) for lanes in (1, 2, 5, 8)},
    ),
    _claim(
        "residue",
        "The fields of 8 lanes begin where those before them end.",
        lambda: {"l8": Unpacks(8)},
    ),
    _claim(
        "shifter",
        "The shifter equals shifting by one place until the number is normal.",
        lambda: {"of": Shifts()},
    ),
)
