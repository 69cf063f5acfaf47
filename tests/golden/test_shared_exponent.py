"""Rounding, saturation and subnormals of mx and exact, in exact rationals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError, Format, decode_draft, decode_target, encode
from tests.golden.cases import FINITE, Case, cases
from tests.golden.rationals import draft, magnitude, rational, unit


def group_of(values: NDArray[np.uint16], kept: NDArray[np.bool_], scheme: str) -> int:
    """Return the default group exponent: the least whose magnitudes are all below 256."""
    chosen = [rational(int(v)) for v in values[kept] if (v & 0x7F80) != 0x7F80]
    subnormal = any(0 < abs(number) < Fraction(2) ** -126 for number in chosen)
    group = 9 if subnormal and scheme == "exact" else 1
    while any(abs(number) >= 256 * unit(group) for number in chosen):
        group += 1
    return group


def groups_of(case: Case) -> list[int]:
    """Return the group exponent of every value."""
    size = case.format.group
    kept = case.options.get("kept", np.ones(case.values.size, dtype=np.bool_))
    chosen = case.options.get("group_exponents")
    values = finite(case.values) if case.format.scheme == "mx" else case.values
    groups: list[int] = []
    for start in range(0, values.size, size):
        part, mask = values[start : start + size], kept[start : start + size]
        default = group_of(part, mask, case.format.scheme)
        groups += [default if chosen is None else int(chosen[start // size])] * part.size
    return groups


def finite(values: NDArray[np.uint16]) -> NDArray[np.uint16]:
    bad = (values & 0x7F80) == 0x7F80
    return np.where(bad, values & 0x8000 | 0x7F7F, values).astype(np.uint16)


def is_negative(pattern: int) -> bool:
    return bool(pattern >> 15)


@settings(max_examples=60)
@given(case=cases("mx"))
def test_an_mx_target_is_the_nearest_multiple_of_its_unit_or_saturated(case: Case) -> None:
    targets = decode_target(encode(case.values, case.format, **case.options))
    kept = case.options.get("kept", np.ones(case.values.size, dtype=np.bool_))
    for value, target, group, flag in zip(
        finite(case.values).tolist(), targets.tolist(), groups_of(case), kept, strict=True
    ):
        number = rational(value)
        if not flag:
            assert target == value
            continue
        assert is_negative(target) == is_negative(value)
        units = magnitude(number, group, case.format)
        assert abs(rational(target)) == units * unit(group)
        step = 2 ** (8 - case.format.significand)
        if "group_exponents" not in case.options and units < 256 - step:
            assert abs(rational(target) - number) <= step * unit(group) / 2


@pytest.mark.parametrize("scheme", ["mx", "exact"])
def test_a_draft_is_the_truncated_magnitude_with_its_fill(scheme: str) -> None:
    @settings(max_examples=60)
    @given(case=cases(scheme))
    def check(case: Case) -> None:
        drafts = decode_draft(encode(case.values, case.format, **case.options))
        kept = case.options.get("kept", np.ones(case.values.size, dtype=np.bool_))
        for value, found, group, flag in zip(
            finite(case.values).tolist(), drafts.tolist(), groups_of(case), kept, strict=True
        ):
            if not flag:
                assert found == 0
            elif group < 255:
                assert is_negative(found) == is_negative(value)
                expected = draft(rational(value), group, case.format)
                if group_saturates(value, group):
                    expected = draft(256 * unit(group), group, case.format)
                assert abs(rational(found)) == expected

    check()


def group_saturates(value: int, group: int) -> bool:
    return abs(rational(value)) >= 256 * unit(group)


def test_mx_leaves_a_value_alone_that_is_a_multiple_of_its_unit() -> None:
    """A group of values of one exponent is therefore exact, as is a group that is packed again."""
    format = Format(scheme="mx", segment=4096)
    for row in FINITE.reshape(-1, 128)[::21]:  # values of one sign and exponent
        np.testing.assert_array_equal(decode_target(encode(row.copy(), format)), row)
    once = decode_target(encode(np.random.default_rng(0).permutation(FINITE), format))
    np.testing.assert_array_equal(decode_target(encode(once, format)), once)


@pytest.mark.parametrize("significand", [7, 5, 3])
@pytest.mark.parametrize("group", [1, 9, 127, 254])
def test_a_narrow_significand_is_a_signed_integer_with_a_shared_scale(
    significand: int, group: int
) -> None:
    """With 7 bits OCP MXINT8: round(v / 2^(E - 127) * 2^6), at most 127, for every finite value."""
    scale, largest = 2.0 ** (group - 126 - significand), 2**significand - 1
    numbers = (FINITE.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    integers = np.clip(np.rint(numbers / scale), -largest, largest)
    format = Format(scheme="mx", significand=significand, truncated=6)
    groups = np.full(FINITE.size // format.group, group, dtype=np.uint8)
    packed = encode(FINITE, format, group_exponents=groups)
    found = (decode_target(packed).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, integers * scale)
    assert (packed.bits()["sign_high"], packed.bits()["low"]) == (3, significand - 2)
    high = np.trunc(np.abs(integers) / 2 ** (significand - 2)) * 2 ** (significand - 2)
    draft = (decode_draft(packed).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(np.abs(draft), high * scale)


def test_a_narrow_target_packed_with_all_bits_stays_the_same() -> None:
    """A reader of whole significands can therefore read it."""
    narrow = Format(scheme="mx", significand=7, segment=4096)
    once = encode(np.random.default_rng(0).permutation(FINITE), narrow)
    again = encode(decode_target(once), Format(scheme="mx", segment=4096))
    np.testing.assert_array_equal(decode_target(again), decode_target(once))
    assert again.speculation.tobytes() == once.speculation.tobytes()


def test_mx_results_can_be_subnormal() -> None:
    values = np.array([0x0500, 0x0101, 0x0081, 0x0043, 0x8001] + [0] * 27, dtype=np.uint16)
    # E = 10: a unit is 512 of the least subnormals, and the second value 258 of them.
    assert unit(10) == 512 * rational(1)
    targets = decode_target(encode(values, Format(scheme="mx")))
    assert targets[:5].tolist() == [0x0500, 0x0180, 0, 0, 0x8000]
    # E = 3: a unit is 4 of them, and 64.5 units are rounded to 64.
    values[0] = 0x0180
    targets = decode_target(encode(values, Format(scheme="mx")))
    assert targets[:5].tolist() == [0x0180, 0x0100, 0x0080, 0x0044, 0x8000]


@pytest.mark.parametrize("scheme", ["mx", "exact"])
def test_a_group_of_zeros_keeps_their_signs(scheme: str) -> None:
    values = np.array([0, 0x8000] * 40, dtype=np.uint16)
    packed = encode(values, Format(scheme=scheme))  # type: ignore[arg-type]
    np.testing.assert_array_equal(decode_target(packed), values)
    np.testing.assert_array_equal(decode_draft(packed), values)
    filled = encode(values, Format(scheme=scheme, fill="midpoint"))  # type: ignore[arg-type]
    np.testing.assert_array_equal(decode_draft(filled), values | 8)  # 8 units of E = 1
    np.testing.assert_array_equal(decode_target(filled), values)


def test_an_exponent_below_the_largest_saturates() -> None:
    values = np.full(32, 0x3F80, dtype=np.uint16)  # 1.0
    values[0] = 0xC080  # -4.0
    low = np.array([127], dtype=np.uint8)
    mx = encode(values, Format(scheme="mx"), group_exponents=low)
    assert decode_target(mx).tolist() == [0xBFFF] + [0x3F80] * 31
    exact = encode(values, Format(scheme="exact"), group_exponents=low)
    assert decode_draft(exact).tolist() == [0xBFF0] + [0x3F80] * 31
    np.testing.assert_array_equal(decode_target(exact), values)
    assert exact.stream_bits["pruned"] == 16


@pytest.mark.parametrize("bad", [0x7F80, 0xFF80, 0x7FC0, 0xFF81])
@pytest.mark.parametrize("pruned", [False, True])
def test_mx_refuses_or_replaces_values_that_are_not_finite(bad: int, pruned: bool) -> None:
    values = np.full(40, 0x4000, dtype=np.uint16)
    values[[7, 33]] = bad
    options: dict[str, Any] = {"kept": np.arange(40) != 7} if pruned else {}
    with pytest.raises(CassandraError, match=r"2 NaN or infinite \(first 0x[0-9a-f]{4} at index 7"):
        encode(values, Format(scheme="mx"), **options)
    packed = encode(values, Format(scheme="mx"), nonfinite="saturate", **options)
    assert packed.saturated == 2
    assert set(decode_target(packed)[[7, 33]].tolist()) == {bad & 0x8000 | 0x7F7F}
    assert values[7] == bad
    assert encode(values[:7], Format(scheme="mx")).saturated == 0


def test_exact_escapes_what_its_window_cannot_hold() -> None:
    values = np.array([0x3F80, 0x3B80, 0x3B7F, 0x7FC1, 0x8000, 0x3FFF], dtype=np.uint16)
    packed = encode(values, Format(scheme="exact", truncated=0))
    np.testing.assert_array_equal(decode_target(packed), values)
    # 1.0, zero and 2^-8 (d = 8: an empty window); NaN and 1.99 have saturated windows
    assert packed.stream_bits["pruned"] == 4 * 16
    assert packed.stream_bits["residue"] == 0 + 1 + 1 + 0 + 1 + 0
