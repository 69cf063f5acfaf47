"""The queues of descriptors, of decoders and of the encoder, beside one model."""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from typing import Any

import pytest
from amaranth.lib import data

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import IN_FLIGHT, DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.descriptors import (
    Dispatcher,
    EncoderDispatcher,
    descriptor_layout,
    encode_descriptor_layout,
)
from tests.rtl.simulation import run

SMALL = DecoderConfig(lanes=8)
CONFIGS = [
    DmaConfig(decoder=SMALL, queue=2),
    DmaConfig(decoder=SMALL, decoders=2, queue=16, address=40),
    DmaConfig(decoder=SMALL, decoders=4, queue=8, books=16),
]
CYCLES = 2000


@dataclasses.dataclass
class Entry:
    """A descriptor in the queue."""

    content: data.Const[Any]
    dropped: bool = False


class Queue:
    """Drives descriptors, ``enable`` and ``drop`` at random, and knows what is in the queue.

    An entry that is dropped leaves alone, when it is at the head, from the cycle after ``drop`` on;
    others may be dropped before that.
    """

    def __init__(self, dut: Any, layout: data.StructLayout, depth: int) -> None:
        self._dut, self._layout, self._depth = dut, layout, depth
        self._rng = random.Random(1)
        self._enable = self._drop = False
        self._offered: data.Const[Any] | None = None
        self.entries: deque[Entry] = deque()
        self.left = self.dropped = self.in_vain = 0

    def drive(self, ctx: Any) -> None:
        """Drive the inputs of a cycle; nothing is written while ``drop`` is."""
        rng = self._rng
        if rng.random() < 0.05:
            self._enable = not self._enable
        self._drop = rng.random() < 0.1
        offer = not self._drop and rng.random() < 0.6
        content = self._layout.from_bits(rng.getrandbits(self._layout.size))
        self._offered = content if offer else None
        ctx.set(self._dut.enable, int(self._enable))
        ctx.set(self._dut.drop, int(self._drop))
        ctx.set(self._dut.descriptors.valid, int(offer))
        ctx.set(self._dut.descriptors.payload, content)

    def head(self) -> data.Const[Any] | None:
        """Return the entry that leaves in this cycle if it can be taken."""
        if not self._enable or not self.entries or self.entries[0].dropped:
            return None
        return self.entries[0].content

    def sample(self, ctx: Any, leaves: bool) -> None:
        """Check the queue's status, and advance to the next cycle."""
        assert ctx.get(self._dut.waiting) == len(self.entries)
        ready = len(self.entries) < self._depth
        assert ctx.get(self._dut.descriptors.ready) == ready
        if self.entries and (leaves or self.entries[0].dropped):
            self.left += leaves
            self.dropped += not leaves
            self.entries.popleft()
        if self._drop:
            self.in_vain += self._enable and bool(self.entries)
            for entry in self.entries:
                entry.dropped |= not self._enable
        if self._offered is not None and ready:
            self.entries.append(Entry(self._offered))

    def check_coverage(self) -> None:
        """Check that entries have left, were dropped, and stayed when ``drop`` came too late."""
        assert min(self.left, self.dropped, self.in_vain) > 10


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.module_name)
def test_segments_reach_the_decoders_in_turn(config: DmaConfig) -> None:
    dut, rng = Dispatcher(config), random.Random(2)
    queue = Queue(dut, descriptor_layout(config), config.queue)

    async def work(ctx: Any) -> None:
        turn = 0
        for _ in range(CYCLES):
            queue.drive(ctx)
            tags = [rng.randrange(IN_FLIGHT) for _ in range(config.decoders)]
            for place, tag in enumerate(tags):
                ctx.set(dut.tags[place], tag)
            orders = [_ready(ctx, rng, port) for port in dut.orders]
            regions = [_ready(ctx, rng, port) for port in dut.regions]
            head = queue.head()
            leaves = (
                head is not None
                and orders[turn]
                and regions[2 * turn]
                and (regions[2 * turn + 1] or not head.second)
            )
            for place in range(config.decoders):
                check(ctx, place, head if leaves and place == turn else None, tags[place])
            queue.sample(ctx, leaves)
            turn = (turn + leaves) % config.decoders
            await ctx.tick()
        queue.check_coverage()

    def check(ctx: Any, place: int, content: data.Const[Any] | None, tag: int) -> None:
        """Check the outputs to decoder ``place`` and its regions."""
        assert ctx.get(dut.orders[place].valid) == (content is not None)
        if content is not None:
            assert ctx.get(dut.orders[place].payload) == content.order
        for which in range(2):
            port = dut.regions[2 * place + which]
            wanted = content is not None and (which == 0 or bool(content.second))
            assert ctx.get(port.valid) == wanted
            if content is not None and wanted:
                found = ctx.get(port.payload)
                assert found.address == content.addresses[which]
                assert (found.words, found.tag) == (content.words[which], tag)
                assert found.check == content.checks[which] ^ which  # ``second`` is a one

    run(dut, work)


def _ready(ctx: Any, rng: random.Random, port: Any) -> bool:
    """Ready or not, at random."""
    ready = rng.random() < 0.7
    ctx.set(port.ready, int(ready))
    return ready


@pytest.mark.parametrize("depth", [2, 16])
def test_order_and_places_leave_together(depth: int) -> None:
    config = StoreConfig(queue=depth)
    dut, rng = EncoderDispatcher(config), random.Random(3)
    queue = Queue(dut, encode_descriptor_layout(config), depth)

    async def work(ctx: Any) -> None:
        for _ in range(CYCLES):
            queue.drive(ctx)
            ready = [_ready(ctx, rng, port) for port in (dut.orders, dut.places)]
            head = queue.head()
            leaves = head is not None and all(ready)
            assert ctx.get(dut.orders.valid) == ctx.get(dut.places.valid) == leaves
            if head is not None and leaves:
                assert ctx.get(dut.orders.payload) == head.order
                assert ctx.get(dut.places.payload) == head.places
            queue.sample(ctx, leaves)
            await ctx.tick()
        queue.check_coverage()

    run(dut, work)
