"""Equal replies: the first difference, and the verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.bench.equal import first_difference, report

REPLIES = st.lists(st.integers(0, 2), max_size=6)


@given(REPLIES, REPLIES)
def test_the_first_difference_is_that_of_a_naive_search(one: list[int], other: list[int]) -> None:
    padded = [[*each, *[-1] * (7 - len(each))] for each in (one, other)]
    naive = [place for place, pair in enumerate(zip(*padded, strict=True)) if len(set(pair)) > 1]
    assert first_difference(one, other) == (naive[0] if naive else None)


@pytest.mark.parametrize(
    ("differing", "compared", "whole", "line", "code"),
    [
        (0, None, True, "PASS: 0 replies differ from the plain ones", 0),
        (0, None, False, "PASS: 0 replies differ from the plain ones", 130),
        (2, None, False, "FAIL: 2 replies differ from the plain ones", 1),
        (1, 4, True, "FAIL: 1 of 4 replies differ", 1),
    ],
)
def test_a_verdict_has_a_line_and_an_exit_code(
    differing: int,
    compared: int | None,
    whole: bool,
    line: str,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(differing, compared, whole=whole) == code
    assert capsys.readouterr().out == f"\n{line}\n"
