"""Decoders that are built for some t alone, against golden in bulk; commands of others."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import ERROR_CAUSES, SCHEMES, Format
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.verif.decoder.bulk import RtlCodec
from cassandra_spec.verif.decoder.faults import Fault
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, mixed_jobs
from cassandra_spec.verif.library.command import command_fields, pack_fields
from cassandra_spec.verif.library.coverage import Coverage
from cassandra_spec.verif.library.packets import region_packet
from cassandra_spec.verif.library.payloads import Payload, directed, gaussian, random_format
from cassandra_spec.verif.library.tracing import Packets, Ready, run
from tests.marks import exhaustive
from tests.verif.test_decoder_bulk import check, check_faults, traffic_of

# Each range once, and each number of lanes: the decoders of all t have the crossings of both.
CONFIGS = [
    exhaustive(DecoderConfig(lanes=16, truncated=(4, 4))),  # SMALL has one t, too
    exhaustive(DecoderConfig(lanes=32, truncated=(4, 7))),
    exhaustive(DecoderConfig(lanes=8, truncated=(2, 5))),  # the one with coded exponents, too
    DecoderConfig(lanes=16, truncated=(0, 0)),
    DecoderConfig(lanes=8, truncated=(3, 6), target_rate="full"),
    DecoderConfig(lanes=8, truncated=(1, 3), coded=True),
    DecoderConfig(lanes=16, schemes=("unary",), truncated=(7, 7)),
]
SMALL = DecoderConfig(lanes=8, schemes=("mx",), truncated=(4, 4))


def in_bulk(test: Callable[..., None]) -> Callable[..., None]:
    """Return a slow test of every configuration, whose simulator is built once."""
    each = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.module_name)
    return pytest.mark.slow(each(test))


@functools.cache
def codec_of(config: DecoderConfig) -> RtlCodec:
    return RtlCodec(config)


def jobs_for(config: DecoderConfig, rng: np.random.Generator, count: int) -> list[Job]:
    return mixed_jobs(
        rng,
        lanes=config.lanes,
        count=count,
        schemes=config.schemes,
        lead=config.lead,
        coded=config.coded,
        truncated=config.truncated,
    )


@in_bulk
def test_segments_in_any_traffic(config: DecoderConfig, rng: np.random.Generator) -> None:
    for _ in range(4):
        check(codec_of(config), jobs_for(config, rng, 40), traffic_of(rng), Coverage())


@in_bulk
def test_directed_payloads(config: DecoderConfig, rng: np.random.Generator) -> None:
    least, most = config.truncated
    for scheme, t in itertools.product(SCHEMES, sorted({least, most})):
        if config.has(scheme):
            fmt = random_format(
                rng, lanes=config.lanes, scheme=scheme, segment=256, lead=config.lead
            )
            fmt = dataclasses.replace(fmt, truncated=t)
            jobs = [job for payload in directed(rng, fmt) for job in jobs_of(payload)]
            check(codec_of(config), jobs, traffic_of(rng), Coverage())


@in_bulk
def test_another_t_is_refused_and_what_follows_is_right(
    config: DecoderConfig, rng: np.random.Generator
) -> None:
    least, most = config.truncated
    good = jobs_for(config, rng, 16)
    items: list[Fault | Job] = []
    for place, job in enumerate(good):
        t = place % 8
        items += [job] if least <= t <= most else [with_t(job, t), job]
    for serial in (True, False):
        traffic = traffic_of(rng, serial=serial, go_on=True)
        check_faults(codec_of(config), items, traffic, Coverage())


def with_t(job: Job, t: int) -> Fault:
    """Return the job, but its command says another t."""
    fields = command_fields(job.payload.format, job.request.segment, target=job.target)
    word = pack_fields({**fields, "truncated": t})
    request = dataclasses.replace(job.request, command=word)
    bin_ = "command.scheme.target" if job.target else "command.scheme.draft"  # as near as any
    return Fault(bin=bin_, cause="command", request=request)


@in_bulk
def test_the_codec_names_another_t(config: DecoderConfig, rng: np.random.Generator) -> None:
    least, most = config.truncated
    job = jobs_for(config, rng, 1)[0]
    fmt = dataclasses.replace(job.payload.format, truncated=(most + 1) % 8)
    request = dataclasses.replace(job.request, format=fmt)
    with pytest.raises(CassandraError, match=f"truncated must be from {least} to {most} for this"):
        codec_of(config).run([request])


def bytes_of(beat: Mapping[str, int]) -> bytes:
    """Return the bytes that a beat has."""
    size = beat["m_axis_values_tkeep"].bit_count()
    return beat["m_axis_values_tdata"].to_bytes(16, "little")[:size]


@pytest.mark.parametrize("t", [4, 5])
def test_the_least_decoder_refuses_and_decodes(t: int) -> None:
    """A decoder of mx and t = 4 under Amaranth's simulator drains a segment of another t."""
    rng = np.random.default_rng(7)
    fmt = Format(scheme="mx", beat=SMALL.lanes, group=32, segment=64)
    payloads = [
        Payload(
            name="weights", format=dataclasses.replace(fmt, truncated=n), values=gaussian(rng, 60)
        )
        for n in (t, 4)
    ]
    jobs = [job for payload in payloads for job in jobs_of(payload, [True])]
    segments = [job.request.segment for job in jobs]
    packets = Packets(
        command=[{"tdata": job.request.word} for job in jobs],
        speculation=[w for s in segments for w in region_packet(s.speculation.tobytes(), 8)],
        verification=[w for s in segments for w in region_packet(s.verification.tobytes(), 8)],
    )
    trace = run(DecoderTop(SMALL), [packets, Ready("m_axis_values_tready")], 200)
    beats = [cycle for cycle in trace if cycle["m_axis_values_tvalid"]]
    good = [job for job in jobs if job.payload.format.truncated == 4]
    expected = b"".join(job.expected.astype("<u2").tobytes() for job in good)
    assert b"".join(map(bytes_of, beats)) == expected
    ends = [beat["m_axis_values_tuser"] for beat in beats if beat["m_axis_values_tlast"]]
    assert ends == [t != 4, 0]
    assert trace[-1]["error"] == (t != 4) << ERROR_CAUSES.index("command")
