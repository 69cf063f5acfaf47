"""The verification path: decodes beats and regions at every pace; rejects bad regions."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.rtl.common.command import SpeculationBeat, ValueBeat
from cassandra_spec.rtl.decode.verification import VerificationPath
from cassandra_spec.verif.blocks.paths import (
    VERIFICATION_CONFIGS,
    PathBench,
    beats_of,
    crossed_jobs,
    noisy,
    words_of,
)
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.codebooks import LoadedBooks
from cassandra_spec.verif.decoder.jobs import Job, sizes_of
from cassandra_spec.verif.formal.harness import Together
from cassandra_spec.verif.library.payloads import Payload, gaussian
from cassandra_spec.verif.library.workloads import PACES

SOURCES = ("command", "beats", "words")
BROKEN_END = {"present": 0, "last": 1, "error": 1}
FILL_CYCLES = 16  # cycles to fill and empty the pipeline, beside the padding that is drained


def design() -> Together:
    """Build a path of each configuration."""
    return Together(
        {name: VerificationPath(config) for name, config in VERIFICATION_CONFIGS.items()}
    )


def value_beats(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the expected beats, by golden's decoder."""
    values, beat = job.expected.tolist(), job.payload.format.beat
    for start in range(0, len(values), beat):
        part = values[start : start + beat]
        yield {
            "values": part + [None] * (beat - len(part)),
            "present": (1 << len(part)) - 1,
            "last": int(start + beat >= len(values)),
            "error": 0,
        }


class _Path(PathBench):
    """The path, fed with beats by the format in place of a speculation path."""

    causes = VerificationPath.causes

    def __init__(self, dut: Any, instance: str) -> None:
        books = ("codebook",) if VERIFICATION_CONFIGS[instance].coded else ()
        self.config = VERIFICATION_CONFIGS[instance]
        lanes = self.config.lanes
        super().__init__(dut, instance, ValueBeat(lanes), sources=(*SOURCES, *books), sink="values")
        self._beat = SpeculationBeat(self.config)
        self._books = LoadedBooks()

    async def send(
        self,
        job: Job,
        beats: Sequence[dict[str, Any]] | None = None,
        region: NDArray[np.uint8] | None = None,
    ) -> None:
        """Queue a segment: its command, its beats and its region, or replacements."""
        segment = job.request.segment
        region = segment.verification if region is None else region
        request = dataclasses.replace(
            job.request, segment=dataclasses.replace(segment, verification=region)
        )
        self.sources["beats"].send(
            {"payload": noisy(self.rng, self._beat, beat)} for beat in beats or beats_of(job)
        )
        if job.target:
            self.sources["words"].send(
                words_of(region, self.config.lanes, self.config.verification_rows)
            )
        await self._command(request)

    async def _command(self, request: Request) -> None:
        """Queue the command; before it, the codebook of pruned values, if it changes."""
        words = [word for word in self._books.words(request) if word.user]
        if words:
            await self.taken("command")
            self.sources["codebook"].send(
                {"payload": word.exponent | word.last << 8 | word.user >> 1 << 9} for word in words
            )
            await self.taken("codebook")
        self.sources["command"].send([{"payload": request.word}])

    async def check(self, jobs: Sequence[Job]) -> None:
        """Decode jobs, everything queued as early as possible, and compare beat by beat."""
        for job in jobs:
            await self.send(job)
        await self.compare([(job, beat) for job in jobs for beat in value_beats(job)])
        self.check_quiet(set())

    def check_quiet(self, causes: set[str]) -> None:
        """Check that these causes were pulsed, and that all input is consumed."""
        assert self.errors.take() == causes, "causes that were pulsed"
        assert all(source.idle for source in self.sources.values())

    async def check_broken(
        self, job: Job, cause: str, beats: Sequence[dict[str, Any]], region: NDArray[np.uint8]
    ) -> None:
        """Check that the segment ends with an error after right beats, and ``cause`` is pulsed."""
        await self.send(job, beats, region)
        await self.compare_broken(f"{cause}: {job}", BROKEN_END, value_beats(job))
        self.check_quiet({cause} - {"abort"})


@cocotb.test()
@cocotb.parametrize(instance=list(VERIFICATION_CONFIGS))
async def values_of_every_kind_of_tensor(dut: Any, instance: str) -> None:
    """Idle x back-pressure x tensors of all schemes, alternating drafts and targets."""
    path = await _Path(dut, instance).started()
    for idle, pressure, jobs in crossed_jobs(path.config, path.rng, [False, True]):
        path.use(idle, pressure)
        await path.check(jobs)


@cocotb.test()
@cocotb.parametrize(instance=list(VERIFICATION_CONFIGS))
async def beats_at_the_rate_of_the_path(dut: Any, instance: str) -> None:
    """The rates of docs/hardware/microarchitecture.md, where the bus brings the rows in time."""
    path = await _Path(dut, instance).started()
    for scheme, target in itertools.product(SCHEMES, (False, True)):
        job = dense_job(path, scheme, target)
        start = path.bench.cycle
        await path.check([job])
        cycles = 2 if target and path.config.target_rate == "half" else 1
        beats = len(list(value_beats(job)))
        padding = path.config.superblock // path.config.lanes  # maximum words of padding
        assert path.bench.cycle - start <= beats * cycles + FILL_CYCLES + padding


def dense_job(path: _Path, scheme: Scheme, target: bool) -> Job:
    """Return a segment without a mask."""
    sizes, lanes = sizes_of(path.config), path.config.lanes
    fmt = Format(scheme=scheme, beat=lanes, truncated=3, segment=1024, **sizes)
    payload = Payload(name="dense", format=fmt, values=gaussian(path.rng, 1000))
    return Job(payload=payload, index=0, target=target)


