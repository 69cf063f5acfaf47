"""The decoder against golden in bulk: thousands of segments, every crossing of patterns."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.golden import codec
from cassandra_spec.golden.errors import CassandraError
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
    coded_faults,
    cuts,
    faults,
    flip_bits,
    golden_result,
)
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, mixed_jobs, sizes_of, with_long_book
from cassandra_spec.verif.decoder.sampling import sample_job, sample_switch
from cassandra_spec.verif.library.coverage import EXTREMES, FOLDER, Coverage, group_sizes
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.payloads import (
    KINDS,
    Payload,
    directed,
    draw,
    gaussian,
    random_format,
)
from tests.marks import slow

CodecOf = Callable[[int], RtlCodec]
LANES = (slow(8), 16, slow(32))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A decoder under test, and the bins that its suite counts."""

    name: str
    config: DecoderConfig
    coverage: Coverage

    @property
    def rtl(self) -> RtlCodec:
        return built(self.config)

    @property
    def sizes(self) -> dict[str, Any]:
        return sizes_of(self.config)

    @property
    def coded(self) -> Format:
        """Return a format with coded exponents of pruned values."""
        lanes = self.config.lanes
        return Format(pruned_exponent="coded", beat=lanes, segment=256, **self.sizes)

    def jobs(self, rng: np.random.Generator, count: int, **chosen: Any) -> list[Job]:
        config = self.config
        names = ("schemes", "coded", "truncated")
        fixed = {name: getattr(config, name) for name in names} | self.sizes | chosen
        return mixed_jobs(rng, lanes=config.lanes, count=count, **fixed)

    def format(self, rng: np.random.Generator, scheme: Scheme, **chosen: Any) -> Format:
        """Draw a format that the decoder reads, and change some fields of it."""
        coded, lanes = self.config.coded, self.config.lanes
        drawn = random_format(
            rng, lanes=lanes, scheme=scheme, segment=256, coded=coded, **self.sizes
        )
        return dataclasses.replace(drawn, **chosen)


built = functools.cache(RtlCodec)
HALF, FULL, CODED = Coverage(), Coverage(), Coverage()


def subject(name: str, coverage: Coverage, *marks: pytest.MarkDecorator, **config: Any) -> Any:
    found = Subject(name=name, config=DecoderConfig(**config), coverage=coverage)
    return pytest.param(found, marks=marks, id=name)


SLOW, EXHAUSTIVE = pytest.mark.slow, pytest.mark.exhaustive
HALVES = (
    subject("8", HALF, SLOW, lanes=8),
    subject("16", HALF, lanes=16),
    subject("32", HALF, SLOW, lanes=32),
)
SUBJECTS = (
    *HALVES,
    subject("full_8", FULL, EXHAUSTIVE, lanes=8, target_rate="full"),
    subject("full_16", FULL, SLOW, lanes=16, target_rate="full"),
    subject("full_32", FULL, EXHAUSTIVE, lanes=32, target_rate="full"),
    subject(
        "coded", CODED, SLOW, schemes=("unary",), codebook=32, window=3, superblock=384, coded=True
    ),
)
of_all = pytest.mark.parametrize("subject", SUBJECTS)

# Bins of this suite; the cocotb suite has the rest.
DEMANDS = (
    *("code_length.*", "mask.*", "size.*", "switch.*", "setting.*", "value.*"),
    *("miss.*", "shared.*", "residue.*", "escape.*", "error.*", "recovery.*"),
    *("reset.draft", "reset.target", "stall.speculation.*", "stall.verification.*"),
    *("stall.values.*", "stall.command.*", "stall.codebook.*"),
)


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


@pytest.mark.parametrize("regions", PATTERNS)
@of_all
def test_idle_by_back_pressure_by_payload(
    subject: Subject, rng: np.random.Generator, regions: str
) -> None:
    for values in PATTERNS:
        patterns = dict.fromkeys(PORTS, PATTERNS[regions]) | {"values": PATTERNS[values]}
        traffic = Traffic(patterns=patterns, seed=int(rng.integers(1 << 62)))
        check(subject.rtl, subject.jobs(rng, 60), traffic, subject.coverage)


