"""Payloads, command words and faults, held to golden."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cassandra_spec.golden import codec
from cassandra_spec.golden.errors import CassandraError, DecodeError
from cassandra_spec.golden.format import COMMAND_FIELDS, SCHEMES, Format, Scheme
from cassandra_spec.golden.packed import Packed, Segment
from cassandra_spec.verif.decoder.faults import Fault, faults, flip_bits
from cassandra_spec.verif.decoder.jobs import Job, mixed_jobs
from cassandra_spec.verif.library.command import command_word, pack_fields
from cassandra_spec.verif.library.payloads import (
    KINDS,
    directed,
    draw,
    kinds_of,
    random_format,
    sizes_of,
)


def segment_of(**fields: object) -> Segment:
    nothing = np.zeros(0, np.uint8)
    given = {"index": 0, "count": 1, "has_mask": False, "speculation": nothing}
    return Segment(**{**given, "verification": nothing, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_directed_payloads_are_what_golden_packs(
    rng: np.random.Generator, lanes: int, scheme: Scheme
) -> None:
    fmt = random_format(rng, lanes=lanes, scheme=scheme, segment=128)
    payloads = list(directed(rng, fmt))
    assert {payload.name for payload in payloads} == set(kinds_of(scheme))
    assert {len(payload.values) for payload in payloads} >= {*sizes_of(fmt), *range(1, lanes)}
    for payload in payloads:
        assert payload.values.dtype == np.uint16
        if scheme != "mx":
            assert np.array_equal(payload.target, payload.values), payload.name
        assert not payload.draft[~payload.fate].any()


def test_a_seed_replays_payloads() -> None:
    first, again = (
        [job.expected for job in mixed_jobs(np.random.default_rng(3), lanes=16, count=20)]
        for _ in range(2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_kind_must_exist(rng: np.random.Generator) -> None:
    with pytest.raises(CassandraError, match=r"kind must be one of weights, .*, not 'odd'"):
        draw(rng, Format(), 10, "odd")
    assert set(kinds_of("unary")) | set(kinds_of("mx")) | {"chunks"} == set(KINDS)


def test_a_command_word_bit_by_bit() -> None:
    fmt = Format(scheme="exact", truncated=5, fill="midpoint", group=64)
    segment = segment_of(count=0x1235, has_mask=True, verification=np.zeros(128, np.uint8))
    word = command_word(fmt, segment, target=True)
    assert word == 0x1234 | 2 << 16 | 5 << 18 | 1 << 21 | 1 << 22 | 1 << 23 | 1 << 24 | 6 << 25
    plain = command_word(Format(truncated=0, group=16), segment_of(), target=False)
    assert plain == 4 << 25
    coded = Format(truncated=0, group=16, pruned_exponent="coded")
    assert command_word(coded, segment_of(), target=False) == plain | 1 << 29


def test_fields_fill_the_word_and_must_fit() -> None:
    fields = {field.name: (1 << field.width) - 1 for field in COMMAND_FIELDS}
    assert pack_fields(fields) == (1 << sum(field.width for field in COMMAND_FIELDS)) - 1
    fields["truncated"] = 8
    with pytest.raises(CassandraError, match="field truncated must be a 3-bit number, not 8"):
        pack_fields(fields)


def alone(fault: Fault) -> Packed | None:
    """Return the segment as a tensor, if golden can be told what the ports are."""
    request, unit = fault.request, fault.request.format.superblock
    sizes = request.segment.speculation.size, request.segment.verification.size
    if request.command is not None or any(size % unit for size in sizes):
        return None
    directory = [[0, sizes[0] // unit, 0, sizes[1] // unit, int(request.segment.has_mask)]]
    return Packed(
        format=request.format,
        count=request.segment.count,
        speculation=request.segment.speculation,
        verification=request.segment.verification,
        directory=np.array(directory, np.uint32),
        codebook=request.codebook,
    )


@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_golden_rejects_faults_for_the_same_cause(rng: np.random.Generator, lanes: int) -> None:
    """Zeros in place of codes also change the length of the schedule: golden may name that."""
    also = {"code": {"short", "long"}}
    seen = set()
    for fault in faults(rng, lanes=lanes, schemes=SCHEMES):
        packed = alone(fault)
        if packed is None:
            continue
        decode = codec.decode_target if fault.request.target else codec.decode_draft
        with pytest.raises(DecodeError) as caught:
            decode(packed)
        assert caught.value.cause in {fault.cause, *also.get(fault.cause, ())}, fault.bin
        seen.add(fault.cause)
    assert seen >= {"long", "short", "code", "rank", "group", "window"}


def test_flipped_bits_are_flipped_in_a_copy(rng: np.random.Generator) -> None:
    fmt = Format(segment=256)
    job = Job(payload=draw(rng, fmt, 256, "weights"), index=0, target=True)
    before = job.request.segment
    after = flip_bits(rng, job, 1).segment
    pairs = [(before.speculation, after.speculation), (before.verification, after.verification)]
    flipped = sum(int(np.bitwise_count(a ^ b).sum()) for a, b in pairs)
    assert flipped == 1
    assert np.array_equal(dataclasses.replace(job).expected, job.payload.values)
