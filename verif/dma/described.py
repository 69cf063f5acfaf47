"""Suite of any peripheral: every register behaves as in the exported SystemRDL.

The variable CASSANDRA_REGISTERS names the SystemRDL file of the design.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cocotb

from cassandra_spec.rtl.dma.registers import ADDRESS_BITS
from cassandra_spec.verif.dma import decoding, encoding
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.bench import PeripheralBench
from cassandra_spec.verif.dma.description import Described, read_description
from cassandra_spec.verif.dma.host import compose

_TIMES = 8
_WORDS = [(data, 0b1111) for data in (0, 0xFFFF_FFFF, 0, 0xFFFF_FFFF)]
_BYTES = [(data, 1 << byte) for byte in range(4) for data in (0, 0xFFFF_FFFF)]


def description() -> tuple[Described, ...]:
    """Read the registers of the design."""
    return read_description(Path(os.environ["CASSANDRA_REGISTERS"]))


async def start(dut: Any) -> PeripheralBench[Any]:
    """Return a bench of a decoder or an encoder, after a reset."""
    bench: PeripheralBench[Any]
    if hasattr(dut, "m_axi_araddr"):
        bench = await decoding.start(dut)
    else:
        bench = await encoding.start(dut)
    await bench.reset()
    return bench


async def value_of(bench: PeripheralBench[Any], register: Described) -> int:
    """Read a register, which answers OKAY."""
    value, response = await bench.do(bench.host.raw_read(register.address))
    assert response == Response.OKAY, register.name
    return int(value)


async def check_resets(bench: PeripheralBench[Any]) -> None:
    """Check that every register reads its reset value."""
    for register in description():
        value = await value_of(bench, register)
        assert value & register.known == register.reset, register.name


@cocotb.test()
async def registers_after_a_reset(dut: Any) -> None:
    """Constants of the configuration, and zero in every other field whose value is known."""
    await check_resets(await start(dut))


@cocotb.test()
async def access_policies(dut: Any) -> None:
    """Each register is written with ones, zeros and random bytes; fields that act get zeros."""
    bench = await start(dut)
    await bench.do(bench.host.write("speculation_base_low", 1))
    await bench.do(bench.host.write("start", compose("start", push=1)))  # not legal: sets causes
    for register in description():
        before = await value_of(bench, register)
        assert before or not register.clears, register.name
        await check_policy(bench, register, before)


async def check_policy(bench: PeripheralBench[Any], register: Described, value: int) -> None:
    """Hold a register to its description; first zeros, then single bytes, then words."""
    drawn = [
        (int(bench.rng.integers(1 << 32)), int(bench.rng.integers(1, 16))) for _ in range(_TIMES)
    ]
    for data, strobes in ((0, 0b1111), *_BYTES, *_WORDS, *drawn):
        data &= ~register.acting
        await write(bench, register.address, data, strobes)
        value = register.written(value, data, strobes)
        assert await value_of(bench, register) == value, (register.name, hex(data), strobes)


async def write(bench: PeripheralBench[Any], address: int, data: int, strobes: int) -> None:
    """Write the bytes whose strobes are set, each run of them in one access."""
    raw, byte = data.to_bytes(4, "little"), 0
    while strobes >> byte:
        length = 0
        while strobes >> (byte + length) & 1:
            length += 1
        if length:
            part = raw[byte : byte + length]
            assert await bench.do(bench.host.raw_write(address + byte, part)) == Response.OKAY
        byte += max(length, 1)


@cocotb.test()
async def addresses_without_a_register(dut: Any) -> None:
    """They are answered with SLVERR, and nothing changes."""
    bench = await start(dut)
    unmapped = {*range(0, 1 << ADDRESS_BITS, 4)} - {one.address for one in description()}
    assert unmapped
    for address in unmapped:
        assert (await bench.do(bench.host.raw_read(address)))[1] == Response.SLVERR
        response = await bench.do(bench.host.raw_write(address, b"\xff" * 4))
        assert response == Response.SLVERR
    await check_resets(bench)
