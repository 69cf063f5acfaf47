"""The networks equal their naive expansions: every lane looks its element up by number.

The zero counter equals a count bit by bit, at every width up to 32. Elements of networks are single
bits here, because a network moves every bit of an element in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amaranth.hdl import Assert, Assume, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import wiring

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
from cassandra_spec.verif.formal.harness import Stated, Together, bits_set
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


def _bits(count: int) -> int:
    """Return the bits of a number below ``count``."""
    return (count - 1).bit_length()


def counts_equal(counter: ParallelZeroCounter | ZeroCounter) -> Stated:
    """State that a counter equals a model that looks at one bit after the other."""
    limit = counter.limit

    def state(m: Module, free: Any) -> None:
        m.submodules.counter = counter
        m.d.comb += [counter.bits.eq(free.bits), counter.carry_in.eq(free.carry)]
        m.d.comb += Assume(free.carry <= limit)
        run: Value = free.carry
        ones: Value = Const(0, 1)
        overflow: Value = Const(0, 1)
        for place in range(counter.width):
            m.d.comb += Assert((counter.runs[place] == run) | ~free.bits[place])
            # A run that reached the limit before this bit, or reaches it here, is illegal.
            bit = free.bits[place]
            overflow = overflow | (run >= limit)
            ones = _node(m, ones + bit, f"ones_{place}")
            more = Mux(run >= limit, limit, run + 1)
            run = _node(m, Mux(bit, 0, more), f"run_{place}")
        overflow = overflow | (run >= limit)
        m.d.comb += [
            Assert(counter.ones == ones),
            Assert(counter.carry_out == run),
            Assert(counter.overflow == overflow),
        ]

    return Stated(state, bits=counter.width, carry=_bits(limit + 1))


def expands(lanes: int, places: int) -> Stated:
    """State that a lane of the mask gets the element of its number, modulo the store's size."""

    def state(m: Module, free: Any) -> None:
        numbers = _numbers(m, free.head, free.mask, _bits(places))
        found = expand(m, [*free.store], numbers, "lane")
        for lane, number in enumerate(numbers):
            with m.If(free.mask[lane]):
                m.d.comb += Assert(found[lane] == free.store.bit_select(number, 1))

    return Stated(state, store=places, mask=lanes, head=_bits(places))


def compacts(places: int) -> Stated:
    """State that an element of the mask goes to the place of its number, modulo the size."""

    def state(m: Module, free: Any) -> None:
        numbers = _numbers(m, free.head, free.mask, _bits(places))
        found = Cat(compact(m, [*free.items], numbers, "place"))
        for item, number in enumerate(numbers):
            with m.If(free.mask[item]):
                m.d.comb += Assert(found.bit_select(number, 1) == free.items[item])

    return Stated(state, items=places, mask=places, head=_bits(places))


def bitmaps(lanes: int) -> Stated:
    """State that elements 0, 1, 2, ... go to the set lanes, lowest lane first."""

    def state(m: Module, free: Any) -> None:
        m.submodules.net = net = BitmapExpand(lanes=lanes, width=1)
        m.d.comb += [net.elements.eq(free.items), net.lane_mask.eq(free.mask)]
        for lane in range(lanes):
            item = free.items.bit_select(bits_set(free.mask[:lane]) if lane else 0, 1)
            with m.If(free.mask[lane]):
                m.d.comb += Assert(net.lanes_out[lane] == item)

    return Stated(state, items=lanes, mask=lanes)


def moves(
    network: Callable[..., Sequence[Value]],
    items: int,
    outputs: int,
    bits: int | None = None,
    most: int | None = None,
) -> Stated:
    """State that item ``i`` of a rotation or a shift, by ``most`` at most, stood ``amount`` later.

    A shift brings in zeros, a rotation wraps around.
    """

    def state(m: Module, free: Any) -> None:
        limit = () if most is None else (most,)
        moved = network(m, [*free.items], free.amount, outputs, "moved", *limit)
        again = Cat(free.items, free.items) if network is rotate else free.items
        if most is not None:
            m.d.comb += Assume(free.amount <= most)
        for place, bit in enumerate(moved):
            m.d.comb += Assert(bit == (again >> (free.amount + place))[0])

    return Stated(state, items=items, amount=_bits(items) if bits is None else bits)


def chooses(count: int) -> Stated:
    """State that ``choose`` returns the item of an index, and zero past the last item."""

    def state(m: Module, free: Any) -> None:
        items = [free.items.word_select(i, 3) for i in range(count)]
        chosen = choose(m, items, free.index, "item")
        m.d.comb += Assert(chosen == free.items >> 3 * free.index & 0b111)

    return Stated(state, items=3 * count, index=_bits(count))


