"""Suite of the encoder behind its registers: the C driver fills arrays and a directory."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

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

_SEGMENT = 256
_SPARE = 128  # bytes of room beyond what an array needs


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES), interrupt=[False, True])
async def encodes_a_tensor(dut: Any, scheme: Any, interrupt: bool) -> None:
    """Arrays and directory are golden's, of more segments than results may wait."""
    bench = await encoding.start(dut)
    driver = await driver_of(bench)
    lanes, segments = bench.config.encoder.lanes, 11
    fmt = Format(scheme=scheme, beat=lanes, group=32, segment=_SEGMENT, truncated=3)
    numbers = bench.rng.normal(size=fmt.segment * segments - 100).astype(np.float32)
    values = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    packed = encode(values, fmt, always_mask=scheme == "unary")
    arrays = (packed.speculation.tobytes(), packed.verification.tobytes())
    rooms = [len(array) + _SPARE for array in arrays]
    bases = [bench.memory.allocate(size) for size in rooms]
    assert await call(bench, driver.load_codebook, 0, packed.codebook or (0,)) == Status.OK
    directory = directory_of([[0] * len(DIRECTORY_FIELDS)] * segments)
    job = Encode(
        layout=layout_of(fmt, values.size),
        speculation=bases[0],
        verification=bases[1],
        speculation_room=rooms[0],
        verification_room=rooms[1],
        directory=directory,
        segments=segments,
        vector=64,
        keep=64,
        mask=scheme == "unary",
    )
    for index in range(segments):
        bench.offer(values[index * fmt.segment : (index + 1) * fmt.segment])
    assert await call(bench, driver.start, job, interrupt=interrupt) == Status.OK
    assert await finish(bench, driver, job, interrupt=interrupt) == Status.OK
    rows = [[getattr(row, name) for name in DIRECTORY_FIELDS] for row in directory]
    assert np.array_equal(rows, packed.directory)
    for base, array in zip(bases, arrays, strict=True):
        assert bench.memory.read(base, len(array)) == array


@cocotb.test()
async def a_room_that_is_too_small_is_named(dut: Any) -> None:
    """The job ends with the cause ``room``; then the device takes another."""
    bench = await encoding.start(dut)
    driver = await driver_of(bench)
    fmt = Format(scheme="exact", beat=bench.config.encoder.lanes, group=32, segment=_SEGMENT)
    values = np.full(_SEGMENT, 0x3F80, np.uint16)
    arrays = encode(values, fmt)
    for room, wanted in ((0, Status.FAULT), (_SPARE, Status.OK)):
        rooms = [
            max(array.size - 128 + room, 128) for array in (arrays.speculation, arrays.verification)
        ]
        bases = [bench.memory.allocate(size) for size in rooms]
        job = Encode(
            layout=layout_of(fmt, values.size),
            speculation=bases[0],
            verification=bases[1],
            speculation_room=rooms[0],
            verification_room=rooms[1],
            directory=directory_of([[0] * len(DIRECTORY_FIELDS)]),
            segments=1,
            vector=64,
            keep=64,
        )
        bench.offer(values)
        assert await call(bench, driver.start, job) == Status.OK
        assert await finish(bench, driver, job) == wanted
        if wanted == Status.FAULT:
            assert names_of("error", driver.device.fault.causes) == {"room"}
            assert await call(bench, driver.recover) == Status.OK


def small_job(bench: encoding.EncoderDmaBench, values: Any, fmt: Format, **changed: int) -> Encode:
    """Return a job of one segment with rooms of its own."""
    arrays = encode(values, fmt)
    rooms = [array.size + _SPARE for array in (arrays.speculation, arrays.verification)]
    bases = [bench.memory.allocate(size) for size in rooms]
    fields = {"vector": 64, "keep": 64} | changed
    return Encode(
        layout=layout_of(fmt, values.size),
        speculation=bases[0],
        verification=bases[1],
        speculation_room=rooms[0],
        verification_room=rooms[1],
        directory=directory_of([[0] * len(DIRECTORY_FIELDS)]),
        segments=1,
        **fields,
    )


@cocotb.test()
async def results_of_another_job_are_not_taken(dut: Any) -> None:
    """A job is left alone after its segment; the next one starts only after an abort."""
    bench = await encoding.start(dut)
    driver = await driver_of(bench)
    fmt = Format(scheme="exact", beat=bench.config.encoder.lanes, group=32, segment=_SEGMENT)
    values = np.full(_SEGMENT, 0x3F80, np.uint16)
    for vector in (13, 72, 256):
        job = small_job(bench, values, fmt, vector=vector, keep=8)
        assert await call(bench, driver.start, job) == Status.UNSUPPORTED
    bench.offer(values)
    job = small_job(bench, values, fmt)
    assert await call(bench, driver.start, job, interrupt=True) == Status.OK
    assert await call(bench, driver.step, job) == Status.BUSY
    while await bench.do(bench.host.field("status", "busy")):
        pass
    job = small_job(bench, values, fmt)
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
    fmt = Format(scheme="exact", beat=bench.config.encoder.lanes, group=32, segment=_SEGMENT)
    values = np.full(_SEGMENT, 0x3F80, np.uint16)
    job = small_job(bench, values, fmt)
    assert await call(bench, driver.start, job, interrupt=True) == Status.OK
    assert await call(bench, driver.step, job) == Status.BUSY
    bench.offer(values)
    await bench.until(lambda: bench.values.moved > 0, 1000, "the first beat")
    await bench.run(cycles)
    await abort(bench, driver)
    assert bench.memory.owed == 0
    await bench.until(lambda: bench.values.idle, 1000, "the rest of the packet")
    assert await call(bench, driver.step, job) == Status.LOST
    job = small_job(bench, values, fmt)
    bench.offer(values)
    assert await call(bench, driver.start, job) == Status.OK
    assert await finish(bench, driver, job) == Status.OK
