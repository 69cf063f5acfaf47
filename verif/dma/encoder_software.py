"""Suite of the encoder behind its registers: what software sees, and what it may do wrong."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ReadOnly, RisingEdge

from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES, Scheme
from cassandra_spec.rtl.dma.config import IN_FLIGHT
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.encoding import (
    EncoderDmaBench,
    encode_all,
    encode_orders,
    one_result,
    some,
    start,
)
from cassandra_spec.verif.dma.host import compose, names_of
from cassandra_spec.verif.dma.memory import WriteTiming
from cassandra_spec.verif.dma.registering import (
    check_control,
    check_counters_are_cleared,
    check_interrupt,
    check_paces,
    write_codebooks_that_do_not_exist,
    write_empty_codebooks,
)
from cassandra_spec.verif.encoder.bench import Order, broken, wide_fields
from cassandra_spec.verif.encoder.cases import draw_segment, every_kind, extremes
from cassandra_spec.verif.encoder.model import Segment
from cassandra_spec.verif.library.patterns import NEVER, PATTERNS


@cocotb.test()
async def control_by_bytes(dut: Any) -> None:
    """Each byte of CONTROL can be written alone."""
    await check_control(await start(dut))


@cocotb.test()
async def registers_at_any_pace(dut: Any) -> None:
    """Whatever each channel of the port does."""
    await check_paces(await start(dut), "encode")


async def unary_segments(bench: EncoderDmaBench, count: int) -> list[Segment]:
    """Draw segments that each have a codebook of their own."""
    found: dict[tuple[int, ...], Segment] = {}
    while len(found) < count:
        segment = draw_segment(bench.rng, bench.config.encoder, "unary", "any", beats=4)
        found[segment.codebook] = segment
    return list(found.values())


@cocotb.test()
async def codebooks_that_do_not_exist(dut: Any) -> None:
    """Writes to entries and slots that do not exist change no existing one."""
    bench = await start(dut)
    books = bench.config.books
    await bench.do(write_empty_codebooks(bench, books))
    segments = await unary_segments(bench, books)
    for _ in range(3):
        order = bench.rng.integers(books, size=4 * books)
        await encode_all(bench, [*segments, *(segments[place] for place in order)])
        work = write_codebooks_that_do_not_exist(bench, books, bench.config.encoder.codebook)
        await bench.do(work)
        for slot in range(books, 16):
            await bench.do(bench.describe(segments[0], (0, 0), (128, 128), slot))
            await bench.do(bench.host.write("start", compose("start", push=1)))
            assert await bench.do(bench.host.causes()) == {"descriptor"}
            await bench.do(bench.host.write("error", 0xFFFF_FFFF))


@cocotb.test()
async def interrupts(dut: Any) -> None:
    """Each source raises the interrupt through its mask, and ones clear it."""
    bench = await start(dut)
    for source in ("segment", "idle", "error"):
        await bench.do(bench.host.write("irq_enable", compose("irq_enable", **{source: 1})))
        [segment] = some(bench, 1)
        if source == "error":
            await one_result(bench, segment, response=Response.SLVERR)
        else:
            await encode_all(bench, [segment])
        await bench.run(20)
        raised = names_of("irq", await bench.do(bench.host.read("irq")))
        assert raised == {"segment", "idle"} | ({"error"} if source == "error" else set())
        await check_interrupt(dut, bench, source)
        await bench.do(bench.host.write("irq", 0xFFFF_FFFF))
        await bench.do(bench.host.write("error", 0xFFFF_FFFF))


@cocotb.test()
async def counters(dut: Any) -> None:
    """They agree with what the ports saw, and are cleared."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(longest=20, words=PATTERNS["half"]))
    stalls: list[int] = []
    watch = cocotb.start_soon(_stalls(dut, stalls))
    for _ in range(2):
        before, begun = len(bench.memory.data), bench.cycle
        stalls.clear()
        segments = some(bench, 8)
        await encode_all(bench, segments)
        await bench.run(20)
        read = {
            name: await bench.do(bench.host.read_pair(f"count_{name}"))
            for name in ("values", "cycles", "words", "stalls", "idle")
        }
        assert read["values"] == sum(segment.values.size for segment in segments)
        assert read["words"] == len(bench.memory.data) - before
        assert read["stalls"] == len(stalls)
        assert 0 < read["idle"] < read["cycles"] <= bench.cycle - begun
        assert await bench.do(bench.host.read("count_segments")) == len(segments)
        await check_counters_are_cleared(bench)
    watch.cancel()


