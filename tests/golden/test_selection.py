"""The k largest of each vector, beside a naive model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError, Format, decode_target, encode, keep_largest
from cassandra_spec.golden.packed import Values


def naive(values: list[int], vector: int, keep: int) -> list[bool]:
    """Return a mask: a value is kept if fewer than ``keep`` of its vector precede it."""
    kept = []
    for place, value in enumerate(values):
        start = place // vector * vector
        rivals = enumerate(values[start : start + vector], start)
        before = sum((other & 0x7FFF, -index) > (value & 0x7FFF, -place) for index, other in rivals)
        kept.append(before < keep)
    return kept


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    values=st.lists(st.integers(0, 0xFFFF) | st.sampled_from([0, 1, 0x8001, 0x7F80]), max_size=40),
    vector=st.integers(1, 20),
    keep=st.integers(0, 24),
)
def test_the_largest_are_kept_and_the_first_among_equals(values, vector, keep):
    kept = keep_largest(np.array(values, dtype=np.uint16), vector, keep)
    assert kept.tolist() == naive(values, vector, keep)


def test_not_a_number_goes_before_infinity_and_that_before_finite_values():
    values: Values = np.array([0x7F7F, 0xFF80, 0x7F81, 0xFFFF], dtype=np.uint16)
    for keep, expected in enumerate(([], [3], [2, 3], [1, 2, 3])):
        assert np.flatnonzero(keep_largest(values, 4, keep)).tolist() == expected


@pytest.mark.parametrize(("vector", "keep"), [(0, 1), (4, -1)])
def test_bad_arguments_are_named(vector, keep):
    with pytest.raises(CassandraError, match=r"(vector|keep) must be at least [01], not"):
        keep_largest(np.zeros(4, dtype=np.uint16), vector, keep)


@pytest.mark.parametrize("scheme", ["unary", "mx", "exact"])
def test_a_mask_where_nothing_is_pruned_costs_a_bit_each_and_decodes(scheme):
    values: Values = np.full(100, 0x3F80, dtype=np.uint16)
    packed = encode(values, Format(scheme=scheme), always_mask=True)
    assert packed.stream_bits["mask"] == 100
    assert packed.directory[0, 4] == 1
    assert (decode_target(packed) == values).all()
