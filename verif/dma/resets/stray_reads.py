"""Suite of decoders behind their DMA: beats that belong to nothing.

The memory breaks AXI's rules here, so the suite runs without the exported assertions.
"""

from __future__ import annotations

from typing import Any

import cocotb

from cassandra_spec.verif.dma.decoding import design as design
from cassandra_spec.verif.dma.decoding import some_jobs, start
from cassandra_spec.verif.dma.memory import Timing
from cassandra_spec.verif.dma.resets.decoding import begin


@cocotb.test()
async def beats_that_belong_to_nothing(dut: Any) -> None:
    """``rst`` alone, while beats are owed: they are ignored, reported, and not counted."""
    bench = await start(dut)
    bench.rules.waived = frozenset({"m_axi_r_asked", "m_axi_r_last", "m_axi_r_reset"})
    for _ in range(10):
        bench.memory.use(Timing(shortest=60, longest=60))
        await begin(bench)
        await bench.until(lambda: bench.memory.owed > 8, 1000, "reads")
        await bench.hard_reset()
        await bench.until(lambda: bench.memory.owed == 0, 2000, "the last beat")
        await bench.run(4)
        assert await bench.do(bench.host.causes()) == {"stray"}
        assert await bench.do(bench.host.read("status")) == 0
        assert await bench.do(bench.host.read_pair("count_words")) == 0
        await bench.do(bench.host.write("error", 0xFFFF_FFFF))
        await bench.decode(some_jobs(bench, 3))
        assert not await bench.do(bench.host.causes())