async def _stalls(dut: Any, seen: list[int]) -> None:
    """Note the cycles in which a word waits."""
    for cycle in itertools.count():
        await RisingEdge(dut.clk)
        await ReadOnly()
        if int(dut.m_axi_wvalid.value) and not int(dut.m_axi_wready.value):
            seen.append(cycle)


@cocotb.test()
@cocotb.parametrize(region=[0, 1])
@cocotb.parametrize(response=[Response.SLVERR, Response.DECERR])
async def a_failed_write_is_reported(dut: Any, region: int, response: Response) -> None:
    """A failed write in each region reports cause, segment and the address of the burst."""
    bench = await start(dut)
    cause = "slave" if response is Response.SLVERR else "decode"
    for number in range(6):
        segment = draw_segment(bench.rng, bench.config.encoder, "exact", "any")
        result = await one_result(bench, segment, response=response, region=region)
        assert result.failed
        assert await bench.do(bench.host.causes()) == {cause}
        assert await bench.do(bench.host.read("error_segment")) == number
        [address] = bench.memory.failed
        assert await bench.do(bench.host.read_pair("error_address")) == address
        bench.memory.failed.clear()
        await bench.do(bench.host.write("error", 0xFFFF_FFFF))


@cocotb.test()
async def segments_that_cannot_be_encoded_as_asked(dut: Any) -> None:
    """Every cause of the encoder comes through, and good segments between them are right."""
    bench = await start(dut)
    config, segments = bench.config.encoder, every_kind(bench.rng, bench.config.encoder)
    seen: set[str] = set()
    while seen != set(ENCODE_ERROR_CAUSES):
        wrong = broken(bench.rng, config, next(segments))
        await encode_orders(bench, [wrong, Order.of(next(segments))], spare=True)
        assert await bench.do(bench.host.causes()) == {f"encode_{one}" for one in wrong.causes}
        await bench.do(bench.host.write("error", 0xFFFF_FFFF))
        seen |= wrong.causes


@cocotb.test()
async def commands_with_extreme_fields(dut: Any) -> None:
    """Fields may be all zeros or ones, segments the longest, and most values replaced."""
    bench = await start(dut)
    orders = [*wide_fields(bench.rng, bench.config.encoder), *_of_every_length(bench)]
    await encode_orders(bench, orders, spare=True)


def _of_every_length(bench: EncoderDmaBench) -> Sequence[Order]:
    """Make segments of values that are not finite, whose count has every bit."""
    config = bench.config.encoder
    base = draw_segment(bench.rng, config, "mx", "infinite", whole_vectors=True)
    base = dataclasses.replace(base, keep=None, mask=True)
    sizes = [1 << power for power in range(config.segment.bit_length())]
    values = [base.values[:1].repeat(size) for size in sizes]
    return [Order.of(dataclasses.replace(base, values=part)) for part in values]


