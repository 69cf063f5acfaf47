"""cocotb tests of the adder of test_runner.py (run inside the simulation)."""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge


@cocotb.test()
async def adds(dut: Any) -> None:
    Clock(dut.clk, 2, unit="ns").start()
    dut.rst.value = 0
    for _ in range(32):
        a, b = random.randrange(256), random.randrange(256)
        dut._log.info("operands %d %d", a, b)
        dut.a.value, dut.b.value = a, b
        await FallingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert dut.total.value.to_unsigned() == a + b


@cocotb.test()
async def resets(dut: Any) -> None:
    Clock(dut.clk, 2, unit="ns").start()
    dut.rst.value, dut.a.value, dut.b.value = 1, 3, 4
    await FallingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert dut.total.value.to_unsigned() == 0
