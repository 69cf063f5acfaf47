"""Suite of decoders behind their DMA: reads that fail, segments that break the format."""

from __future__ import annotations

import dataclasses
from typing import Any

import cocotb

from cassandra_spec.golden.format import ERROR_CAUSES, SCHEMES, Format
from cassandra_spec.rtl.dma.config import IN_FLIGHT
from cassandra_spec.verif.decoder.faults import Fault, coded_faults, faults
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.bench import Broken, DmaBench, Placed
from cassandra_spec.verif.dma.decoding import FORMATS, some_jobs, start
from cassandra_spec.verif.dma.decoding import design as design
from cassandra_spec.verif.dma.host import compose
from cassandra_spec.verif.dma.memory import Order, Timing
from cassandra_spec.verif.library.patterns import PATTERNS, Kind, Pattern
from cassandra_spec.verif.library.payloads import draw

RESPONSES = {"slave": Response.SLVERR, "decode": Response.DECERR}


def broken(bench: DmaBench, job: Job, response: Response) -> Broken:
    """Return a job with an unreadable word: the first, the last, or any."""
    segment = job.request.segment
    regions = ["speculation"]
    if job.target and segment.verification.size:
        regions.append("verification")
    region = regions[int(bench.rng.integers(len(regions)))]
    last = getattr(segment, region).size // bench.word - 1
    word = int(bench.rng.choice([0, last, bench.rng.integers(last + 1)]))
    return Broken(job=job, region=region, word=word, response=response)


def mixed(bench: DmaBench, count: int) -> list[Job | Broken]:
    """Return good and broken segments in random order."""
    responses = list(RESPONSES.values())
    return [
        job
        if bench.rng.random() < 0.5
        else broken(bench, job, responses[int(bench.rng.integers(2))])
        for job in some_jobs(bench, count, segment=512)
    ]


def burst_of(bench: DmaBench, placed: Placed) -> int:
    """Return the address of the burst that read the broken word."""
    assert isinstance(placed.item, Broken)
    base = placed.bases[placed.item.region == "verification"]
    address = base + placed.item.word * bench.word
    [found] = [
        start
        for start, beats in bench.memory.bursts
        if start <= address < start + beats * bench.word
    ]
    return found


@cocotb.test()
@cocotb.parametrize(idle=["always", "half", "burst"], pressure=list(PATTERNS))
async def failed_reads_flag_their_segment_alone(dut: Any, idle: str, pressure: str) -> None:
    """Failing and good segments back to back, at any pace."""
    bench = await start(dut)
    bench.memory.use(Timing(longest=40, order=Order.BEATS, beats=PATTERNS[idle]))
    bench.values.use(PATTERNS[pressure])
    await bench.decode(mixed(bench, 10))


@cocotb.test()
@cocotb.parametrize(cause=list(RESPONSES))
async def a_failed_read_is_reported(dut: Any, cause: str) -> None:
    """ERROR reports cause, segment and address; writing ones clears it."""
    bench = await start(dut)
    bench.memory.use(Timing(longest=20, order=Order.BURSTS))
    done = 0
    for job in some_jobs(bench, 6, segment=512):
        good = some_jobs(bench, int(bench.rng.integers(4)))
        bad = broken(bench, job, RESPONSES[cause])
        placed = await bench.decode([*good, bad, *some_jobs(bench, 2)])
        causes = await bench.do(bench.host.causes())
        assert cause in causes
        assert causes <= {cause, *ERROR_CAUSES}, causes
        assert await bench.do(bench.host.read("error_segment")) == done + len(good)
        address = await bench.do(bench.host.read_pair("error_address"))
        assert address == burst_of(bench, placed[len(good)])
        await clear(bench)
        done += len(placed)


async def clear(bench: DmaBench) -> None:
    """Clear ERROR and IRQ by writing ones."""
    await bench.do(bench.host.write("error", 0xFFFF_FFFF))
    await bench.do(bench.host.write("irq", 0xFFFF_FFFF))
    assert not await bench.do(bench.host.causes())


@cocotb.test()
async def a_bit_of_error_is_cleared_alone(dut: Any) -> None:
    """Ones clear, zeros do not; the first segment and address stay until then."""
    bench = await start(dut)
    items = [broken(bench, job, Response.SLVERR) for job in some_jobs(bench, 2)]
    items += [broken(bench, job, Response.DECERR) for job in some_jobs(bench, 2)]
    placed = await bench.decode(items)
    assert {"slave", "decode"} <= await bench.do(bench.host.causes())
    assert await bench.do(bench.host.read("error_segment")) == 0
    assert await bench.do(bench.host.read_pair("error_address")) in {
        burst_of(bench, one) for one in placed
    }
    await bench.do(bench.host.write("error", compose("error", slave=1)))
    causes = await bench.do(bench.host.causes())
    assert "decode" in causes
    assert "slave" not in causes


