"""The decoder whose targets come at full rate against golden, in bulk: few segments of each kind.

The suites of the half-rate decoder check at length what both have in common, and the suite of the
verification path has an instance of each rate.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.verif.decoder.bulk import PORTS, RtlCodec, Traffic
from cassandra_spec.verif.decoder.faults import faults
from cassandra_spec.verif.decoder.jobs import jobs_of, mixed_jobs
from cassandra_spec.verif.library.coverage import Coverage
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.payloads import directed, random_format
from tests.verif.test_decoder_bulk import LANES, check, check_faults, check_flips, traffic_of

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("lanes", LANES)
def test_every_directed_payload(rng: np.random.Generator, lanes: int) -> None:
    for scheme in SCHEMES:
        fmt = random_format(rng, lanes=lanes, scheme=scheme, segment=256, lead=2)
        jobs = [job for payload in directed(rng, fmt) for job in jobs_of(payload)]
        check(codec_of(lanes), jobs, traffic_of(rng), Coverage())


@pytest.mark.parametrize("serial", [True, False], ids=["one by one", "back to back"])
@pytest.mark.parametrize("lanes", LANES)
def test_faults_are_flagged_and_what_follows_is_right(
    rng: np.random.Generator, lanes: int, serial: bool
) -> None:
    wrong = list(faults(rng, lanes=lanes, schemes=SCHEMES, lead=2))
    good = mixed_jobs(rng, lanes=lanes, count=len(wrong), lead=2)
    items = [item for pair in zip(wrong, good, strict=True) for item in pair]
    check_faults(codec_of(lanes), items, traffic_of(rng, serial=serial, go_on=True), Coverage())


def test_flipped_bits_are_flagged_exactly_when_golden_rejects_them(
    rng: np.random.Generator,
) -> None:
    check_flips(codec_of(16), rng, mixed_jobs(rng, lanes=16, count=150, lead=2))


def test_reset_in_the_middle(rng: np.random.Generator) -> None:
    jobs = mixed_jobs(rng, lanes=16, count=20, lead=2)
    for limit in rng.integers(10, 400, size=12).tolist():
        cut = dataclasses.replace(traffic_of(rng), limit_cycles=limit)
        result = codec_of(16).run([job.request for job in jobs], cut)
        assert result.outcomes[-1] is None
        check(codec_of(16), jobs, traffic_of(rng), Coverage())
