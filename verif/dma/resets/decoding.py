"""Suite of decoders behind their DMA: soft resets and quiet buses."""

from __future__ import annotations

import itertools
import os
from typing import Any

import cocotb

from cassandra_spec.verif.dma.bench import DmaBench, Pin, codebooks
from cassandra_spec.verif.dma.decoding import design as design
from cassandra_spec.verif.dma.decoding import some_jobs, start
from cassandra_spec.verif.dma.memory import Order, Timing
from cassandra_spec.verif.library.patterns import ALWAYS, NEVER, PATTERNS

CYCLES = 200
"""Jobs are aborted in cycles up to this one after their start."""

ABORTS = "CASSANDRA_ABORTS"
"""Variable: with ``each``, every pace of memory and ports aborts in each cycle; with ``shared``,
the paces share the cycles; else they share every third.
"""

LATENCIES = (0, 7, 60)
PRESSURES = ("always", "half", "never")
PACES = [*itertools.product(LATENCIES, PRESSURES)]


def share(place: int, paces: int) -> range:
    """Return the cycles in which one of some paces aborts."""
    chosen = os.environ.get(ABORTS)
    if chosen == "each":
        return range(CYCLES)
    step = 1 if chosen == "shared" else 3
    return range(step * place, CYCLES, step * paces)


def quiet_cycles() -> range:
    """Return the cycles after the start of a job in which the bus is asked to be quiet."""
    return range(0, CYCLES, 8 if ABORTS in os.environ else 24)


async def begin(bench: DmaBench) -> None:
    """Queue three segments, or as many as fit; they begin with the return of this function.

    Their codebooks fit together, because a disabled queue makes no room for others.
    """
    await bench.enable(False)
    room = await bench.do(bench.host.field("fetch", "books"))
    count = min(3, await bench.do(bench.host.field("fetch", "queue")))
    jobs = some_jobs(bench, count)
    while len({book for job in jobs for book in codebooks(job.request)}) > room:
        jobs = some_jobs(bench, count)
    bench.codebooks.clear()
    await bench.do(bench.queue([bench.place(job) for job in jobs]))
    await bench.enable()


async def abort(bench: DmaBench, *, pin: bool) -> None:
    """Reset the core; then no burst is open, and every packet that has begun has ended."""
    bench.scoreboard.cut = True
    await bench.soft_reset(pin=pin)
    bursts = len(bench.memory.bursts)
    await bench.run(2)
    assert bench.memory.owed == 0, "the reset must await every beat"
    assert len(bench.memory.bursts) == bursts, "no burst may begin after the reset"
    assert await bench.do(bench.host.read("outstanding")) == 0
    bench.values.use(ALWAYS)
    await bench.run(4)
    bench.scoreboard.forget()


@cocotb.test()
@cocotb.parametrize(latest=LATENCIES, pressure=PRESSURES)
async def a_job_is_aborted_in_each_cycle(dut: Any, latest: int, pressure: str) -> None:
    """Whatever the memory and the sink do, the next segment is right."""
    bench = await start(dut)
    bench.memory.use(Timing(shortest=latest // 2, longest=latest, order=Order.BEATS))
    for cycle in share(PACES.index((latest, pressure)), len(PACES)):
        bench.values.use(PATTERNS.get(pressure, NEVER))
        await begin(bench)
        await bench.run(cycle)
        await abort(bench, pin=bool(cycle % 2))
        assert not await bench.do(bench.host.causes())
        await bench.decode(some_jobs(bench, 1))


@cocotb.test()
@cocotb.parametrize(pin=[False, True])
async def status_shows_a_reset_that_waits(dut: Any, pin: bool) -> None:
    """While memory is late, STATUS and OUTSTANDING say so; a descriptor is refused meanwhile."""
    bench = await start(dut)
    bench.memory.use(Timing(shortest=400, longest=400))
    await begin(bench)
    await bench.run(60)
    owed = await bench.do(bench.host.read("outstanding"))
    assert owed == bench.memory.owed > 0
    assert await bench.do(bench.host.field("status", "open"))
    if pin:
        await bench.pulse(bench.core_rst)
    else:
        await bench.do(bench.host.write("control", 1 << 3))
    for field in ("draining", "open", "busy", "full"):
        assert await bench.do(bench.host.field("status", field)), field
    assert await bench.do(bench.host.read("outstanding")) == bench.memory.owed > 0
    for register in ("control", "irq", "irq_enable", "error", "speculation_length"):
        assert await bench.do(bench.host.read(register)) == 0, register
    await bench.do(bench.host.write("start", 1))  # without regions, but decided before that
    assert await bench.do(bench.host.causes()) == {"descriptor"}
    await bench.do(bench.host.write("error", 0xFFFF_FFFF))
    bench.scoreboard.cut = True
    await bench.until(lambda: bench.memory.owed == 0, 2000, "the last beat")
    await bench.run(6)
    assert await bench.do(bench.host.read("status")) == 0
    assert await bench.do(bench.host.read("irq")) & 2  # idle
    bench.scoreboard.forget()
    bench.host.reset()
    bench.codebooks.clear()
    bench.memory.use(Timing())
    await bench.decode(some_jobs(bench, 4))


@cocotb.test()
@cocotb.parametrize(latest=[0, 60], then=["release", "rst"])
async def a_quiet_bus(dut: Any, latest: int, then: str) -> None:
    """After quiesce_done nothing moves, and nothing is lost; ``rst`` is then safe."""
    bench = await start(dut)
    bench.memory.use(Timing(longest=latest, order=Order.BEATS))
    for cycle in quiet_cycles():
        await begin(bench)
        await bench.run(cycle)
        await bench.quiet()
        if then == "rst":
            await bench.hard_reset()
        bench.quiesce.level = 0
        await bench.finish()
        assert not await bench.do(bench.host.causes())
        assert not bool(dut.quiesce_done.value)


@cocotb.test()
async def the_register_port_in_reset(dut: Any) -> None:
    """No access is taken while a reset is high, so none is lost."""
    bench = await start(dut)
    for pin in (Pin(dut.rst), bench.core_rst):
        bench.agents.insert(0, pin)
        pin.level = 1
        for _ in range(3):
            await bench.run(1)
            for channel in ("aw", "w", "ar"):
                assert not int(getattr(dut, f"s_axil_{channel}ready").value), channel
        pin.level = 0
        await bench.run(1)
        bench.agents.remove(pin)
    await bench.decode(some_jobs(bench, 3))
