"""The register file by itself: a small map, one access after another."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cassandra_spec.rtl.dma.register_file import RESPONSE_OKAY, RESPONSE_SLVERR, RegisterFile
from cassandra_spec.rtl.dma.registers import TOPS, Access, Field, Register, Top, registers_for
from tests.rtl import simulation


def register(name: str, offset: int, access: Access, *, width: int = 32, **more: Any) -> Register:
    fields = (Field(name="value", width=width, access=access, meaning=""),)
    return Register(name=name, offset=offset, meaning="", fields=fields, **more)


TABLE = (
    register("keep", 0x00, "rw", guarded=True),
    register("count_low", 0x08, "ro"),
    register("count_high", 0x0C, "ro", latched=True),
    register("sticky", 0x10, "w1c", width=4),
    register("act", 0x14, "wo", width=8),
    register("last", 0xFC, "rw", width=1),
)


def run(work: Callable[[Any, RegisterFile], Awaitable[None]]) -> None:
    dut = RegisterFile(TABLE)
    simulation.run(dut, lambda ctx: work(ctx, dut))


async def transfer(ctx: Any, port: Any) -> None:
    """Offer until it is taken."""
    ctx.set(port.valid, 1)
    while not ctx.get(port.ready):
        await ctx.tick()
    await ctx.tick()
    ctx.set(port.valid, 0)


async def answer(ctx: Any, port: Any, patience: int = 0) -> None:
    """Wait for valid, then hold back for some cycles: nothing may change."""
    ctx.set(port.ready, 0)
    while not ctx.get(port.valid):
        await ctx.tick()
    for _ in range(patience):
        await ctx.tick()
        assert ctx.get(port.valid)
    ctx.set(port.ready, 1)


async def read(ctx: Any, dut: RegisterFile, offset: int, patience: int = 0) -> tuple[int, int]:
    ctx.set(dut.ar.payload, offset)
    await transfer(ctx, dut.ar)
    await answer(ctx, dut.r, patience)
    found = ctx.get(dut.r.payload.data), ctx.get(dut.r.payload.response)
    await ctx.tick()
    return found


async def write(
    ctx: Any, dut: RegisterFile, offset: int, value: int, strobe: int = 15, *, late: str = ""
) -> int:
    ctx.set(dut.aw.payload, offset)
    ctx.set(dut.w.payload, {"data": value, "strobe": strobe})
    first, second = (dut.w, dut.aw) if late == "address" else (dut.aw, dut.w)
    await transfer(ctx, first)
    for _ in range(3):
        await ctx.tick()
        assert not ctx.get(dut.b.valid)
    await transfer(ctx, second)
    await answer(ctx, dut.b, 2)
    response = int(ctx.get(dut.b.payload))
    await ctx.tick()
    return response


def test_address_and_data_come_in_any_order() -> None:
    async def work(ctx: Any, dut: RegisterFile) -> None:
        for late, value in (("address", 0x12345678), ("data", 0xFEDCBA98)):
            assert await write(ctx, dut, 0x00, value, late=late) == RESPONSE_OKAY
            assert await read(ctx, dut, 0x00, patience=3) == (value, RESPONSE_OKAY)

    run(work)


@pytest.mark.parametrize("patience", [0, 1, 5])
def test_accesses_wait_for_the_response_before_them(patience: int) -> None:
    offsets = [0x00, 0x04, 0x08, 0xFC, 0xF8, 0x00]
    wanted = [RESPONSE_OKAY if offset in (0, 8, 0xFC) else RESPONSE_SLVERR for offset in offsets]

    async def work(ctx: Any, dut: RegisterFile) -> None:
        ctx.set(dut.w.payload, {"data": 1, "strobe": 15})
        responses = await pipelined(ctx, [dut.aw, dut.w], dut.b, offsets, patience)
        assert responses == wanted
        found = await pipelined(ctx, [dut.ar], dut.r, offsets, patience)
        assert [one.response for one in found] == wanted
        assert [one.data for one in found] == [1, 0, 0, 1, 0, 1]

    run(work)


async def pipelined(
    ctx: Any, ports: list[Any], answers: Any, offsets: list[int], patience: int
) -> list[Any]:
    """Run accesses as soon as they are taken, the address first in ``ports``; answers wait."""
    found: list[Any] = []
    taken, waited = [0] * len(ports), 0
    while len(found) < len(offsets):
        for port, count in zip(ports, taken, strict=True):
            ctx.set(port.valid, int(count < len(offsets)))
        ctx.set(ports[0].payload, offsets[min(taken[0], len(offsets) - 1)])
        ctx.set(answers.ready, int(waited >= patience))
        waited += bool(ctx.get(answers.valid))
        if waited > patience:
            found.append(ctx.get(answers.payload))
            waited = 0
        taken = [
            count + bool(ctx.get(port.valid) and ctx.get(port.ready))
            for port, count in zip(ports, taken, strict=True)
        ]
        await ctx.tick()
    ctx.set(answers.ready, 0)
    return found


def test_strobes_select_bytes() -> None:
    async def work(ctx: Any, dut: RegisterFile) -> None:
        value = 0
        for strobe in range(16):
            mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
            new = 0x01010101 * (strobe + 1)
            value = (value & ~mask) | (new & mask)
            await write(ctx, dut, 0x00, new, strobe)
            assert ctx.get(dut.keep_value) == value
            assert ctx.get(dut.keep_intact)

    run(work)


def test_the_upper_half_is_held_when_the_lower_is_read() -> None:
    async def work(ctx: Any, dut: RegisterFile) -> None:
        ctx.set(dut.count_low_value, 0xFFFFFFFF)
        ctx.set(dut.count_high_value, 1)
        assert (await read(ctx, dut, 0x08))[0] == 0xFFFFFFFF
        ctx.set(dut.count_low_value, 0)
        ctx.set(dut.count_high_value, 2)
        await read(ctx, dut, 0x00)  # others in between do no harm
        assert (await read(ctx, dut, 0x0C))[0] == 1
        assert (await read(ctx, dut, 0x0C))[0] == 1
        assert (await read(ctx, dut, 0x08))[0] == 0
        assert (await read(ctx, dut, 0x0C))[0] == 2

    run(work)


@pytest.mark.parametrize("top", TOPS)
def test_a_half_does_not_depend_on_what_else_was_read(top: Top) -> None:
    """All lower halves are read before any upper half; then all that was set has changed."""
    dut, rng = RegisterFile(registers_for(top)), random.Random(1)
    upper = [register for register in dut.registers if register.latched]
    assert {"error_address_high", "count_idle_high"} <= {register.name for register in upper}

    async def work(ctx: Any) -> None:
        held = [0] * len(upper)
        seen = [0, 0]  # bits that were set, and that were clear
        for _ in range(12):
            values = [rng.getrandbits(32) for _ in upper]
            for register, before, value in zip(upper, held, values, strict=True):
                assert await read(ctx, dut, register.offset) == (before, RESPONSE_OKAY)
                ctx.set(getattr(dut, f"{register.name}_value"), value)
            for register in upper:
                await read(ctx, dut, register.offset - 4)
                ctx.set(getattr(dut, f"{register.name}_value"), rng.getrandbits(32))
            for register, value in reversed([*zip(upper, values, strict=True)]):
                assert await read(ctx, dut, register.offset) == (value, RESPONSE_OKAY)
            seen = [seen[0] | values[0], seen[1] | ~values[0]]
            held = values
        assert [bits & (1 << 32) - 1 for bits in seen] == [(1 << 32) - 1] * 2

    simulation.run(dut, work)


@pytest.mark.parametrize("top", TOPS)
def test_every_pair_that_the_hardware_sets_is_read_as_one_number(top: Top) -> None:
    dut = RegisterFile(registers_for(top))
    offsets = {register.name: register.offset for register in dut.registers}
    pairs = [
        register.name.removesuffix("_low")
        for register in dut.registers
        if register.name.endswith("_low") and register.fields[0].access == "ro"
    ]
    assert "count_cycles" in pairs

    async def work(ctx: Any) -> None:
        for name in pairs:
            low, high = (getattr(dut, f"{name}_{half}_value") for half in ("low", "high"))
            ctx.set(low, 0xFFFFFFFF)
            ctx.set(high, 1)
            assert (await read(ctx, dut, offsets[f"{name}_low"]))[0] == 0xFFFFFFFF
            ctx.set(low, 0)
            ctx.set(high, 2)
            assert (await read(ctx, dut, offsets[f"{name}_high"]))[0] == 1, name

    simulation.run(dut, work)


@pytest.mark.parametrize("top", TOPS)
def test_a_write_without_strobes_does_nothing(top: Top) -> None:
    dut = RegisterFile(registers_for(top))
    whole = {register.name for register in dut.registers if register.whole}
    assert whole == {"codebook"}

    async def work(ctx: Any) -> None:
        for register in dut.registers:
            acts = any(field.access in ("wo", "w1c") for field in register.fields)
            for strobe in (0b0000, 0b0001, 0b0111, 0b1110, 0b1111) if acts else (0,):
                events = await events_of(ctx, dut, register, strobe)
                wanted = strobe == 15 if register.whole else strobe != 0
                assert events == [wanted * acts] * acts, (register.name, strobe)
                if not strobe:
                    assert all(
                        not ctx.get(getattr(dut, f"{register.name}_{field.name}"))
                        for field in register.fields
                    )

    simulation.run(dut, work)


async def events_of(ctx: Any, dut: RegisterFile, register: Register, strobe: int) -> list[int]:
    """Count the writes of a register while ones are written, and nothing else of it acts."""
    ctx.set(dut.aw.payload, register.offset)
    ctx.set(dut.w.payload, {"data": 0xFFFFFFFF, "strobe": strobe})
    ctx.set(dut.b.ready, 1)
    acts = [field.name for field in register.fields if field.access == "wo"]
    written = getattr(dut, f"{register.name}_written", None)
    ctx.set(dut.aw.valid, 1)
    ctx.set(dut.w.valid, 1)
    count = 0
    for _ in range(4):
        await ctx.tick()
        ctx.set(dut.aw.valid, 0)
        ctx.set(dut.w.valid, 0)
        now = 0 if written is None else int(ctx.get(written))
        count += now
        values = [ctx.get(getattr(dut, f"{register.name}_{name}")) for name in acts]
        assert now or not any(values), (register.name, strobe)
    return [] if written is None else [count]


def test_ones_clear_bits() -> None:
    async def work(ctx: Any, dut: RegisterFile) -> None:
        ctx.set(dut.sticky_value_set, 0b1111)
        await ctx.tick()
        ctx.set(dut.sticky_value_set, 0)
        await write(ctx, dut, 0x10, 0b0011)
        assert ctx.get(dut.sticky_value) == 0b1100
        await write(ctx, dut, 0x10, 0b1111, strobe=0b1110)
        assert ctx.get(dut.sticky_value) == 0b1100
        await write(ctx, dut, 0x10, 0b1001)
        assert ctx.get(dut.sticky_value) == 0b0100

    run(work)


def test_a_bit_that_is_set_while_it_is_cleared_stays() -> None:
    async def work(ctx: Any, dut: RegisterFile) -> None:
        ctx.set(dut.sticky_value_set, 0b0011)
        await ctx.tick()
        ctx.set(dut.sticky_value_set, 0)
        ctx.set(dut.aw.payload, 0x10)
        ctx.set(dut.w.payload, {"data": 0b0011, "strobe": 15})
        ctx.set(dut.aw.valid, 1)
        ctx.set(dut.w.valid, 1)
        await ctx.tick()
        ctx.set(dut.aw.valid, 0)
        ctx.set(dut.w.valid, 0)
        assert ctx.get(dut.sticky_written)  # in this cycle and no other
        ctx.set(dut.sticky_value_set, 0b0001)
        await ctx.tick()
        ctx.set(dut.sticky_value_set, 0)
        assert not ctx.get(dut.sticky_written)
        assert ctx.get(dut.sticky_value) == 0b0001

    run(work)


def test_writing_acts_for_one_cycle() -> None:
    async def work(ctx: Any, dut: RegisterFile) -> None:
        ctx.set(dut.aw.payload, 0x14)
        ctx.set(dut.w.payload, {"data": 0x1A5, "strobe": 15})
        ctx.set(dut.b.ready, 1)
        ctx.set(dut.aw.valid, 1)
        ctx.set(dut.w.valid, 1)
        await ctx.tick()
        ctx.set(dut.aw.valid, 0)
        ctx.set(dut.w.valid, 0)
        seen = []
        for _ in range(6):
            seen.append((ctx.get(dut.act_written), ctx.get(dut.act_value)))
            await ctx.tick()
        assert seen == [(1, 0xA5)] + [(0, 0)] * 5
        assert await read(ctx, dut, 0x14) == (0, RESPONSE_OKAY)

    run(work)


def test_places_without_a_register_are_answered_with_an_error() -> None:
    async def work(ctx: Any, dut: RegisterFile) -> None:
        assert await read(ctx, dut, 0x04) == (0, RESPONSE_SLVERR)
        assert await write(ctx, dut, 0xF8, 1) == RESPONSE_SLVERR
        assert ctx.get(dut.last_value) == 0
        assert await write(ctx, dut, 0xFC, 3) == RESPONSE_OKAY
        assert await read(ctx, dut, 0xFC) == (1, RESPONSE_OKAY)

    run(work)


def test_reset_sets_registers_to_zero_and_the_port_goes_on() -> None:
    async def work(ctx: Any, dut: RegisterFile) -> None:
        for offset in (0x00, 0xFC):
            assert await write(ctx, dut, offset, 0xFFFF_FFFF) == 0
        ctx.set(dut.sticky_value_set, 5)
        await ctx.tick()
        ctx.set(dut.sticky_value_set, 0)
        assert await read(ctx, dut, 0x10) == (5, 0)
        ctx.set(dut.ar.payload, 0x00)
        await transfer(ctx, dut.ar)  # answered, although the reset comes first
        ctx.set(dut.reset, 1)
        await ctx.tick()
        ctx.set(dut.reset, 0)
        await answer(ctx, dut.r)
        await ctx.tick()
        for offset in (0x00, 0x10, 0xFC):
            assert await read(ctx, dut, offset) == (0, 0)
        assert ctx.get(dut.keep_intact)

    run(work)
