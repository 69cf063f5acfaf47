"""Suite of the encoder behind its registers: soft resets and quiet buses."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import cocotb

from cassandra_spec.verif.dma.encoding import (
    EncoderDmaBench,
    Place,
    check_result,
    offered,
    queued,
    start,
)
from cassandra_spec.verif.dma.host import compose
from cassandra_spec.verif.dma.memory import WriteTiming
from cassandra_spec.verif.dma.resets.decoding import quiet_cycles, share
from cassandra_spec.verif.encoder.bench import Order
from cassandra_spec.verif.encoder.cases import draw_segment
from cassandra_spec.verif.library.patterns import PATTERNS

LATENCIES = (0, 40)
PRESSURES = ("always", "half", "stall")
PACES = [*itertools.product(LATENCIES, PRESSURES)]


def some_order(bench: EncoderDmaBench) -> Order:
    """Draw a segment of a few bursts."""
    return Order.of(draw_segment(bench.rng, bench.config.encoder, "exact", "any", beats=24))


async def begin(bench: EncoderDmaBench, orders: Sequence[Order]) -> list[list[Place]]:
    """Offer values and queue segments; return the places of their regions."""
    await bench.enable(False)
    placed = await queued(bench, orders)
    await bench.enable()
    return placed


def check_written(bench: EncoderDmaBench, placed: Sequence[Sequence[Place]]) -> None:
    """Require that every word in memory is one of golden's, written in its place."""
    word = bench.memory.word
    for place in itertools.chain(*placed):
        for at in range(0, len(place.region), word):
            found = bench.memory.data.get((place.base + at) // word)
            expected = int.from_bytes(place.region[at : at + word], "little")
            assert found in (None, expected), hex(place.base + at)


async def next_is_right(bench: EncoderDmaBench, order: Order, *, offers: bool) -> None:
    """Encode a segment whose values wait at the port already, unless ``offers``."""
    queued = list(bench.values.queue)
    places = offered(bench, order)
    if not offers:
        bench.values.queue.clear()
        bench.values.queue.extend(queued)
    await bench.enable()
    await bench.do(bench.describe_places(order, places))
    await bench.do(bench.host.write("start", compose("start", push=1)))
    [result] = await bench.do(bench.collect(1))
    check_result(bench, order, places, result)


@cocotb.test()
@cocotb.parametrize(latest=LATENCIES, pressure=PRESSURES)
async def a_job_is_aborted_in_each_cycle(dut: Any, latest: int, pressure: str) -> None:
    """Bursts that have begun end with their words; the next segment is right."""
    await abort_in_each_cycle(await start(dut), latest, pressure, fresh=False)


async def abort_in_each_cycle(
    bench: EncoderDmaBench, latest: int, pressure: str, *, fresh: bool
) -> None:
    """Abort one job after the other, each some cycles later than the one before.

    With ``fresh`` the source is reset as well; otherwise the rest of its packet is discarded.
    """
    pattern = PATTERNS[pressure]
    bench.memory.use(WriteTiming(longest=latest, shuffled=True, addresses=pattern, words=pattern))
    for cycle in share(PACES.index((latest, pressure)), len(PACES)):
        order, before = some_order(bench), bench.values.moved
        placed = await begin(bench, [order])
        beats = bench.values.moved - before + len(bench.values.queue) + (not bench.values.idle)
        await bench.run(cycle)
        await bench.soft_reset(pin=not fresh and bool(cycle % 2), fresh=fresh)
        assert bench.memory.owed == 0, "the reset must await every response"
        assert not await bench.do(bench.host.field("result", "valid"))
        check_written(bench, placed)
        taken = bench.values.moved - before
        if fresh:
            await bench.reset_values()
        elif taken:
            await bench.until(lambda: bench.values.idle, 2000, "the rest of the packet")
            assert bench.values.moved - before >= beats
        await next_is_right(bench, order, offers=fresh or bool(taken))
        assert not await bench.do(bench.host.causes())


@cocotb.test()
async def status_shows_a_reset_that_waits(dut: Any) -> None:
    """While responses are late, STATUS and OUTSTANDING say so."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(shortest=600, longest=600))
    await begin(bench, [some_order(bench)])
    await bench.until(lambda: bench.memory.owed > 1, 4000, "bursts")
    await bench.run(60)
    owed = bench.memory.owed
    assert await bench.do(bench.host.read("outstanding")) == owed
    await bench.do(bench.host.write("control", compose("control", reset=1)))
    for field in ("draining", "open", "busy", "full"):
        assert await bench.do(bench.host.field("status", field)), field
    await bench.until(lambda: bench.memory.owed == 0, 2000, "the last response")
    await bench.run(8)
    word = await bench.do(bench.host.read("status"))
    assert word & ~compose("status", discards=1) == 0
    assert await bench.do(bench.host.read("outstanding")) == 0


@cocotb.test()
@cocotb.parametrize(latest=[0, 60], then=["release", "rst"])
async def a_quiet_bus(dut: Any, latest: int, then: str) -> None:
    """After quiesce_done nothing moves, and nothing is lost; ``rst`` is then safe."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(longest=latest, shuffled=True, words=PATTERNS["half"]))
    for cycle in quiet_cycles():
        order = some_order(bench)
        [places] = await begin(bench, [order])
        await bench.run(cycle)
        await bench.quiet()
        if then == "rst":
            await bench.hard_reset()
            bench.quiesce.level = 0
            check_written(bench, [places])
            await next_is_right(bench, order, offers=True)
        else:
            bench.quiesce.level = 0
            [result] = await bench.do(bench.collect(1))
            check_result(bench, order, places, result)
        assert not await bench.do(bench.host.causes())
