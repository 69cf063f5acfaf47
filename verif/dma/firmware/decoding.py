"""Suite of decoders behind their DMA: the C driver decodes tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import cocotb

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.dma import decoding
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.bench import Broken, DmaBench, Placed
from cassandra_spec.verif.dma.firmware.driver import Decode, Driver, Status
from cassandra_spec.verif.dma.firmware.port import (
    abort,
    call,
    check_quiet,
    directory_of,
    driver_of,
    finish,
    layout_of,
)
from cassandra_spec.verif.dma.host import names_of
from cassandra_spec.verif.dma.memory import Timing
from cassandra_spec.verif.library.patterns import ALWAYS, NEVER
from cassandra_spec.verif.library.payloads import Payload, draw, random_format

_SEGMENT = 256


def place(bench: DmaBench, payload: Payload, *, target: bool) -> Decode:
    """Put a tensor into memory and tell the scoreboard of its segments."""
    packed = payload.packed
    arrays = (packed.speculation.tobytes(), packed.verification.tobytes() or bytes(1))
    bases = [bench.memory.place(array) for array in arrays]
    unit = packed.format.superblock
    for index, row in enumerate(packed.directory.tolist()):
        first, second = bases[0] + unit * row[0], bases[1] + unit * row[2]
        job = Job(payload=payload, index=index, target=target)
        lengths = (unit * row[1], unit * row[3])
        bench.scoreboard.expected.append(Placed(item=job, bases=(first, second), lengths=lengths))
    coded = packed.format.pruned_exponent == "coded"
    return Decode(
        layout=layout_of(packed.format, packed.count),
        speculation=bases[0],
        verification=bases[1],
        directory=directory_of(packed.directory),
        segments=len(packed.directory),
        pruned_slot=1 if coded else 0,
        target=target,
        midpoint=packed.format.fill == "midpoint",
        coded=coded,
    )


def some_payload(bench: DmaBench, scheme: Any, segments: int) -> Payload:
    """Draw a random tensor of a few segments."""
    lanes = bench.lanes // bench.decoders
    fmt = random_format(bench.rng, lanes=lanes, scheme=scheme, segment=_SEGMENT, **decoding.FORMATS)
    most = segments * fmt.segment
    return draw(bench.rng, fmt, most - int(bench.rng.integers(fmt.segment)))


async def load(bench: DmaBench, driver: Driver, payload: Payload) -> None:
    """Write the codebooks of a tensor."""
    books: Sequence[tuple[int, ...]] = ((), ())
    if payload.format.scheme == "unary":
        books = (payload.packed.codebook or (0,), payload.packed.pruned_codebook)
    for slot, book in enumerate(books):
        assert await call(bench, driver.load_codebook, slot, book) == Status.OK


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES), interrupt=[False, True])
async def decodes_a_tensor(dut: Any, scheme: Any, interrupt: bool) -> None:
    """Draft and target of more segments than the queue holds."""
    bench = await decoding.start(dut)
    driver = await driver_of(bench)
    payload = some_payload(bench, scheme, 2 * driver.device.queue + 3)
    await load(bench, driver, payload)
    for target in (False, True):
        job = place(bench, payload, target=target)
        assert await call(bench, driver.start, job, interrupt=interrupt) == Status.OK
        assert await finish(bench, driver, job, interrupt=interrupt) == Status.OK
        await bench.finish()
    assert await bench.do(bench.host.read("count_segments")) == job.segments


@cocotb.test()
@cocotb.parametrize(response=[Response.SLVERR, Response.DECERR])
async def a_fault_is_named_and_the_device_recovers(dut: Any, response: Response) -> None:
    """The last segment cannot be read: cause, segment and address; then the whole tensor."""
    bench = await decoding.start(dut)
    driver = await driver_of(bench)
    payload = some_payload(bench, "exact", 3)
    job = place(bench, payload, target=False)
    last = bench.scoreboard.expected.pop()
    bad = Broken(job=last.item, region="speculation", word=0, response=response)
    bench.scoreboard.expected.append(dataclasses.replace(last, item=bad))
    bench.memory.fail(last.bases[0], response)
    assert await call(bench, driver.start, job) == Status.OK
    assert await finish(bench, driver, job) == Status.FAULT
    fault = driver.device.fault
    name = {Response.SLVERR: "slave", Response.DECERR: "decode"}[response]
    assert name in names_of("error", fault.causes)
    assert fault.address == last.bases[0]
    await recover(bench, driver)
    assert fault.segment == job.segments - 1
    bench.memory.broken.clear()
    await bench.finish()
    job = place(bench, payload, target=False)
    assert await call(bench, driver.start, job) == Status.OK
    assert await finish(bench, driver, job) == Status.OK
    await bench.finish()


async def recover(bench: DmaBench, driver: Driver) -> None:
    """Recover without a reset."""
    status = Status.BUSY
    while status == Status.BUSY:
        status = await call(bench, driver.recover)
    assert status == Status.OK


@cocotb.test()
async def a_job_waits_for_the_one_before(dut: Any) -> None:
    """While values wait inside, a second job is not begun; after a reset it is."""
    bench = await decoding.start(dut)
    driver = await driver_of(bench)
    payload = some_payload(bench, "mx", 2)
    job = place(bench, payload, target=True)
    bench.values.use(NEVER)
    assert await call(bench, driver.start, job) == Status.OK
    assert await call(bench, driver.step, job) == Status.BUSY
    assert await call(bench, driver.start, job) == Status.BUSY
    assert await call(bench, driver.recover) == Status.BUSY
    await bench.reset()
    bench.values.use(ALWAYS)
    assert await call(bench, driver.probe) == Status.OK
    bench.scoreboard.expected.clear()
    job = place(bench, payload, target=True)
    assert await call(bench, driver.start, job) == Status.OK
    assert await finish(bench, driver, job) == Status.OK
    await bench.finish()


@cocotb.test()
async def the_interrupt_is_low_after_every_job(dut: Any) -> None:
    """Behind a slow bus the last segment ends while the step is at work."""
    bench = await decoding.start(dut)
    driver = await driver_of(bench, delay=80)
    payload = some_payload(bench, "mx", 1)
    for _ in range(3):
        job = place(bench, payload, target=True)
        assert await call(bench, driver.start, job, interrupt=True) == Status.OK
        assert await finish(bench, driver, job, interrupt=True) == Status.OK
        await check_quiet(bench)
        await bench.finish()


@cocotb.test()
@cocotb.parametrize(cycles=[0, 40, 150])
async def a_job_is_aborted(dut: Any, cycles: int) -> None:
    """Reads are outstanding; then the device does the job."""
    bench = await decoding.start(dut)
    driver = await driver_of(bench)
    payload = some_payload(bench, "unary", 4)
    await load(bench, driver, payload)
    job = place(bench, payload, target=True)
    bench.memory.use(Timing(shortest=60, longest=60))
    assert await call(bench, driver.start, job, interrupt=True) == Status.OK
    assert await call(bench, driver.step, job) == Status.BUSY
    await bench.run(cycles)
    bench.scoreboard.cut = True
    await abort(bench, driver)
    assert bench.memory.owed == 0
    await bench.run(4)
    bench.scoreboard.forget()
    assert await call(bench, driver.step, job) == Status.LOST
    await load(bench, driver, payload)
    job = place(bench, payload, target=True)
    assert await call(bench, driver.start, job) == Status.OK
    assert await finish(bench, driver, job) == Status.OK
    await bench.finish()


@cocotb.test()
@cocotb.parametrize(early=[False, True])
async def a_device_that_was_reset_is_noticed(dut: Any, early: bool) -> None:
    """Reset before the first step, or after it."""
    bench = await decoding.start(dut)
    driver = await driver_of(bench)
    payload = some_payload(bench, "mx", 3)
    job = place(bench, payload, target=False)
    assert await call(bench, driver.start, job, interrupt=True) == Status.OK
    if not early:
        assert await call(bench, driver.step, job) == Status.BUSY
    bench.scoreboard.cut = True
    await bench.soft_reset(pin=True)
    assert await call(bench, driver.step, job) == Status.LOST
    await abort(bench, driver)
    await bench.run(4)
    bench.scoreboard.forget()
    await bench.decode(decoding.some_jobs(bench, 2))


@cocotb.test()
async def a_length_that_wraps_is_not_read(dut: Any) -> None:
    """An entry whose region has 2^32 + 128 bytes stops the job; its first segment is right."""
    bench = await decoding.start(dut)
    driver = await driver_of(bench)
    payload = some_payload(bench, "mx", 3)
    job = place(bench, payload, target=False)
    job.directory[1].speculation_length = (1 << 32) // driver.device.superblock + 1
    assert await call(bench, driver.start, job, interrupt=True) == Status.OK
    assert await call(bench, driver.step, job) == Status.LENGTH
    await bench.run(50)
    assert not int(dut.irq.value)
    await recover(bench, driver)
    assert len(bench.scoreboard.expected) in (2, 3)  # the first segment may have left the queue
    bench.scoreboard.forget()
    await check_quiet(bench)
    await bench.finish()
