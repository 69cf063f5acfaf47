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


@pytest.mark.parametrize("count", [1, 4, 16])
def test_entries_and_slots_that_do_not_exist_are_not_written(count: int) -> None:
    dut, rng = Codebooks(books=count, entries=ENTRIES, readers=2), random.Random(5)
    held: dict[tuple[int, int], int] = {}
    ends: dict[int, int] = {}
    defined = 0

    async def work(ctx: Any) -> None:
        nonlocal defined
        for _ in range(2000):
            slot, entry, last = rng.randrange(16), rng.randrange(32), rng.random() < 0.3
            exponent, write = rng.randrange(256), rng.random() < 0.7
            for name, value in (("slot", slot), ("entry", entry), ("exponent", exponent)):
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.last, int(last))
            ctx.set(dut.write, int(write))
            await ctx.tick()
            if write and slot < count and entry < ENTRIES:
                held[slot, entry], ends[slot] = exponent, entry
                defined = defined & ~(1 << slot) | last << slot
            check(ctx)

    def check(ctx: Any) -> None:
        assert ctx.get(dut.defined) == defined
        for slot, entry in ends.items():
            assert ctx.get(dut.ends[slot]) == entry
        for place in range(2):
            slot, entry = rng.randrange(count), rng.randrange(ENTRIES)
            ctx.set(dut.read_slot[place], slot)
            ctx.set(dut.read_entry[place], entry)
            assert ctx.get(dut.read_exponent[place]) == held.get((slot, entry), 0)

    run(dut, work)


class Loading(wiring.Component):
    """A loader with its books."""

    def __init__(self, count: int) -> None:
        self.books = Codebooks(books=count, entries=ENTRIES)
        self.loader = CodebookLoader(books=count, unary=True)
        loader, books = (part.signature.members for part in (self.loader, self.books))
        writes = ("write", "slot", "entry", "exponent", "last")
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
        for name in ("write", "slot", "entry", "exponent", "last"):
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
    slot: int
    book: list[int] | None  # that the decoder must have; None: none is needed


class Software:
    """Writes codebooks while nothing is on its way, and gives orders that name them."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self._rng, self._count = rng, count
        self.books: dict[int, list[int]] = {}

    def rewrite(self) -> list[dict[str, int]]:
        """Writes of one slot, or of all at first."""
        slots = [self._rng.randrange(self._count)] if self.books else range(self._count)
        found = []
        for slot in slots:
            book = [self._rng.randrange(256) for _ in range(self._rng.randint(1, ENTRIES))]
            self.books[slot] = book
            found += [
                {
                    "slot": slot,
                    "entry": entry,
                    "exponent": exponent,
                    "last": int(entry == len(book) - 1),
                }
                for entry, exponent in enumerate(book)
            ]
        return found

    def orders(self) -> list[Order]:
        """Some segments in a row, mostly unary."""
        made = []
        for _ in range(self._rng.randint(1, 12)):
            scheme, slot = self._rng.choice([UNARY, UNARY, 1, 2]), self._rng.randrange(self._count)
            command = CommandLayout.from_bits(self._rng.getrandbits(CommandLayout.size))
            fields = {name: command[name] for name in CommandLayout.members}
            word = CommandLayout.const({**fields, "scheme": scheme}).as_bits()
            book = self.books[slot] if scheme == UNARY else None
            made.append(Order(command=word, slot=slot, book=book))
        return made


class Decoder:
    """Takes codebooks and commands at its own pace, and checks that they belong together."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self._dut, self._rng = dut, rng
        self._part: list[int] = []  # of a codebook that is coming
        self.book: list[int] = []
        self.loads = 0
        self.waiting: deque[Order] = deque()

    def step(self, ctx: Any) -> None:
        """A cycle."""
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
        assert not self._part, "a command inside of a codebook"
        assert order.book is None or self.book == order.book

    def _load(self, entry: Any) -> None:
        self._part.append(entry.exponent)
        if entry.last:
            self.book, self._part = self._part, []
            self.loads += 1


@pytest.mark.parametrize("count", [1, 4])
def test_each_command_finds_its_codebook(count: int) -> None:
    dut, rng = Loading(count), random.Random(6)
    software, decoder = Software(rng, count), Decoder(dut, rng)

    async def work(ctx: Any) -> None:
        for _ in range(60):
            for fields in software.rewrite():
                await write(ctx, fields)
            assert ctx.get(dut.defined) == (1 << count) - 1
            orders = software.orders()
            before = decoder.loads
            await give(ctx, orders)
            slots = [order.slot for order in orders if order.book]
            changes = sum(one != other for one, other in itertools.pairwise(slots))
            assert changes <= decoder.loads - before <= changes + bool(slots)

    async def write(ctx: Any, fields: dict[str, int]) -> None:
        for name, value in {**fields, "write": 1}.items():
            ctx.set(getattr(dut, name), value)
        await ctx.tick()
        ctx.set(dut.write, 0)

    async def give(ctx: Any, orders: list[Order]) -> None:
        """Orders at any pace, until the decoder has taken their commands."""
        decoder.waiting.extend(orders)
        left = deque(orders)
        while decoder.waiting:
            ctx.set(dut.orders.valid, int(bool(left) and rng.random() < 0.7))
            if left:
                command = CommandLayout.from_bits(left[0].command)
                ctx.set(dut.orders.payload, {"command": command, "slot": left[0].slot})
            decoder.step(ctx)
            if ctx.get(dut.orders.valid) and ctx.get(dut.orders.ready):
                left.popleft()
            await ctx.tick()
        ctx.set(dut.orders.valid, 0)

    run(dut, work)
