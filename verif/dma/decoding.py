"""Suite of decoders behind their DMA: values, at any pace of memory and sink."""

from __future__ import annotations

import json
import os
from typing import Any

import cocotb
from cocotb.triggers import Timer

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, mixed_jobs
from cassandra_spec.verif.dma.bench import DmaBench
from cassandra_spec.verif.dma.memory import Order, Timing
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.library.patterns import ALWAYS, NEVER, PATTERNS
from cassandra_spec.verif.library.payloads import directed, draw, random_format

SMALL = DmaConfig(decoder=DecoderConfig(lanes=8), bus=32, burst=1024, buffer=1024, books=2)
SEGMENT = 128
FORMATS: dict[str, Any] = json.loads(os.environ.get("CASSANDRA_FORMATS", "{}"))
"""Format fields that the design reads and that differ from the default: lead, coded."""


def design() -> Ruled:
    """Build a small decoder whose bus is wider than its words, beside the AXI rules."""
    return Ruled(CassandraDma(SMALL))


async def start(dut: Any) -> DmaBench:
    """Return a bench with a running clock, after a reset."""
    return await DmaBench(dut, cocotb.RANDOM_SEED).started()


def some_jobs(bench: DmaBench, count: int, segment: int = SEGMENT) -> list[Job]:
    """Return random segments of random payloads, with a switch between any two."""
    lanes = bench.lanes // bench.decoders
    return mixed_jobs(bench.rng, lanes=lanes, count=count, segment=segment, **FORMATS)


@cocotb.test()
@cocotb.parametrize(idle=list(PATTERNS), pressure=list(PATTERNS))
async def idle_by_back_pressure_by_payload(dut: Any, idle: str, pressure: str) -> None:
    """The memory uses one pattern, the sink of values another."""
    bench = await start(dut)
    order = list(Order)[int(bench.rng.integers(len(Order)))]
    pattern = PATTERNS[idle]
    bench.memory.use(Timing(longest=40, order=order, addresses=pattern, beats=pattern))
    bench.values.use(PATTERNS[pressure])
    await bench.decode(some_jobs(bench, 12))


@cocotb.test()
@cocotb.parametrize(order=list(Order), latest=[0, 7, 150])
async def order_by_latency(dut: Any, order: Order, latest: int) -> None:
    """Longer segments, answered in every order that AXI allows."""
    bench = await start(dut)
    bench.memory.use(Timing(longest=latest, order=order))
    memory = bench.memory
    for _ in range(8):  # batches, until answers have come in another order
        await bench.decode(some_jobs(bench, 10, segment=1024))
        seen = {Order.ASKED: True, Order.BURSTS: memory.overtaken, Order.BEATS: memory.interleaved}
        if seen[order]:
            break
    assert seen[order]
    assert order is not Order.ASKED or not memory.overtaken
    assert order is Order.BEATS or not memory.interleaved


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def directed_payloads(dut: Any, scheme: Any) -> None:
    """Segments of every kind and size of interest are right, in draft and in target mode."""
    bench = await start(dut)
    lanes = bench.lanes // bench.decoders
    fmt = random_format(bench.rng, lanes=lanes, scheme=scheme, segment=64, **FORMATS)
    bench.memory.use(Timing(longest=20, order=Order.BEATS))
    items = [job for payload in directed(bench.rng, fmt) for job in jobs_of(payload)]
    await bench.decode(items)


@cocotb.test()
async def regions_of_every_length_at_every_place(dut: Any) -> None:
    """Segments from one value up, with the first bursts at all distances from a border."""
    bench = await start(dut)
    lanes = bench.lanes // bench.decoders
    bench.memory.use(Timing(longest=12, order=Order.BURSTS))
    items: list[Job] = []
    for count in range(1, 1 << 11, 131):
        scheme = SCHEMES[int(bench.rng.integers(len(SCHEMES)))]
        fmt = random_format(bench.rng, lanes=lanes, scheme=scheme, segment=2048, **FORMATS)
        items += list(jobs_of(draw(bench.rng, fmt, min(count, fmt.segment))))
    await bench.decode(items)


@cocotb.test()
async def patterns_change_without_a_reset(dut: Any) -> None:
    """Batch after batch."""
    bench = await start(dut)
    names = list(PATTERNS)
    for _ in range(10):
        chosen = [PATTERNS[str(bench.rng.choice(names))] for _ in range(3)]
        order = list(Order)[int(bench.rng.integers(len(Order)))]
        bench.memory.use(Timing(longest=30, order=order, addresses=chosen[0], beats=chosen[1]))
        bench.values.use(chosen[2])
        await bench.decode(some_jobs(bench, 5))


@cocotb.test()
async def reset_with_reads_on_their_way(dut: Any) -> None:
    """Reset after any number of beats; the next segment is right."""
    bench = await start(dut)
    for _ in range(8):
        bench.memory.use(Timing(shortest=10, longest=30, order=Order.BEATS))
        placed = [bench.place(job) for job in some_jobs(bench, 6, segment=1024)]
        await bench.enable()
        work = cocotb.start_soon(bench.queue(placed))
        words = sum(entry.lengths[0] for entry in placed) // bench.word
        some = int(bench.rng.integers(1, words + 1))
        await bench.until(lambda some=some: bench.memory.beats >= some, 20_000, "some beats")  # type: ignore[misc]
        work.cancel()
        await bench.reset()
        await bench.decode(some_jobs(bench, 2))


@cocotb.test()
async def nothing_is_asked_for_that_cannot_be_taken(dut: Any) -> None:
    """While no values are taken, reads stop, and RREADY stays high: no region blocks another."""
    bench = await start(dut)
    bench.values.use(NEVER)
    placed = [bench.place(job) for job in some_jobs(bench, 24, segment=1024)]
    await bench.enable()
    work = cocotb.start_soon(bench.queue(placed))
    await bench.run(2500)
    asked, read = len(bench.memory.bursts), bench.memory.beats
    assert asked
    assert read == sum(beats for _, beats in bench.memory.bursts)
    await bench.run(200)
    assert (len(bench.memory.bursts), bench.memory.beats) == (asked, read)
    assert int(dut.m_axi_rready.value)
    await Timer(1, "step")  # leave the read-only phase
    bench.values.use(ALWAYS)
    await bench.until(work.done, 200_000, "the last descriptor")
    await bench.finish()
