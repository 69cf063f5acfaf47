"""Suite of the encoder behind its registers: stray responses, sources that withdraw their offer.

The other sides break rules here, so the suite runs without the exported assertions.
"""

from __future__ import annotations

import os
from typing import Any

import cocotb

from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.encoding import encode_all, start
from cassandra_spec.verif.dma.memory import WriteTiming
from cassandra_spec.verif.dma.resets.decoding import ABORTS
from cassandra_spec.verif.dma.resets.encoding import (
    PRESSURES,
    abort_in_each_cycle,
    begin,
    some_order,
)


@cocotb.test()
async def responses_that_belong_to_nothing(dut: Any) -> None:
    """``rst`` alone, while responses are owed: they are taken, reported, and have no effect."""
    bench = await start(dut)
    bench.rules.waived = frozenset({"m_axi_b_asked", "m_axi_b_reset"})
    for _ in range(6):
        bench.memory.use(WriteTiming(shortest=200, longest=200))
        await begin(bench, [some_order(bench)])
        await bench.until(lambda: bench.memory.owed > 1, 4000, "bursts")
        bench.quiesce.level = 1  # no burst may be cut
        await bench.until(lambda: not dut.m_axi_wvalid.value, 400, "the last word")
        await bench.hard_reset()
        bench.quiesce.level = 0
        await bench.until(lambda: bench.memory.owed == 0, 2000, "the last response")
        await bench.run(4)
        assert await bench.do(bench.host.causes()) == {"stray"}
        assert await bench.do(bench.host.read("status")) == 0
        await bench.do(bench.host.write("error", 0xFFFF_FFFF))
        await bench.enable()
        bench.memory.use(WriteTiming())
        await encode_all(bench, [some_order(bench).segment])
        assert not await bench.do(bench.host.causes())


@cocotb.test()
@cocotb.parametrize(pressure=PRESSURES if os.environ.get(ABORTS) == "each" else ["half"])
async def a_job_is_aborted_with_its_source(dut: Any, pressure: str) -> None:
    """In the same cycles: the next beat begins a packet."""
    await abort_in_each_cycle(await start(dut), 40, pressure, fresh=True)


@cocotb.test()
async def errors_of_a_job_that_was_aborted(dut: Any) -> None:
    """Error responses that come during a reset flag nothing."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(shortest=300, longest=300))
    [places] = await begin(bench, [some_order(bench)])
    for place in places:
        bench.memory.fail(place.base, Response.SLVERR)
    await bench.until(lambda: bench.memory.owed > 0, 4000, "bursts")
    await bench.soft_reset(pin=False, fresh=True)
    await bench.reset_values()
    assert not await bench.do(bench.host.causes())
    bench.memory.broken.clear()
    bench.memory.use(WriteTiming())
    await bench.enable()
    await encode_all(bench, [some_order(bench).segment])
    assert not await bench.do(bench.host.causes())
