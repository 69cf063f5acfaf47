"""Accesses of software to the registers and codebooks of a peripheral, for both suites."""

from __future__ import annotations

from typing import Any

import cocotb

from cassandra_spec.rtl.dma.registers import Register, Top, register_of, registers_for
from cassandra_spec.verif.dma.bench import PeripheralBench
from cassandra_spec.verif.dma.host import codebook_words, compose
from cassandra_spec.verif.library.patterns import PATTERNS

_TIMES = 8


def mask_of(register: Register, *access: str) -> int:
    """Return the bits with one of these kinds of access."""
    return sum(
        ((1 << field.width) - 1) << low
        for field, low in register.places()
        if field.access in access
    )


async def check_control(bench: PeripheralBench[Any]) -> None:
    """Writing other bytes of CONTROL leaves ``enable`` as it is."""
    offset = register_of("control").offset
    for on in (1, 0):
        await bench.enable(bool(on))
        for byte in range(1, 4):
            await bench.do(bench.host.raw_write(offset + byte, b"\xff"))
            assert await bench.do(bench.host.field("control", "enable")) == on


async def check_paces(bench: PeripheralBench[Any], top: Top) -> None:
    """Check that each channel moves by its own pattern, and that reads proceed beside writes."""
    names = [one.name for one in registers_for(top) if mask_of(one, "rw") == (1 << 32) - 1]
    for _ in range(_TIMES):
        chosen = [PATTERNS[str(name)] for name in bench.rng.choice(list(PATTERNS), size=5)]
        bench.host.pace([pattern.cycles(bench.rng) for pattern in chosen])
        values = {name: int(bench.rng.integers(1 << 32)) for name in names}
        work = [cocotb.start_soon(bench.host.write(name, value)) for name, value in values.items()]
        for name in names:
            await bench.do(bench.host.read(name))
        await bench.until(lambda work=work: all(one.done() for one in work), 50_000, "writes")  # type: ignore[misc]
        for name, value in values.items():
            assert await bench.do(bench.host.read(name)) == value, name
    bench.host.pace([None] * 5)


async def write_codebooks_that_do_not_exist(
    bench: PeripheralBench[Any], books: int, entries: int
) -> None:
    """Write every entry that a slot does not have, and every slot that does not exist."""
    for slot in range(16):
        for entry in range(32):
            if slot >= books or entry >= entries:
                exponent = int(bench.rng.integers(256))
                word = compose("codebook", slot=slot, entry=entry, exponent=exponent, last=1)
                await bench.host.write("codebook", word)


async def write_empty_codebooks(bench: PeripheralBench[Any], books: int) -> None:
    """Write a codebook without entries into each slot."""
    for slot in range(books):
        for word in codebook_words(slot, ()):
            await bench.host.write("codebook", word)


async def check_counters_are_cleared(bench: PeripheralBench[Any]) -> None:
    """CONTROL.clear; the queue stays enabled."""
    await bench.do(bench.host.write("control", compose("control", clear=1, enable=1)))
    for name in ("values", "cycles", "words", "stalls", "idle"):
        assert await bench.do(bench.host.read_pair(f"count_{name}")) == 0, name
    assert await bench.do(bench.host.read("count_segments")) == 0


async def check_interrupt(dut: Any, bench: PeripheralBench[Any], source: str) -> None:
    """Check that the mask of a raised source decides alone, until ones clear the source."""
    one = compose("irq", **{source: 1})
    rest = compose("irq", segment=1, idle=1, error=1) ^ one
    for enabled, cleared, raised in ((one, rest, 1), (rest, 0, 0), (7, 0, 1), (7, one, 0)):
        await bench.do(bench.host.write("irq_enable", enabled))
        await bench.do(bench.host.write("irq", cleared))
        await bench.run(2)
        assert int(dut.irq.value) == raised, (source, enabled, cleared)
