from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from golden import CassandraError
from model.masks import kept_by_magnitude


def naive(row: list[int], keep: int) -> list[bool]:
    order = sorted(range(len(row)), key=lambda place: (-(row[place] & 0x7FFF), place))
    chosen = set(order[:keep])
    return [place in chosen for place in range(len(row))]


@given(
    rows=hnp.arrays(
        np.uint16,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=20),
        elements=st.one_of(
            st.integers(0, 0xFFFF), st.sampled_from([0, 0x8000, 1, 0x7F80, 0xFFC1, 0x3F80])
        ),
    ),
    prune=st.floats(0, 1, exclude_max=True),
)
def test_the_mask_is_that_of_a_stable_sort_of_each_row(rows: np.ndarray, prune: float) -> None:
    columns = rows.shape[1]
    expected = [naive(row, columns - round(prune * columns)) for row in rows.tolist()]
    assert kept_by_magnitude(rows, prune).tolist() == expected


def test_a_row_of_equal_values_keeps_the_first() -> None:
    rows = np.full((2, 10), 0x3F80, np.uint16)
    assert kept_by_magnitude(rows, 0.4).tolist() == [[True] * 6 + [False] * 4] * 2


@pytest.mark.parametrize("prune", [-0.1, 1.0, 1.5, math.nan, math.inf])
def test_a_fraction_out_of_range_is_refused(prune: float) -> None:
    with pytest.raises(CassandraError, match="prune must be a fraction from 0 to below 1, not"):
        kept_by_magnitude(np.zeros((1, 4), np.uint16), prune)