def counts(lanes: int) -> Stated:
    """State that the count of ones equals the sum of the bits."""

    def state(m: Module, free: Any) -> None:
        m.d.comb += Assert(popcount(free.mask) == bits_set(free.mask))

    return Stated(state, mask=lanes)


def sums(terms: int, bits: int, width: int, base: int = 0) -> Stated:
    """State that prefix sums, from a base of ``base`` bits, equal sums from term to term.

    Both are modulo a power of two.
    """

    def state(m: Module, free: Any) -> None:
        given = [free.terms.word_select(i, bits) for i in range(terms)]
        if base:
            found = prefix_sums_from(m, free.base, given, width, "sum")
        else:
            found = prefix_sums(m, given, width, "sum")
        total: Value = free.base
        for place, (term, one) in enumerate(zip(given, found, strict=True)):
            total = _node(m, total + term, f"total_{place}", width)
            m.d.comb += Assert(one == total)

    return Stated(state, terms=bits * terms, base=base)


def unpacks(lanes: int) -> Stated:
    """State that a lane's field begins where the previous one's ends, the first after a gap."""

    def state(m: Module, free: Any) -> None:
        m.submodules.unpack = unpack = ResidueUnpack(lanes=lanes)
        m.d.comb += [
            unpack.bits.eq(free.run),
            unpack.skip.eq(free.skip),
            unpack.widths.eq(free.widths),
        ]
        widths = [free.widths.word_select(lane, 3) for lane in range(lanes)]
        m.d.comb += [to.eq(one) for to, one in zip(unpack.needs, sums_of(widths), strict=True)]
        rest: Value = _node(m, free.run >> free.skip, "rest", FIELD_MAX * lanes)
        for lane, width in enumerate(widths):
            ones = Cat(width > bit for bit in range(FIELD_MAX))
            m.d.comb += Assert(unpack.fields[lane] == rest & ones)
            rest = _node(m, (rest >> width), f"rest_{lane}", FIELD_MAX * lanes)

    return Stated(state, run=(FIELD_MAX + 1) * lanes - 1, skip=_bits(lanes), widths=3 * lanes)


def _shifts(m: Module, free: Any) -> None:
    """State that ``DynamicShifter`` returns ``magnitude * 2^(shared - 134)`` in normal form.

    The definition shifts by one place until it is normal, as long as the exponent lasts.
    """
    m.submodules.shifter = shifter = DynamicShifter()
    m.d.comb += [
        shifter.shared.eq(free.shared),
        shifter.own.eq(free.own),
        shifter.magnitude.eq(free.magnitude),
    ]
    exponent: Value = free.shared
    number: Value = free.magnitude
    for step in range(7):
        room = ~number[7] & (exponent > 1)
        exponent = _node(m, exponent - room, f"exponent_{step}", 8)
        number = _node(m, number << room, f"number_{step}", 8)
    with m.If(free.magnitude[7]):
        m.d.comb += Assert(
            Cat(shifter.mantissa, shifter.exponent) == Cat(free.magnitude[:7], free.own)
        )
    with m.Else():
        m.d.comb += Assume(free.own == free.shared)
    with m.If((free.shared != 0) & (free.magnitude != 0)):
        m.d.comb += [
            Assert(shifter.mantissa == number[:7]),
            Assert(shifter.shift == free.shared - exponent),
            Assert(shifter.subnormal == ~number[7]),
            Assert(free.magnitude[7] | (shifter.exponent == number[7].replicate(8) & exponent)),
        ]
    with m.If((free.shared != 0) & (free.magnitude == 0)):
        m.d.comb += Assert((shifter.exponent == 0) & (shifter.mantissa == 0))
        m.d.comb += Assert(~shifter.subnormal)


_Counter = type[ParallelZeroCounter] | type[ZeroCounter]


def _counters(sizes: Iterable[tuple[int, int]], kind: _Counter = ParallelZeroCounter) -> Together:
    return Together({f"w{w}_{limit}": counts_equal(kind(w, limit=limit)) for w, limit in sizes})


_WHAT = "Runs, ones, carry and overflow equal a count bit by bit; {}."


def _claim(name: str, what: str, parts: Callable[[], dict[str, wiring.Component]]) -> Claim:
    return Claim(
        name=f"networks.{name}",
        what=what,
        design=lambda: Together(parts()),
        method="rewriting" if name.startswith("residue") else "combinational",
        fast=True,
    )


_MOVES: tuple[tuple[str, Callable[..., Sequence[Value]], tuple[tuple[int, ...], ...]], ...] = (
    (
        "rotate",
        rotate,
        (*((n, n) for n in (1, 2, 8)), (2, 1), (8, 1), (8, 5), (16, 12), (32, 12), (32, 16)),
    ),
    (
        "shift",
        shift,
        (
            *((8, 7), (14, 7), (16, 16), (23, 16)),
            *((1, 1, 1), (4, 2, 2), (5, 7, 3), (8, 8, 3), (14, 7, 3)),
            *((14, 7, 3, most) for most in range(8)),
            *((9, 2, 4, most) for most in range(7, 13)),
        ),
    ),
)
"""Networks, and their sizes: items, outputs, bits of the amount, and its maximum."""

