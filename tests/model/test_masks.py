from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.packing.masks import (
    importance,
    kept_by_magnitude,
    kept_by_wanda,
    kept_in_fours,
)
from tests.golden.rationals import rational


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


NORMS = st.one_of(st.sampled_from([0.0, 1.0, 1.5, 2.0**-149, 3.4e38]), st.floats(0, 1e6, width=32))
PATTERNS = st.one_of(
    st.integers(0, 0xFFFF), st.sampled_from([0, 0x8000, 1, 0x7F80, 0xFFC1, 0x3F80, 0xBFC0])
)


@st.composite
def layers(draw: st.DrawFn, multiple: int = 1) -> tuple[np.ndarray, np.ndarray]:
    columns = multiple * draw(st.integers(1, 6))
    rows = draw(hnp.arrays(np.uint16, (draw(st.integers(1, 4)), columns), elements=PATTERNS))
    norms = draw(hnp.arrays(np.float32, columns, elements=NORMS))
    return rows, norms


def score(pattern: int, norm: float) -> Fraction | float:
    if pattern & 0x7F80 == 0x7F80:
        return math.inf
    return abs(rational(pattern)) * Fraction(float(norm))


def largest(row: list[int], norms: list[float], keep: int) -> list[bool]:
    scores = [score(pattern, norm) for pattern, norm in zip(row, norms, strict=True)]
    order = sorted(range(len(row)), key=lambda place: (-scores[place], place))
    return [place in order[:keep] for place in range(len(row))]


@given(layer=layers(), prune=st.floats(0, 1, exclude_max=True))
def test_wanda_is_a_stable_sort_of_exact_products(
    layer: tuple[np.ndarray, np.ndarray], prune: float
) -> None:
    rows, norms = layer
    keep = rows.shape[1] - round(prune * rows.shape[1])
    expected = [largest(row, norms.tolist(), keep) for row in rows.tolist()]
    assert kept_by_wanda(rows, norms, prune).tolist() == expected


def test_wanda_with_equal_norms_is_magnitude() -> None:
    rows = np.random.default_rng(2).integers(0, 0x7F80, (7, 96)).astype(np.uint16)
    by_wanda = kept_by_wanda(rows, np.full(96, 2.5, np.float32), 0.4)
    np.testing.assert_array_equal(by_wanda, kept_by_magnitude(rows, 0.4))


def test_a_small_weight_of_a_large_channel_is_kept() -> None:
    rows = np.array([[0x3F80, 0x3F00, 0x3E80, 0x4000]], np.uint16)  # 1, 0.5, 0.25, 2
    norms = np.array([1, 1, 100, 0.1], np.float32)
    assert kept_by_wanda(rows, norms, 0.5).tolist() == [[True, False, True, False]]


@given(layer=layers(multiple=4))
def test_two_of_every_four(layer: tuple[np.ndarray, np.ndarray]) -> None:
    rows, norms = layer
    places = range(0, rows.shape[1], 4)
    expected = [
        [kept for i in places for kept in largest(row[i : i + 4], norms.tolist()[i : i + 4], 2)]
        for row in rows.tolist()
    ]
    assert kept_in_fours(rows, norms).tolist() == expected


def test_fours_that_do_not_come_out() -> None:
    with pytest.raises(CassandraError, match="rows must have a multiple of 4 columns, not 6"):
        kept_in_fours(np.zeros((1, 6), np.uint16), np.ones(6, np.float32))


@given(norms=hnp.arrays(np.float32, st.integers(1, 8), elements=NORMS))
def test_importance_is_the_square_in_units_of_a_power_of_two(norms: np.ndarray) -> None:
    found = importance(norms).tolist()
    squares = [Fraction(float(norm)) ** 2 for norm in norms]
    if not any(squares):
        assert found == [0] * len(found)
        return
    place = found.index(max(found))
    assert 1 << 62 <= found[place] < 1 << 63
    unit = Fraction(1)
    while squares[place] // unit != found[place]:
        unit = unit * 2 if squares[place] // unit > found[place] else unit / 2
    assert found == [square // unit for square in squares]