@cocotb.test()
async def the_largest_regions_one_behind_the_other(dut: Any) -> None:
    """Segments that follow: their offsets are the sums of the lengths before them."""
    bench = await start(dut)
    config = bench.config.encoder
    segments = [one for scheme in config.schemes for one in extremes(bench.rng, config, scheme)]
    sizes = np.array(
        [(one.packed.speculation.size, one.packed.verification.size) for one in segments]
    )
    rooms = [int(room) for room in sizes.sum(axis=0)]
    bases = [bench.memory.allocate(room) for room in rooms]
    for place, segment in enumerate(segments):
        bench.offer(segment.values)
        slot = await bench.do(bench.slot_of(segment))
        await bench.do(bench.describe(segment, bases, rooms, slot))
        assert await bench.do(bench.start(follow=place > 0)) == []
        [result] = await bench.do(bench.collect(1))
        assert (result.causes, result.room, result.failed) == (frozenset(), 0, 0), segment
        assert result.lengths == tuple(sizes[place] // 128), segment
        assert result.offsets == tuple(sizes[:place].sum(axis=0) // 128), segment


@cocotb.test()
async def descriptors_that_have_waited_leave_at_once(dut: Any) -> None:
    """The maximum number of segments is inside; each loads a codebook before its command."""
    bench = await start(dut)
    for _ in range(3):
        segments = await unary_segments(bench, IN_FLIGHT)
        await bench.enable(False)
        enabling = bench.host.write("control", compose("control", enable=1))
        later = cocotb.start_soon(_after(bench, 1500, enabling))
        await encode_all(bench, segments)
        await later


async def _after(bench: EncoderDmaBench, cycles: int, work: Any) -> None:
    """Do work of the host after a number of cycles."""
    for _ in range(cycles):
        await RisingEdge(bench.dut.clk)
    await work


async def _hold(bench: EncoderDmaBench, orders: Sequence[Order], cycles: int) -> None:
    """Encode segments while the memory takes no address for a number of cycles."""

    async def go_on() -> None:
        bench.memory.use(WriteTiming())

    bench.memory.use(WriteTiming(addresses=NEVER))
    later = cocotb.start_soon(_after(bench, cycles, go_on()))
    await encode_orders(bench, orders)
    await later


@cocotb.test()
@cocotb.parametrize(scheme=["mx", "exact"])
async def a_memory_that_takes_no_address(dut: Any, scheme: Scheme) -> None:
    """Regions of many lengths wait inside, with segments behind that have none: none is lost."""
    bench = await start(dut)
    config = bench.config.encoder
    for truncated in range(8):
        first = draw_segment(bench.rng, config, scheme, "any", whole_vectors=True)
        fmt = dataclasses.replace(first.format, truncated=truncated)
        size = int(bench.rng.integers(config.segment // 8, config.segment + 1))
        values = bench.rng.integers(0x3F80, 0x4080, size=size).astype(np.uint16)
        keep = int(bench.rng.integers(first.vector + 1))
        whole = dataclasses.replace(first, format=fmt, values=values, keep=keep, mask=True)
        none = dataclasses.replace(whole, values=whole.values[:1])
        refused = Order(
            segment=none, word=none.word | 3 << 16, expected=None, causes=frozenset({"command"})
        )
        await _hold(bench, [Order.of(whole), *[refused] * (IN_FLIGHT - 1)], 1500)
        await bench.do(bench.host.write("error", 0xFFFF_FFFF))


@cocotb.test()
async def as_many_bursts_as_may_wait(dut: Any) -> None:
    """Short regions across borders of bursts, while the memory takes no address."""
    bench = await start(dut)
    config, bench.memory.before = bench.config.encoder, bench.config.burst
    for _ in range(6):
        orders = [
            Order.of(draw_segment(bench.rng, config, "exact", "any", beats=int(beats)))
            for beats in bench.rng.permutation([2, 2, 2, 40])
        ]
        await _hold(bench, orders, 2000)


@cocotb.test()
async def responses_that_come_late(dut: Any) -> None:
    """The maximum number of bursts waits for them."""
    bench = await start(dut)
    config = bench.config.encoder
    bench.memory.use(WriteTiming(shortest=600, longest=800, shuffled=True))
    for scheme in config.schemes:
        await encode_all(bench, extremes(bench.rng, config, scheme)[:IN_FLIGHT])