def word_bytes(path: _Path) -> int:
    """Return the bytes in a word of the region's bus."""
    return path.config.verification_rows * path.config.lanes // 8


def broken(path: _Path, scheme: Scheme) -> Iterator[tuple[str, Job, list[Any], Any]]:
    """Yield cause, segment, and beats and region with a fault."""
    rng, superblock = path.rng, path.config.superblock
    job = dense_job(path, scheme, target=True)
    beats, region = beats_of(job), job.request.segment.verification
    bus = word_bytes(path)
    cut = bus * int(rng.integers(1, (len(region) - superblock) // bus + 1))
    more = rng.integers(256, size=superblock * int(rng.integers(1, 4)), dtype=np.uint8)
    yield "short", job, beats, region[:cut]
    yield "short", job, beats, region[:0]
    yield "long", job, beats, np.concatenate([region, more])
    place = int(rng.integers(len(beats)))
    yield "abort", job, [*beats[:place], {**beats[place], "last": 1, "abort": 1}], region
    if scheme == "exact":
        low = [{**beat, "shared": 1} for beat in beats]
        yield "window", job, low, region


def coded_job(path: _Path, kept: float) -> Job:
    """Return a segment with coded exponents of pruned values, three in the codebook; the rest
    escape.
    """
    plain = dense_job(path, "unary", target=True)
    fmt = dataclasses.replace(plain.payload.format, pruned_exponent="coded")
    flags = path.rng.random(1000) < kept
    payload = dataclasses.replace(
        plain.payload, format=fmt, kept=flags, pruned_codebook=(121, 120, 119)
    )
    return dataclasses.replace(plain, payload=payload)


def broken_codes(path: _Path) -> Iterator[tuple[str, Job, list[Any], Any]]:
    """Yield faults as ``broken`` does: a region that begins with a code that is too long, or a bad
    rank.
    """
    job = coded_job(path, kept=0.0)
    beats, region = beats_of(job), job.request.segment.verification
    for cause, zeros in (("code", path.config.codebook), ("rank", 4)):
        bits = np.unpackbits(region, bitorder="little")
        bits[:zeros], bits[zeros] = 0, 1
        yield cause, job, beats, np.packbits(bits, bitorder="little")


@cocotb.test()
@cocotb.parametrize(instance=list(VERIFICATION_CONFIGS))
async def bad_segments_end_with_an_error(dut: Any, instance: str) -> None:
    """Every cause is pulsed, no wrong beat comes before it, and the next segment is right."""
    path = await _Path(dut, instance).started()
    for scheme in SCHEMES:
        codes = broken_codes(path) if path.config.coded and scheme == "unary" else ()
        for cause, job, beats, region in itertools.chain(broken(path, scheme), codes):
            path.use(str(path.rng.choice(PACES)), str(path.rng.choice(PACES)))
            await path.check_broken(job, cause, beats, region)
            follower = next(iter(crossed_jobs(path.config, path.rng, [bool(path.rng.integers(2))])))
            await path.check(follower[2][:1])


@cocotb.test()
@cocotb.parametrize(instance=list(VERIFICATION_CONFIGS))
async def rows_belong_to_their_segment(dut: Any, instance: str) -> None:
    """A target without a region ends with an error, although later rows wait already."""
    path = await _Path(dut, instance).started()
    path.use("always", "always")
    for scheme in SCHEMES:
        empty, good = (dense_job(path, scheme, target=True) for _ in range(2))
        await path.send(empty, region=empty.request.segment.verification[:0])
        await path.send(good)
        await path.compare([(scheme, beat) for beat in (BROKEN_END, *value_beats(good))])
        path.check_quiet({"short"})


@cocotb.test()
@cocotb.parametrize(instance=list(VERIFICATION_CONFIGS), scheme=list(SCHEMES))
async def a_region_cut_after_every_word(dut: Any, instance: str, scheme: Scheme) -> None:
    """Regions without pruned values end with an error wherever they are cut."""
    path = await _Path(dut, instance).started()
    await check_cuts(path, dense_job(path, scheme, target=True))


@cocotb.test()
async def a_region_of_codes_cut_after_every_word(dut: Any) -> None:
    """Regions with coded exponents of pruned values end with an error wherever they are cut."""
    path = await _Path(dut, "l8").started()
    await check_cuts(path, coded_job(path, kept=0.5))


async def check_cuts(path: _Path, job: Job) -> None:
    """Check that the beats before the error are right, wherever the region of a segment ends."""
    region, bus = job.request.segment.verification, word_bytes(path)
    cuts = range(bus, len(region) - path.config.superblock + 1, bus)
    assert cuts
    for cut in cuts:
        path.use("always", str(path.rng.choice(PACES)))
        await path.check_broken(job, "short", beats_of(job), region[:cut])


@cocotb.test()
@cocotb.parametrize(instance=list(VERIFICATION_CONFIGS))
async def a_draft_gives_up_on_an_abort(dut: Any, instance: str) -> None:
    """The beats before the abort are right; this path flags nothing, because the other one has."""
    path = await _Path(dut, instance).started()
    for scheme, place in itertools.product(SCHEMES, (0, 1, 5)):
        job = dense_job(path, scheme, target=False)
        beats = beats_of(job)
        aborted = [*beats[:place], {**beats[place], "last": 1, "abort": 1}]
        path.use(str(path.rng.choice(PACES)), str(path.rng.choice(PACES)))
        await path.check_broken(job, "abort", aborted, job.request.segment.verification)
        await path.check([dense_job(path, scheme, target=bool(place))])
