"""The combinational networks that blocks share, each in a small block of its own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import cocotb
from amaranth.hdl import Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import compact, expand, popcount, prefix_sums, rotate, shift
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.models import bitmap_expand, bits_of

ELEMENT = 8  # bits of an element

POPCOUNTS = (1, 2, 3, 7, 8, 9, 10)  # widths
PREFIXES = ((1, 1), (2, 2), (3, 4), (5, 3), (8, 4), (8, 2))  # terms, bits of a sum
ROTATES = ((1, 1), (2, 1), (2, 2), (8, 1), (8, 5), (8, 8), (32, 12), (32, 16))  # places, outputs
# Items, bits, outputs, maximum shift.
SHIFTS = (
    *((1, 1, 1, None), (4, 2, 2, None), (5, 3, 7, None), (8, 3, 8, None), (14, 3, 7, None)),
    *((14, 3, 7, most) for most in range(8)),
    *((9, 4, 2, most) for most in range(7, 13)),
)
EXPANDS = ((1, 1), (2, 1), (2, 2), (4, 4), (8, 4), (8, 8), (16, 8), (64, 8))  # places, lanes
COMPACTS = (1, 2, 4, 8)  # elements


class Network(wiring.Component):
    """A function of :mod:`cassandra_spec.rtl.common.networks` with an input and an output port."""

    def __init__(
        self, members: dict[str, Any], connect: Callable[[Module, Any], list[Value]]
    ) -> None:
        self._connect = connect
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the network."""
        m = Module()
        for place, value in enumerate(self._connect(m, self)):
            m.d.comb += self.out[place].eq(value)
        return m


def _array(width: int, count: int) -> data.ArrayLayout:
    return data.ArrayLayout(width, count)


def _list(array: Any) -> list[Value]:
    return [array[i] for i in range(len(array))]


def _popcount(width: int) -> Network:
    members = {"bits": In(width), "out": Out(_array(width.bit_length(), 1))}
    return Network(members, lambda m, self: [popcount(self.bits)])


def _prefix(terms: int, width: int) -> Network:
    members = {"terms": In(_array(width, terms)), "out": Out(_array(width, terms))}
    return Network(members, lambda m, self: prefix_sums(m, _list(self.terms), width, "t"))


def _rotate(places: int, outputs: int) -> Network:
    members = {
        "items": In(_array(ELEMENT, places)),
        "head": In((places - 1).bit_length()),
        "out": Out(_array(ELEMENT, outputs)),
    }
    return Network(members, lambda m, self: rotate(m, _list(self.items), self.head, outputs, "r"))


def _shift(items: int, bits: int, outputs: int, most: int | None) -> Network:
    members = {
        "items": In(_array(ELEMENT, items)),
        "amount": In(bits),
        "out": Out(_array(ELEMENT, outputs)),
    }
    return Network(
        members, lambda m, self: shift(m, _list(self.items), self.amount, outputs, "s", most)
    )


def _expand(places: int, lanes: int) -> Network:
    members = {
        "items": In(_array(ELEMENT, places)),
        "starts": In(_array((places - 1).bit_length(), lanes)),
        "out": Out(_array(ELEMENT, lanes)),
    }
    return Network(members, lambda m, self: expand(m, _list(self.items), _list(self.starts), "e"))


def _compact(places: int) -> Network:
    members = {
        "items": In(_array(ELEMENT, places)),
        "starts": In(_array((places - 1).bit_length(), places)),
        "out": Out(_array(ELEMENT, places)),
    }
    return Network(members, lambda m, self: compact(m, _list(self.items), _list(self.starts), "c"))


MAKERS: dict[str, tuple[Callable[..., Network], tuple[Any, ...]]] = {
    "popcount": (_popcount, tuple((width,) for width in POPCOUNTS)),
    "prefix": (_prefix, PREFIXES),
    "rotate": (_rotate, ROTATES),
    "shift": (_shift, SHIFTS),
    "expand": (_expand, EXPANDS),
    "compact": (_compact, tuple((places,) for places in COMPACTS)),
}


def design() -> Bank:
    """Build every network in every size."""
    return Bank(
        {_name(kind, size): make(*size) for kind, (make, sizes) in MAKERS.items() for size in sizes}
    )


