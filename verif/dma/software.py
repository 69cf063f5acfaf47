"""Suite of decoders behind their DMA: what software sees."""

from __future__ import annotations

from typing import Any

import cocotb

from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.rtl.dma.config import IN_FLIGHT, LENGTH_BITS
from cassandra_spec.rtl.dma.registers import ID, VERSION, registers_for
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.bench import DmaBench, Placed
from cassandra_spec.verif.dma.decoding import FORMATS, some_jobs, start
from cassandra_spec.verif.dma.decoding import design as design
from cassandra_spec.verif.dma.failures import broken, clear
from cassandra_spec.verif.dma.host import compose, names_of
from cassandra_spec.verif.dma.memory import Order, Timing
from cassandra_spec.verif.dma.registering import (
    check_control,
    check_counters_are_cleared,
    check_interrupt,
    check_paces,
    write_codebooks_that_do_not_exist,
    write_empty_codebooks,
)
from cassandra_spec.verif.library.patterns import ALWAYS, NEVER
from cassandra_spec.verif.library.payloads import Payload, draw, gaussian

REGISTERS = registers_for("decode")


@cocotb.test()
async def what_was_built(dut: Any) -> None:
    """Constants describe the build; all other registers read 0 after a reset."""
    bench = await start(dut)
    lanes = bench.lanes // bench.decoders
    expected = {
        "id": ID,
        "version": compose("version", major=VERSION[0], minor=VERSION[1], patch=VERSION[2]),
        "decoder": compose(
            "decoder",
            lanes=lanes,
            schemes=(1 << len(SCHEMES)) - 1,
            window=Format().window,
            codebook=Format().codebook,
            decoders=bench.decoders,
        ),
        "formats": compose(
            "formats", lead=FORMATS.get("lead", 1), coded=int(FORMATS.get("coded", False))
        ),
    }
    for register in REGISTERS:
        value = await bench.do(bench.host.read(register.name))
        if register.name == "fetch":
            assert value & 0xFF == bench.word
        else:
            assert value == expected.get(register.name, 0), register.name


@cocotb.test()
async def control_by_bytes(dut: Any) -> None:
    """Each byte of CONTROL can be written alone."""
    await check_control(await start(dut))


@cocotb.test()
async def registers_at_any_pace(dut: Any) -> None:
    """Whatever each channel of the port does."""
    await check_paces(await start(dut), "decode")


async def push(bench: DmaBench, placed: Placed, book: int = 0, **changed: int) -> set[str]:
    """Start a segment with some registers changed; the causes that this sets."""
    await bench.do(bench.describe(placed, book))
    for name, value in changed.items():
        await bench.do(bench.host.keep(name, value))
    await bench.do(bench.host.write("start", compose("start", push=1)))
    return set(await bench.do(bench.host.causes()))


def one_target(bench: DmaBench, scheme: Any = "exact") -> Job:
    """Draw a segment with both regions."""
    lanes = bench.lanes // bench.decoders
    fmt = Format(scheme=scheme, beat=lanes, segment=512, group=32, lead=FORMATS.get("lead", 1))
    return Job(payload=draw(bench.rng, fmt, 512, "weights"), index=0, target=True)


