"""The vectorised codec against the naive oracle, byte for byte and value for value."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from cassandra_spec.golden import (
    Codec,
    Format,
    GoldenCodec,
    Packed,
    codec,
    concatenate,
    decode_draft,
    decode_draft_segment,
    decode_target,
    decode_target_segment,
    encode,
    encode_parts,
    oracle,
)
from tests.golden.cases import ALL_PATTERNS, Case, assert_same, cases


@settings(max_examples=600)
@given(case=cases())
def test_codec_and_oracle_pack_and_decode_alike(case: Case) -> None:
    packed = encode(case.values, case.format, **case.options)
    assert_same(packed, oracle.encode(case.values, case.format, **case.options))
    np.testing.assert_array_equal(decode_draft(packed), oracle.decode_draft(packed))
    np.testing.assert_array_equal(decode_target(packed), oracle.decode_target(packed))


@pytest.mark.parametrize("scheme", ["unary", "exact"])
def test_every_value_comes_back(scheme: str) -> None:
    @settings(max_examples=100)
    @given(case=cases(scheme))
    def lossless(case: Case) -> None:
        packed = encode(case.values, case.format, **case.options)
        np.testing.assert_array_equal(decode_target(packed), case.values)

    lossless()


@settings(max_examples=50)
@given(case=cases())
def test_pruned_values_draft_as_zero_and_come_back(case: Case) -> None:
    packed = encode(case.values, case.format, **case.options)
    kept = case.options.get("kept", np.ones(case.values.size, dtype=np.bool_))
    if case.format.scheme == "unary":
        kept = kept & np.isin((case.values >> 7) & 0xFF, packed.codebook)
    assert not decode_draft(packed)[~kept].any()
    finite = (case.values & 0x7F80) != 0x7F80
    intact = ~kept & (finite | (case.format.scheme != "mx"))
    np.testing.assert_array_equal(decode_target(packed)[intact], case.values[intact])


@settings(max_examples=50)
@given(case=cases())
def test_a_draft_depends_on_speculation_data_alone(case: Case) -> None:
    packed = encode(case.values, case.format, **case.options)
    noise = np.random.default_rng(0).integers(0, 256, packed.verification.size).astype(np.uint8)
    for verification in (noise, 255 - packed.verification, packed.verification[:0]):
        other = dataclasses.replace(packed, verification=verification)
        np.testing.assert_array_equal(decode_draft(other), decode_draft(packed))


@settings(max_examples=50)
@given(case=cases())
def test_a_segment_is_readable_alone(case: Case) -> None:
    packed = encode(case.values, case.format, **case.options)
    drafts = [decode_draft_segment(packed, i) for i in range(len(packed.directory))]
    targets = [decode_target_segment(packed, i) for i in range(len(packed.directory))]
    empty = np.zeros(0, dtype=np.uint16)
    np.testing.assert_array_equal(np.concatenate([empty, *drafts]), decode_draft(packed))
    np.testing.assert_array_equal(np.concatenate([empty, *targets]), decode_target(packed))


@settings(max_examples=50)
@given(case=cases())
def test_runs_of_any_length_give_the_same(case: Case) -> None:
    packed = encode(case.values, case.format, **case.options)
    draft, target = decode_draft(packed), decode_target(packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "RUN_VALUES", 2 * case.format.segment)
        patch.setattr(codec, "_SLICE", 7)
        patch.setattr("cassandra_spec.golden.arguments._SLICE", 7)
        assert_same(encode(case.values, case.format, **case.options), packed)
        np.testing.assert_array_equal(decode_draft(packed), draft)
        np.testing.assert_array_equal(decode_target(packed), target)
        parts = list(encode_parts(case.values, case.format, **case.options))
        assert len(parts) == -(-case.values.size // (2 * case.format.segment))
        if parts:
            assert_same(concatenate(parts), packed)


@settings(max_examples=50)
@given(case=cases())
def test_bits_add_up_to_what_is_stored(case: Case) -> None:
    packed = encode(case.values, case.format, **case.options)
    assert list(packed.stream_bits) == [stream.name for stream in case.format.streams]
    bits = packed.bits()
    count = max(packed.count, 1)
    stored = 8 * (packed.speculation.nbytes + packed.verification.nbytes)
    streams = sum(bits[name] for name in packed.stream_bits)
    assert (streams + bits["padding"]) * count == pytest.approx(stored)
    assert bits["padding"] >= 0
    assert bits["total"] * count == pytest.approx(stored + 8 * packed.directory.nbytes)


def test_a_whole_segment_of_the_default_size_and_one_value_more_or_less() -> None:
    values = np.resize(ALL_PATTERNS[::3], 2 * 16384 + 1)
    kept = np.random.default_rng(5).random(values.size) < 0.6
    for count in (16383, 16384, 16385):
        for format in (Format(), Format(scheme="exact"), Format(pruned_exponent="coded")):
            packed = encode(values[:count], format, kept=kept[:count])
            assert_same(packed, oracle.encode(values[:count], format, kept=kept[:count]))
            np.testing.assert_array_equal(decode_target(packed), values[:count])


@pytest.mark.parametrize("scheme", ["unary", "mx", "exact"])
def test_no_values_are_a_tensor_too(scheme: str) -> None:
    packed: Packed = encode(np.zeros(0, np.uint16), Format(scheme=scheme))  # type: ignore[arg-type]
    assert packed.directory.shape == (0, 5)
    assert packed.speculation.size == packed.verification.size == 0
    assert decode_draft(packed).size == decode_target(packed).size == 0
    assert decode_target(packed).dtype == np.uint16
    assert sum(packed.stream_bits.values()) == 0


def test_the_codec_class_decodes_like_the_functions() -> None:
    packed = encode(ALL_PATTERNS[:1000], Format(segment=512))
    golden: Codec = GoldenCodec()
    np.testing.assert_array_equal(golden.decode_draft(packed), decode_draft(packed))
    np.testing.assert_array_equal(golden.decode_target(packed), decode_target(packed))


def test_the_codebook_ranks_kept_values_by_frequency_then_size() -> None:
    exponents = np.array([5] * 3 + [9] * 3 + [2] * 4 + [7] * 9)
    kept = exponents != 7
    values = (exponents << 7).astype(np.uint16)
    packed = encode(values, Format(pruned_exponent="coded"), kept=kept)
    assert packed.codebook == (2, 5, 9)
    assert packed.pruned_codebook == (7,)
    assert packed.stream_bits["exponent"] == 4 * 1 + 3 * 2 + 3 * 3


def test_more_exponents_than_a_codebook_holds_are_pruned() -> None:
    exponents = np.repeat(np.arange(40), np.arange(40) + 1)
    values = (exponents << 7 | 1).astype(np.uint16)
    for size in (16, 32):
        packed = encode(values, Format(codebook=size))
        assert packed.codebook == tuple(range(39, 39 - size, -1))
        drafts = decode_draft(packed)
        assert ((drafts == 0) == (exponents < 40 - size)).all()
        np.testing.assert_array_equal(decode_target(packed), values)