def _name(kind: str, size: tuple[int | None, ...]) -> str:
    return "_".join(map(str, (kind, *size)))


def _items(rng: random.Random, count: int) -> list[int]:
    """Return distinct elements, so that a wrong one shows."""
    return rng.sample(range(1 << ELEMENT), count)


def popcounts(rng: random.Random, width: int) -> Iterator[Case]:
    """Drive all numbers."""
    for bits in range(1 << width):
        yield Case({"bits": bits}, {"out": [sum(bits_of(bits, width))]})


def prefixes(rng: random.Random, terms: int, width: int) -> Iterator[Case]:
    """Drive all terms of one bit, and random larger ones; sums wrap."""
    flags = [bits_of(number, terms) for number in range(1 << terms)]
    mixed = [[rng.randrange(1 << width) for _ in range(terms)] for _ in range(500)]
    for values in flags + mixed:
        sums = [total % (1 << width) for total in itertools.accumulate(values)]
        yield Case({"terms": values}, {"out": sums})


def rotations(rng: random.Random, places: int, outputs: int) -> Iterator[Case]:
    """Drive all heads, several times."""
    for head in 4 * list(range(places)):
        items = _items(rng, places)
        expected = [items[(head + i) % places] for i in range(outputs)]
        yield Case({"items": items, "head": head}, {"out": expected})


def shifts(
    rng: random.Random, items: int, bits: int, outputs: int, most: int | None
) -> Iterator[Case]:
    """Drive all amounts up to the maximum, several times; zeros come in."""
    amounts = 1 << bits if most is None else most + 1
    for amount in 4 * list(range(amounts)):
        values = _items(rng, items)
        padded = values + [0] * ((1 << bits) + outputs)
        out = padded[amount : amount + outputs]
        yield Case({"items": values, "amount": amount}, {"out": out})


def expansions(rng: random.Random, places: int, lanes: int) -> Iterator[Case]:
    """Drive all heads with all masks; past 16 places, every mask with a few heads."""
    heads = range(places) if places <= 16 else None
    for mask in range(1 << lanes):
        for head in heads or rng.sample(range(places), 4):
            items = _items(rng, places)
            starts, number = [], head
            for lane in range(lanes):
                starts.append(number % places)
                number += mask >> lane & 1
            turned = items[head:] + items[:head]
            out = bitmap_expand(turned, mask, lanes)
            yield Case({"items": items, "starts": starts}, {"out": out})


def compactions(rng: random.Random, places: int) -> Iterator[Case]:
    """Drive all heads with all masks."""
    for mask in range(1 << places):
        for head in range(places):
            items = _items(rng, places)
            starts: list[int] = []
            out: list[int | None] = [None] * places
            number = head
            for place, item in enumerate(items):
                starts.append(number % places)
                if mask >> place & 1:
                    out[number % places] = item
                    number += 1
            yield Case({"items": items, "starts": starts}, {"out": out})


async def _run(dut: Any, kind: str, script: Callable[..., Iterator[Case]]) -> None:
    _, sizes = MAKERS[kind]
    scripts = {_name(kind, size): script(rng_of(kind, *size), *size) for size in sizes}
    await play(dut, design(), scripts, clocked=False)


@cocotb.test()
async def popcount_counts_ones(dut: Any) -> None:
    """Exhaustive."""
    await _run(dut, "popcount", popcounts)


@cocotb.test()
async def prefix_sums_are_sums(dut: Any) -> None:
    """Exhaustive over terms of one bit."""
    await _run(dut, "prefix", prefixes)


@cocotb.test()
async def rotate_starts_at_the_head(dut: Any) -> None:
    """The results of every head are right."""
    await _run(dut, "rotate", rotations)


@cocotb.test()
async def shift_drops_items_and_lets_zeros_in(dut: Any) -> None:
    """Every amount is right, also past the last item."""
    await _run(dut, "shift", shifts)


@cocotb.test()
async def expand_hands_items_to_the_lanes_that_take_one(dut: Any) -> None:
    """The results of every head and every mask are right."""
    await _run(dut, "expand", expansions)


@cocotb.test()
async def compact_gathers_the_items_that_count(dut: Any) -> None:
    """The results of every head and every mask are right."""
    await _run(dut, "compact", compactions)
