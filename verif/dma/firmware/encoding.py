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
    call,
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
