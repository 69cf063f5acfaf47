"""Prompt lookup against a search that looks at every place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.drafting import CopyDrafter, Lookup, Settings
from cassandra_spec.golden import CassandraError


def naive(tokens: list[int], most: int, longest: int, shortest: int) -> list[int]:
    for length in range(longest, shortest - 1, -1):
        last = tokens[-length:]
        for start in range(len(tokens) - 1, length - 1, -1):
            if len(last) == length and tokens[start - length : start] == last:
                copied = list(tokens)
                for step in range(most):
                    copied.append(copied[start + step])
                return copied[len(tokens) :]
    return []


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(st.integers(0, 2), max_size=30),
    st.integers(0, 9),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_what_is_found_is_what_a_search_finds(
    tokens: list[int], most: int, one: int, other: int
) -> None:
    shortest, longest = sorted((one, other))
    lookup = Lookup(longest=longest, shortest=shortest)
    for place, token in enumerate(tokens):
        lookup.extend([token])
        seen = tokens[: place + 1]
        assert lookup.find(most) == naive(seen, most, longest, shortest)


def test_a_loop_is_continued() -> None:
    assert Lookup([1, 2, 3, 1, 2, 3], longest=3, shortest=3).find(7) == [1, 2, 3, 1, 2, 3, 1]


def test_the_longest_run_counts_and_then_the_latest() -> None:
    tokens = [5, 1, 2, 7, 9, 1, 2, 8, 5, 1, 2]
    assert Lookup(tokens, longest=3, shortest=2).find(1) == [7]
    assert Lookup(tokens, longest=2, shortest=2).find(1) == [8]
    assert Lookup(tokens, longest=4, shortest=4).find(1) == []


@pytest.mark.parametrize("shortest", [0, 5])
def test_lengths_are_checked(shortest: int) -> None:
    with pytest.raises(CassandraError, match=f"shortest must be from 1 to 4.*not {shortest}"):
        Lookup(shortest=shortest)


def test_a_copy_drafter_stops_at_a_stop_token() -> None:
    drafter = CopyDrafter(Settings(stop_tokens=frozenset({9})))
    context = [1, 2, 3, 9, 4, 1, 2]
    found = drafter.propose(context, 4)
    assert (found.tokens, found.source, found.passes) == ([3, 9], "lookup", 0)
    assert [node.confidence for node in found.nodes] == [2, 2]
    assert drafter.propose([*context, 7], 4).nodes == ()
    assert drafter.propose([*context, 7], 0).nodes == ()
    assert drafter.propose([*context, 7, 4, 1], 1).tokens == [2]  # what was not seen is caught up