@cocotb.test()
async def descriptors_that_are_not_legal(dut: Any) -> None:
    """They are not queued, and nothing comes out for them."""
    bench = await start(dut)
    await bench.enable()
    placed = bench.place(one_target(bench))
    wrong: list[dict[str, int]] = []
    for name, base, length in zip(
        ("speculation", "verification"), placed.bases, placed.lengths, strict=True
    ):
        wrong += [{f"{name}_base_low": base & 0xFFFF_FFFF | 1 << bit} for bit in range(3)]
        wrong += [{f"{name}_length": length + step} for step in (1, bench.word // 2)]
        wrong += [{f"{name}_length": 0}, {f"{name}_length": length + (1 << LENGTH_BITS)}]
        if len(dut.m_axi_araddr) < 64:
            wrong.append({f"{name}_base_high": 1 << 31})
        last = (1 << len(dut.m_axi_araddr)) - bench.word  # the region would continue at address 0
        halves = {f"{name}_base_low": last & 0xFFFF_FFFF, f"{name}_base_high": last >> 32}
        wrong.append(halves)
    for changed in wrong:
        assert await push(bench, placed, **changed) == {"descriptor"}, changed
        await clear(bench)
    unary = bench.place(one_target(bench, "unary"))
    for slot in range(16):  # no such codebook
        assert await push(bench, unary, book=slot) == {"descriptor"}
        await clear(bench)
    if FORMATS.get("coded"):
        await bench.do(bench.host.load_codebook(0, (127,)))
        command = unary.item.request.word | compose("command", coded=1)
        for slot in range(1, 16):
            both = compose("book", slot=0, pruned=slot)
            assert await push(bench, unary, book=both, command=command) == {"descriptor"}
            await clear(bench)
    await bench.run(500)
    assert not await bench.do(bench.host.field("status", "busy"))
    await bench.decode([one_target(bench)])
    assert await bench.do(bench.host.read("count_segments")) == 1


@cocotb.test()
async def a_region_that_ends_with_the_address_space(dut: Any) -> None:
    """It is legal, and no burst continues at address 0."""
    bench = await start(dut)
    await bench.enable()
    job = one_target(bench)
    segment = job.request.segment
    regions = (segment.speculation, segment.verification)
    first = bench.memory.place(regions[0].tobytes())
    second = bench.memory.place(regions[1].tobytes(), end=1 << len(dut.m_axi_araddr))
    sizes = (regions[0].size, regions[1].size)
    placed = Placed(item=job, bases=(first, second), lengths=sizes)
    await bench.do(bench.queue([placed] * bench.decoders))
    await bench.finish()


@cocotb.test()
async def a_draft_does_not_look_at_the_verification_region(dut: Any) -> None:
    """Its base and length may be anything, and it is not read."""
    bench = await start(dut)
    await bench.enable()
    job = one_target(bench)
    placed = bench.place(Job(payload=job.payload, index=0, target=False))
    bench.scoreboard.expected.append(placed)
    assert not await push(bench, placed, verification_base_low=1, verification_length=0)
    await bench.finish()
    words = sum(beats for _, beats in bench.memory.bursts)
    assert words == placed.lengths[0] // bench.word


@cocotb.test()
async def the_queue(dut: Any) -> None:
    """It waits for enable, is as long as it says, drops what it is told to."""
    bench = await start(dut)
    room = await bench.do(bench.host.read("fetch")) >> 8 & 0xFF
    placed = [bench.place(one_target(bench, "mx")) for _ in range(room + 1)]
    for number, entry in enumerate(placed[:room]):
        assert await bench.do(bench.host.field("status", "waiting")) == number
        assert not await push(bench, entry)
    assert await bench.do(bench.host.field("status", "full"))
    assert await push(bench, placed[room]) == {"overflow"}
    await clear(bench)
    await bench.run(100)
    assert not bench.memory.bursts
    assert await bench.do(bench.host.field("status", "busy"))
    await bench.do(bench.host.write("control", compose("control", drop=1)))
    await bench.run(room)
    assert not await bench.do(bench.host.read("status"))
    await bench.decode([placed[room].item for _ in range(2)])


@cocotb.test()
async def what_has_left_the_queue_is_finished(dut: Any) -> None:
    """Disabled in the middle: segments on their way come out, the others stay."""
    bench = await start(dut)
    room = await bench.do(bench.host.read("fetch")) >> 8 & 0xFF
    count = room + (bench.decoders - 1) * IN_FLIGHT
    bench.values.use(NEVER)
    placed = [bench.place(one_target(bench)) for _ in range(count)]
    await bench.enable()
    for entry in placed:
        assert not await push(bench, entry)
    await bench.enable(False)
    bench.scoreboard.expected.extend(placed)
    bench.values.use(ALWAYS)
    await bench.run(4000)
    waiting = await bench.do(bench.host.field("status", "waiting"))
    assert not await bench.do(bench.host.field("status", "flying"))
    assert len(bench.scoreboard.ended) == count - waiting
    assert len(bench.scoreboard.ended)
    await bench.enable()
    await bench.finish()


@cocotb.test()
async def interrupts(dut: Any) -> None:
    """Each source raises the interrupt through its mask, and ones clear it."""
    bench = await start(dut)
    for source in ("segment", "idle", "error"):
        await bench.do(bench.host.write("irq_enable", compose("irq_enable", **{source: 1})))
        job = one_target(bench)
        bad = source == "error"
        await bench.decode([broken(bench, job, Response.SLVERR) if bad else job])
        raised = names_of("irq", await bench.do(bench.host.read("irq")))
        assert raised == {"segment", "idle"} | ({"error"} if bad else set())
        assert int(dut.irq.value)
        await check_interrupt(dut, bench, source)
        await clear(bench)


@cocotb.test()
async def counters(dut: Any) -> None:
    """They agree with what the ports saw, and are cleared."""
    bench = await start(dut)
    for _ in range(2):
        bench.memory.use(Timing(longest=30, order=Order.BEATS))
        before = (bench.memory.beats, bench.scoreboard.values, len(bench.scoreboard.ended))
        stalled, cycle = bench.values.stalled, bench.cycle
        jobs = some_jobs(bench, 8)
        await bench.decode([*jobs, broken(bench, one_target(bench), Response.DECERR)])
        read = {
            name: await bench.do(bench.host.read_pair(f"count_{name}"))
            for name in ("values", "cycles", "words", "stalls", "idle")
        }
        assert read["words"] == bench.memory.beats - before[0]
        assert read["values"] == bench.scoreboard.values - before[1]
        assert read["stalls"] == bench.values.stalled - stalled
        assert 0 < read["idle"] < read["cycles"] <= bench.cycle - cycle
        segments = await bench.do(bench.host.read("count_segments"))
        assert segments == len(bench.scoreboard.ended) - before[2]
        await check_counters_are_cleared(bench)


def unary_jobs(bench: DmaBench, count: int) -> list[Job]:
    """Draw payloads that each have a codebook of their own, as drafts and targets."""
    lanes = bench.lanes // bench.decoders
    items: list[Job] = []
    for number in range(count):
        fmt = Format(scheme="unary", beat=lanes, segment=256, group=32, lead=FORMATS.get("lead", 1))
        values = gaussian(bench.rng, 700, scale=2.0 ** (19 * (number % 7) - 60))
        payload = Payload(name=f"scale {number}", format=fmt, values=values)
        items += [
            Job(payload=payload, index=index, target=target)
            for index in range(3)
            for target in (False, True)
        ]
    return items


@cocotb.test()
async def codebooks(dut: Any) -> None:
    """Each segment finds its own, in slots that are written again and again."""
    bench = await start(dut)
    items = unary_jobs(bench, 8)
    order = bench.rng.permutation(len(items))
    await bench.decode(items)
    await bench.decode([items[place] for place in order])


@cocotb.test()
async def segments_wait_for_their_codebooks(dut: Any) -> None:
    """The maximum number waits in each decoder, behind a segment whose values are not taken."""
    bench = await start(dut)
    books = await bench.do(bench.host.field("fetch", "books"))
    items, per = unary_jobs(bench, books), 6
    rounds, turns = 32, range(bench.decoders)
    chosen = [
        items[(place + turn) % books * per + turn % per]
        for turn in range(rounds)
        for place in turns
    ]
    bench.values.use(NEVER)
    placed = [bench.place(job) for job in chosen]
    await bench.enable()
    work = cocotb.start_soon(bench.queue(placed))
    await bench.run(4000 * bench.decoders)
    assert not work.done()
    bench.values.use(ALWAYS)
    await bench.until(work.done, 200_000, "the last descriptor")
    await bench.finish()


@cocotb.test()
async def codebooks_that_do_not_exist(dut: Any) -> None:
    """Writes to entries and slots that do not exist change no existing one."""
    bench = await start(dut)
    books = await bench.do(bench.host.field("fetch", "books"))
    await bench.do(write_empty_codebooks(bench, books))
    items = unary_jobs(bench, books)
    for _ in range(2):
        order = bench.rng.permutation(len(items))
        await bench.decode([items[place] for place in order])
        await bench.do(write_codebooks_that_do_not_exist(bench, books, Format().codebook))
        unary = bench.place(items[0])
        for slot in range(books, 16):
            assert await push(bench, unary, book=slot) == {"descriptor"}
            await clear(bench)


@cocotb.test()
async def the_longest_segment(dut: Any) -> None:
    """A segment of the maximum length is right in both modes and in each decoder."""
    bench = await start(dut)
    lanes, lead = bench.lanes // bench.decoders, FORMATS.get("lead", 1)
    fmt = Format(scheme="exact", beat=lanes, segment=1 << 16, group=32, lead=lead)
    payload = draw(bench.rng, fmt, fmt.segment, "weights")
    for target in (False, True):
        longest = [Job(payload=payload, index=0, target=target)] * bench.decoders
        await bench.decode([*longest, *some_jobs(bench, 2)])


@cocotb.test()
async def regions_that_go_on_far_beyond_their_segment(dut: Any) -> None:
    """Both are as long as a descriptor may say: they are read on, until a reset."""
    bench = await start(dut)
    length = (1 << LENGTH_BITS) - bench.word
    for _ in range(2):
        await bench.enable()
        job = one_target(bench)
        base = bench.memory.place(bytes(length))
        placed = Placed(item=job, bases=(base, base), lengths=(length, length))
        for _ in range(bench.decoders):
            assert "descriptor" not in await push(bench, placed)  # what they decode is no segment
        await bench.run(2000)
        asked = sum(beats for _, beats in bench.memory.bursts) * bench.word
        assert asked > 2 * max(job.request.segment.speculation.size, 1024)
        await bench.reset()
        await bench.decode(some_jobs(bench, 3))
