"""The native codec against golden: bytes, values and errors, on every instruction set."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cassandra_spec import golden, native
from cassandra_spec.golden import CassandraError, DecodeError, Format, Packed
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.library import available_isas
from tests.golden.cases import ALL_PATTERNS, FINITE, Case, assert_same, cases
from tests.golden.test_broken_data import DAMAGES, broken_of_each_cause, outcome

Octets = NDArray[np.uint8]


@pytest.fixture(scope="module", autouse=True)
def restored() -> Iterator[None]:
    yield
    native.set_isa(None)


def isas() -> Iterator[str]:
    for name in available_isas():
        native.set_isa(name)
        yield name


def assert_equal_outcome(packed: Packed) -> None:
    """Require equal values, or the same error to the letter."""
    codec = NativeCodec()
    expected = {}
    for name in ("decode_draft", "decode_target"):
        expected[name] = outcome(getattr(golden, name), packed)
    for _ in isas():
        for name, wanted in expected.items():
            assert outcome(getattr(codec, name), packed) == wanted
            if wanted[0] == "error":
                with pytest.raises(DecodeError) as ours:
                    getattr(codec, name)(packed)
                with pytest.raises(DecodeError) as goldens:
                    getattr(golden, name)(packed)
                assert str(ours.value) == str(goldens.value)


def assert_equal_coding(values: NDArray[np.uint16], format: Format, **options: Any) -> Packed:
    packed = golden.encode(values, format, **options)
    for _ in isas():
        assert_same(NativeCodec().encode(values, format, **options), packed)
    assert_equal_outcome(packed)
    return packed


@settings(max_examples=250, derandomize=True)
@given(case=cases())
def test_bytes_and_values_are_goldens(case: Case) -> None:
    assert_equal_coding(case.values, case.format, **case.options)


@settings(max_examples=250, derandomize=True)
@given(
    case=cases(),
    region=st.sampled_from(["speculation", "verification"]),
    damage=st.sampled_from(DAMAGES),
    seed=st.integers(0, 2**32 - 1),
)
def test_damaged_regions_are_judged_as_by_golden(
    case: Case, region: str, damage: Callable[[Octets, np.random.Generator], Octets], seed: int
) -> None:
    packed = golden.encode(case.values, case.format, **case.options)
    broken: dict[str, Any] = {region: damage(getattr(packed, region), np.random.default_rng(seed))}
    assert_equal_outcome(dataclasses.replace(packed, **broken))


@settings(max_examples=100, derandomize=True)
@given(case=cases(), seed=st.integers(0, 2**32 - 1))
def test_damaged_directories_are_judged_as_by_golden(case: Case, seed: int) -> None:
    packed = golden.encode(case.values, case.format, **case.options)
    rng = np.random.default_rng(seed)
    directory = packed.directory.copy()
    if directory.size:
        entry = int(rng.integers(0, directory.size))
        directory.reshape(-1)[entry] ^= 1 << int(rng.integers(0, 32 if rng.random() < 0.5 else 2))
    assert_equal_outcome(dataclasses.replace(packed, directory=directory))


@settings(max_examples=100, derandomize=True)
@given(case=cases("unary"), seed=st.integers(0, 2**32 - 1))
def test_shorter_codebooks_are_judged_as_by_golden(case: Case, seed: int) -> None:
    packed = golden.encode(case.values, case.format, **case.options)
    rng = np.random.default_rng(seed)
    books: dict[str, Any] = {
        "codebook": packed.codebook[: rng.integers(0, len(packed.codebook) + 1)],
        "pruned_codebook": packed.pruned_codebook[: rng.integers(0, 16)],
    }
    assert_equal_outcome(dataclasses.replace(packed, **books))


@pytest.mark.parametrize("name", broken_of_each_cause())
def test_native_code_names_each_cause_itself(
    name: str, every_isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = broken_of_each_cause()[name]
    fine = np.zeros(packed.count, dtype=np.uint16)
    # whatever golden would say
    monkeypatch.setattr("cassandra_spec.golden.codec.decode_target_segment", lambda *_: fine)
    with pytest.raises(DecodeError, match="only native code") as raised:
        NativeCodec().decode_target(packed)
    assert (raised.value.cause, raised.value.segment) == (name.split()[0], 0)


@pytest.mark.parametrize("scheme", ["mx", "exact"])
@pytest.mark.parametrize("dtype", [None, np.uint8, np.uint32, np.uint64])
def test_group_exponents_are_chosen_as_by_golden(scheme: str, dtype: Any) -> None:
    @settings(max_examples=40, derandomize=True)
    @given(case=cases(scheme), seed=st.integers(0, 2**32 - 1))
    def check(case: Case, seed: int) -> None:
        options: dict[str, Any] = {"kept": case.options.get("kept"), "nonfinite": "saturate"}
        if dtype is not None:
            top, size = np.iinfo(dtype).max, case.values.size
            rng = np.random.default_rng(seed)
            options["importance"] = rng.integers(0, top, size, dtype=dtype, endpoint=True)
        expected = golden.choose_group_exponents(case.values, case.format, **options)
        for _ in isas():
            found = NativeCodec().choose_group_exponents(case.values, case.format, **options)
            np.testing.assert_array_equal(found, expected)

    check()


def test_group_exponents_of_many_groups(every_isa: str) -> None:
    rng = np.random.default_rng(5)
    values = (rng.normal(size=40_000).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    values[::7] = rng.permutation(ALL_PATTERNS)[: values[::7].size]
    kept = rng.random(values.size) < 0.8
    for group in (16, 32, 64, 256):
        format = Format(scheme="exact", group=group, segment=8192, fill="midpoint")
        expected = golden.choose_group_exponents(values, format, kept=kept)
        found = NativeCodec().choose_group_exponents(values, format, kept=kept)
        np.testing.assert_array_equal(found, expected)


PATTERNS: dict[str, NDArray[np.uint16]] = {
    "unary": ALL_PATTERNS,
    "exact": ALL_PATTERNS,
    "mx": FINITE,
}


@pytest.mark.parametrize("scheme", PATTERNS)
@pytest.mark.parametrize("truncated", range(8))
@pytest.mark.parametrize("share", [None, 0.7])
def test_every_pattern_in_larger_segments(scheme: Any, truncated: int, share: float | None) -> None:
    rng = np.random.default_rng(truncated)
    values = rng.permutation(PATTERNS[scheme])[:20_000]
    weights = rng.normal(scale=0.03, size=20_001).astype(np.float32).view(np.uint32) >> 16
    kept = None if share is None else rng.random(40_001) < share
    both = np.concatenate([weights.astype(np.uint16), values])
    fill: Any = "midpoint" if truncated % 2 else "zero"
    for significand in {8, max(8 - truncated, 2)} if scheme == "mx" else {8}:
        format = Format(scheme=scheme, truncated=truncated, significand=significand, fill=fill)
        assert_equal_coding(both, format, kept=kept)


@pytest.mark.parametrize("beat", [8, 16, 32])
@pytest.mark.parametrize("scheme", PATTERNS)
def test_weights_of_any_shape(scheme: Any, beat: Any) -> None:
    rng = np.random.default_rng(beat)
    values = (rng.normal(size=36_000).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    for group in (beat, 256):
        for pruned in ("raw", "coded") if scheme == "unary" else ("raw",):
            format = Format(
                scheme=scheme, beat=beat, group=group, segment=32_768, pruned_exponent=pruned
            )
            kept = rng.random(values.size) < 0.6
            assert_equal_coding(values, format, kept=kept)
            assert_equal_coding(values, format)


@pytest.mark.parametrize("scheme", PATTERNS)
@pytest.mark.parametrize("share", [None, 0.6, 0.0])
def test_short_ways_are_goldens(scheme: Any, share: float | None) -> None:
    """Whole segments of beats of 16, which AVX-512 decodes in a way of its own."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truncated = (4, 1, 7, 5, 3, 0, 6, 2)[seed % 8]
        format = Format(
            scheme=scheme,
            truncated=truncated,
            significand=7 if scheme == "mx" and seed % 2 and truncated else 8,
            fill="midpoint" if seed % 2 else "zero",
            group=(32, 64, 16, 128)[seed % 4],
            segment=(1024, 384, 128)[seed % 3] if seed % 4 < 3 else 768,
            window=1 + seed % 4,
            lead=1 if seed % 3 else 1 + seed % 4,
            pruned_exponent="coded" if scheme == "unary" and seed // 2 % 2 else "raw",
        )
        values = rng.normal(scale=0.03, size=3 * format.segment).astype(np.float32)
        patterns = (values.view(np.uint32) >> 16).astype(np.uint16)
        rare = rng.random(patterns.size) < (0.0, 0.002, 0.2)[seed % 3]
        patterns[rare] = rng.choice(PATTERNS[scheme], int(rare.sum()))
        patterns[rng.random(patterns.size) < (0.05, 0.0, 0.0005)[seed % 3]] &= 0x8000
        kept = None if share is None else rng.random(patterns.size) < share
        packed = assert_equal_coding(patterns, format, kept=kept)
        for region in ("speculation", "verification"):
            octets = getattr(packed, region).copy()
            if octets.size:
                octets[rng.integers(0, octets.size)] ^= 1 << int(rng.integers(0, 8))
            assert_equal_outcome(dataclasses.replace(packed, **{region: octets}))


