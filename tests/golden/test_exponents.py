"""Group exponents by the weighted error of the draft, against exact rationals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cassandra_spec.golden import (
    CassandraError,
    Format,
    choose_group_exponents,
    decode_target,
    encode,
)
from cassandra_spec.golden.format import Scheme
from tests.golden.cases import Case, cases
from tests.golden.rationals import draft, rational, unit
from tests.golden.test_shared_exponent import finite, group_of

Weights = NDArray[np.unsignedinteger]


def cut(number: Fraction, group: int) -> Fraction:
    """Return the rest of a number above a 256th of the unit."""
    grain = unit(group) / 256
    return abs(number) // grain * grain


def cost(case: Case, values: list[int], weights: list[int], group: int, default: int) -> Fraction:
    total = Fraction(0)
    for value, weight in zip(values, weights, strict=True):
        number = rational(value)
        drafted = draft(min(abs(number), 256 * unit(group)), group, case.format)
        total += weight * (drafted - cut(number, default)) ** 2
    return total


def naive(case: Case, importance: Weights) -> list[int]:
    size = case.format.group
    kept = case.options.get("kept", np.ones(case.values.size, dtype=np.bool_))
    values = finite(case.values) if case.format.scheme == "mx" else case.values
    chosen = []
    for start in range(0, values.size, size):
        span = slice(start, start + size)
        default = group_of(values[span], kept[span], case.format.scheme)
        counted = kept[span] & ((values[span] & 0x7F80) != 0x7F80)
        drafted = values[span][counted].tolist()
        floor = 1
        if case.format.scheme == "exact" and any(0 < v & 0x7FFF < 0x80 for v in drafted):
            floor = 9
        largest = max(importance[span].tolist())
        shift = max(largest.bit_length() - 22, 0)
        weights = [w >> shift for w in importance[span][counted].tolist()]
        lower = max(default - 1, floor)
        costs = [cost(case, drafted, weights, group, default) for group in (default, lower)]
        chosen.append(lower if costs[1] < costs[0] else default)
    return chosen


@pytest.mark.parametrize("scheme", ["mx", "exact"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_the_choice_is_that_of_exact_rationals(scheme: str, dtype: type[Any]) -> None:
    @settings(max_examples=25)
    @given(case=cases(scheme), seed=st.integers(0, 2**32 - 1))
    def check(case: Case, seed: int) -> None:
        rng = np.random.default_rng(seed)
        top = np.iinfo(dtype).max
        importance = rng.integers(0, top, case.values.size, dtype=dtype, endpoint=True)
        kept = case.options.get("kept")
        found = choose_group_exponents(
            case.values, case.format, kept=kept, importance=importance, nonfinite="saturate"
        )
        assert found.dtype == np.uint8
        assert found.tolist() == naive(case, importance)

    check()


def test_without_importance_all_values_weigh_the_same() -> None:
    rng = np.random.default_rng(4)
    values = ((rng.normal(size=5000)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    for scheme in ("mx", "exact"):
        format = Format(scheme=scheme, truncated=5)
        ones = np.full(values.size, 3, dtype=np.uint16)
        default = choose_group_exponents(values, format)
        np.testing.assert_array_equal(
            default, choose_group_exponents(values, format, importance=ones)
        )
        largest = np.pad((values >> 7) & 0xFF, (0, -5000 % 32)).reshape(-1, 32).max(axis=1)
        lowered = default < largest
        assert 0 < lowered.sum() < lowered.size
        assert (default == largest - lowered).all()


@pytest.mark.parametrize("scheme", ["mx", "exact"])
def test_among_equals_the_default_is_taken(scheme: Scheme) -> None:
    values = np.full(64, 0x3F80, dtype=np.uint16)  # one less saturates
    format = Format(scheme=scheme, truncated=0)
    nothing = np.zeros(64, dtype=np.uint8)
    assert choose_group_exponents(values, format, importance=nothing).tolist() == [127, 127]
    half = np.full(64, 0x3F00, dtype=np.uint16)
    half[0] = 0x3F80
    only_half = (np.arange(64) > 0).astype(np.uint8)  # which both exponents draft exactly
    assert choose_group_exponents(half, format, importance=only_half).tolist() == [127, 126]


def test_the_largest_values_and_weights_do_not_overflow() -> None:
    values = np.full(256, 0x7F7F, dtype=np.uint16)
    weights = np.full(256, 2**64 - 1, dtype=np.uint64)
    format = Format(scheme="mx", group=256, truncated=7, fill="midpoint")
    assert choose_group_exponents(values, format, importance=weights).tolist() == [254]
    weights[1:] = 0  # what little is left of the others must not turn the sum around
    assert choose_group_exponents(values, format, importance=weights).tolist() == [254]


def test_runs_of_groups_do_not_depend_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(4).integers(0, 1 << 16, 3000).astype(np.uint16)
    format = Format(scheme="exact")
    whole = choose_group_exponents(values, format)
    monkeypatch.setattr("cassandra_spec.golden.arrays.exponents._RUN_GROUPS", 7)
    np.testing.assert_array_equal(choose_group_exponents(values, format), whole)


@settings(max_examples=60)
@given(case=cases("exact"))
def test_chosen_exponents_are_legal_and_lossless(case: Case) -> None:
    kept = case.options.get("kept")
    chosen = choose_group_exponents(case.values, case.format, kept=kept)
    packed = encode(case.values, case.format, kept=kept, group_exponents=chosen)
    np.testing.assert_array_equal(decode_target(packed), case.values)


def test_bad_arguments_are_named() -> None:
    values = np.array([0x3F80, 0x7F80], dtype=np.uint16)
    with pytest.raises(CassandraError, match="format must be of scheme mx or exact, not unary"):
        choose_group_exponents(values, Format())
    with pytest.raises(CassandraError, match="importance must be a 1-D array of unsigned integers"):
        choose_group_exponents(
            values,
            Format(scheme="exact"),
            importance=np.ones(2, dtype=np.int64),
        )
    with pytest.raises(CassandraError, match=r"importance must be .* of 2 elements, not uint8"):
        choose_group_exponents(
            values, Format(scheme="exact"), importance=np.ones(3, dtype=np.uint8)
        )
    with pytest.raises(CassandraError, match="1 NaN or infinite"):
        choose_group_exponents(values, Format(scheme="mx"))
