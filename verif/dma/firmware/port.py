"""The C driver at the register port of a simulated device.

It runs in a thread and waits there for every access. The variable CASSANDRA_DRIVER names its
library.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cocotb.task import bridge, resume
from cocotb.triggers import RisingEdge

from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.bench import PeripheralBench
from cassandra_spec.verif.dma.firmware.driver import Decode, Driver, Encode, Entry, Layout, Status

_STEPS = 2000  # of a job, at most


async def driver_of(bench: PeripheralBench[Any], *, delay: int = 0) -> Driver:
    """Return the driver after it has found the device; each access is ``delay`` cycles late."""

    async def wait() -> None:
        for _ in range(delay):
            await RisingEdge(bench.dut.clk)

    @resume
    async def read(offset: int) -> int:
        await wait()
        value, response = await bench.host.raw_read(offset)
        assert response == Response.OKAY, hex(offset)
        return int(value)

    @resume
    async def write(offset: int, value: int) -> None:
        await wait()
        response = await bench.host.raw_write(offset, value.to_bytes(4, "little"))
        assert response == Response.OKAY, hex(offset)

    driver = Driver(Path(os.environ["CASSANDRA_DRIVER"]), read, write)
    assert await call(bench, driver.probe) == Status.OK
    return driver


async def call(
    bench: PeripheralBench[Any], function: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Run a function of the driver while the ports move."""
    return await bench.do(bridge(function)(*arguments, **options))


async def finish(
    bench: PeripheralBench[Any], driver: Driver, job: Decode | Encode, *, interrupt: bool = False
) -> Status:
    """Step until the job ends; with ``interrupt``, after the first step only when it is high."""
    for number in range(_STEPS):
        if interrupt and number:
            await bench.until(lambda: bool(bench.dut.irq.value), 100_000, "an interrupt")
        status: Status = await call(bench, driver.step, job)
        if status != Status.BUSY:
            return status
    raise AssertionError("the job must end")


async def abort(bench: PeripheralBench[Any], driver: Driver, *, fresh: bool = False) -> None:
    """Abort to the end; the interrupt is then low."""
    status = Status.BUSY
    while status == Status.BUSY:
        status = await call(bench, driver.abort, fresh=fresh)
    assert status == Status.OK
    bench.codebooks.clear()
    await check_quiet(bench)


async def check_quiet(bench: PeripheralBench[Any]) -> None:
    """Require that the interrupt is off and stays low."""
    for register in ("irq_enable", "irq"):
        assert await bench.do(bench.host.read(register)) == 0, register
    for _ in range(50):
        await bench.run(1)
        assert not int(bench.dut.irq.value)


def layout_of(fmt: Format, count: int) -> Layout:
    """Return a format and a number of values as the driver expects them."""
    return Layout(
        values=count,
        segment_values=fmt.segment,
        scheme=SCHEMES.index(fmt.scheme),
        truncated=fmt.truncated,
        log2_group=fmt.group.bit_length() - 1,
        slot=0,
    )


def directory_of(rows: Any) -> Any:
    """Return a directory as an array of C."""
    return (Entry * len(rows))(*(Entry(*map(int, row)) for row in rows))