@cocotb.test()
async def a_memory_that_is_not_there(dut: Any) -> None:
    """Every read of some segments fails."""
    bench = await start(dut)
    for _ in range(4):
        for response in RESPONSES.values():
            [job] = some_jobs(bench, 1, segment=1024)
            bad = Broken(job=job, region="speculation", word=0, response=response)
            placed = bench.place(bad)
            for base, length in zip(placed.bases, placed.lengths, strict=True):
                for address in range(base, base + length, bench.word):
                    bench.memory.fail(address, response)
            await bench.enable()
            await bench.do(bench.queue([placed]))
            await bench.finish()
            await bench.decode(some_jobs(bench, 2))


def exact_job(bench: DmaBench, count: int, *, target: bool) -> Job:
    """Return a segment of ``count`` values in the scheme exact."""
    lanes, lead = bench.lanes // bench.decoders, FORMATS.get("lead", 1)
    fmt = Format(scheme="exact", beat=lanes, segment=count, group=32, lead=lead)
    return Job(payload=draw(bench.rng, fmt, count, "weights"), index=0, target=target)


def failing_first_word(bench: DmaBench, region: str, response: Response) -> Broken:
    """Return a long segment with a region whose first word cannot be read."""
    job = exact_job(bench, 4096, target=region == "verification")
    return Broken(job=job, region=region, word=0, response=response)


@cocotb.test()
@cocotb.parametrize(region=["speculation", "verification"])
async def segments_wait_behind_the_rest_of_a_region_that_failed(dut: Any, region: str) -> None:
    """Its first word fails, the others come late; the maximum number of segments queues up.

    Each decoder is tested in turn.
    """
    bench = await start(dut)
    late = Pattern(kind=Kind.PERIODIC, on=1, off=40)
    bench.memory.use(Timing(order=Order.BEATS, beats=late))
    for response in [each for each in RESPONSES.values() for _ in range(bench.decoders)]:
        bad = failing_first_word(bench, region, response)
        others = [
            exact_job(bench, 32, target=bad.job.target)
            for _ in range(2 * IN_FLIGHT * bench.decoders)
        ]
        items: list[Job | Fault | Broken] = [bad, *others]
        placed = [bench.place(item) for item in items]
        await bench.enable()
        await bench.do(bench.queue(placed))
        await bench.finish()


@cocotb.test()
@cocotb.parametrize(region=["speculation", "verification"])
async def busy_until_the_reads_of_a_failed_region_have_ended(dut: Any, region: str) -> None:
    """The first word fails, the others come late: the packet leaves before most have come."""
    bench = await start(dut)
    bench.memory.use(Timing(beats=Pattern(kind=Kind.PERIODIC, on=1, off=40)))
    bad = failing_first_word(bench, region, Response.SLVERR)
    await bench.enable()
    await bench.do(bench.queue([bench.place(bad)]))
    await bench.until(lambda: not bench.scoreboard.expected, 20_000, "the packet")
    assert bench.memory.owed
    await bench.finish()
    await bench.decode(some_jobs(bench, 2 * bench.decoders))


def fitting(bench: DmaBench, fault: Fault) -> Fault | None:
    """Return the fault with regions of whole bus words; None if a short region has none."""
    segment, word = fault.request.segment, bench.word
    sizes = {
        name: getattr(segment, name).size // word * word for name in ("speculation", "verification")
    }
    if sizes["speculation"] == 0 or (segment.verification.size and not sizes["verification"]):
        return None
    cut = {name: getattr(segment, name)[:size] for name, size in sizes.items()}
    request = dataclasses.replace(fault.request, segment=dataclasses.replace(segment, **cut))
    return dataclasses.replace(fault, request=request)


@cocotb.test()
@cocotb.parametrize(serial=[True, False])
async def segments_that_break_the_format(dut: Any, serial: bool) -> None:
    """Every fault of a decoder is reported by each decoder, with its cause."""
    bench = await start(dut)
    bench.memory.use(Timing(longest=15, order=Order.BEATS))
    lanes = bench.lanes // bench.decoders
    lead, coded = FORMATS.get("lead", 1), FORMATS.get("coded", False)
    wrong = list(faults(bench.rng, lanes=lanes, schemes=SCHEMES, lead=lead))
    if coded:
        wrong += coded_faults(bench.rng, Format(beat=lanes, segment=1024, pruned_exponent="coded"))
    found = [fitting(bench, fault) for fault in wrong]
    items = [fault for fault in found if fault is not None for _ in range(bench.decoders)]
    assert {fault.cause for fault in items} == set(ERROR_CAUSES)
    if not serial:
        together: list[Job | Fault | Broken] = []
        for fault in items:
            together += [
                fault,
                *some_jobs(bench, bench.decoders),
            ]  # so that the next decoder has its turn
        await bench.decode(together)
        assert await bench.do(bench.host.causes()) == set(ERROR_CAUSES)
        return
    for fault in items:
        await bench.decode([fault, *some_jobs(bench, bench.decoders)])
        assert await bench.do(bench.host.causes()) == {fault.cause}, fault.bin
        await clear(bench)