@of_all
def test_every_directed_payload(subject: Subject, rng: np.random.Generator) -> None:
    exponents = ("raw", "coded") if subject.config.coded else ("raw",)
    for scheme, t, pruned in itertools.product(subject.config.schemes, range(8), exponents):
        fmt = subject.format(rng, scheme, truncated=t, pruned_exponent=pruned)
        jobs = [job for payload in directed(rng, fmt) for job in jobs_of(payload)]
        check(subject.rtl, jobs, traffic_of(rng), subject.coverage)
    if subject.coverage is HALF:
        lanes = subject.config.lanes
        for scheme in SCHEMES:
            HALF.require(f"last_beat.{lanes}.*", *extremes_of(lanes, scheme))


@of_all
def test_every_group(subject: Subject, rng: np.random.Generator) -> None:
    """Each beat of the smallest group takes a row of exponents of its own."""
    lanes = subject.config.lanes
    schemes = [scheme for scheme in subject.config.schemes if scheme != "unary"]
    for scheme, group in itertools.product(schemes, group_sizes(lanes)):
        fmt = subject.format(rng, scheme, group=group, segment=512)
        jobs = list(jobs_of(KINDS["below"](fmt, rng, 700)))
        check(subject.rtl, jobs, traffic_of(rng), subject.coverage)
    if schemes:
        subject.coverage.require(f"group_size.{lanes}.*")


def extremes_of(lanes: int, scheme: Scheme) -> list[str]:
    """Return bins of the least and the most, but for the values of the largest segment."""
    names = {*EXTREMES[""], *EXTREMES.get(scheme, ())} - {"count"}
    return [f"extreme.{lanes}.{name}.*" for name in names]


@pytest.mark.parametrize(
    "subject",
    [
        subject("mx", HALF, SLOW, lanes=8, schemes=("mx",), superblock=256),
        subject("exact", HALF, EXHAUSTIVE, lanes=32, schemes=("exact",)),
    ],
)
def test_decoders_of_one_scheme(subject: Subject, rng: np.random.Generator) -> None:
    for _ in range(10):
        check(subject.rtl, subject.jobs(rng, 100), traffic_of(rng), subject.coverage)


@of_all
def test_every_chunk_with_every_carry(subject: Subject, rng: np.random.Generator) -> None:
    """Every chunk with every carry, and the longest segments."""
    chunks, lanes = Coverage(), subject.config.lanes
    fmt = Format(beat=lanes, segment=1 << 16, group=32, **subject.sizes)
    almost = fmt.segment - lanes  # whose beats are a number of ones alone
    for kind, count in (("chunks", 0), ("totals", almost), ("totals", fmt.segment)):
        check(subject.rtl, list(jobs_of(KINDS[kind](fmt, rng, count))), Traffic(), chunks)
    chunks.require("chunk.*", "code_length.*", f"extreme.{lanes}.count.most")
    chunks.save(FOLDER / f"chunks_{subject.name}.json")


@of_all
def test_entries_beyond_those_that_the_decoder_holds_are_ignored(
    subject: Subject, rng: np.random.Generator
) -> None:
    """Also of the codebook of pruned values."""
    jobs, config = subject.jobs(rng, 20, schemes=("unary",)), subject.config
    if config.coded:
        jobs += [job for each in slow_codes(subject.coded, rng) for job in jobs_of(each)]
    requests = [with_long_book(rng, job) for job in jobs]
    longest = max(len(request.pruned_codebook) for request in requests)
    assert longest >= config.codebook * config.coded
    result = subject.rtl.run(requests, traffic_of(rng))
    for job, values in zip(jobs, split(result, requests), strict=True):
        assert np.array_equal(values, job.expected), str(job)
        subject.coverage.sample("miss.long_packet")


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
@of_all
def test_faults_are_flagged_and_what_follows_is_right(
    subject: Subject, rng: np.random.Generator, serial: bool
) -> None:
    items = with_faults(rng, subject)
    traffic = traffic_of(rng, serial=serial, go_on=True)
    check_faults(subject.rtl, items, traffic, subject.coverage)
    for before, after in itertools.pairwise(items):
        if isinstance(before, Fault) and isinstance(after, Job):
            subject.coverage.sample(f"recovery.{before.cause}")


@pytest.mark.parametrize("outputs", ["always", "stall"])
@of_all
def test_regions_that_end_anywhere_are_short(
    subject: Subject, rng: np.random.Generator, outputs: str
) -> None:
    """The end comes while a window is missing, and while both stages of a beat are held."""
    traffic = Traffic(patterns={"values": PATTERNS[outputs]}, seed=1, go_on=True)
    items = list(cuts(rng, subject.config.lanes, **subject.sizes))
    check_faults(subject.rtl, items, traffic, subject.coverage)


