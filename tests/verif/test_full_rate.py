"""The decoder whose targets come at full rate against golden, in bulk.

The suite of the verification path has an instance of each rate, too.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.verif.decoder.bulk import PORTS, RtlCodec, Traffic
from cassandra_spec.verif.decoder.faults import cuts, faults
from cassandra_spec.verif.decoder.jobs import jobs_of, mixed_jobs, with_long_book
from cassandra_spec.verif.library.coverage import Coverage
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.payloads import directed, random_format
from tests.marks import exhaustive
from tests.verif.test_decoder_bulk import (
    check,
    check_faults,
    check_flips,
    check_reset,
    long_payloads,
    split,
    traffic_of,
)

pytestmark = pytest.mark.slow
LANES = (exhaustive(8), 16, exhaustive(32))


@functools.cache
def codec_of(lanes: int) -> RtlCodec:
    return RtlCodec(DecoderConfig(lanes=lanes, target_rate="full"))


@pytest.mark.parametrize("lanes", LANES)
def test_idle_by_back_pressure_by_payload(rng: np.random.Generator, lanes: int) -> None:
    jobs = mixed_jobs(rng, lanes=lanes, count=10, segment=256, lead=2)
    for regions in PATTERNS:
        for values in PATTERNS:
            print(f"regions {regions}, values {values}")
            patterns = dict.fromkeys(PORTS, PATTERNS[regions]) | {"values": PATTERNS[values]}
            traffic = Traffic(patterns=patterns, seed=int(rng.integers(1 << 62)))
            check(codec_of(lanes), jobs, traffic, Coverage())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("lanes", LANES)
def test_every_directed_payload(rng: np.random.Generator, lanes: int, scheme: Scheme) -> None:
    for truncated in range(8):
        fmt = random_format(rng, lanes=lanes, scheme=scheme, segment=256, lead=2)
        fmt = dataclasses.replace(fmt, truncated=truncated)
        jobs = [job for payload in directed(rng, fmt) for job in jobs_of(payload)]
        check(codec_of(lanes), jobs, traffic_of(rng), Coverage())


@pytest.mark.parametrize("lanes", LANES)
def test_every_chunk_with_every_carry(rng: np.random.Generator, lanes: int) -> None:
    chunks = Coverage()
    for payload in long_payloads(rng, lanes, lead=2):
        check(codec_of(lanes), list(jobs_of(payload)), Traffic(), chunks)
    chunks.require("chunk.*", "code_length.*", f"extreme.{lanes}.count.most")


@pytest.mark.parametrize("lanes", LANES)
def test_entries_beyond_those_that_the_decoder_holds_are_ignored(
    rng: np.random.Generator, lanes: int
) -> None:
    jobs = mixed_jobs(rng, lanes=lanes, count=20, schemes=("unary",), lead=2)
    requests = [with_long_book(rng, job) for job in jobs]
    result = codec_of(lanes).run(requests, traffic_of(rng))
    for job, values in zip(jobs, split(result, requests), strict=True):
        assert np.array_equal(values, job.expected), str(job)


@pytest.mark.parametrize("outputs", ["always", "stall"])
@pytest.mark.parametrize("lanes", LANES)
def test_regions_that_end_anywhere_are_short(
    rng: np.random.Generator, lanes: int, outputs: str
) -> None:
    traffic = Traffic(patterns={"values": PATTERNS[outputs]}, seed=1, go_on=True)
    check_faults(codec_of(lanes), list(cuts(rng, lanes, lead=2)), traffic, Coverage())


@pytest.mark.parametrize("serial", [True, False], ids=["one by one", "back to back"])
@pytest.mark.parametrize("lanes", LANES)
def test_faults_are_flagged_and_what_follows_is_right(
    rng: np.random.Generator, lanes: int, serial: bool
) -> None:
    wrong = list(faults(rng, lanes=lanes, schemes=SCHEMES, lead=2))
    good = mixed_jobs(rng, lanes=lanes, count=len(wrong), lead=2)
    items = [item for pair in zip(wrong, good, strict=True) for item in pair]
    check_faults(codec_of(lanes), items, traffic_of(rng, serial=serial, go_on=True), Coverage())


@pytest.mark.parametrize("lanes", LANES)
def test_flipped_bits_are_flagged_exactly_when_golden_rejects_them(
    rng: np.random.Generator, lanes: int
) -> None:
    check_flips(codec_of(lanes), rng, mixed_jobs(rng, lanes=lanes, count=150, lead=2))


@pytest.mark.parametrize("lanes", LANES)
def test_reset_in_the_middle(rng: np.random.Generator, lanes: int) -> None:
    jobs = mixed_jobs(rng, lanes=lanes, count=20, lead=2)
    for _ in range(12):
        check_reset(codec_of(lanes), rng, jobs, Coverage())
