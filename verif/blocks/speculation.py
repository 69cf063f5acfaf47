"""The speculation path: decodes regions into beats, at every pace; rejects bad regions."""

from __future__ import annotations

import dataclasses
from typing import Any

import cocotb

from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.rtl.common.command import SpeculationBeat
from cassandra_spec.rtl.decode.speculation import SpeculationPath
from cassandra_spec.verif.blocks.paths import (
    CONFIGS,
    PathBench,
    beats_of,
    crossed_jobs,
    cut_short,
    mismatch,
    words_of,
)
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.faults import faults
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, mixed_jobs, sizes_of
from cassandra_spec.verif.formal.harness import Together
from cassandra_spec.verif.library.payloads import Payload, gaussian, random_format
from cassandra_spec.verif.library.workloads import PACES

SOURCES = ("command", "codebook", "words")
FILL_CYCLES = 16  # cycles to fill and empty the pipeline, beside the padding that is drained


def design() -> Together:
    """Build a path of each configuration."""
    return Together({name: SpeculationPath(config) for name, config in CONFIGS.items()})


class _Path(PathBench):
    """The path, its bench and its current codebook."""

    causes = SpeculationPath.causes

    def __init__(self, dut: Any, instance: str) -> None:
        self.config = CONFIGS[instance]
        shape = SpeculationBeat(self.config)
        super().__init__(dut, instance, shape, sources=SOURCES, sink="beats")
        self.patient = True  # a command waits until its codebook is loaded

    async def command(self, request: Request) -> None:
        """Send the codebook, if it changes, and the command, until it is taken."""
        if request.format.scheme == "unary":
            await self.load(request.codebook, wait=self.patient)
        self.sources["command"].send([{"payload": request.word}])
        await self.taken("command")

    def region(self, request: Request) -> None:
        """Queue the region."""
        self.sources["words"].send(words_of(request.segment.speculation, self.config.lanes))

    async def check(self, jobs: list[Job]) -> None:
        """Decode jobs, send commands as early as possible, and compare beat by beat."""
        for job in jobs:
            self.region(job.request)
        for job in jobs:
            await self.command(job.request)
        await self.compare([(job, beat) for job in jobs for beat in beats_of(job)])
        assert self.errors.take() == set(), "legal segments must not be flagged"
        assert self.sources["words"].idle, "a last beat waits for the end of the region"


@cocotb.test()
@cocotb.parametrize(instance=list(CONFIGS))
async def fields_of_every_kind_of_tensor(dut: Any, instance: str) -> None:
    """Idle x back-pressure x tensors of all schemes."""
    path = await _Path(dut, instance).started()
    for idle, pressure, jobs in crossed_jobs(path.config, path.rng, [False]):
        path.use(idle, pressure)
        await path.check(jobs)


@cocotb.test()
@cocotb.parametrize(instance=list(CONFIGS))
async def a_beat_in_each_cycle(dut: Any, instance: str) -> None:
    """With fixed widths, and no more rows than the bus brings, a beat costs a cycle."""
    path = await _Path(dut, instance).started()
    for scheme in ("mx", "exact"):
        lanes, sizes = path.config.lanes, sizes_of(path.config)
        fmt = random_format(path.rng, lanes=lanes, scheme=scheme, segment=512, **sizes)
        fmt = dataclasses.replace(fmt, truncated=4)
        job = Job(
            payload=Payload(name="dense", format=fmt, values=gaussian(path.rng, 512)),
            index=0,
            target=False,
        )
        start = path.bench.cycle
        await path.check([job])
        padding = path.config.superblock // path.config.lanes  # maximum words of padding
        assert path.bench.cycle - start <= 512 // fmt.beat + FILL_CYCLES + padding


@cocotb.test()
async def a_waiting_codebook_goes_before_a_waiting_command(dut: Any) -> None:
    """Both are offered while the previous segment is still decoded with its own codebook."""
    path = await _Path(dut, "l32").started()
    jobs: list[Job] = []
    for place in range(6):
        fmt = random_format(path.rng, lanes=path.config.lanes, scheme="unary")
        values = gaussian(path.rng, int(path.rng.integers(1, fmt.segment)), scale=4.0**-place)
        jobs += jobs_of(Payload(name="dense", format=fmt, values=values), [False])
    assert len({job.request.codebook for job in jobs}) == len(jobs)
    path.patient = False
    await path.check(jobs)


@cocotb.test()
@cocotb.parametrize(instance=list(CONFIGS), scheme=list(SCHEMES))
async def a_region_cut_after_every_word(dut: Any, instance: str, scheme: Scheme) -> None:
    """The beats before the abort are right, wherever the region ends."""
    path = await _Path(dut, instance).started()
    sizes, lanes = sizes_of(path.config), path.config.lanes
    fmt = Format(scheme=scheme, beat=lanes, segment=1024, **sizes)
    values, kept = gaussian(path.rng, 1000), path.rng.random(1000) < 0.8
    payload = Payload(name="cut", format=fmt, values=values, kept=kept)
    job = Job(payload=payload, index=0, target=False)
    words = list(words_of(job.request.segment.speculation, path.config.lanes))
    padding = path.config.superblock // path.config.lanes  # maximum words of padding
    cuts = range(1, len(words) - padding + 1)
    assert cuts
    for cut in cuts:
        path.use("always", str(path.rng.choice(PACES)))
        path.sources["words"].send(cut_short(words, cut, path.config.lanes))
        await path.command(job.request)
        await path.compare_broken(f"cut {cut}", {"last": 1, "abort": 1}, beats_of(job))
        assert path.errors.take() == {"short"}, f"cut {cut}"


@cocotb.test()
async def bad_regions_end_with_an_abort(dut: Any) -> None:
    """Every cause is pulsed, the last beat is flagged, and the next segment is right."""
    path = await _Path(dut, "l32").started()
    rng, lanes = path.rng, path.config.lanes
    seen = set()
    for fault in faults(rng, lanes=lanes, schemes=SCHEMES):
        if fault.request.target or fault.cause not in SpeculationPath.causes:
            continue
        seen.add(fault.cause)
        path.use(str(rng.choice(PACES)), str(rng.choice(PACES)))
        path.region(fault.request)
        await path.command(fault.request)
        packet = await path.packet()
        assert path.sources["words"].idle, "the region is drained"
        assert mismatch(path.shape, packet[-1], {"last": 1, "abort": 1}) == "", fault.bin
        assert path.errors.take() == {fault.cause}, fault.bin
        await path.check(mixed_jobs(rng, lanes=lanes, count=1))
    assert seen == set(SpeculationPath.causes)
