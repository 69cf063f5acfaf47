"""The encoder in bulk: whole tensors through the Verilated top, the bytes of golden out."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.golden.codec import decode_draft, decode_target
from cassandra_spec.golden.encoders import GoldenEncoder
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.golden.packed import Packed
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.decoder.bulk import RtlCodec
from cassandra_spec.verif.encoder.bench import Order
from cassandra_spec.verif.encoder.bulk import PORTS, Encoded, RtlEncoder, requests_of
from cassandra_spec.verif.encoder.rate import measure
from cassandra_spec.verif.encoder.testbench import CONFIGS
from cassandra_spec.verif.icarus.batches import encoder_batches
from cassandra_spec.verif.library.bulk import GatewareError, Traffic
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.payloads import bf16, finite, gaussian
from tests.marks import exhaustive

CONFIG = EncoderConfig(segment=4096)
VECTOR = 64
KEEPS = (None, 0, 1, 26, 63, 64)
Values = NDArray[np.uint16]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[16, 4])
def encoder(request: pytest.FixtureRequest) -> RtlEncoder:
    """Return encoders of a beat and of a piece in a cycle."""
    return RtlEncoder(dataclasses.replace(CONFIG, values_per_cycle=request.param))


@pytest.fixture(scope="module")
def decoder() -> RtlCodec:
    return RtlCodec()


def tensors(rng: np.random.Generator) -> dict[str, Values]:
    """Return values that a cache of keys and values may have, and others."""
    count = 3 * 4096 + 5 * VECTOR + 7
    columns = np.exp(rng.normal(scale=1.5, size=VECTOR))
    spread = rng.normal(size=(count // VECTOR + 1, VECTOR)) * columns
    return {
        "normal": gaussian(rng, count, 1.0),
        "channels": bf16(spread.astype(np.float32).reshape(-1)[:count]),
        "equal": np.full(count, 0x3F80, np.uint16),
        "zeros": np.where(rng.random(count) < 0.5, 0, 0x8000).astype(np.uint16),
        "patterns": rng.integers(1 << 16, size=count, dtype=np.uint16),
        "finite": finite(rng.integers(1 << 16, size=count, dtype=np.uint16)),
        "one": gaussian(rng, 1),
        "beat": gaussian(rng, 16),
        "part": gaussian(rng, VECTOR + 17),
    }


def same(one: Packed, other: Packed) -> bool:
    """Return all that decoders read."""
    names = ("speculation", "verification", "directory")
    fields = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    return fields and one.codebook == other.codebook and one.saturated == other.saturated


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bytes_are_those_of_golden(encoder: RtlEncoder, scheme: Scheme) -> None:
    rng = np.random.default_rng(4)
    for name, values in tensors(rng).items():
        for keep in KEEPS:
            fmt = Format(scheme=scheme, segment=4096, truncated=int(rng.integers(8)))
            ours = encoder.encode(values, fmt, vector=VECTOR, keep=keep)
            golden = GoldenEncoder().encode(values, fmt, vector=VECTOR, keep=keep)
            assert same(ours, golden), (name, keep, fmt)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_the_encoder_writes_the_decoder_reads(
    encoder: RtlEncoder, decoder: RtlCodec, scheme: Scheme
) -> None:
    rng = np.random.default_rng(5)
    values = gaussian(rng, 5000)
    for keep in (None, 26):
        packed = encoder.encode(values, Format(scheme=scheme, segment=1024), vector=64, keep=keep)
        assert np.array_equal(decoder.decode_draft(packed), decode_draft(packed))
        target = decoder.decode_target(packed)
        assert np.array_equal(target, decode_target(packed))
        assert scheme == "mx" or np.array_equal(target, values)


@pytest.mark.parametrize("pressure", ["half", "burst", "stall"])
def test_traffic_changes_nothing(encoder: RtlEncoder, pressure: str) -> None:
    """Segments of all schemes in turn, any pattern at each port in turn, then at all of them."""
    rng = np.random.default_rng(6)
    values = gaussian(rng, 3000)
    requests = [
        request
        for scheme in SCHEMES
        for keep in (None, 26)
        for request in requests_of(values, Format(scheme=scheme, segment=512), vector=64, keep=keep)
    ]
    requests = [requests[i] for i in rng.permutation(len(requests))]
    wanted = encoder.run(requests)
    for names in (*[(name,) for name in PORTS], PORTS):
        patterns = dict.fromkeys(names, PATTERNS[pressure])
        found = encoder.run(requests, Traffic(patterns=patterns, seed=7))
        assert list(map(_bytes, found)) == list(map(_bytes, wanted)), names


def _bytes(segment: Encoded) -> tuple[bytes, bytes, bool, int, tuple[str, ...]]:
    return (
        *(segment.speculation.tobytes(), segment.verification.tobytes()),
        *(segment.has_mask, segment.saturated, segment.causes),
    )


@pytest.mark.parametrize("name", ["l16_c4", "l32", *map(exhaustive, ("l8", "l16", "l32_c8"))])
def test_payloads_of_every_kind(rng: np.random.Generator, name: str) -> None:
    """Good and broken segments in all traffic, extremes of every sum; resets in the middle."""
    encoder = RtlEncoder(CONFIGS[name])
    for batch in encoder_batches(rng, CONFIGS[name]):
        if batch.traffic.limit_cycles:
            with contextlib.suppress(GatewareError):  # a segment that is cut short
                encoder.run(batch.requests, batch.traffic)
            continue
        parts = encoder.run(batch.requests, batch.traffic)
        for order, part in zip(batch.orders, parts, strict=True):
            assert as_ordered(order, part), (batch.name, order, part)


def as_ordered(order: Order, part: Encoded) -> bool:
    """Return whether causes and usable regions are those of an order."""
    segment = order.expected
    wanted = (
        (b"", b"", 0)
        if segment is None
        else (
            segment.packed.speculation.tobytes(),
            segment.packed.verification.tobytes(),
            segment.replaced(),
        )
    )
    given = (part.speculation.tobytes(), part.verification.tobytes(), part.saturated)
    return set(part.causes) == order.causes and (order.useless or given == wanted)


def test_infinities_are_saturated_and_counted(encoder: RtlEncoder) -> None:
    values = gaussian(np.random.default_rng(8), 640)
    values[[3, 100, 639]] = 0x7F80, 0xFFC1, 0xFF80
    packed = encoder.encode(values, Format(scheme="mx", segment=512), vector=64, keep=26)
    assert packed.saturated == 3


def test_formats_of_other_encoders_are_refused(encoder: RtlEncoder) -> None:
    fmt = Format(scheme="mx")
    values = np.zeros(8192, np.uint16)
    for other, what in (
        (dataclasses.replace(fmt, beat=8), "beat must be 16 for this encoder, not 8"),
        (dataclasses.replace(fmt, lead=2), "lead must be 1 for this encoder, not 2"),
        (fmt, "segment must be at most 4096 for this encoder, not 8192"),
        (dataclasses.replace(fmt, group=256), "group must be at most 128 for this encoder"),
    ):
        with pytest.raises(CassandraError, match=what):
            encoder.encode(values, other, vector=64)
    with pytest.raises(CassandraError, match="vector must be at most 128 for this encoder"):
        encoder.encode(values[:64], fmt, vector=256)


def test_rates(encoder: RtlEncoder) -> None:
    """Cycles for a vector of 64 values: without pruning, and with the largest chosen.

    In pieces nothing but the search holds values up, and that has a pass more.
    """
    pace = encoder.config.pace
    piecewise = pace < encoder.config.lanes
    limits: tuple[tuple[Scheme, float], ...]
    limits = (("mx", 4.2), ("exact", 5.0), ("unary", 6.0))
    for scheme, most in limits:
        assert measure(encoder, scheme, None, 4096) <= (VECTOR / pace + 0.2 if piecewise else most)
        assert measure(encoder, scheme, 26, 4096) <= (5 * VECTOR / pace + 1 if piecewise else 20)


def test_nothing_is_encoded_to_nothing(encoder: RtlEncoder) -> None:
    packed = encoder.encode(np.zeros(0, np.uint16), Format(scheme="mx"), vector=64)
    assert len(packed) == packed.speculation.size == len(packed.directory) == 0