_SUMS = (
    *((lanes, 1, lanes.bit_length()) for lanes in (5, 8, 11, 16, 32)),
    *((n, width, width) for n, width in ((1, 1), (2, 2), (3, 4), (5, 3), (8, 4), (8, 2))),
)
"""Prefix sums: terms, bits of a term, bits of a sum."""

CLAIMS = (
    Claim(
        name="zero_counter.every_width",
        what=_WHAT.format("windows of 1 to 32 bits and of 64, codes of up to 16 bits"),
        design=lambda: _counters((width, 16) for width in (*range(1, 33), 64)),
        method="combinational",
        seconds=900,
    ),
    Claim(
        name="zero_counter.long_codes",
        what=_WHAT.format("windows of 8, 16, 24, 32 and 64 bits, codes of up to 32 bits"),
        design=lambda: _counters((width, 32) for width in (8, 16, 24, 32, 64)),
        method="combinational",
        seconds=900,
    ),
    Claim(
        name="zero_counter.chunk",
        what=_WHAT.format(
            "chunks of 1 to 9 bits, codes of up to 16 and 32 bits, of the bits of a chunk, and of 3"
        ),
        design=lambda: _counters(
            (
                *((width, limit) for width in range(1, 10) for limit in (16, 32)),
                *((1, 1), (2, 3), (8, 8), (9, 9)),
            ),
            ZeroCounter,
        ),
        method="combinational",
        fast=True,
    ),
    Claim(
        name="zero_counter.chunks",
        what=_WHAT.format("windows of 9, 12, 16 and 20 bits, codes of up to 16 bits (and 8, 32)"),
        design=lambda: _counters((*((width, 16) for width in (9, 12, 16, 20)), (16, 8), (9, 32))),
        method="combinational",
        fast=True,
    ),
    *(
        _claim(
            f"expand.l{most}",
            f"Each of {least} to {most} lanes gets its element from stores of as many to {times}"
            " times as many.",
            lambda powers=powers, times=times: {  # type: ignore[misc]
                f"l{n}_of_{n * many}": expands(n, n * many)
                for n in powers
                for many in (1, 2, 4, 8)
                if many <= times
            },
        )
        for powers, times in (((1, 2, 4, 8), 8), ((16,), 4))
        for least, most in [(powers[0], powers[-1])]
    ),
    *(
        _claim(
            f"compact.{sizes[-1]}",
            f"Each of {', '.join(map(str, sizes))} elements that counts goes to the place of its"
            " number.",
            lambda sizes=sizes: {f"of_{n}": compacts(n) for n in sizes},  # type: ignore[misc]
        )
        for sizes in ((1, 2, 4, 8), (16,), (32,))
    ),
    _claim(
        "bitmap_expand",
        "Stored values go to the set lanes of bitmaps of 1 to 32 lanes.",
        lambda: {f"l{lanes}": bitmaps(lanes) for lanes in (1, 2, 4, 8, 16, 32)},
    ),
    *(
        _claim(
            name,
            "Every output is the item that stood the amount later: "
            + ", ".join(dict.fromkeys(f"{size[1]} of {size[0]}" for size in sizes))
            + ".",
            lambda net=net, sizes=sizes: {  # type: ignore[misc]
                "_".join(map(str, ("n", *size))): moves(net, *size) for size in sizes
            },
        )
        for name, net, sizes in _MOVES
    ),
    _claim(
        "choose",
        "The item of an index, of 1 to 33 items; zero past the last.",
        lambda: {f"n{items}": chooses(items) for items in range(1, 34)},
    ),
    _claim(
        "counts",
        "Counts of 1 to 11, 16 and 32 bits, and prefix sums of up to 32 terms, equal sums from one "
        "to the next.",
        lambda: {
            **{f"l{lanes}": counts(lanes) for lanes in (*range(1, 12), 16, 32)},
            **{"_".join(map(str, ("s", *size))): sums(*size) for size in _SUMS},
        },
    ),
    _claim(
        "based",
        "Prefix sums of 1, 2, 5 and 8 bits from a base equal it and sums from bit to bit.",
        lambda: {f"l{n}": sums(n, 1, n.bit_length() + 1, base=3) for n in (1, 2, 5, 8)},
    ),
    _claim(
        "residue",
        "The fields of 8 lanes begin where those before them end.",
        lambda: {"l8": unpacks(8)},
    ),
    _claim(
        "shifter",
        "The shifter equals shifting by one place until the number is normal.",
        lambda: {"of": Stated(_shifts, shared=8, own=8, magnitude=8)},
    ),
)
