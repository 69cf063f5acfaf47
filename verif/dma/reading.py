"""The arrival times of a region that the read master fetches alone, at one memory latency.

The receiver takes one word per cycle, so only memory and read master are measured.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

from amaranth.sim import Simulator

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.read_master import ReadMaster

_SLACK = 100  # cycles beyond the latency after which a burst counts as hanging


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """Arrival times of a region's words, in cycles since the region was handed over."""

    words: int  # bus words after those that the buffer could hold at first
    first: int
    full: int  # arrival of the last word that the buffer could hold at first
    last: int

    @property
    def share(self) -> float:
        """Share of the bus in use while words come only as room is given back."""
        return self.words / (self.last - self.full)


def read(config: DmaConfig, *, latency: int, words: int) -> Reading:
    """Read a region of ``words`` bus words from address 0, more than the buffer can hold.

    The memory takes an address in each cycle and has its first word ready ``latency`` cycles later
    (at least 1). The other words follow, one per cycle, in the order of the addresses. Raises
    CassandraError if decoder words and bus words differ in size, if ``words`` is too small, or if
    the region never ends.
    """
    if config.bus != config.decoder.lanes:
        raise CassandraError(f"bus must be {config.decoder.lanes} bytes, not {config.bus}")
    if words <= config.depth:
        raise CassandraError(f"words must be more than {config.depth} in the buffer, not {words}")
    limit = words * (latency + _SLACK)
    came = _arrivals(config, latency, words, limit)
    if len(came) != words:
        raise CassandraError(f"words must be {words} in {limit} cycles, not {len(came)}")
    rest, full = words - config.depth, came[config.depth - 1]
    return Reading(words=rest, first=came[0], full=full, last=came[-1])


def _arrivals(config: DmaConfig, latency: int, words: int, limit: int) -> list[int]:
    """Return the cycles in which words of a region come."""
    dut, came = ReadMaster(config), list[int]()

    async def bench(ctx: Any) -> None:
        region, out = dut.regions[0], dut.speculation[0]
        payload = {"address": 0, "words": words, "check": 1 - words.bit_count() % 2, "tag": 0}
        bursts = deque[tuple[int, int]]()  # cycle of the first word, words
        ctx.set(region.payload, payload)
        for one in (region.valid, out.ready, dut.ar.ready):
            ctx.set(one, 1)
        for cycle in range(limit):
            if ctx.get(dut.ar.valid):
                bursts.append((cycle + latency, ctx.get(dut.ar.payload.burst.words)))
            due = bool(bursts) and bursts[0][0] <= cycle
            ctx.set(dut.r_valid, int(due))
            if due:
                begin, left = bursts.popleft()
                bursts.extendleft([(begin, left - 1)] if left > 1 else [])
            if ctx.get(out.valid):
                came.append(cycle)
                if ctx.get(out.payload.last):
                    return
            await ctx.tick()
            ctx.set(region.valid, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return came
