from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cassandra_spec.golden import Format
from cassandra_spec.golden.codec import encode
from cassandra_spec.model.packing.statistics import (
    codebook_exponents,
    entropy_bits,
    exponent_counts,
    frequent_exponents,
    mean_unary_length,
)


def values_of(exponents: list[int]) -> np.ndarray:
    return np.array([exponent << 7 | 0x8005 for exponent in exponents], np.uint16)


def test_counts_are_of_exponents_of_kept_values() -> None:
    values = values_of([1, 1, 3, 255])
    counts = exponent_counts(values, np.array([True, False, True, True]))
    assert {int(e): int(counts[e]) for e in np.flatnonzero(counts)} == {1: 1, 3: 1, 255: 1}


def test_equal_shares_of_four_exponents_are_two_bits() -> None:
    assert entropy_bits(exponent_counts(values_of([1, 2, 3, 4] * 5))) == 2.0


@pytest.mark.parametrize("exponents", [[], [7, 7, 7]])
def test_no_choice_is_no_bits(exponents: list[int]) -> None:
    assert entropy_bits(exponent_counts(values_of(exponents))) == 0.0


def test_the_unary_length_is_rank_plus_one_of_what_has_a_code() -> None:
    counts = exponent_counts(values_of([5, 5, 5, 6, 9]))
    assert mean_unary_length(counts, (5, 6)) == (3 * 1 + 1 * 2) / 4
    assert mean_unary_length(counts, ()) == 0.0


@given(
    hnp.arrays(np.uint16, st.integers(0, 300), elements=st.integers(0, 0xFFFF)),
    st.sampled_from([16, 32]),
)
def test_frequent_exponents_are_the_codebook_of_the_codec(values: np.ndarray, size: int) -> None:
    packed = encode(values, Format(codebook=size))
    assert frequent_exponents(exponent_counts(values), size) == packed.codebook


@given(st.dictionaries(st.integers(0, 255), st.integers(1, 1 << 40), max_size=40))
def test_a_codebook_is_half_of_the_frequent_and_half_of_the_heavy(found: dict[int, int]) -> None:
    counts = np.zeros(256, np.int64)
    counts[list(found)] = list(found.values())
    book = codebook_exponents(counts, 16)
    assert len(set(book)) == len(book) == min(len(found), 16)
    assert list(book) == sorted(book, key=lambda e: (-found[e], e))
    assert set(frequent_exponents(counts, 8)) <= set(book)
    left = set(found) - set(book)
    heavy = set(book) - set(frequent_exponents(counts, 8))
    assert all(found[a] * 4**a >= found[b] * 4**b for a in heavy for b in left)


def test_the_few_largest_values_have_a_code() -> None:
    exponents = [e for e in range(60, 90) for _ in range(1 << (90 - e) // 3)]
    values = values_of([*exponents, 120, 121])
    counts = exponent_counts(values)
    assert not {120, 121} & set(frequent_exponents(counts, 16))
    assert {120, 121} <= set(codebook_exponents(counts, 16))
