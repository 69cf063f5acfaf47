"""Suite of the encoder behind its registers: the C driver fills arrays and a directory."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.codec import encode
from cassandra_spec.golden.format import DIRECTORY_FIELDS, SCHEMES, Format
from cassandra_spec.verif.dma import encoding
from cassandra_spec.verif.dma.firmware.driver import Encode, Status
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
from cassandra_spec.verif.library.payloads import bf16

_SEGMENT = 256
_SPARE = 128  # bytes of room beyond what an array needs


def some_ones(bench: encoding.EncoderDmaBench) -> tuple[NDArray[np.uint16], Format]:
    """Return the values and the format of one segment."""
    fmt = Format(scheme="exact", beat=bench.config.encoder.lanes, group=32, segment=_SEGMENT)
    return np.full(_SEGMENT, 0x3F80, np.uint16), fmt


def job_of(
    bench: encoding.EncoderDmaBench,
    values: NDArray[np.uint16],
    fmt: Format,
    *,
    spare: int = _SPARE,
    **changed: int,
) -> Encode:
    """Return a job with rooms of its own, each with ``spare`` bytes beyond its need."""
    mask = fmt.scheme == "unary"
    packed = encode(values, fmt, always_mask=mask)
    sizes = (packed.speculation.size, packed.verification.size)
    rooms = [max(size + spare, fmt.superblock) for size in sizes]
    bases = [bench.memory.allocate(size) for size in rooms]
    segments = len(packed.directory)
    fields = {"vector": 64, "keep": 64, "mask": mask} | changed
    return Encode(
        layout=layout_of(fmt, values.size),
        speculation=bases[0],
        verification=bases[1],
        speculation_room=rooms[0],
        verification_room=rooms[1],
        directory=directory_of([[0] * len(DIRECTORY_FIELDS)] * segments),
        segments=segments,
        **fields,
    )


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES), interrupt=[False, True])
async def encodes_a_tensor(dut: Any, scheme: Any, interrupt: bool) -> None:
    """Arrays and directory are golden's, of more segments than results may wait."""
    bench = await encoding.start(dut)
    driver = await driver_of(bench)
    lanes, segments = bench.config.encoder.lanes, 11
    fmt = Format(scheme=scheme, beat=lanes, group=32, segment=_SEGMENT, truncated=3)
    values = bf16(bench.rng.normal(size=fmt.segment * segments - 100).astype(np.float32))
    packed = encode(values, fmt, always_mask=scheme == "unary")
    assert await call(bench, driver.load_codebook, 0, packed.codebook or (0,)) == Status.OK
    job = job_of(bench, values, fmt)
    for index in range(segments):
        bench.offer(values[index * fmt.segment : (index + 1) * fmt.segment])
    assert await call(bench, driver.start, job, interrupt=interrupt) == Status.OK
    assert await finish(bench, driver, job, interrupt=interrupt) == Status.OK
    rows = [[getattr(row, name) for name in DIRECTORY_FIELDS] for row in job.directory[:segments]]
    assert np.array_equal(rows, packed.directory)
    for base, array in (
        (job.speculation, packed.speculation.tobytes()),
        (job.verification, packed.verification.tobytes()),
    ):
        assert bench.memory.read(base, len(array)) == array


@cocotb.test()
async def a_room_that_is_too_small_is_named(dut: Any) -> None:
    """The job ends with the cause ``room``; then the device takes another."""
    bench = await encoding.start(dut)
    driver = await driver_of(bench)
    values, fmt = some_ones(bench)
    for spare, wanted in ((-fmt.superblock, Status.FAULT), (0, Status.OK)):
        job = job_of(bench, values, fmt, spare=spare)
        bench.offer(values)
        assert await call(bench, driver.start, job) == Status.OK
        assert await finish(bench, driver, job) == wanted
        if wanted == Status.FAULT:
            assert names_of("error", driver.device.fault.causes) == {"room"}
            assert await call(bench, driver.recover) == Status.OK


@cocotb.test()
async def results_of_another_job_are_not_taken(dut: Any) -> None:
    """A job is left alone after its segment; the next one starts only after an abort."""
    bench = await encoding.start(dut)
    driver = await driver_of(bench)
    values, fmt = some_ones(bench)
    for vector in (13, 72, 256):
        job = job_of(bench, values, fmt, vector=vector, keep=8)
        assert await call(bench, driver.start, job) == Status.UNSUPPORTED
    bench.offer(values)
    job = job_of(bench, values, fmt)
    assert await call(bench, driver.start, job, interrupt=True) == Status.OK
    assert await call(bench, driver.step, job) == Status.BUSY
    while await bench.do(bench.host.field("status", "busy")):
        pass
    job = job_of(bench, values, fmt)
    assert await call(bench, driver.start, job) == Status.STALE
    await abort(bench, driver)
    bench.offer(values)
    assert await call(bench, driver.start, job, interrupt=True) == Status.OK
    assert await finish(bench, driver, job, interrupt=True) == Status.OK
    await check_quiet(bench)


@cocotb.test()
@cocotb.parametrize(cycles=[0, 60, 150])
async def a_job_is_aborted(dut: Any, cycles: int) -> None:
    """Abort with the rest of a packet to come; then the device does the job."""
    bench = await encoding.start(dut)
    driver = await driver_of(bench)
    values, fmt = some_ones(bench)
    job = job_of(bench, values, fmt)
    assert await call(bench, driver.start, job, interrupt=True) == Status.OK
    assert await call(bench, driver.step, job) == Status.BUSY
    bench.offer(values)
    await bench.until(lambda: bench.values.moved > 0, 1000, "the first beat")
    await bench.run(cycles)
    await abort(bench, driver)
    assert bench.memory.owed == 0
    await bench.until(lambda: bench.values.idle, 1000, "the rest of the packet")
    assert await call(bench, driver.step, job) == Status.LOST
    job = job_of(bench, values, fmt)
    bench.offer(values)
    assert await call(bench, driver.start, job) == Status.OK
    assert await finish(bench, driver, job) == Status.OK
