"""Running work on a component in Amaranth's simulator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

LIMIT = 100_000
"""Steps of the simulator, a few in a cycle, after which work counts as hanging."""


def run(dut: Any, work: Callable[[Any], Awaitable[None]]) -> None:
    """Let ``work`` drive ``dut`` to its end."""
    done = []

    async def bench(ctx: Any) -> None:
        await work(ctx)
        done.append(True)

    top = Module()
    top.submodules.dut = dut
    top.d.sync += Signal().eq(1)  # there is a clock, even if the design has no register
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    steps = 0
    while simulator.advance():
        steps += 1
        assert steps <= LIMIT, f"it must end in {LIMIT} steps"
    assert done