@pytest.mark.parametrize("share", [None, 0.6])
def test_runs_of_zeros_anywhere_are_judged_as_by_golden(share: float | None) -> None:
    """Codes that are too long, those after the last one that is used among them."""
    rng = np.random.default_rng(3)
    values = (rng.normal(size=128).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    kept = None if share is None else rng.random(values.size) < share
    packed = golden.encode(values, Format(scheme="unary", segment=128, window=4), kept=kept)
    for start in range(packed.speculation.size - 4):
        octets = packed.speculation.copy()
        octets[start : start + 4] = 0
        assert_equal_outcome(dataclasses.replace(packed, speculation=octets))


@pytest.mark.parametrize("scheme", PATTERNS)
@pytest.mark.parametrize("share", [None, 0.6])
def test_small_groups_and_long_regions_are_judged_as_by_golden(
    scheme: Any, share: float | None
) -> None:
    rng = np.random.default_rng(4)
    values = (rng.normal(size=128).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    kept = None if share is None else rng.random(values.size) < share
    packed = golden.encode(values, Format(scheme=scheme, segment=128), kept=kept)
    for exponent in (0, 1, 3, 7, 8, 9, 254, 255) if scheme != "unary" else ():
        octets = packed.speculation.copy()
        first = 0 if share is None else 4  # after the masks of two beats
        octets[first : first + 2] = exponent
        assert_equal_outcome(dataclasses.replace(packed, speculation=octets))
    for region, column in (("speculation", 1), ("verification", 3)):
        directory = packed.directory.copy()
        directory[0, column] += 1
        longer = np.append(getattr(packed, region), np.zeros(packed.format.superblock, np.uint8))
        broken: dict[str, Any] = {region: longer, "directory": directory}
        assert_equal_outcome(dataclasses.replace(packed, **broken))


def test_parts_are_goldens(every_isa: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0x3F00, 0x4000, (1 << 21) + 100_000).astype(np.uint16)
    kept = rng.random(values.size) < 0.9
    ours = list(NativeCodec().encode_parts(values, Format(scheme="exact"), kept=kept))
    goldens = list(golden.encode_parts(values, Format(scheme="exact"), kept=kept))
    assert len(ours) == len(goldens) == 2
    for one, other in zip(ours, goldens, strict=True):
        assert_same(one, other)
    whole = NativeCodec().encode(values, Format(scheme="exact"), kept=kept)
    assert_same(whole, golden.concatenate(goldens))
    np.testing.assert_array_equal(NativeCodec().decode_target(whole), values)


def test_single_segments_are_goldens(every_isa: str) -> None:
    values = np.random.default_rng(0).integers(0x3F00, 0x4000, 1000).astype(np.uint16)
    packed = golden.encode(values, Format(scheme="exact", segment=256))
    codec = NativeCodec()
    for index in range(4):
        wanted = golden.decode_target_segment(packed, index)
        np.testing.assert_array_equal(codec.decode_target_segment(packed, index), wanted)
        wanted = golden.decode_draft_segment(packed, index)
        np.testing.assert_array_equal(codec.decode_draft_segment(packed, index), wanted)
    with pytest.raises(CassandraError, match=r"index must be less than 4 .*, not 4"):
        codec.decode_draft_segment(packed, 4)


def test_arguments_are_refused_as_by_golden() -> None:
    codec = NativeCodec()
    values = np.array([0x7F80], dtype=np.uint16)
    for options in ({"kept": [True]}, {"codebook": (1, 1)}, {"group_exponents": 3}, {}):
        with pytest.raises(CassandraError) as goldens:
            golden.encode(values, Format(scheme="mx"), **options)
        with pytest.raises(CassandraError) as ours:
            codec.encode(values, Format(scheme="mx"), **options)
        assert str(ours.value) == str(goldens.value)
