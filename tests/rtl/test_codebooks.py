"""Codebooks of descriptors, and what brings them to a decoder, beside naive models."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import deque
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.common.command import CommandLayout
from cassandra_spec.rtl.dma.codebooks import CodebookLoader, Codebooks
from tests.rtl.simulation import run

ENTRIES = 16
UNARY = SCHEMES.index("unary")
WRITTEN = ("slot", "entry", "exponent", "last", "empty")


@pytest.mark.parametrize("count", [1, 4, 16])
def test_entries_and_slots_that_do_not_exist_are_not_written(count: int) -> None:
    dut, rng = Codebooks(books=count, entries=ENTRIES, readers=2), random.Random(5)
    held: dict[tuple[int, int], int] = {}
    ends: dict[int, tuple[int, int]] = {}
    defined = 0

    async def work(ctx: Any) -> None:
        nonlocal defined
        for _ in range(2000):
            slot, entry, last = rng.randrange(16), rng.randrange(32), rng.random() < 0.3
            exponent, write, empty = rng.randrange(256), rng.random() < 0.7, rng.randrange(2)
            for name, value in (("slot", slot), ("entry", entry), ("exponent", exponent)):
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.empty, empty)
            ctx.set(dut.last, int(last))
            ctx.set(dut.write, int(write))
            await ctx.tick()
            if write and slot < count and entry < ENTRIES:
                held[slot, entry], ends[slot] = exponent, (entry, empty)
                defined = defined & ~(1 << slot) | last << slot
            check(ctx)

    def check(ctx: Any) -> None:
        assert ctx.get(dut.defined) == defined
        for slot, (entry, empty) in ends.items():
            assert (ctx.get(dut.ends[slot].entry), ctx.get(dut.ends[slot].empty)) == (entry, empty)
        for place in range(2):
            slot, entry = rng.randrange(count), rng.randrange(ENTRIES)
            ctx.set(dut.read_slot[place], slot)
            ctx.set(dut.read_entry[place], entry)
            assert ctx.get(dut.read_exponent[place]) == held.get((slot, entry), 0)

    run(dut, work)


class Loading(wiring.Component):
    """A loader with its books."""

    def __init__(self, count: int, coded: bool) -> None:
        self.books = Codebooks(books=count, entries=ENTRIES)
        self.loader = CodebookLoader(books=count, unary=True, coded=coded)
        loader, books = (part.signature.members for part in (self.loader, self.books))
        writes = ("write", *WRITTEN)
        super().__init__(
            {
                **{name: In(books[name].shape) for name in writes},
                **{name: loader[name] for name in ("orders", "command", "codebook")},
                "defined": Out(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.books, m.submodules.loader = books, loader = self.books, self.loader
        wiring.connect(m, wiring.flipped(self.orders), loader.orders)
        wiring.connect(m, loader.command, wiring.flipped(self.command))
        wiring.connect(m, loader.codebook, wiring.flipped(self.codebook))
        for name in ("write", *WRITTEN):
            m.d.comb += getattr(books, name).eq(getattr(self, name))
        m.d.comb += [
            loader.written.eq(self.write),
            loader.slot.eq(self.slot),
            loader.ends.eq(books.ends),
            books.read_slot[0].eq(loader.read_slot),
            books.read_entry[0].eq(loader.read_entry),
            loader.exponent.eq(books.read_exponent[0]),
            self.defined.eq(books.defined),
        ]
        return m


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    command: int
    slots: tuple[int, ...]  # of kept values, and of pruned ones if they may be coded
    books: list[list[int] | None]  # that the decoder must have; None: none is needed


class Software:
    """Writes codebooks while nothing is on its way, and gives orders that name them."""

    def __init__(self, rng: random.Random, count: int, coded: bool) -> None:
        self._rng, self._count, self._coded = rng, count, coded
        self.books: dict[int, list[int]] = {}

    def rewrite(self) -> list[tuple[int, ...]]:
        """Return writes of one slot, or of all at first: fields as in ``WRITTEN``."""
        slots = [self._rng.randrange(self._count)] if self.books else range(self._count)
        found: list[tuple[int, ...]] = []
        for slot in slots:
            size = self._rng.randint(0 if self._coded else 1, ENTRIES)
            self.books[slot] = book = [self._rng.randrange(256) for _ in range(size)]
            rows = [(slot, *entry, int(entry[0] == size - 1), 0) for entry in enumerate(book)]
            found += rows or [(slot, 0, 0, 1, 1)]
        return found

    def orders(self) -> list[Order]:
        """Some segments in a row, mostly unary."""
        made = []
        for _ in range(self._rng.randint(1, 12)):
            scheme = self._rng.choice([UNARY, UNARY, 1, 2])
            slots = [self._rng.randrange(self._count) for _ in range(1 + self._coded)]
            command = CommandLayout.from_bits(self._rng.getrandbits(CommandLayout.size))
            fields = {name: command[name] for name in CommandLayout.members}
            word = CommandLayout.const({**fields, "scheme": scheme}).as_bits()
            needs = [scheme == UNARY]
            needs += [scheme == UNARY and fields["coded"] and fields["target"]] * self._coded
            books = [
                self.books[slot] if need else None for slot, need in zip(slots, needs, strict=True)
            ]
            made.append(Order(command=word, slots=tuple(slots), books=books))
        return made


class Decoder:
    """Takes codebooks and commands at its own pace, and checks that they belong together."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self._dut, self._rng = dut, rng
        self._part: list[int] | None = None  # of a codebook that is coming
        self.books: list[list[int]] = [[], []]  # of kept and of pruned values
        self.loads = [0, 0]
        self.waiting: deque[Order] = deque()

    def step(self, ctx: Any) -> None:
        """Run a cycle."""
        command, codebook = self._dut.command, self._dut.codebook
        ready = [self._rng.random() < 0.6 for _ in range(2)]
        for port, value in zip((command, codebook), ready, strict=True):
            ctx.set(port.ready, int(value))
        if ready[0] and ctx.get(command.valid):
            self._take(self.waiting.popleft(), ctx.get(command.payload).as_bits())
        if ready[1] and ctx.get(codebook.valid):
            self._load(ctx.get(codebook.payload))

    def _take(self, order: Order, command: int) -> None:
        assert command == order.command
        assert self._part is None, "a command inside of a codebook"
        for needed, held in zip(order.books, self.books, strict=False):
            assert needed is None or needed == held

    def _load(self, entry: Any) -> None:
        pruned, empty = (
            int(getattr(entry, name)) if name in entry.shape().members else 0
            for name in ("pruned", "empty")
        )
        self._part = [*(self._part or []), *([] if empty else [entry.exponent])]
        if entry.last:
            self.books[pruned], self._part = self._part, None
            self.loads[pruned] += 1


