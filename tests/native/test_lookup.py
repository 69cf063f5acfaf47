"""The engine's search for copies against the reference in Python."""

from __future__ import annotations

import ctypes
import inspect

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cassandra_spec.drafting import Lookup, Settings
from cassandra_spec.native.engine_binding import MOST, RoundRequest, engine_library


def look_up(tokens: list[int], most: int, longest: int, shortest: int) -> list[int]:
    """By the engine."""
    history, found = np.array(tokens, np.int32), np.zeros(MOST, np.int32)
    request = RoundRequest(copied=most, shortest=shortest, longest=longest)
    count = engine_library().cassandra_engine_look_up(
        history.ctypes.data, len(tokens) - 1, ctypes.byref(request), found.ctypes.data
    )
    return [int(token) for token in found[:count]]


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.integers(1, MOST),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_the_engine_finds_what_the_reference_finds(
    tokens: list[int], most: int, one: int, other: int
) -> None:
    shortest, longest = sorted((one, other))
    expected = Lookup(tokens, longest=longest, shortest=shortest).find(most)
    assert look_up(tokens, most, longest, shortest) == expected


def test_lengths_of_matches_are_by_default_those_of_the_settings() -> None:
    named = inspect.signature(Lookup).parameters
    assert (named["longest"].default, named["shortest"].default) == (4, 2)
    assert (Settings().longest, Settings().shortest) == (4, 2)
