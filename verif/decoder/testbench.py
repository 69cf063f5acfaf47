"""cocotb tests of the decoder's top, through its exported names (run inside the simulation).

``CASSANDRA_COVERAGE`` names the file for the coverage counts. All random data come from
``cocotb.RANDOM_SEED``, which follows from the seed of the suite and the name of the test.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from pathlib import Path
from typing import Any

import cocotb
import numpy as np

from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.verif.decoder.bench import DecoderBench, Ended
from cassandra_spec.verif.decoder.bulk import PORTS
from cassandra_spec.verif.decoder.faults import Fault, faults
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, mixed_jobs
from cassandra_spec.verif.decoder.sampling import sample_job, sample_switch
from cassandra_spec.verif.library.coverage import Coverage
from cassandra_spec.verif.library.patterns import ALWAYS, PATTERNS, Kind, Pattern
from cassandra_spec.verif.library.payloads import Payload, directed, gaussian, random_format
from cassandra_spec.verif.library.streams import Source

COVERAGE = Coverage()
NEVER = Pattern(kind=Kind.PERIODIC, on=1, off=1 << 30)
SEGMENT = 128


async def start(dut: Any) -> DecoderBench:
    """Return a bench with a running clock, after a reset."""
    return await DecoderBench(dut, cocotb.RANDOM_SEED).started()


async def decode(bench: DecoderBench, items: list[Job | Fault]) -> list[Ended]:
    """Send everything, compare and sample everything."""
    before = len(bench.scoreboard.ended)
    bench.submit(items)
    ended = (await bench.finish())[before:]
    sample(bench, ended)
    return ended


def sample(bench: DecoderBench, ended: list[Ended]) -> None:
    """Sample the bins of good packets, and the stalls of this test."""
    items = [packet.item for packet in ended]
    for item in items:
        if isinstance(item, Job):
            sample_job(COVERAGE, item)
        else:
            COVERAGE.sample(f"error.{item.bin}")
    for before, after in itertools.pairwise(items):
        if isinstance(after, Job):
            if isinstance(before, Job):
                sample_switch(COVERAGE, before, after)
            else:
                COVERAGE.sample(f"recovery.{before.cause}")
    for name, port in (*bench.sources.items(), ("values", bench.values)):
        COVERAGE.sample(f"stall.{name}.held", port.stalled)
        COVERAGE.sample(f"stall.{name}.starved", port.starved)


def some_jobs(bench: DecoderBench, count: int) -> list[Job | Fault]:
    """Return random segments of random payloads, with a switch between any two."""
    return [*mixed_jobs(bench.rng, lanes=bench.lanes, count=count, segment=SEGMENT)]


def random_patterns(rng: np.random.Generator) -> dict[str, Pattern]:
    """Return a pattern for each port."""
    return {name: PATTERNS[str(rng.choice(list(PATTERNS)))] for name in PORTS}


def one_job(bench: DecoderBench, target: bool, scheme: str = "exact") -> Job:
    """Return a whole segment of weights."""
    fmt = Format.from_dict({"scheme": scheme, "beat": bench.lanes, "segment": 512})
    payload = Payload(name="dense", format=fmt, values=gaussian(bench.rng, 512))
    return Job(payload=payload, index=0, target=target)


@cocotb.test()
@cocotb.parametrize(idle=list(PATTERNS), pressure=list(PATTERNS))
async def idle_by_back_pressure_by_payload(dut: Any, idle: str, pressure: str) -> None:
    """Inputs may move by one pattern, the output by another."""
    bench = await start(dut)
    bench.use(dict.fromkeys(PORTS, PATTERNS[idle]) | {"values": PATTERNS[pressure]})
    await decode(bench, some_jobs(bench, 24))


@cocotb.test()
async def every_port_with_its_own_pattern(dut: Any) -> None:
    """Patterns change between batches, without a reset."""
    bench = await start(dut)
    for _ in range(40):
        bench.use(random_patterns(bench.rng))
        bench.submit(some_jobs(bench, 6))
        await bench.finish()
    sample(bench, bench.scoreboard.ended)


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def directed_payloads(dut: Any, scheme: Any) -> None:
    """Segments of every kind and every size of interest are right at full speed."""
    bench = await start(dut)
    fmt = random_format(bench.rng, lanes=bench.lanes, scheme=scheme, segment=SEGMENT)
    fmt = dataclasses.replace(fmt, group=32, segment=64)
    for payload in directed(bench.rng, fmt):
        bench.submit(list(jobs_of(payload)))
    sample(bench, await bench.finish())


@cocotb.test()
@cocotb.parametrize(serial=[True, False])
async def faults_are_flagged_and_drained(dut: Any, serial: bool) -> None:
    """Every fault is reported, and a good segment after it is right."""
    bench = await start(dut)
    bench.serial = serial
    bench.use(random_patterns(bench.rng) if serial else {})
    items: list[Job | Fault] = []
    for fault in faults(bench.rng, lanes=bench.lanes, schemes=SCHEMES):
        items += [fault, *some_jobs(bench, 1)]
    await decode(bench, items)


@cocotb.test()
async def causes_stick_until_they_are_cleared(dut: Any) -> None:
    """Good segments leave causes alone; another cause is added; clear_error clears all."""
    bench = await start(dut)
    found: dict[str, Fault] = {}
    for fault in faults(bench.rng, lanes=bench.lanes, schemes=SCHEMES):
        found.setdefault(fault.cause, fault)
    for number, fault in enumerate(found.values(), 1):
        await decode(bench, [fault, *some_jobs(bench, 1)])
        assert set(bench.errors) == set(list(found)[:number])
    await bench.clear_error()
    assert bench.errors == ()


@cocotb.test()
@cocotb.parametrize(target=[False, True])
async def reset_in_the_middle(dut: Any, target: bool) -> None:
    """Reset after any number of beats; the next segment is right."""
    bench = await start(dut)
    for _ in range(24):
        bench.use(random_patterns(bench.rng))
        bench.submit([one_job(bench, target)])
        await bench.until(lambda: bench.values.moved > 0, 20_000, "the first beat")
        await bench.run(int(bench.rng.integers(8)))
        assert int(dut.busy.value)
        await bench.reset()
        await decode(bench, some_jobs(bench, 2))
        bench.values.moved = 0
        COVERAGE.sample("reset.target" if target else "reset.draft")


def _moved(source: Source, count: int) -> bool:
    return source.moved == count


@cocotb.test()
async def reset_while_a_codebook_is_loaded(dut: Any) -> None:
    """A codebook that was cut off leaves nothing behind."""
    bench = await start(dut)
    job = one_job(bench, True, "unary")
    entries = bench.sources["codebook"]
    for count in range(1, len(job.request.codebook)):
        entries.moved = 0
        bench.submit([job])
        await bench.until(functools.partial(_moved, entries, count), 1000, "the codebook")
        await bench.reset()
    COVERAGE.sample("reset.codebook")
    await decode(bench, [job])


@cocotb.test()
async def valid_does_not_wait_for_ready(dut: Any) -> None:
    """The first beat is offered, and held, while ready stays low; so is every later one."""
    bench = await start(dut)
    for target in (False, True):
        bench.use({"values": NEVER})
        bench.submit([one_job(bench, target)])
        await bench.until(lambda: bench.values.valid, 500, "valid")
        await bench.run(100)
        assert bench.values.valid
        assert int(dut.busy.value)
        bench.use({"values": ALWAYS})
        await bench.finish()
    COVERAGE.sample("handshake.valid_first")


@cocotb.test()
async def reset_while_values_wait(dut: Any) -> None:
    """A beat that was never taken is gone after a reset."""
    bench = await start(dut)
    bench.use({"values": NEVER})
    bench.submit([one_job(bench, True)])
    await bench.until(lambda: bench.values.valid, 500, "valid")
    await bench.reset()
    bench.use({"values": ALWAYS})
    await bench.run(50)
    assert not bench.values.valid
    await decode(bench, some_jobs(bench, 2))
    COVERAGE.sample("reset.waiting")


@cocotb.test()
@cocotb.parametrize(late=["command", "codebook", "speculation", "verification"])
async def one_input_comes_late(dut: Any, late: str) -> None:
    """The others wait for it; no output comes before it and nothing is lost."""
    bench = await start(dut)
    bench.use({late: NEVER})
    job = one_job(bench, True, "unary")
    bench.submit([job, job])
    await bench.run(200)
    assert bench.values.moved == 0
    bench.use({late: ALWAYS})
    await decode(bench, [])
    assert len(bench.scoreboard.ended) == 2


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def a_beat_in_each_cycle(dut: Any, scheme: str) -> None:
    """Steady state at full speed: a beat in each cycle in a draft, in two in a target.

    The first beats may wait for words, the last ones until the regions are drained.
    """
    bench = await start(dut)
    fmt = Format.from_dict({"scheme": scheme, "beat": bench.lanes, "segment": 2048})
    payload = Payload(name="equal", format=fmt, values=np.full(2048, 0x3F81, np.uint16))
    for target in (False, True):
        [*_, packet] = await decode(bench, [Job(payload=payload, index=0, target=target)])
        steps = np.diff(packet.cycles).tolist()
        assert set(steps[4:-4]) == {2 if target else 1}, steps


@cocotb.test()
async def the_coverage_is_saved(dut: Any) -> None:
    """Last of the module."""
    path = os.environ.get("CASSANDRA_COVERAGE")
    if path:
        COVERAGE.save(Path(path))
    dut._log.info("coverage so far:\n%s", COVERAGE.report())
    assert any(COVERAGE.hits.values())
