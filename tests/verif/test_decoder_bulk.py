"""The decoder against golden in bulk: thousands of segments, every crossing of patterns."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from numpy.typing import NDArray

from cassandra_spec.golden import codec
from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.verif.decoder.bulk import (
    PORTS,
    Request,
    Result,
    RtlCodec,
    Traffic,
    requests_of,
)
from cassandra_spec.verif.decoder.faults import (
    Fault,
    bad_ranks,
    cuts,
    faults,
    flip_bits,
    golden_result,
)
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, mixed_jobs, with_long_book
from cassandra_spec.verif.decoder.sampling import sample_job, sample_switch
from cassandra_spec.verif.library.coverage import EXTREMES, FOLDER, Coverage, group_sizes
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.payloads import (
    KINDS,
    Payload,
    directed,
    gaussian,
    random_format,
)
from tests.marks import exhaustive, slow

CodecOf = Callable[[int], RtlCodec]
LANES = (slow(8), 16, slow(32))

# Bins of this suite; the cocotb suite has the rest.
DEMANDS = (
    *("code_length.*", "mask.*", "size.*", "switch.*", "setting.*", "value.*"),
    *("miss.*", "shared.*", "residue.*", "escape.*", "error.*", "recovery.*"),
    *("reset.draft", "reset.target", "stall.speculation.*", "stall.verification.*"),
    *("stall.values.*", "stall.command.*", "stall.codebook.*"),
)


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    return Coverage()


def traffic_of(rng: np.random.Generator, **settings: bool) -> Traffic:
    names = [str(rng.choice(list(PATTERNS))) for _ in PORTS]
    patterns = {port: PATTERNS[name] for port, name in zip(PORTS, names, strict=True)}
    print("patterns", dict(zip(PORTS, names, strict=True)))
    return Traffic(patterns=patterns, seed=int(rng.integers(1 << 62)), **settings)


def split(result: Result, requests: Sequence[Request]) -> list[NDArray[np.uint16]]:
    """Return values of each segment."""
    ends = np.cumsum([request.segment.count for request in requests])
    return np.split(result.values, ends[:-1])


def check(rtl: RtlCodec, jobs: Sequence[Job], traffic: Traffic, coverage: Coverage) -> None:
    """Decode, compare and sample."""
    requests = [job.request for job in jobs]
    result = rtl.run(requests, traffic)
    for job, values in zip(jobs, split(result, requests), strict=True):
        assert np.array_equal(values, job.expected), str(job)
        sample_job(coverage, job)
    for before, after in itertools.pairwise(jobs):
        sample_switch(coverage, before, after)
    sample_stalls(coverage, result)


def sample_stalls(coverage: Coverage, result: Result) -> None:
    for name, count in result.statistics.ports.items():
        coverage.sample(f"stall.{name}.held", count.stalled)
        coverage.sample(f"stall.{name}.starved", count.starved)


def crossings() -> Iterator[ParameterSet]:
    """Yield all pairs of patterns for 16 lanes; for 8 and 32 each once, the others exhaustive."""
    pairs = itertools.product(enumerate(PATTERNS), enumerate(PATTERNS))
    for ((i, regions), (j, values)), lanes in itertools.product(pairs, (8, 16, 32)):
        once = (i + j) % len(PATTERNS) == 1
        mark = pytest.param if lanes == 16 else slow if once else exhaustive
        yield mark(lanes, regions, values)


@pytest.mark.parametrize(("lanes", "regions", "values"), [*crossings()])
def test_idle_by_back_pressure_by_payload(
    codec_of: CodecOf,
    rng: np.random.Generator,
    coverage: Coverage,
    lanes: int,
    regions: str,
    values: str,
) -> None:
    patterns = dict.fromkeys(PORTS, PATTERNS[regions]) | {"values": PATTERNS[values]}
    traffic = Traffic(patterns=patterns, seed=int(rng.integers(1 << 62)))
    jobs = mixed_jobs(rng, lanes=lanes, count=60)
    check(codec_of(lanes), jobs, traffic, coverage)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("lanes", LANES)
def test_every_directed_payload(
    codec_of: CodecOf, rng: np.random.Generator, coverage: Coverage, lanes: int, scheme: Scheme
) -> None:
    for truncated in range(8):
        fmt = random_format(rng, lanes=lanes, scheme=scheme, segment=256)
        fmt = dataclasses.replace(fmt, truncated=truncated)
        jobs = [job for payload in directed(rng, fmt) for job in jobs_of(payload)]
        check(codec_of(lanes), jobs, traffic_of(rng), coverage)
    coverage.require(f"last_beat.{lanes}.*", *extremes_of(lanes, scheme))


@pytest.mark.parametrize("lanes", LANES)
def test_every_group(
    codec_of: CodecOf, rng: np.random.Generator, coverage: Coverage, lanes: int
) -> None:
    """Each beat of the smallest group takes a row of exponents of its own."""
    schemes: tuple[Scheme, ...] = ("mx", "exact")
    for scheme, group in itertools.product(schemes, group_sizes(lanes)):
        fmt = random_format(rng, lanes=lanes, scheme=scheme)
        fmt = dataclasses.replace(fmt, group=group, segment=512)
        jobs = list(jobs_of(KINDS["below"](fmt, rng, 700)))
        check(codec_of(lanes), jobs, traffic_of(rng), coverage)
    coverage.require(f"group_size.{lanes}.*")


def extremes_of(lanes: int, scheme: Scheme) -> list[str]:
    """Return bins of the least and the most, but for the values of the largest segment."""
    names = {*EXTREMES[""], *EXTREMES.get(scheme, ())} - {"count"}
    return [f"extreme.{lanes}.{name}.*" for name in names]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "lanes", "fixed"),
    [
        ("unary", 16, {"codebook": 32, "window": 3, "superblock": 384, "coded": True}),
        ("mx", 8, {"superblock": 256}),
        exhaustive("exact", 32, {}),
    ],
)
def test_decoders_of_one_scheme(
    rng: np.random.Generator,
    coverage: Coverage,
    scheme: Scheme,
    lanes: int,
    fixed: dict[str, Any],
) -> None:
    rtl = RtlCodec(DecoderConfig(lanes=lanes, schemes=(scheme,), **fixed))
    for _ in range(10):
        jobs = mixed_jobs(rng, lanes=lanes, count=100, schemes=(scheme,), **fixed)
        check(rtl, jobs, traffic_of(rng), coverage)


def long_payloads(rng: np.random.Generator, lanes: int, **sizes: Any) -> Iterator[Payload]:
    """Yield every chunk with every carry, and the longest segments."""
    fmt = Format(beat=lanes, segment=1 << 16, group=32, **sizes)
    yield KINDS["chunks"](fmt, rng, 0)
    almost = fmt.segment - lanes  # whose beats are a number of ones alone
    for count in (almost, fmt.segment):
        yield KINDS["totals"](fmt, rng, count)


@pytest.mark.parametrize("lanes", LANES)
def test_every_chunk_with_every_carry(
    codec_of: CodecOf, rng: np.random.Generator, lanes: int
) -> None:
    chunks = Coverage()
    for payload in long_payloads(rng, lanes):
        check(codec_of(lanes), list(jobs_of(payload)), Traffic(), chunks)
    chunks.require("chunk.*", "code_length.*", f"extreme.{lanes}.count.most")
    chunks.save(FOLDER / f"chunks_{lanes}.json")


@pytest.mark.parametrize("lanes", LANES)
def test_entries_beyond_those_that_the_decoder_holds_are_ignored(
    codec_of: CodecOf, rng: np.random.Generator, coverage: Coverage, lanes: int
) -> None:
    jobs = mixed_jobs(rng, lanes=lanes, count=20, schemes=("unary",))
    requests = [with_long_book(rng, job) for job in jobs]
    result = codec_of(lanes).run(requests, traffic_of(rng))
    for job, values in zip(jobs, split(result, requests), strict=True):
        assert np.array_equal(values, job.expected), str(job)
        coverage.sample("miss.long_packet")


@pytest.mark.parametrize("target", [False, True], ids=["draft", "target"])
@pytest.mark.parametrize("lanes", LANES)
def test_padding_need_not_be_sent(
    codec_of: CodecOf, rng: np.random.Generator, lanes: int, target: bool
) -> None:
    """A region that ends with the last word of its rows is whole; one word less is short."""
    fmt = Format(scheme="exact", beat=lanes, segment=256)
    packed = codec.encode(gaussian(rng, 256), fmt)
    (whole,) = requests_of(packed, target=target)
    name = "verification" if target else "speculation"
    region = getattr(whole.segment, name)
    cut = -(-(int(np.flatnonzero(region)[-1]) + 1) // lanes) * lanes
    requests = [
        dataclasses.replace(
            whole, segment=dataclasses.replace(whole.segment, **{name: region[:size]})
        )
        for size in (cut, cut - lanes)
    ]
    assert cut < region.size
    result = codec_of(lanes).run(requests, Traffic(go_on=True))
    golden = codec.decode_target(packed) if target else codec.decode_draft(packed)
    assert np.array_equal(result.values[: whole.segment.count], golden)
    assert [outcome and outcome.causes for outcome in result.outcomes] == [(), ("short",)]


@pytest.mark.parametrize("serial", [True, False], ids=["one by one", "back to back"])
@pytest.mark.parametrize("lanes", LANES)
def test_faults_are_flagged_and_what_follows_is_right(
    codec_of: CodecOf, rng: np.random.Generator, coverage: Coverage, lanes: int, serial: bool
) -> None:
    items = with_faults(rng, lanes)
    check_faults(codec_of(lanes), items, traffic_of(rng, serial=serial, go_on=True), coverage)
    for before, after in itertools.pairwise(items):
        if isinstance(before, Fault) and isinstance(after, Job):
            coverage.sample(f"recovery.{before.cause}")


@pytest.mark.parametrize("outputs", ["always", "stall"])
@pytest.mark.parametrize("lanes", LANES)
def test_regions_that_end_anywhere_are_short(
    codec_of: CodecOf, rng: np.random.Generator, coverage: Coverage, lanes: int, outputs: str
) -> None:
    """The end comes while a window is missing, and while both stages of a beat are held."""
    traffic = Traffic(patterns={"values": PATTERNS[outputs]}, seed=1, go_on=True)
    check_faults(codec_of(lanes), list(cuts(rng, lanes)), traffic, coverage)


@pytest.mark.parametrize("lanes", LANES)
def test_one_bad_rank_is_flagged(
    codec_of: CodecOf, rng: np.random.Generator, coverage: Coverage, lanes: int
) -> None:
    check_faults(codec_of(lanes), list(bad_ranks(rng, lanes)), Traffic(go_on=True), coverage)


def check_faults(
    rtl: RtlCodec, items: Sequence[Fault | Job], traffic: Traffic, coverage: Coverage
) -> None:
    """Check that every fault is flagged, with its cause, and every good segment is right."""
    requests = [item.request for item in items]
    result = rtl.run(requests, traffic)
    values = split(result, requests)
    for item, outcome, got in zip(items, result.outcomes, values, strict=True):
        assert outcome is not None
        if isinstance(item, Fault):
            assert item.cause in outcome.causes, item.bin
            assert not traffic.serial or outcome.causes == (item.cause,), item.bin
            coverage.sample(f"error.{item.bin}")
        else:
            assert outcome.causes == (), str(item)
            assert np.array_equal(got, item.expected), str(item)


def with_faults(rng: np.random.Generator, lanes: int) -> list[Fault | Job]:
    """Good segments with every fault between them, some faults side by side."""
    good = mixed_jobs(rng, lanes=lanes, count=40)
    items: list[Fault | Job] = []
    for fault in faults(rng, lanes=lanes, schemes=SCHEMES):
        items.append(fault)
        if rng.random() < 0.7:
            items.append(good[rng.integers(len(good))])
    return [*items, good[0]]


@pytest.mark.parametrize("lanes", LANES)
def test_flipped_bits_are_flagged_exactly_when_golden_rejects_them(
    codec_of: CodecOf, rng: np.random.Generator, lanes: int
) -> None:
    for _ in range(4):
        check_flips(codec_of(lanes), rng, mixed_jobs(rng, lanes=lanes, count=150))


def check_flips(rtl: RtlCodec, rng: np.random.Generator, jobs: Sequence[Job]) -> None:
    """Check flips; if several causes apply, golden and the gateware may name different ones."""
    # Without entries a codebook cannot be sent: the one before it stays.
    jobs = [job for job in jobs if job.payload.packed.codebook or not is_unary(job)]
    requests = [flip_bits(rng, job, int(rng.integers(1, 4))) for job in jobs]
    result = rtl.run(requests, traffic_of(rng, serial=True, go_on=True))
    results = zip(requests, jobs, result.outcomes, split(result, requests), strict=True)
    for request, job, outcome, values in results:
        assert outcome is not None
        wanted = golden_result(request)
        assert (wanted is None) == bool(outcome.causes), str(job)
        assert wanted is None or np.array_equal(values, wanted), str(job)


def is_unary(job: Job) -> bool:
    return job.payload.format.scheme == "unary"


@pytest.mark.parametrize("lanes", LANES)
def test_reset_in_the_middle(
    codec_of: CodecOf, rng: np.random.Generator, coverage: Coverage, lanes: int
) -> None:
    for target in (False, True):
        for _ in range(12):
            mixed = mixed_jobs(rng, lanes=lanes, count=20)
            jobs = [dataclasses.replace(job, target=target) for job in mixed]
            check_reset(codec_of(lanes), rng, jobs, coverage)
            coverage.sample("reset.target" if target else "reset.draft")


def check_reset(
    rtl: RtlCodec, rng: np.random.Generator, jobs: Sequence[Job], coverage: Coverage
) -> None:
    """Work that is cut off in a cycle before its end leaves nothing behind."""
    requests, traffic = [job.request for job in jobs], traffic_of(rng)
    last = rtl.run(requests, traffic).outcomes[-1]
    assert last is not None
    cut = dataclasses.replace(traffic, limit_cycles=int(rng.integers(10, last.cycle)))
    assert rtl.run(requests, cut).outcomes[-1] is None
    check(rtl, jobs, traffic_of(rng), coverage)


def test_the_plan_is_covered(coverage: Coverage) -> None:
    """Runs last in this file, which one process runs in order."""
    coverage.save(FOLDER / "bulk.json")
    print(coverage.report())
    coverage.require(*DEMANDS)