@of_all
def test_one_bad_rank_is_flagged(subject: Subject, rng: np.random.Generator) -> None:
    items = list(bad_ranks(rng, subject.config.lanes, **subject.sizes))
    check_faults(subject.rtl, items, Traffic(go_on=True), subject.coverage)


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
            coverage.sample(f"{'coded.' * (item.bin in CODED_BINS)}error.{item.bin}")
        else:
            assert outcome.causes == (), str(item)
            assert np.array_equal(got, item.expected), str(item)


CODED_BINS = ("short.coded", "long.coded", "code.pruned", "rank.pruned")


def with_faults(rng: np.random.Generator, subject: Subject) -> list[Fault | Job]:
    """Good segments with every fault between them, some faults side by side."""
    config, good = subject.config, subject.jobs(rng, 40)
    items: list[Fault | Job] = []
    found = faults(rng, lanes=config.lanes, schemes=config.schemes, **subject.sizes)
    coded = dataclasses.replace(subject.coded, segment=1024)
    for fault in (*found, *(coded_faults(rng, coded) if config.coded else ())):
        items.append(fault)
        if rng.random() < 0.7:
            items.append(good[rng.integers(len(good))])
    return [*items, good[0]]


@of_all
def test_flipped_bits_are_flagged_exactly_when_golden_rejects_them(
    subject: Subject, rng: np.random.Generator
) -> None:
    for _ in range(4):
        check_flips(subject.rtl, rng, subject.jobs(rng, 150))


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


@of_all
def test_reset_in_the_middle(subject: Subject, rng: np.random.Generator) -> None:
    for target in (False, True):
        for _ in range(12):
            jobs = [dataclasses.replace(job, target=target) for job in subject.jobs(rng, 20)]
            check_reset(subject.rtl, rng, jobs, subject.coverage)
            subject.coverage.sample("reset.target" if target else "reset.draft")


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


def slow_codes(fmt: Format, rng: np.random.Generator) -> Iterator[Payload]:
    """Yield the longest code alone, and beats of longest and shortest codes in turn.

    Books are full, each with the bits of the one before inverted.
    """
    upwards = tuple(range(100, 99 + fmt.codebook))
    noise = rng.integers(1 << 16, size=300, dtype=np.uint16) & 0x807F
    beats = np.arange(300) // fmt.beat % 2 == 0
    kinds = {"longest": np.full(300, -1), "swing": np.where(beats, 0, -1)}
    for inverted, (name, ranks) in itertools.product((0, 255, 0), kinds.items()):
        book = tuple(exponent ^ inverted for exponent in upwards)
        values = (noise | np.array(book, np.uint16)[ranks] << 7).astype(np.uint16)
        yield Payload(
            name=name, format=fmt, values=values, kept=np.zeros(300, bool), pruned_codebook=book
        )


@pytest.mark.parametrize("subject", SUBJECTS[-1:])
def test_codes_at_their_limit_and_none(subject: Subject, rng: np.random.Generator) -> None:
    """Without entries every value is an escape, and every code one bit."""
    payloads = list(slow_codes(subject.coded, rng))
    escapes = dataclasses.replace(payloads[0], pruned_codebook=())
    for payload in (*payloads, escapes):
        check(subject.rtl, list(jobs_of(payload)), traffic_of(rng), CODED)


def test_a_decoder_without_them_refuses_coded_exponents(
    codec_of: CodecOf, rng: np.random.Generator
) -> None:
    payload = draw(rng, Format(pruned_exponent="coded"), 100, "weights")
    with pytest.raises(CassandraError, match="pruned_exponent must be 'raw' for this decoder"):
        codec_of(16).decode_target(payload.packed)
    word = next(jobs_of(payload, [True])).request.word
    raw = Payload(name="raw", format=Format(), values=gaussian(rng, 100))
    request = dataclasses.replace(next(jobs_of(raw, [True])).request, command=word)
    result = codec_of(16).run([request], Traffic(go_on=True))
    assert [outcome and outcome.causes for outcome in result.outcomes] == [("command",)]


def test_the_plan_is_covered() -> None:
    """Runs last in this file, which one process runs in order."""
    HALF.save(FOLDER / "bulk.json")
    print(HALF.report())
    HALF.require(*DEMANDS)


@pytest.mark.slow
def test_the_plan_of_coded_exponents_is_covered() -> None:
    CODED.save(FOLDER / "coded.json")
    CODED.require("coded.*")
