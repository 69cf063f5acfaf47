"""Coded exponents of pruned values through the decoders that know them, against golden."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.verif.decoder.bulk import PORTS, RtlCodec, Traffic
from cassandra_spec.verif.decoder.faults import Fault, coded_faults, cuts, faults
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, mixed_jobs, with_long_book
from cassandra_spec.verif.decoder.sampling import sample_job
from cassandra_spec.verif.library.coverage import FOLDER, Coverage
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.payloads import Payload, draw, gaussian, kinds_of
from tests.verif.test_decoder_bulk import check_faults, long_payloads, split

pytestmark = pytest.mark.slow
COVERAGE = Coverage()


@pytest.fixture(scope="module")
def rtl() -> RtlCodec:
    """Return a decoder that another suite also needs; it is built once."""
    return RtlCodec(
        DecoderConfig(schemes=("unary",), codebook=32, window=3, superblock=384, coded=True)
    )


def sizes_of(rtl: RtlCodec) -> dict[str, Any]:
    return {name: getattr(rtl.config, name) for name in ("codebook", "window", "superblock")}


def format_of(rtl: RtlCodec) -> Format:
    sizes = sizes_of(rtl)
    return Format(pruned_exponent="coded", beat=rtl.config.lanes, segment=256, **sizes)


def decode(rtl: RtlCodec, jobs: list[Job], traffic: Traffic) -> None:
    """Decode in one batch, compare and sample."""
    result = rtl.run([job.request for job in jobs], traffic)
    ends = np.cumsum([job.request.segment.count for job in jobs])
    for job, values in zip(jobs, np.split(result.values, ends[:-1]), strict=True):
        assert np.array_equal(values, job.expected), str(job)
        sample_job(COVERAGE, job)


def random_traffic(rng: np.random.Generator, regions: str, values: str, **flags: bool) -> Traffic:
    patterns = dict.fromkeys(PORTS, PATTERNS[regions]) | {"values": PATTERNS[values]}
    return Traffic(patterns=patterns, seed=int(rng.integers(1 << 62)), **flags)


def test_every_kind_with_every_number_of_low_bits(rtl: RtlCodec, rng: np.random.Generator) -> None:
    """Whole, short and tiny segments, one after the other; drafts do not look at the codes."""
    jobs: list[Job] = []
    for place, kind in enumerate(kinds_of("unary")):
        fmt = dataclasses.replace(format_of(rtl), truncated=place % 8)
        for count in (2 * fmt.segment + 5, int(rng.integers(1, 2 * fmt.beat))):
            jobs += jobs_of(draw(rng, fmt, count, kind))
    decode(rtl, jobs, Traffic())


def test_idle_by_back_pressure_by_payload(rtl: RtlCodec, rng: np.random.Generator) -> None:
    """Raw and coded, drafts and targets, and all schemes of the decoder in turn."""
    config, sizes = rtl.config, sizes_of(rtl)
    for idle, pressure in itertools.product(PATTERNS, PATTERNS):
        jobs = mixed_jobs(
            rng,
            lanes=config.lanes,
            count=12,
            segment=256,
            schemes=config.schemes,
            coded=True,
            **sizes,
        )
        decode(rtl, jobs, random_traffic(rng, idle, pressure))


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


def test_codes_at_their_limit_and_none(rtl: RtlCodec, rng: np.random.Generator) -> None:
    """Without entries every value is an escape, and every code one bit."""
    payloads = list(slow_codes(format_of(rtl), rng))
    escapes = dataclasses.replace(payloads[0], pruned_codebook=())
    for payload in (*payloads, escapes):
        decode(rtl, list(jobs_of(payload)), random_traffic(rng, "half", "always"))


def test_the_longest_segments(rtl: RtlCodec, rng: np.random.Generator) -> None:
    for payload in long_payloads(rng, rtl.config.lanes, **sizes_of(rtl)):
        decode(rtl, list(jobs_of(payload)), Traffic())


def test_entries_beyond_those_that_the_decoder_holds_are_ignored(
    rtl: RtlCodec, rng: np.random.Generator
) -> None:
    """Entries beyond both codebooks are ignored."""
    lanes, schemes = rtl.config.lanes, rtl.config.schemes
    jobs = mixed_jobs(rng, lanes=lanes, count=20, schemes=schemes, coded=True, **sizes_of(rtl))
    jobs += [job for each in slow_codes(format_of(rtl), rng) for job in jobs_of(each)]
    requests = [with_long_book(rng, job) for job in jobs]
    assert any(len(request.pruned_codebook) >= rtl.config.codebook for request in requests)
    result = rtl.run(requests, random_traffic(rng, "half", "always"))
    for job, values in zip(jobs, split(result, requests), strict=True):
        assert np.array_equal(values, job.expected), str(job)


@pytest.mark.parametrize("outputs", ["always", "stall"])
def test_regions_that_end_anywhere_are_short(
    rtl: RtlCodec, rng: np.random.Generator, outputs: str
) -> None:
    traffic = Traffic(patterns={"values": PATTERNS[outputs]}, seed=1, go_on=True)
    check_faults(rtl, list(cuts(rng, rtl.config.lanes, **sizes_of(rtl))), traffic, Coverage())


@pytest.mark.parametrize("serial", [True, False], ids=["one by one", "back to back"])
def test_faults_are_flagged_and_what_follows_is_right(
    rtl: RtlCodec, rng: np.random.Generator, serial: bool
) -> None:
    fmt = format_of(rtl)
    items: list[Fault | Job] = []
    raw = faults(rng, lanes=fmt.beat, schemes=("unary",), **sizes_of(rtl))
    coded = list(coded_faults(rng, dataclasses.replace(fmt, segment=1024)))
    coded_bins = {fault.bin for fault in coded}
    for fault in (*raw, *coded):
        items += [fault, *jobs_of(draw(rng, fmt, 100, "weights"))]
    requests = [item.request for item in items]
    result = rtl.run(requests, random_traffic(rng, "half", "burst", serial=serial, go_on=True))
    ends = np.cumsum([request.segment.count for request in requests])
    values = np.split(result.values, ends[:-1])
    for item, outcome, got in zip(items, result.outcomes, values, strict=True):
        assert outcome is not None
        if isinstance(item, Fault):
            assert item.cause in outcome.causes, item.bin
            assert not serial or outcome.causes == (item.cause,), item.bin
            COVERAGE.sample(f"{'coded.' * (item.bin in coded_bins)}error.{item.bin}")
        else:
            assert outcome.causes == (), str(item)
            assert np.array_equal(got, item.expected), str(item)


def test_a_decoder_without_them_refuses_coded_exponents(
    codec_of: Callable[[int], RtlCodec], rng: np.random.Generator
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
    COVERAGE.save(FOLDER / "coded.json")
    COVERAGE.require("coded.*")