def check_loads(orders: list[Order], loads: list[int]) -> None:
    """Check that a codebook is loaded when another slot is named, and maybe at first."""
    for place, count in enumerate(loads):
        slots = [order.slots[place] for order in orders if order.books[place] is not None]
        changes = sum(one != other for one, other in itertools.pairwise(slots))
        assert changes <= count <= changes + bool(slots)


@pytest.mark.parametrize(("count", "coded"), [(1, False), (4, False), (1, True), (4, True)])
def test_each_command_finds_its_codebooks(count: int, coded: bool) -> None:
    dut, rng = Loading(count, coded), random.Random(6)
    software, decoder = Software(rng, count, coded), Decoder(dut, rng)

    async def work(ctx: Any) -> None:
        for _ in range(60):
            for fields in software.rewrite():
                await write(ctx, dict(zip(WRITTEN, fields, strict=True)))
            assert ctx.get(dut.defined) == (1 << count) - 1
            orders = software.orders()
            before = list(decoder.loads)
            await give(ctx, orders)
            loads = [now - then for now, then in zip(decoder.loads, before, strict=True)]
            check_loads(orders, loads[: 1 + coded])

    async def write(ctx: Any, fields: dict[str, int]) -> None:
        for name, value in {**fields, "write": 1}.items():
            ctx.set(getattr(dut, name), value)
        await ctx.tick()
        ctx.set(dut.write, 0)

    async def give(ctx: Any, orders: list[Order]) -> None:
        """Give orders at any pace, until the decoder has taken their commands."""
        decoder.waiting.extend(orders)
        left = deque(orders)
        while decoder.waiting:
            ctx.set(dut.orders.valid, int(bool(left) and rng.random() < 0.7))
            if left:
                command = CommandLayout.from_bits(left[0].command)
                names = ("slot", "pruned_slot")[: 1 + coded]
                slots = dict(zip(names, left[0].slots, strict=True))
                ctx.set(dut.orders.payload, {"command": command, **slots})
            decoder.step(ctx)
            if ctx.get(dut.orders.valid) and ctx.get(dut.orders.ready):
                left.popleft()
            await ctx.tick()
        ctx.set(dut.orders.valid, 0)

    run(dut, work)
