"""Decoders that are built for some t alone, against golden in bulk; commands of others."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import ERROR_CAUSES, SCHEMES, Format
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.verif.decoder.faults import Fault
from cassandra_spec.verif.decoder.jobs import Job, jobs_of
from cassandra_spec.verif.library.command import command_fields, pack_fields
from cassandra_spec.verif.library.packets import region_packet
from cassandra_spec.verif.library.payloads import Payload, directed, gaussian
from cassandra_spec.verif.library.tracing import Packets, Ready, Traced
from tests.verif.test_decoder_bulk import (
    EXHAUSTIVE,
    FULL,
    SLOW,
    Subject,
    check,
    check_faults,
    subject,
    traffic_of,
)

# Each range once, and each number of lanes: the decoders of all t have the crossings of both.
SUBJECTS = (
    subject("16_t4", FULL, EXHAUSTIVE, lanes=16, truncated=(4, 4)),  # SMALL has one t, too
    subject("32_t4_7", FULL, EXHAUSTIVE, lanes=32, truncated=(4, 7)),
    subject("8_t2_5", FULL, EXHAUSTIVE, lanes=8, truncated=(2, 5)),  # coded ones have some, too
    subject("16_t0", FULL, SLOW, lanes=16, truncated=(0, 0)),
    subject("8_full_t3_6", FULL, SLOW, lanes=8, truncated=(3, 6), target_rate="full"),
    subject("8_coded_t1_3", FULL, SLOW, lanes=8, truncated=(1, 3), coded=True),
    subject("16_unary_t7", FULL, SLOW, lanes=16, schemes=("unary",), truncated=(7, 7)),
)
in_bulk = pytest.mark.parametrize("subject", SUBJECTS)
SMALL = DecoderConfig(lanes=8, schemes=("mx",), truncated=(4, 4))


@in_bulk
def test_segments_in_any_traffic(subject: Subject, rng: np.random.Generator) -> None:
    for _ in range(4):
        check(subject.rtl, subject.jobs(rng, 40), traffic_of(rng), subject.coverage)


@in_bulk
def test_directed_payloads(subject: Subject, rng: np.random.Generator) -> None:
    least, most = subject.config.truncated
    for scheme, t in itertools.product(SCHEMES, sorted({least, most})):
        if subject.config.has(scheme):
            fmt = subject.format(rng, scheme, truncated=t)
            jobs = [job for payload in directed(rng, fmt) for job in jobs_of(payload)]
            check(subject.rtl, jobs, traffic_of(rng), subject.coverage)


@in_bulk
def test_another_t_is_refused_and_what_follows_is_right(
    subject: Subject, rng: np.random.Generator
) -> None:
    least, most = subject.config.truncated
    good = subject.jobs(rng, 16)
    items: list[Fault | Job] = []
    for place, job in enumerate(good):
        t = place % 8
        items += [job] if least <= t <= most else [with_t(job, t), job]
    for serial in (True, False):
        traffic = traffic_of(rng, serial=serial, go_on=True)
        check_faults(subject.rtl, items, traffic, subject.coverage)


def with_t(job: Job, t: int) -> Fault:
    """Return the job, but its command says another t."""
    fields = command_fields(job.payload.format, job.request.segment, target=job.target)
    word = pack_fields({**fields, "truncated": t})
    request = dataclasses.replace(job.request, command=word)
    bin_ = "command.scheme.target" if job.target else "command.scheme.draft"  # as near as any
    return Fault(bin=bin_, cause="command", request=request)


@in_bulk
def test_the_codec_names_another_t(subject: Subject, rng: np.random.Generator) -> None:
    least, most = subject.config.truncated
    job = subject.jobs(rng, 1)[0]
    fmt = dataclasses.replace(job.payload.format, truncated=(most + 1) % 8)
    request = dataclasses.replace(job.request, format=fmt)
    with pytest.raises(CassandraError, match=f"truncated must be from {least} to {most} for this"):
        subject.rtl.run([request])


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
    trace = Traced(DecoderTop(SMALL)).run([packets, Ready("m_axis_values_tready")], 200)
    beats = [cycle for cycle in trace if cycle["m_axis_values_tvalid"]]
    good = [job for job in jobs if job.payload.format.truncated == 4]
    expected = b"".join(job.expected.astype("<u2").tobytes() for job in good)
    assert b"".join(map(bytes_of, beats)) == expected
    ends = [beat["m_axis_values_tuser"] for beat in beats if beat["m_axis_values_tlast"]]
    assert ends == [t != 4, 0]
    assert trace[-1]["error"] == (t != 4) << ERROR_CAUSES.index("command")
