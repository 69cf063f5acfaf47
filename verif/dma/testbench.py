"""Suite of decoders behind their DMA: memory, registers and values, for any number of decoders."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.clock import Clock

from verif.dma.bench import DmaBench
from verif.dma.memory import Order, Timing
from verif.jobs import Job, mixed_jobs
from verif.patterns import PATTERNS

SEGMENT = 128


async def start(dut: Any) -> DmaBench:
    """A bench with a running clock, after a reset."""
    Clock(dut.clk, 2, unit="ns").start()
    bench = DmaBench(dut, cocotb.RANDOM_SEED)
    await bench.reset()
    return bench


def some_jobs(bench: DmaBench, count: int, segment: int = SEGMENT) -> list[Job]:
    """Random segments of random payloads, a switch between any two."""
    lanes = bench.lanes // bench.decoders
    return mixed_jobs(bench.rng, lanes=lanes, count=count, segment=segment)


@cocotb.test()
async def one_segment(dut: Any) -> None:
    """The shortest way through."""
    bench = await start(dut)
    await bench.decode(some_jobs(bench, 1))


@cocotb.test()
@cocotb.parametrize(idle=list(PATTERNS), pressure=list(PATTERNS))
async def idle_by_back_pressure_by_payload(dut: Any, idle: str, pressure: str) -> None:
    """The memory with one pattern, whoever takes the values with another."""
    bench = await start(dut)
    order = list(Order)[int(bench.rng.integers(3))]
    pattern = PATTERNS[idle]
    bench.memory.use(Timing(longest=40, order=order, addresses=pattern, beats=pattern))
    bench.values.use(PATTERNS[pressure])
    await bench.decode(some_jobs(bench, 12))
